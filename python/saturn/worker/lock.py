"""The shared lock by which a process says that workers of this run are alive.

A driver that starts or resumes the run first takes the lock exclusively. So it waits until every
process of an earlier driver is gone.
"""

from __future__ import annotations

import fcntl
import os


def hold_workers_lock(path: str) -> int:
    """Take the shared lock for as long as this process and its forks live.

    Returns the file descriptor, which must stay open. Waits while another process holds the lock
    exclusively.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
