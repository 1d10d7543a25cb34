"""Build a task's model once: the first rank that needs it builds, all others map its saved copy.

Rank 0 builds for its gang. A lock lets only one gang of a task build at a time, and ends with the
process that holds it. If the model can't be saved, each rank builds its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.training import saved_build
from saturn.training.saved_build import Built
from saturn.training.stepper import build_model
from saturn.worker.report import Reporter

_SAVED, _UNSAVED = "saved", "unsaved"


class Builds:
    """One rank's builds of its task's model; each call of `fresh` gives a new one."""

    def __init__(
        self, task_dir: Path, definition: TaskDefinition, gang: Gang, reporter: Reporter
    ) -> None:
        self._task_dir = task_dir
        self._definition = definition
        self._gang = gang
        self._reporter = reporter
        #: Whether a saved build can be read; None until this rank has asked.
        self._is_saved: bool | None = None

    def fresh(self) -> Built:
        """The model as `get_model` makes it; every rank must call it."""
        if self._is_saved is None:
            return self._first()
        return self._later()

    @property
    def repeats(self) -> bool:
        """Whether every build is like the first, with the task's functions as they were then."""
        return bool(self._is_saved)

    def remove(self) -> None:
        """Remove the saved build: the task has been trained."""
        saved_build.remove(self._task_dir)

    def _first(self) -> Built:
        if self._gang.rank > 0:
            self._is_saved = self._gang.told_by_first("build", "") == _SAVED
            return self._later()
        with self._alone(), self._reporter.alive_while_computing():
            found = saved_build.read(self._task_dir, self._definition.seed)
            if found is None:
                found = saved_build.build(self._task_dir, self._definition)
        self._is_saved = found.unsaved is None
        # Told before rank 0 may build again, so that all ranks build at the same time.
        self._gang.told_by_first("build", _SAVED if self._is_saved else _UNSAVED)
        if found.unsaved is not None:
            print(f"each rank builds the model by itself: {found.unsaved}", flush=True)
        return found if isinstance(found, Built) else self._later()

    def _later(self) -> Built:
        with self._reporter.alive_while_computing():
            if self._is_saved:
                found = saved_build.read(self._task_dir, self._definition.seed)
                if isinstance(found, Built):
                    return found
            return Built(self._definition, build_model(self._definition))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock: within this context no other gang builds this task's model."""
        directory = self._task_dir / "build"
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The gang that holds the lock sends its own heartbeats, or the runtime ends it.
            with self._reporter.alive_throughout():
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Closing is not enough: processes that the task's functions forked may hold it open.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
