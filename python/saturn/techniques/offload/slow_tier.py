"""The memory beside the device's: where `offload` keeps what the device has no room for.

On a GPU that is the host's memory, pinned, so that copies run beside the computation. On a CPU
slot it is a mapped file in the attempt's directory: its pages are the kernel's to write back and
drop, so a limit of the process's data (`RLIMIT_DATA`) doesn't count them, and a control group can
reclaim them. A file's name is gone as soon as it is mapped: nothing is left behind, whatever
happens to the process.

Tensors of the slow tier are ordinary CPU tensors; freeing one frees its file.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

#: Of glibc's `mallopt`: blocks of this size and more leave the process when they are freed.
_M_MMAP_THRESHOLD = -3
#: Smaller tensors stay in ordinary memory: many mappings of a few pages each gain nothing.
_SMALLEST_FILE_BYTES = 64 * 1024


class SlowTier:
    """Makes tensors in slow memory for a rank that computes on `device`."""

    def __init__(self, device: torch.device, directory: Path) -> None:
        self._pinned = device.type == "cuda"
        self._directory = directory

    def empty_like(self, tensor: Tensor) -> Tensor:
        """An uninitialised tensor of the same shape, type and, where dense, strides."""
        if self._pinned:
            flat = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=True)
        elif tensor.nbytes < _SMALLEST_FILE_BYTES:
            return torch.empty_like(tensor, device="cpu")
        else:
            flat = self._mapped(tensor)
        if tensor.layout == torch.strided and _is_dense(tensor):
            return flat.as_strided(tensor.shape, tensor.stride())
        return flat.view(tensor.shape)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """The same values in slow memory."""
        return self.empty_like(tensor).copy_(tensor.detach())

    def optimizer_memory(self) -> AbstractContextManager[Any]:
        """Within it, what an optimizer allocates for its state comes from here."""
        # Beside a GPU, state made like a parameter of the host's memory is there already.
        return nullcontext() if self._pinned else _StateIn(self)

    def moved(self) -> None:
        """Called when a model has been moved here: what it took before leaves the process."""
        if self._pinned:
            return
        libc = ctypes.CDLL(None)
        # glibc keeps what is freed for later, up to 32 MiB a block, unless it is told not to.
        if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
            libc.mallopt(_M_MMAP_THRESHOLD, _SMALLEST_FILE_BYTES)
            libc.malloc_trim(0)

    def _mapped(self, tensor: Tensor) -> Tensor:
        file, name = tempfile.mkstemp(prefix="slow-", dir=self._directory)
        try:
            # Blocks are taken now: a disk that fills up later would kill the process wordlessly.
            os.posix_fallocate(file, 0, tensor.nbytes)
            return torch.from_file(name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
        except OSError as error:
            raise OSError(
                error.errno,
                f"no {tensor.nbytes} bytes for a tensor of the model: {error.strerror}",
                str(self._directory),
            ) from error
        finally:
            os.close(file)
            Path(name).unlink()


#: What optimizers make their state with.
_MAKERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(torch.zeros_like, torch.ones_like, torch.full_like, torch.empty_like),
        *(torch.zeros, torch.ones, torch.full, torch.empty, torch.clone),
        *(Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_empty, Tensor.clone),
    }
)


class _StateIn(TorchFunctionMode):
    """Puts what is made by `_MAKERS` into the slow tier, one tensor at a time.

    Temporaries made so land there too, which costs time and changes nothing; those that arithmetic
    makes stay in ordinary memory. torch's optimizers step one parameter at a time on a CPU, so
    these are as large as the largest parameter, but for `foreach=True`.
    """

    def __init__(self, tier: SlowTier) -> None:
        super().__init__()
        self._tier = tier

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if (
            func in _MAKERS
            and type(result) is Tensor
            and result.device.type == "cpu"
            and result.layout == torch.strided
            and not result.requires_grad
            and result.nbytes >= _SMALLEST_FILE_BYTES
        ):
            return self._tier.copy_of(result)
        return result


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie side by side in memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
