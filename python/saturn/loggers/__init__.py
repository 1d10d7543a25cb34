"""Loggers send metrics to a tracker: Weights & Biases, MLflow, Trackio, or your own.

`orchestrate(tasks, loggers=["wandb", MLflow(experiment="sweep")])`: a name means the logger of that
name, made without arguments. Other packages may provide names as entry points of the group
`saturn.loggers`. A tracker's package is needed only if its logger is requested.

A logger works in a process of its own beside the run (`saturn.worker.track`), which reads what the
workers have written. So no step of training waits for a logger, or fails because of it.
"""

from saturn.loggers.interface import Logger, Point, TrackedRun, TrackedTask
from saturn.loggers.mlflow import MLflow
from saturn.loggers.trackio import Trackio
from saturn.loggers.wandb import WandB

__all__ = ["Logger", "MLflow", "Point", "TrackedRun", "TrackedTask", "Trackio", "WandB"]
