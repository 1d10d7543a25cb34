"""The interface of loggers: a logger begins a tracked run for each task, or continues it.

A task is one tracked run, whatever its moves, and however often its run is resumed. The id that the
tracker gave is kept in the task's directory, and handed back to the logger.
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
    """A task, in the form for its tracker."""

    #: The run's name and directory.
    run: str
    run_dir: Path
    #: The task's name and directory; files that a tracker keeps on this disk may go there.
    name: str
    directory: Path
    #: The task's hyper-parameters: numbers, texts, booleans.
    config: Mapping[str, Any]
    #: The id that the tracker gave the task before; None the first time.
    tracked_id: str | None


@dataclass(frozen=True)
class Point:
    """The values of a step."""

    step: int
    #: By the names of `saturn.plain.series`: `train/loss`, `eval/accuracy`, …
    values: Mapping[str, float]
    at_s: float  # Unix time


class TrackedRun(ABC):
    """One task in a tracker. An error of a method is reported once, and tried again later."""

    #: The tracker's id, which is handed back if the task continues in another process.
    id: str

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Store points with increasing steps: each step comes once, even if trained again."""

    @abstractmethod
    def moved(self, step: int, strategy: str, gpus: int) -> None:
        """Note that training continues from `step` under another strategy or on other devices.

        `strategy` is a text such as `fsdp on 0, 1`. This is also called at the first launch.
        """

    @abstractmethod
    def ended(self, status: str) -> None:
        """End the run: the task is `done`, `diverged`, `failed`, `cancelled` or `stopped`.

        `diverged` means trained to the end, with a loss that is not finite. `stopped` means stopped
        by its stopper, or with the run, which may be resumed.
        """


class Logger(ABC):
    """Begins tracked runs. It is pickled with the run, so it must hold only settings."""

    #: Its name within a run, and in messages.
    name: str

    @abstractmethod
    def check(self) -> None:
        """Raise `InvalidInput` if it can't work here; called before anything is trained."""

    @abstractmethod
    def start(self, task: TrackedTask) -> TrackedRun:
        """Begin a tracked run, or continue the one whose id is `task.tracked_id`."""


def require(package: str, logger: str) -> None:
    """Raise `InvalidInput` if a tracker's package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InvalidInput(
            f"the logger `{logger}` needs the package {package}, which is not installed: pip "
            f"install {package}"
        )
