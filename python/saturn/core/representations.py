"""`from saturn.core.representations import Task, HParams, Strategy`."""

from saturn.hparams import HParams
from saturn.strategy import Strategy
from saturn.task import Task

__all__ = ["HParams", "Strategy", "Task"]
