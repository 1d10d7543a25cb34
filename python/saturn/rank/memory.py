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

from saturn.rank.process import accelerator_is_in_use


class PeakMemory:
    """Counts from the moment it is made; `restart` forgets the peak so far."""

    def __init__(self, device_kind: str) -> None:
        self._is_slot = device_kind == "cpu"
        self._at_start = _status_bytes("VmRSS") - _file_bytes() if self._is_slot else 0

    def restart(self) -> None:
        """Forget the peak so far."""
        if not self._is_slot:
            for device in _devices_in_use():
                torch.accelerator.reset_peak_memory_stats(device)
        else:
            # "5" resets the high-water mark. Where the kernel won't, the mark only ever grows,
            # and later measurements in the same process are upper bounds.
            with contextlib.suppress(OSError), Path("/proc/self/clear_refs").open("w") as file:
                file.write("5")

    def forget_building(self) -> None:
        """Forget what building the model needed, where that was in host memory.

        A GPU's peak has none of it, but what moving the model there took.
        """
        if self._is_slot:
            self.restart()

    def peak_bytes(self) -> int:
        """The peak since the rank began, or since `restart`."""
        if not self._is_slot:
            peaks = (torch.accelerator.max_memory_allocated(d) for d in _devices_in_use())
            return max(map(int, peaks), default=0)
        return max(0, _status_bytes("VmHWM") - _file_bytes() - self._at_start)


def held_bytes(device_kind: str) -> int:
    """On a GPU the most that torch has held so far; on a CPU slot what this process holds now.

    Pages of files don't count. No device is waited for.
    """
    if device_kind != "cpu":
        return max(
            (int(torch.accelerator.max_memory_allocated(d)) for d in _devices_in_use()), default=0
        )
    return max(0, _status_bytes("VmRSS") - _file_bytes())


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


def _devices_in_use() -> range:
    """The devices in use. None before the first is: asking must not be what initialises them."""
    return range(torch.accelerator.device_count() if accelerator_is_in_use() else 0)


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
