"""What a process takes on a GPU beside torch's memory: CUDA's context, NCCL's communicators.

torch counts what its own allocator takes. The rest shows only in the driver's figure for the whole
GPU, which NVML tells. So the figure is read once before the process uses the GPU, and what has come
since then, less torch's memory, is the process's. Memory that another program on the same GPU takes
meanwhile is counted too, since NVML rarely tells processes apart within containers.
"""

from __future__ import annotations

import ctypes
import os

import torch

#: NVML's library, by the name under which the driver installs it.
_LIBRARY = "libnvidia-ml.so.1"


class _Memory(ctypes.Structure):
    """NVML's `nvmlMemory_t`."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class OutsideTorch:
    """Counts on one GPU; made before this process uses the GPU."""

    def __init__(self, local_rank: int) -> None:
        """`local_rank` is the GPU's place in `CUDA_VISIBLE_DEVICES`, or 0 if there is one entry."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        self._uuid = visible[local_rank if len(visible) > local_rank else 0].strip()
        self._before = used_bytes(self._uuid)

    def bytes_on(self, device: torch.device) -> int:
        """Bytes that have been taken since, beside torch's; 0 if NVML doesn't tell."""
        now = None if self._before is None else used_bytes(self._uuid)
        if self._before is None or now is None:
            return 0
        return max(0, now - self._before - int(torch.cuda.memory_reserved(device)))


def used_bytes(uuid: str) -> int | None:
    """Bytes in use on a GPU, by all processes; None if there is no such GPU, or no NVML.

    Neither initialises CUDA nor waits for the GPU.
    """
    try:
        nvml = ctypes.CDLL(_LIBRARY)
        if nvml.nvmlInit_v2() != 0:
            return None
        try:
            handle, memory = ctypes.c_void_p(), _Memory()
            found = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
            if found != 0 or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
                return None
            return int(memory.used)
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None  # no driver of NVIDIA's
