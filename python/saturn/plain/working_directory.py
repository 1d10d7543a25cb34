"""A working directory for one thread alone (only on Linux)."""

from __future__ import annotations

import ctypes

_CLONE_FS = 0x200


def of_this_thread_alone() -> bool:
    """From now on `os.chdir` in this thread changes no other thread's working directory.

    Returns False where the system does not allow that, as in some containers; then all threads
    share one directory as before. Threads that this thread starts share the directory with it.
    """
    try:
        return int(ctypes.CDLL(None).unshare(_CLONE_FS)) == 0
    except (OSError, AttributeError):
        return False
