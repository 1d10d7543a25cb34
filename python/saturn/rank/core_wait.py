"""How long this thread was ready to compute and had no core.

On a CPU slot this tells a step that took long from a step that was kept from computing: by
inspections, by other tasks' launches, by other people's programs, or by the host of a virtual
machine. Linux counts both:

* For each thread, the time on a run queue (`/proc/[pid]/schedstat`, the second number, in
  nanoseconds; Documentation/scheduler/sched-stats.rst of the kernel).
* For each core, the time that a hypervisor gave to others although the core had work ("steal" in
  `/proc/stat`, in clock ticks; proc_stat(5)). The thread's part is taken to be the mean over the
  cores that it may run on. A CPU slot's rank has one core.

The process's own other threads share its core, such as gloo's threads that send gradients. They are
part of how the technique computes, so their processor time is not counted as waiting.

Only the thread that opened the counter is counted. On CPU slots that is the thread that computes
forward, backward and optimizer; the threads that it shares large products with are not counted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from io import FileIO
from pathlib import Path

_QUEUED = Path("/proc/thread-self/schedstat")
_CORES = Path("/proc/stat")
#: Which number of a core's line in `/proc/stat` is its steal; the first is the core's name.
_STEAL = 8


class CoreWait:
    """The counter of the thread that makes it; always 0 where the system counts nothing."""

    def __init__(self, cores: Path = _CORES) -> None:
        """`cores` is a file like `/proc/stat`."""
        # Other systems than Linux, and kernels without schedstats, have no such counters.
        self._queued = _opened(_QUEUED)
        self._cores = _opened(cores)

    def waited_s(self) -> float:
        """Seconds for which the thread has waited for a core since it began.

        It falls where other threads of this process computed on other cores meanwhile.
        """
        queued_s = 0.0
        if self._queued is not None:
            self._queued.seek(0)
            queued_s = int(self._queued.read().split()[1]) / 1e9
            queued_s -= time.process_time() - time.thread_time()
        return queued_s + self._stolen_s()

    def close(self) -> None:
        """Close the counters' files."""
        for file in (self._queued, self._cores):
            if file is not None:
                file.close()

    def _stolen_s(self) -> float:
        """Seconds since the machine started that a hypervisor took from this thread's cores."""
        if self._cores is None:
            return 0.0
        self._cores.seek(0)
        cores = os.sched_getaffinity(0)
        stolen = _steal_ticks(self._cores.read().decode(), cores)
        return stolen / os.sysconf("SC_CLK_TCK") / len(cores)


def _opened(path: Path) -> FileIO | None:
    with contextlib.suppress(OSError):
        return path.open("rb", buffering=0)
    return None


def _steal_ticks(stat: str, cores: Collection[int]) -> int:
    """The steal of these cores together; 0 for a kernel that doesn't count it."""
    names = {f"cpu{core}" for core in cores}
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    return sum(int(line[_STEAL]) for line in lines if line[0] in names and len(line) > _STEAL)
