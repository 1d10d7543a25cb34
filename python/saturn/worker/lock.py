"""The shared lock that says "a process of this run is alive".

Whoever may start or resume the run takes it exclusively first, and so waits for every process of
a former life to be gone.
"""

from __future__ import annotations

import fcntl
import os


def hold_workers_lock(path: str) -> int:
    """Take the shared lock for as long as this process and those forked from it live.

    Returns the file descriptor, which must stay open; waits while someone holds it exclusively.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
