"""The most memory that a rank has needed: device memory on a GPU, resident set on a CPU slot.

On a CPU slot it is the growth since the rank began, so that the interpreter and its libraries,
which every process shares, don't count as the model's. Nor do pages of files: of libraries that
came into use, and of what a technique keeps outside of the device.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import torch


class PeakMemory:
    """Counts from the moment it is made; `restart` forgets the peak so far."""

    def __init__(self, device_kind: str) -> None:
        self._is_cuda = device_kind == "cuda"
        self._at_start = 0 if self._is_cuda else _status_bytes("VmRSS") - _file_bytes()

    def restart(self) -> None:
        """Forget the peak so far."""
        if self._is_cuda:
            for device in _cuda_devices():
                torch.cuda.reset_peak_memory_stats(device)
        else:
            # "5" resets the high-water mark. Where the kernel won't, the mark only ever grows,
            # and later measurements in the same process are upper bounds.
            with contextlib.suppress(OSError), Path("/proc/self/clear_refs").open("w") as file:
                file.write("5")

    def forget_building(self) -> None:
        """Forget what building the model needed, where that was in host memory.

        A GPU's peak has none of it, but what moving the model there took.
        """
        if not self._is_cuda:
            self.restart()

    def peak_bytes(self) -> int:
        """The peak since the rank began, or since `restart`."""
        if self._is_cuda:
            return max(
                (int(torch.cuda.max_memory_allocated(d)) for d in _cuda_devices()), default=0
            )
        return max(0, _status_bytes("VmHWM") - _file_bytes() - self._at_start)


def available_host_bytes() -> int:
    """What the host could still give to processes; 0 where it doesn't say."""
    try:
        with Path("/proc/meminfo").open() as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no /proc on this system
    return 0


def _cuda_devices() -> range:
    """The devices in use. None before CUDA is: asking must not be what initialises it."""
    is_initialized = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count() if is_initialized else 0)


def _file_bytes() -> int:
    return _status_bytes("RssFile", 0) + _status_bytes("RssShmem", 0)


def _status_bytes(field: str, otherwise: int | None = None) -> int:
    try:
        with Path("/proc/self/status").open() as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no /proc on this system: the portable figure below
    if otherwise is not None:
        return otherwise
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
