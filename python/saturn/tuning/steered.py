"""Steered sweeps: the sweeps of a pool about whose tasks a stopper or a study decides.

A run that begins with its tasks has one tuner, in the process that drives the run. In a pool each
steered sweep has a tuner of its own, in a process of its own (`tuning.steer`) that
`tuning.supervise` starts. So a tuner imports what its own sweep's program imports, and a tuner that
crashes takes nothing along. It talks to the pool like any other program.

In a pool that several people share, each person's tuners run as that person: the person's agent
starts their processes, and their files are in this person's directory of the pool (`runs.joined`).

The directory has a directory `steered/NAME` for each such sweep:

- `tuner.pkl`: the tuner (`tuning.keeping`);
- `submitted_from.json`: the surroundings of the program that submitted the sweep;
- `about.json`: which tasks belong to it; written last, so a sweep without it was never submitted;
- `output.log`: what its process prints;
- `lock`: held by its process;
- `cancel`: somebody has cancelled the sweep;
- `given_up`: the tuner has raised, so it decides nothing any more;
- `over`: nothing is left to decide.

In another person's pool, `steered/.pool` has the name of the pool to which the sweeps belong. That
person may begin another pool at the same door; sweeps of earlier pools are in `steered-NAME`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput, Refused
from saturn.plain import durable
from saturn.plain.names import SAFE_RULE, is_path_safe
from saturn.runs import joined, run_directory
from saturn.runs.live import Run
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.tuning import keeping
from saturn.tuning.scope import Scope
from saturn.tuning.tuner import Tuner

if TYPE_CHECKING:
    from saturn.tasks.task import Task

#: The program `saturn` looks for these names too (`run_files/tuners.rs`).
DIRECTORY, ABOUT, OVER, CANCEL = "steered", "about.json", "over", "cancel"
_GIVEN_UP = "given_up"
_VERSION = 1
#: In the directory of the sweeps in another person's pool: the name of that pool.
_POOL = ".pool"  # no sweep's name begins with a dot
#: The run's own codes: for names that are taken, and for what another version does not understand.
_TAKEN = "name_taken"
_NOT_UNDERSTOOD = ("malformed", "other_version")


def search_of(task: str) -> str | None:
    """The name of the search that would name a task so; None if no search would.

    A search's tasks are `NAME-trial-0` and so on, and `NAME-trial-0-rest` is the rest of a script.
    """
    found = re.fullmatch(r"(.+)-trial-\d+(-rest)?", task)
    return None if found is None else found[1]


@dataclass(frozen=True)
class About:
    """Which tasks of a pool belong to a steered sweep."""

    #: Their names; None for a search, whose tasks are called `NAME-trial-0` and so on.
    tasks: Sequence[str] | None
    #: The pool's clock at submission, from which the tuner counts time.
    began_s: float
    #: For a search, the priority of the tasks that it will suggest.
    priority: int | None = None


class SteeredSweep(Scope):
    """The tasks of one sweep of a pool.

    `close` says only that this sweep adds no more tasks, and `stop` stops nothing.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        """Open the sweep of that name; raises `OSError` or `ValueError` if it can't be read."""
        super().__init__(Run(run_dir))
        self.name = name
        self.of_sweep = f" of the sweep `{name}`"
        content = json.loads((self.directory / ABOUT).read_bytes())
        if content.pop("version") != _VERSION:
            raise ValueError(f"{self.directory} was written by another version of Saturn")
        self.about = About(**content)
        self._tasks = frozenset(self.about.tasks or ())
        self._is_closed = self._pool_is_closed = False

    @property
    def directory(self) -> Path:
        """The directory of the sweep, in which its tuner is kept."""
        return self.run.run_dir / DIRECTORY / self.name

    @property
    def is_driven(self) -> bool:
        """Whether a process drives the pool, and this person has not left it."""
        return joined.is_driven(self.run.run_dir)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the sweep."""
        return (self.directory / CANCEL).exists()

    @property
    def has_given_up(self) -> bool:
        """Whether the tuner has raised, in this process or an earlier one."""
        return (self.directory / _GIVEN_UP).exists()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to decide about its tasks."""
        return (self.directory / OVER).exists()

    @property
    def is_withdrawn(self) -> bool:
        """Whether the pool has refused the sweep's tasks."""
        return not (self.directory / ABOUT).exists()

    @property
    def takes_suggestions(self) -> bool:
        """False once the pool is closed: its user wants no more tasks."""
        return not self._pool_is_closed

    def has(self, name: str) -> bool:
        """Whether the task of this name belongs to the sweep."""
        if self.about.tasks is not None:
            return name in self._tasks
        return search_of(name) == self.name

    def is_own(self, task: Mapping[str, Any]) -> bool:
        """Whether a task of a status is this person's, and belongs to the sweep.

        Another person's task may have a name that this sweep's search would give.
        """
        if not self.has(task["name"]):
            return False
        if not run_directory.is_joined(self.run.run_dir):
            return task.get("owner") is None
        # Another person's pool tells the directories of this person's tasks alone. They are in
        # `tasks`; what else it might name, such as another run of this person, is not read.
        folder, _, name = task["dir"].partition("/")
        return folder == "tasks" and name not in ("", "..", ".") and "/" not in name

    def is_complete(self, status: Mapping[str, Any]) -> bool:
        """Whether no more tasks of the sweep will come."""
        self._pool_is_closed = bool(status["is_closed"])
        return self.about.tasks is not None or self._is_closed

    def clock_s(self, status: Mapping[str, Any]) -> float:
        """The time since the sweep was submitted."""
        return float(status["now_s"]) - self.about.began_s

    def submit(self, task: Task) -> None:
        """Add a task to the pool, with the priority of the sweep."""
        self.run.submit(task, priority=self.about.priority)

    def close(self) -> None:
        """Say that this sweep adds no more tasks."""
        self._is_closed = True

    def stop(self) -> None:
        """Leave the pool and the sweep's tasks as they are."""

    def note(self, text: str) -> None:
        """Tell it on the pool's console; if that is another person's, in the sweep's own output."""
        if run_directory.is_joined(self.run.run_dir):
            print(text, file=sys.stderr, flush=True)
        else:
            super().note(text)

    def cancel(self) -> None:
        """Have the sweep's process cancel its tasks, and suggest no more."""
        (self.directory / CANCEL).touch()

    def mark_given_up(self) -> None:
        """Note that the tuner has raised, so that it is not asked again."""
        (self.directory / _GIVEN_UP).touch()
        durable.sync(self.directory)

    def mark_over(self) -> None:
        """Note that nothing is left to decide, so that no process is started for it again."""
        (self.directory / OVER).touch()
        durable.sync(self.directory)


def takes_steered(run_dir: Path) -> bool:
    """Whether the process that drives this run starts processes for steered sweeps."""
    return (run_dir / DIRECTORY).is_dir()


def fit_to_pool(run_dir: Path) -> None:
    """Have the directory of the sweeps be that of another person's present pool.

    That person may have begun another pool at the same door: then the sweeps of the earlier pool
    are put aside.

    Raises `RunOver` if no process drives the pool, and `InvalidInput` if that process or this
    person's agent is of an older version.
    """
    try:
        pool = Run(run_dir)._ask({"query": "run"}).get("run")
    except Refused as error:
        if error.code not in _NOT_UNDERSTOOD:
            raise
        raise InvalidInput(
            "the process that drives the pool is of an older version of Saturn, which lets nobody "
            "else's stopper or search decide"
        ) from None
    if not isinstance(pool, str) or not is_path_safe(pool):
        raise InvalidInput(f"the pool says that it is called {pool!r}, which is no pool's name")
    directory = run_dir / DIRECTORY
    # The person's agent and a submission may do this at the same time.
    with (run_dir / f"{DIRECTORY}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            raise InvalidInput(
                "your agent in this pool is of an older version of Saturn, which starts no stopper "
                "and no search: saturn join --leave, then saturn join DOOR"
            )
        try:
            of_pool = (directory / _POOL).read_text()
        except FileNotFoundError:
            of_pool = None
        if of_pool == pool:
            return
        if of_pool is not None:
            _put_aside(directory, of_pool, pool)
        fresh = directory / f"{_POOL}.new"
        fresh.write_text(pool)
        fresh.replace(directory / _POOL)
        durable.sync(directory)
        durable.sync(run_dir)


def _put_aside(directory: Path, of_pool: str, pool: str) -> None:
    """Put the sweeps of a pool aside, and take back those of the other pool if there are any."""
    directory.rename(directory.with_name(f"{DIRECTORY}-{of_pool}"))
    try:
        directory.with_name(f"{DIRECTORY}-{pool}").rename(directory)
    except FileNotFoundError:
        directory.mkdir(mode=0o700)


def named(run_dir: Path, name: str) -> SteeredSweep | None:
    """The sweep of that name, if there is one.

    A task of the same name goes first, except in another person's pool: there the task's directory
    may be of an earlier pool.
    """
    is_task = (run_dir / "tasks" / name).is_dir() and not run_directory.is_joined(run_dir)
    is_sweep = is_path_safe(name) and (run_dir / DIRECTORY / name / ABOUT).is_file()
    return SteeredSweep(run_dir, name) if is_sweep and not is_task else None


def check_names(run_dir: Path, tasks: Iterable[str]) -> None:
    """Raise `Refused` if a task's name is that of a sweep, or of a task that a search may draw."""
    for name in tasks:
        search = search_of(name)
        sweep = None if search is None else named(run_dir, search)
        if sweep is not None and sweep.about.tasks is None:
            raise Refused(f"the pool's search `{sweep.name}` has tasks called `{name}`", _TAKEN)
        if named(run_dir, name) is not None:
            raise Refused(f"the pool has a sweep `{name}` already", _TAKEN)


def withdraw(directory: Path) -> None:
    """Remove a sweep; its process may have been started, and may write files."""
    (directory / ABOUT).unlink(missing_ok=True)
    # No sweep's name begins with a dot.
    gone = directory.with_name(f".{directory.name}.{time.time_ns()}")
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def write(run_dir: Path, name: str, tuner: Tuner, about: About) -> None:
    """Write a sweep; from then on it has a process. Raises `Refused` if the name is taken."""
    if not is_path_safe(name):
        raise InvalidInput(f"a sweep would be called {name!r}; it must be {SAFE_RULE}")
    directory = run_dir / DIRECTORY / name
    try:
        directory.mkdir()
    except FileExistsError:
        raise Refused(f"the pool has a sweep `{name}` already", _TAKEN) from None
    try:
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
    except BaseException:
        withdraw(directory)  # the name is free again
        raise
