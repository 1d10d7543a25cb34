"""A place in the pool for a person: devices for some time, to work on by hand (`saturn shell`).

The place is a task of the pool that trains nothing (`saturn.scripts.hold`). So it waits in the plan
like any task, all other tasks are planned around it, and the plan knows when it ends. It is never
moved. It ends before its time when this process does.

Nothing but the plan keeps a person to the place's devices: the command is started on the place's
cores and is told of the place's GPUs, and may take others.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import InvalidInput, Refused, RunFailed
from saturn.plain.home import home
from saturn.rank.orphans import adopt_orphans, children, die_with_parent
from saturn.runs.live import Run
from saturn.runs.waiting import DRIVEN_AGAIN, NOT_DRIVEN, is_driven_now, status_of
from saturn.scripts import hold
from saturn.scripts.task import ScriptTask

#: What the task is called; with a number behind it if the pool has such a task.
_NAME = "shell"
#: How much a place is hurried, unless the person says otherwise: somebody waits at a terminal.
PRIORITY = 4
#: The longest time for which a place is held, seconds.
MOST_S = 30 * 86_400.0
#: Seconds for which the place is held after its end, while what ran there ends.
_TO_END_S = 15
#: Seconds after which what was asked to end is killed.
_KILL_AFTER_S = 10.0
#: Seconds between two looks at the pool, the place or the command.
_POLL_S = 0.5
#: Seconds between two lines that say how the waiting gets on.
_LINE_EVERY_S = 30.0
#: The person is told when so many seconds are left.
_TELL_AT_S = (300.0, 60.0)


@dataclass(frozen=True)
class Place:
    """What a person holds."""

    task: str
    cores: list[int]
    #: As in `CUDA_VISIBLE_DEVICES`: empty on CPU slots, None if all GPUs may be used.
    gpus: str | None
    #: When it ends, seconds of this machine's monotonic clock.
    ends_s: float

    @property
    def words(self) -> str:
        """The devices, for people."""
        is_gpus = bool(self.gpus)
        names = (self.gpus or "").split(",") if is_gpus else [str(core) for core in self.cores]
        what = ("GPU" if is_gpus else "core") + ("" if len(names) == 1 else "s")
        return f"{len(names)} {what} ({', '.join(names)})"

    @property
    def left_s(self) -> float:
        """Seconds until its end."""
        return self.ends_s - time.monotonic()

    @property
    def until(self) -> datetime:
        """When it ends, by this machine's clock."""
        return datetime.now().astimezone() + timedelta(seconds=self.left_s)


@contextlib.contextmanager
def held(
    pool: Run, gpus: int, seconds: float, priority: int, tell: Callable[[str], None]
) -> Iterator[tuple[Place, Callable[[], bool]]]:
    """Wait for a place in the pool, and hold it until the block ends.

    Yields the place, and a function that says whether it is still held. `tell` gets lines for
    people. Raises `InvalidInput` if the pool has no such place, and `RunFailed` if it ends the task
    before the task has its turn.
    """
    directory = _directory()

    def is_held() -> bool:
        return hold.is_locked(directory / hold.HELD)

    try:
        with hold.lock(directory / hold.PERSON):
            name = _submit(pool, directory, gpus, seconds, priority)
            tell(f"the place waits in the plan as the task `{name}`; Ctrl-C gives it up")
            try:
                parts = _waited_for(pool, name, directory, gpus, tell)
                cores = sorted({core for part in parts for core in part.cores})
                ends_s = parts[0].began_s + seconds
                yield Place(name, cores, parts[0].gpus, ends_s), is_held
            finally:
                # A place that is held ends by itself, as a task that is done.
                if not is_held():
                    with contextlib.suppress(InvalidInput, RunFailed):
                        pool.cancel(name)
    finally:
        # The rank that holds the place removes the directory at its end.
        if not is_held():
            shutil.rmtree(directory, ignore_errors=True)


def run(
    place: Place,
    is_held: Callable[[], bool],
    command: Sequence[str],
    tell: Callable[[str], None],
) -> int:
    """Run a command on the place until it ends, or until the place does; returns the exit code.

    At the end of the place, everything that the command has started is ended too. The exit code is
    0 if the place's time is over, and 128 and the signal's number if a signal ended this process.

    Raises `RunFailed` if the place was lost before its time.
    """
    environment = dict(os.environ)
    if place.gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = place.gpus
    # What this process starts is pinned as well.
    os.sched_setaffinity(0, place.cores)
    adopt_orphans()
    to_tell = [left_s for left_s in _TELL_AT_S if left_s < place.left_s]
    with _signals_for_the_command() as asked:
        try:
            process = subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)
        except OSError as error:
            raise InvalidInput(f"failed to start `{command[0]}`: {error.strerror}") from None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=_POLL_S)
                return code if code >= 0 else 128 - code
            if to_tell and place.left_s <= to_tell[0]:
                tell(f"the place ends in {native.duration(to_tell.pop(0))}")
            is_over = place.left_s <= 0.0
            is_lost = not is_over and not is_held()
            if not (is_over or is_lost or asked):
                continue
            # The terminal may have gone.
            with contextlib.suppress(OSError):
                tell("the place's time is over" if is_over else "the place ends before its time")
            _end(process)
            if is_lost:
                raise RunFailed(
                    f"the pool ended the task `{place.task}` before its time: "
                    f"saturn explain pool {place.task}"
                )
            return 0 if is_over else 128 + asked[0]


def _directory() -> Path:
    """A new directory, which only this person can read."""
    places = home().absolute() / "shells"
    places.mkdir(parents=True, exist_ok=True)
    directory = places / secrets.token_hex(8)
    directory.mkdir(mode=0o700)
    return directory


def _submit(pool: Run, directory: Path, gpus: int, seconds: float, priority: int) -> str:
    """Add the task under a name that is free in the pool; returns the name."""
    steps = math.ceil(seconds) + _TO_END_S
    (directory / hold.STEPS).write_text(str(steps))
    taken = {task["name"] for task in pool.status()["tasks"]}
    numbered = (_NAME if number == 1 else f"{_NAME}-{number}" for number in count(1))
    for name in numbered:
        if name in taken:
            continue
        task = ScriptTask(
            Path(hold.__file__),
            # As a directory of output: places of other people and times are the same work.
            ("--output_dir", str(directory)),
            home().absolute(),
            name=name,
            gpu_range=gpus,
            steps=steps,
            resume=False,
            before=("-m", hold.__name__),
            trains=False,
            wishes={"priority": priority},
        )
        task.expected_step_s = 1.0
        try:
            pool.submit(task)
        except Refused as error:
            if error.code != "name_taken":
                raise
        else:
            return name
    raise AssertionError("the numbers never end")


def _waited_for(
    pool: Run, name: str, directory: Path, gpus: int, tell: Callable[[str], None]
) -> list[hold.Part]:
    """What each rank may use, once the place is held."""
    told_s, told = -math.inf, ""
    is_driven = True
    with _term_as_ctrl_c():
        while True:
            parts = hold.parts(directory, gpus)
            if parts is not None:
                return parts
            status = status_of(pool)
            if is_driven_now(status) != is_driven:
                is_driven = not is_driven
                tell(DRIVEN_AGAIN if is_driven else NOT_DRIVEN)
            if status is not None and is_driven:
                task = status.task(name)
                if task["ended_s"] is not None:
                    reason = task["error"] or task["stage"]
                    raise RunFailed(f"the pool ended the task `{name}`: {reason}")
                kind = f"{task['stage']} {task['expected_start_s'] is None}"
                is_due = time.monotonic() - told_s >= _LINE_EVERY_S or kind != told
                if task["stage"] != "running" and is_due:
                    tell(_waiting(pool, name))
                    told_s, told = time.monotonic(), kind
            time.sleep(_POLL_S)


def _waiting(pool: Run, name: str) -> str:
    explained: Mapping[str, Any] = pool.explain(name)
    reason = explained["reasons"][0]["sentence"]
    start_s = explained["expected_start_s"]
    if start_s is None:
        return f"waiting: {reason}"
    left_s = max(0.0, start_s - explained["now_s"])
    return f"waiting, expected in about {native.duration(left_s)}: {reason}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a command and all that it has started to end, and kill what does not.

    The signal is that of a terminal that has gone.
    """
    until_s = time.monotonic() + _KILL_AFTER_S
    asked: set[int] = set()
    while left := _live_children(process):
        is_late = time.monotonic() > until_s
        for pid in left if is_late else left - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGHUP)
        asked |= left
        time.sleep(0.1)


def _live_children(process: subprocess.Popen[bytes]) -> set[int]:
    """The command, and the processes that have lost their parents; waits for those that ended."""
    found = children()
    if process.poll() is not None:
        found.discard(process.pid)
    for pid in found - {process.pid}:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                found = found - {pid}
    return found


@contextlib.contextmanager
def _signals_for_the_command() -> Iterator[list[int]]:
    """Leave Ctrl-C to the command; yields the signals that ask this process to end."""
    asked: list[int] = []
    # Functions, since a command would inherit `SIG_IGN`.
    handlers: dict[signal.Signals, Callable[..., Any]] = {
        signal.SIGINT: lambda *_: None,
        signal.SIGTERM: lambda number, _: asked.append(number),
        signal.SIGHUP: lambda number, _: asked.append(number),
    }
    with _handled(handlers):
        yield asked


def _term_as_ctrl_c() -> contextlib.AbstractContextManager[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    return _handled({signal.SIGTERM: interrupt, signal.SIGHUP: interrupt})


@contextlib.contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[..., Any]]) -> Iterator[None]:
    """Handle signals in the block, except those that are ignored, as under `nohup`."""
    ignored = (signal.SIG_IGN, None)
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) not in ignored
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
