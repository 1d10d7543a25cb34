"""The slow tier: memory beside the device's, for tensors that `offload` can't keep on the device.

On a GPU the slow tier is the host's memory, pinned, so that copies run beside the computation. On a
CPU slot it is a mapped file in the attempt's directory. The kernel may write back and drop a file's
pages. So the limit of the process's data (`RLIMIT_DATA`) doesn't count them, and a control group
can reclaim them. The file's name is removed as soon as the file is mapped, so nothing is left
behind if the process dies.

Tensors of the slow tier are ordinary CPU tensors; freeing a tensor frees its file.
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

#: Parameter of glibc's `mallopt`: freed blocks of at least the threshold leave the process.
_M_MMAP_THRESHOLD = -3
#: Smaller tensors stay in ordinary memory, because many small mappings gain nothing.
_SMALLEST_FILE_BYTES = 64 * 1024


class SlowTier:
    """Makes tensors in the slow tier for a rank that computes on `device`."""

    def __init__(self, device: torch.device, directory: Path) -> None:
        self._pinned = device.type == "cuda"
        self._directory = directory

    def empty_like(self, tensor: Tensor) -> Tensor:
        """An uninitialised tensor of the same shape and type, and strides if `tensor` is dense."""
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
        """A copy of `tensor` in the slow tier."""
        return self.empty_like(tensor).copy_(tensor.detach())

    def optimizer_memory(self) -> AbstractContextManager[Any]:
        """The context in which an optimizer's state is allocated in the slow tier."""
        # On a GPU, the parameters are in host memory, so state made like them is too.
        return nullcontext() if self._pinned else _StateIn(self)

    def moved(self) -> None:
        """Return freed memory to the system, after a model has moved to the slow tier."""
        if self._pinned:
            return
        libc = ctypes.CDLL(None)
        # By default, glibc keeps freed blocks of up to 32 MiB for later.
        if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
            libc.mallopt(_M_MMAP_THRESHOLD, _SMALLEST_FILE_BYTES)
            libc.malloc_trim(0)

    def _mapped(self, tensor: Tensor) -> Tensor:
        file, name = tempfile.mkstemp(prefix="slow-", dir=self._directory)
        try:
            # Disk blocks are reserved now: if the disk filled up later, the process would just die.
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


#: The functions by which optimizers make their state.
_MAKERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(torch.zeros_like, torch.ones_like, torch.full_like, torch.empty_like),
        *(torch.zeros, torch.ones, torch.full, torch.empty, torch.clone),
        *(Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_empty, Tensor.clone),
    }
)


class _StateIn(TorchFunctionMode):
    """Puts the results of `_MAKERS` into the slow tier, one tensor at a time.

    Temporaries from these functions go there too, which only costs time. Temporaries from
    arithmetic stay in ordinary memory. On a CPU, torch's optimizers step one parameter at a time,
    so temporaries are as large as the largest parameter, except with `foreach=True`.
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
    """Whether the elements are contiguous in memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
