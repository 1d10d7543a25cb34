"""Steered sweeps: the sweeps of a pool about whose tasks a stopper or a study decides.

A run that begins with its tasks has one tuner, in the process that drives the run. In a pool each
steered sweep has a tuner of its own, in a process of its own (`tuning.steer`) that
`tuning.supervise` starts. So a tuner imports what its own sweep's program imports, and a tuner that
crashes takes nothing along. It talks to the pool like any other program.

The pool's directory has a directory `steered/NAME` for each such sweep:

- `tuner.pkl`: the tuner (`tuning.keeping`);
- `submitted_from.json`: the surroundings of the program that submitted the sweep;
- `about.json`: which tasks belong to it; written last, so a sweep without it was never submitted;
- `output.log`: what its process prints;
- `lock`: held by its process;
- `cancel`: somebody has cancelled the sweep;
- `over`: nothing is left to decide.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput
from saturn.plain import durable
from saturn.runs import request
from saturn.runs.live import Run
from saturn.stoppers.given import stoppers_of, with_metrics
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.tuning import keeping
from saturn.tuning.tuner import Stopping, Tuner

if TYPE_CHECKING:
    from saturn.runs.request import Wishes
    from saturn.tasks.task import Task

#: The program `saturn` looks for these names too, except `over` (`run_files/tuners.rs`).
DIRECTORY, ABOUT, OVER, CANCEL = "steered", "about.json", "over", "cancel"
_VERSION = 1


@dataclass(frozen=True)
class About:
    """Which tasks of a pool belong to a steered sweep."""

    #: Their names; None for a search, whose tasks are called `NAME-trial-0` and so on.
    tasks: Sequence[str] | None
    #: The pool's clock at submission, from which the tuner counts time.
    began_s: float
    #: For a search, the priority of the tasks that it will suggest.
    priority: int | None = None


class SteeredSweep(Run):
    """A pool as the tuner of one of its sweeps sees it: with the tasks of that sweep alone.

    `close` says only that this sweep adds no more tasks, and `stop` stops nothing.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        """Open the sweep of that name; raises `OSError` or `ValueError` if it can't be read."""
        super().__init__(run_dir)
        self.name = name
        content = json.loads((self.directory / ABOUT).read_bytes())
        if content.pop("version") != _VERSION:
            raise ValueError(f"{self.directory} was written by another version of Saturn")
        self.about = About(**content)
        self._tasks = frozenset(self.about.tasks or ())
        self._is_of_search = re.compile(rf"{re.escape(name)}-trial-\d+")
        self._is_closed = self._pool_is_closed = False

    @property
    def directory(self) -> Path:
        """The directory of the sweep."""
        return self._run_dir / DIRECTORY / self.name

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the sweep."""
        return (self.directory / CANCEL).exists()

    @property
    def is_withdrawn(self) -> bool:
        """Whether the pool has refused the sweep's tasks."""
        return not (self.directory / ABOUT).exists()

    def submit(self, tasks: Task | Iterable[Task], **wishes: Any) -> None:
        """Add tasks to the pool, with the priority of the sweep."""
        super().submit(tasks, **{"priority": self.about.priority, **wishes})

    def close(self) -> None:
        """Say that this sweep adds no more tasks."""
        self._is_closed = True

    def stop(self, *, at_once: bool = False) -> None:
        """Leave the pool and the sweep's tasks as they are."""

    def mark_over(self) -> None:
        """Note that nothing is left to decide, so that no process is started for it again."""
        (self.directory / OVER).touch()
        durable.sync(self.directory)

    @property
    def _tuner_dir(self) -> Path:
        return self.directory

    @property
    def _takes_suggestions(self) -> bool:
        return not self._pool_is_closed

    @property
    def _of_sweep(self) -> str:
        return f" of the sweep `{self.name}`"

    def _is_steered(self, name: str) -> bool:
        if self.about.tasks is not None:
            return name in self._tasks
        return self._is_of_search.fullmatch(name) is not None

    def _is_complete(self, status: Mapping[str, Any]) -> bool:
        # A pool that is closed may still take tasks, but its user wants no more of them.
        self._pool_is_closed = bool(status["is_closed"])
        return self.about.tasks is not None or self._is_closed

    def _clock_s(self, status: Mapping[str, Any]) -> float:
        return float(status["now_s"]) - self.about.began_s


def takes_steered(run_dir: Path) -> bool:
    """Whether the process that drives this run starts processes for steered sweeps."""
    return (run_dir / DIRECTORY).is_dir()


def submit(
    run: Run, name: str, tasks: Sequence[Task], stopper: Any, wishes: Wishes, *, is_due: bool
) -> dict[str, Any] | None:
    """Submit a sweep with a stopper, like `Run._submit`.

    The sweep is written first. If the tasks are refused it is removed, and if this process dies
    before it could submit them, the sweep's process finds no tasks and ends.
    """
    reports = [request.reports_of(task) for task in tasks]
    tuner = Stopping(with_metrics(stoppers_of(stopper), reports))
    _write(run, name, tuner, About([task.name for task in tasks], run.status()["now_s"]))
    try:
        run._goal = tuner.goal
        return run._submit(tasks, wishes, is_due=is_due)
    except InvalidInput:
        _withdraw(run.run_dir / DIRECTORY / name)
        raise


def submit_search(run: Run, name: str, tuner: Tuner, *, priority: int | None) -> None:
    """Submit a search. Its tuner has suggested its first task, which its process submits."""
    _write(run, name, tuner, About(None, run.status()["now_s"], priority))


def _withdraw(directory: Path) -> None:
    """Remove a sweep, whose process may have been started and may be writing files."""
    (directory / ABOUT).unlink()
    # No sweep's name begins with a dot.
    gone = directory.with_name(f".{directory.name}.{time.time_ns()}")
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _write(run: Run, name: str, tuner: Tuner, about: About) -> None:
    directory = run.run_dir / DIRECTORY / name
    try:
        directory.mkdir()
    except FileExistsError:
        raise InvalidInput(
            f"the pool has a sweep `{name}` already; --name NAME gives another"
        ) from None
    keeping.write(directory, tuner)
    (directory / SUBMITTED).write_bytes(Surroundings.here().dumps())
    fresh = directory / f"{ABOUT}.new"
    with fresh.open("w") as file:
        json.dump({"version": _VERSION, **asdict(about)}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / ABOUT)
    durable.sync(directory)
    durable.sync(directory.parent)
