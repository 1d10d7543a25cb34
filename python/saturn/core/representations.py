"""`from saturn.core.representations import Task, HParams, Strategy`."""

from saturn.strategy import Strategy
from saturn.task import HParams, Task

__all__ = ["HParams", "Strategy", "Task"]
