"""The peak memory of a rank: device memory on a GPU, resident set on a CPU slot.

On a CPU slot it is the growth since the rank began, so that the interpreter and its libraries,
which all processes share, don't count as the model's. Pages of files don't count either: neither
those of libraries loaded later, nor those of tensors that a technique keeps outside the device.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import torch

from saturn.rank.process import accelerator_is_in_use


class PeakMemory:
    """Counts from its making; `restart` forgets the peak so far."""

    def __init__(self, device_kind: str) -> None:
        self._is_slot = device_kind == "cpu"
        self._at_start = _status_bytes("VmRSS") - _file_bytes() if self._is_slot else 0

    def restart(self) -> None:
        """Forget the peak so far."""
        if not self._is_slot:
            for device in _devices_in_use():
                torch.accelerator.reset_peak_memory_stats(device)
        else:
            # "5" resets the high-water mark. If the kernel refuses, the mark only grows, and later
            # measurements in the same process are upper bounds.
            with contextlib.suppress(OSError), Path("/proc/self/clear_refs").open("w") as file:
                file.write("5")

    def forget_building(self) -> None:
        """Forget the memory of building the model, if that was host memory.

        A GPU's peak doesn't include building, only moving the model to the GPU.
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
    """On a GPU the most that torch has held since the last call; on a CPU slot what is held now.

    Pages of files don't count. The call doesn't wait for a device.
    """
    if device_kind != "cpu":
        peak = PeakMemory(device_kind)
        held = peak.peak_bytes()
        peak.restart()
        return held
    return max(0, _status_bytes("VmRSS") - _file_bytes())


def available_host_bytes() -> int:
    """How much memory the host could still give to processes; 0 if it doesn't say."""
    try:
        with Path("/proc/meminfo").open() as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no /proc on this system
    return 0


def _devices_in_use() -> range:
    """The devices in use; none before the first use, since asking must not initialise them."""
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
