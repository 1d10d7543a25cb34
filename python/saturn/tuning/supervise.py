"""Keep a process for each steered sweep of a pool, as long as a process drives the pool.

The thread belongs to the process that drives the pool. It only starts processes, and starts them
again if they die: after a second at first, and then after twice as long each time. It never ends
them, since they end by themselves.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from saturn.runs.started import StartedRun
from saturn.tuning.steered import ABOUT, DIRECTORY, OVER

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
    threading.Thread(
        target=_keep, args=(run,), name=f"saturn steered {run.run_dir.name}", daemon=True
    ).start()
    return run


def _keep(run: StartedRun) -> None:
    known: dict[str, _Steering] = {}
    while not run.is_over:
        for name in _open_sweeps(run.run_dir):
            # The sweep may have been refused meanwhile, or the disk is full; the next look tells.
            with contextlib.suppress(OSError):
                _look_after(run.run_dir, name, known)
        time.sleep(_LOOK_S)


def _look_after(run_dir: Path, name: str, known: dict[str, _Steering]) -> None:
    one = known.get(name)
    if one is None:
        known[name] = _Steering(_start(run_dir, name))
    elif one.is_to_start():
        known[name] = _Steering(_start(run_dir, name), min(2 * one.wait_s, _AT_MOST_S))


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
