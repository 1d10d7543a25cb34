"""What a logger is: it begins a tracked run for each task, or goes on with the one that it began.

A task is one tracked run, whatever its moves and however often its run is resumed: the id that the
tracker gave is kept in the task's directory and handed back.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput


@dataclass(frozen=True)
class TrackedTask:
    """A task, as its tracker is told of it."""

    #: The run's name, and its directory.
    run: str
    run_dir: Path
    #: The task's name, and its directory: what a tracker keeps on this disk may go there.
    name: str
    directory: Path
    #: Its hyper-parameters: numbers, texts, booleans.
    config: Mapping[str, Any]
    #: What the tracker called it before; None the first time.
    tracked_id: str | None


@dataclass(frozen=True)
class Point:
    """What is known of a step."""

    step: int
    #: By the names of `saturn.plain.series`: `train/loss`, `eval/accuracy`, …
    values: Mapping[str, float]
    at_s: float  # Unix time


class TrackedRun(ABC):
    """One task in a tracker. What a method raises is told once, and tried again later."""

    #: What the tracker calls it: handed back where the task goes on in another process.
    id: str

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Keep points, whose steps go up: a step comes once, also where it was trained again."""

    @abstractmethod
    def moved(self, step: int, strategy: str, gpus: int) -> None:
        """Training goes on from `step` under another strategy, or elsewhere: `fsdp on 0, 1`.

        Called at the first launch, too.
        """

    @abstractmethod
    def ended(self, status: str) -> None:
        """Nothing more comes: the task is `done`, `diverged`, `failed`, `cancelled` or `stopped`.

        `diverged` is trained to the end, where the loss was no finite number. `stopped` is by its
        stopper, or with the run, which may be resumed.
        """


class Logger(ABC):
    """Begins tracked runs. It is pickled with the run, so it holds settings and nothing else."""

    #: Names it within a run, and in messages.
    name: str

    @abstractmethod
    def check(self) -> None:
        """Raise `InvalidInput` where it can't work here; called before anything is trained."""

    @abstractmethod
    def start(self, task: TrackedTask) -> TrackedRun:
        """Begin a tracked run, or go on with the one that is called `task.tracked_id`."""


def require(package: str, logger: str) -> None:
    """Raise `InvalidInput` where a tracker's package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InvalidInput(
            f"the logger `{logger}` needs the package {package}, which is not installed: pip "
            f"install {package}"
        )
