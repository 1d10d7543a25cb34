"""The published path `from saturn.core.representations import Task, HParams, Strategy`."""

from saturn.tasks.hparams import HParams
from saturn.tasks.strategy import Strategy
from saturn.tasks.task import Task

__all__ = ["HParams", "Strategy", "Task"]
