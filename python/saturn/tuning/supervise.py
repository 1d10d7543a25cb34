"""Keep a process for each steered sweep of a pool, as long as a process drives the pool.

The thread belongs to the process that drives the pool, for the sweeps of its own person. In another
person's pool it belongs to this person's agent. It only starts processes, and starts them again if
they die: after a second at first, and then after twice as long each time that they die early. It
never ends them, since they end by themselves.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from saturn.runs import joined
from saturn.runs.started import StartedRun
from saturn.tuning.steered import ABOUT, DIRECTORY, OVER, fit_to_pool

#: Seconds between two looks for sweeps.
_LOOK_S = 0.5
#: Seconds until a process that has died is started again: at first, and at most.
_AGAIN_S, _AT_MOST_S = 1.0, 60.0


@dataclass
class _Steering:
    """The process of one sweep."""

    process: subprocess.Popen[bytes]
    wait_s: float = _AGAIN_S
    again_at: float | None = None
    #: By `time.monotonic`.
    began_at: float = field(default_factory=time.monotonic)

    def next_wait_s(self) -> float:
        """The wait before the process after the next: twice as long if this one died early."""
        has_lived = time.monotonic() - self.began_at > _AT_MOST_S + self.wait_s
        return _AGAIN_S if has_lived else min(2 * self.wait_s, _AT_MOST_S)

    def is_to_start(self) -> bool:
        """Whether it has died, and it is time to start it again."""
        if self.process.poll() is None:
            return False
        if self.again_at is None:
            self.again_at = time.monotonic() + self.wait_s
        return time.monotonic() >= self.again_at


def supervise(run: StartedRun) -> StartedRun:
    """Begin to keep processes for the steered sweeps of this run; returns the run."""
    (run.run_dir / DIRECTORY).mkdir(exist_ok=True)
    _begin(run.run_dir, lambda: not run.is_over, lambda: run.is_over)
    return run


def supervise_joined(directory: Path) -> None:
    """Begin to keep processes for this person's steered sweeps in another person's pool.

    `directory` is this person's of that pool (`runs.joined`). The thread ends with this process.
    """
    _begin(directory, _Reached(directory).is_so, lambda: False)


class _Reached:
    """Whether a process drives another person's pool, and this person's sweeps are of that pool."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._was_so = False

    def is_so(self) -> bool:
        is_driven = joined.is_driven(self._directory)
        if is_driven and not self._was_so:
            fit_to_pool(self._directory)
        self._was_so = is_driven
        return is_driven


def _begin(directory: Path, is_driven: Callable[[], bool], is_over: Callable[[], bool]) -> None:
    name = f"saturn steered {directory.name}"
    threading.Thread(
        target=_keep, args=(directory, is_driven, is_over), name=name, daemon=True
    ).start()


def _keep(directory: Path, is_driven: Callable[[], bool], is_over: Callable[[], bool]) -> None:
    known: dict[str, _Steering] = {}
    told = ""  # the error that was printed last
    while not is_over():
        try:
            sweeps = _open_sweeps(directory) if is_driven() else []
        except Exception as error:
            # The pool can't be asked just now, or its directory is being put aside. The next look
            # tells; without this thread no sweep would ever get a process again.
            sweeps = []
            text = f"saturn: sweeps wait for a process: {type(error).__name__}: {error}"
            if text != told:
                print(text, file=sys.stderr, flush=True)
                told = text
        for name in sweeps:
            # The sweep may have been refused meanwhile, or the disk is full; the next look tells.
            with contextlib.suppress(OSError):
                _look_after(directory, name, known)
        time.sleep(_LOOK_S)


def _look_after(run_dir: Path, name: str, known: dict[str, _Steering]) -> None:
    one = known.get(name)
    if one is None:
        known[name] = _Steering(_start(run_dir, name))
    elif one.is_to_start():
        known[name] = _Steering(_start(run_dir, name), one.next_wait_s())


def _open_sweeps(run_dir: Path) -> list[str]:
    """The sweeps about which something is left to decide."""
    sweeps = (run_dir / DIRECTORY).iterdir()
    return sorted(
        one.name for one in sweeps if (one / ABOUT).exists() and not (one / OVER).exists()
    )


def _start(run_dir: Path, name: str) -> subprocess.Popen[bytes]:
    with (run_dir / DIRECTORY / name / "output.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "saturn.tuning.steer", str(run_dir), name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the pool alone
        )
