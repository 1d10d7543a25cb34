"""What strikes a rank of a pairs' case: each function is called in the rank before it trains.

A script is told of its strike by an environment variable, and calls it itself.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

#: The environment variable with a script's strike: pickled, in base64.
STRUCK = "PAIR_STRUCK"


def held_at(step: int, path: Path) -> None:
    """Have this rank wait after its optimizer's step until somebody says that it may go on."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted = 0

    def wait(*_: Any) -> None:
        nonlocal counted
        counted += 1
        if counted == step:
            wait_in(path)

    register_optimizer_step_post_hook(wait)


def dies_at(step: int, rank: int) -> None:
    """Have one rank be killed in its optimizer's step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted = 0

    def die(*_: Any) -> None:
        nonlocal counted
        counted += 1
        if counted == step and os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(die)


def wait_in(path: Path) -> None:
    """Say that this rank waits, until somebody says that it may go on."""
    (path / "held").touch()
    deadline = time.monotonic() + 100
    while not (path / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def reports_late(step: int, path: Path) -> None:
    """Have a script wait before it reports a step."""
    import saturn

    report = saturn.report

    def late(reported: int, *args: Any, **metrics: Any) -> bool:
        if reported == step:
            wait_in(path)
        return report(reported, *args, **metrics)

    saturn.report = late


def nowhere_to_save() -> None:
    """Have `torch.save` find no room."""
    import torch

    def save(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    torch.save = save
