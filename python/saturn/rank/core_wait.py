"""How long this thread was ready to compute and waited for a core.

On a CPU slot this tells a step that took long from a step that was kept from computing, by
inspections, by other tasks' launches or by other people's programs. Linux counts it for each thread
(`/proc/[pid]/schedstat`, the second number: nanoseconds on a run queue; Documentation/scheduler/
sched-stats.rst of the kernel).

The process's own other threads share its core, such as gloo's threads that send gradients. They are
part of how the technique computes, so their processor time is not counted as waiting.

Only the thread that opened the counter is counted. On CPU slots that is the thread that computes
forward, backward and optimizer; the threads that it shares large products with are not counted, nor
is time that a hypervisor took from the whole machine.
"""

from __future__ import annotations

import contextlib
import time
from io import FileIO
from pathlib import Path

_COUNTER = Path("/proc/thread-self/schedstat")


class CoreWait:
    """The counter of the thread that makes it; always 0 where the system has no such counter."""

    def __init__(self) -> None:
        self._file: FileIO | None = None
        # Other systems than Linux, and kernels without schedstats, have no such counter.
        with contextlib.suppress(OSError):
            self._file = _COUNTER.open("rb", buffering=0)

    def waited_s(self) -> float:
        """Seconds for which the thread has waited for other processes since it began.

        It falls where other threads of this process computed on other cores meanwhile.
        """
        if self._file is None:
            return 0.0
        self._file.seek(0)
        waited_s = int(self._file.read().split()[1]) / 1e9
        return waited_s - (time.process_time() - time.thread_time())

    def close(self) -> None:
        """Close the counter's file."""
        if self._file is not None:
            self._file.close()
