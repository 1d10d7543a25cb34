"""Loggers hand what training tells to a tracker: Weights & Biases, MLflow, Trackio, or your own.

`orchestrate(tasks, loggers=["wandb", MLflow(experiment="sweep")])`: a name means the logger of that
name as it is made without arguments; other packages may bring names of theirs as entry points of
the group `saturn.loggers`. None of the trackers' packages is needed unless it is asked for.

A logger works in a process of its own beside the run (`saturn.worker.track`), which reads what the
workers have written: no step of training waits for it, or fails by it.
"""

from saturn.loggers.interface import Logger, Point, TrackedRun, TrackedTask
from saturn.loggers.mlflow import MLflow
from saturn.loggers.trackio import Trackio
from saturn.loggers.wandb import WandB

__all__ = ["Logger", "MLflow", "Point", "TrackedRun", "TrackedTask", "Trackio", "WandB"]
