"""Buffers that a forward changes: a snapshot of them, what changed, and whether ranks agree.

A forward may write to a buffer in place, also through `.data`, which torch doesn't count as a
change. It may also replace the tensor. So values are compared, not versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from saturn.rank.exceptions import BuffersDifferError

#: How much the buffers of two ranks may differ, relative to the largest value.
_TOLERANCE = 1e-4


class Buffers:
    """A snapshot of a module's buffers."""

    def __init__(self, module: nn.Module) -> None:
        """Copy all buffers."""
        self._module = module
        self._kept = {
            path: (owner, name, buffer, buffer.detach().clone())
            for path, owner, name, buffer in self._all()
        }

    def restore(self) -> None:
        """Put the values back, with the same tensors in the same places."""
        with torch.no_grad():
            for path, owner, name, _ in list(self._all()):
                if path not in self._kept:  # a forward has added this buffer
                    del owner._buffers[name]
            for owner, name, buffer, copy in self._kept.values():
                owner._buffers[name] = buffer
                buffer.copy_(copy)

    def put(self, values: Mapping[str, Tensor]) -> None:
        """Set the buffers of these names to other values."""
        for path, owner, name, _ in list(self._all()):
            if path in values:
                owner._buffers[name] = values[path].clone()

    def held(self, path: str) -> Tensor | None:
        """The value of a buffer in the snapshot; None if there was no such buffer."""
        return self._kept[path][-1] if path in self._kept else None

    def is_saved(self, path: str) -> bool:
        """Whether a checkpoint holds the buffer of this name."""
        owner, _, name = path.rpartition(".")
        return name not in self._module.get_submodule(owner)._non_persistent_buffers_set

    def changed(self) -> dict[str, Tensor]:
        """Buffers whose present value differs from the snapshot, by name."""
        found = {}
        for path, _, _, buffer in self._all():
            if path not in self._kept or not _same(buffer, self._kept[path][-1]):
                found[path] = buffer
        return found

    def _all(self) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
        """(path, owner, name within the owner, tensor) of each buffer."""
        for prefix, owner in self._module.named_modules():
            for name, buffer in owner._buffers.items():
                if buffer is not None:
                    yield f"{prefix}.{name}" if prefix else name, owner, name, buffer


def make_equal(module: nn.Module) -> None:
    """Give every rank the buffers of rank 0; every rank calls this.

    Raises `BuffersDifferError`, on every rank, if a saved buffer differs on some rank. Such a
    buffer follows the rank's own slices, so training is not that of whole batches. Batch norms are
    excepted: the user was told of those that follow a rank's own slices (see `GlobalBatchNorm`).
    """
    names: list[str] = []
    differ: list[Tensor] = []
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is None or isinstance(buffer, DTensor):
                continue
            own = buffer.detach().clone()
            dist.broadcast(buffer, 0)
            if isinstance(owner, _BatchNorm) or name in owner._non_persistent_buffers_set:
                continue
            names.append(f"{prefix}.{name}" if prefix else name)
            differ.append(_differs(own, buffer))
    if not differ:
        return
    table = torch.stack(differ).int()
    dist.all_reduce(table, dist.ReduceOp.MAX)
    apart = [name for name, is_apart in zip(names, table.tolist(), strict=True) if is_apart]
    if apart:
        raise BuffersDifferError(
            f"its batches can't be cut: the buffer `{apart[0]}` has come to differ between the "
            "devices, since each changes it by its own part of the batch. It takes one device, or "
            "a technique that keeps batches whole, such as `tensor`"
        )


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other):
        return True
    return one.is_floating_point() and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _differs(one: Tensor, other: Tensor) -> Tensor:
    """Whether two tensors of one shape differ by more than rounding; a tensor, not read yet."""
    if not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return (one != other).any()
    one, other = one.nan_to_num(), other.nan_to_num()
    return (one - other).abs().max() > _TOLERANCE * other.abs().max()
