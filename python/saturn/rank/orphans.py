"""What the kernel does with processes whose parent has gone (only on Linux).

A rank's own children can't outlive Saturn: the kernel kills them with their parent. A process that
lost its parent on purpose (a daemon, a launcher's workers) is adopted by the rank, or by the parent
of ranks.

The module imports only the standard library, so that the cold parent starts at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() == 1:
        os._exit(1)  # the parent died before the call


def adopt_orphans() -> None:
    """Become the parent of descendants that lose their parent."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """The processes whose parent is this one, zombies included."""
    me = str(os.getpid())
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            stat = (process / "stat").read_text(errors="replace")
        except OSError:
            continue  # the process has gone
        # The line is `pid (name) state parent …`; the name may contain anything.
        if stat.rpartition(") ")[2].split(" ", 2)[1] == me:
            found.add(int(process.name))
    return found


def _prctl(option: int, value: int) -> bool:
    try:
        return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False
