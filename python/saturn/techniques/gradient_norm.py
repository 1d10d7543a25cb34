"""The 2-norm of gradients that are whole, split, or a mixture.

`torch.nn.utils.get_total_norm` refuses lists that mix plain tensors with `DTensor`s, or `DTensor`s
of different meshes. Here each gradient's squares are summed over exactly the mesh dimensions that
split it, so an element that several ranks hold counts once.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import get_total_norm


def total_norm(gradients: Iterable[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, each element counted once; 0 if there are none.

    Every rank must call this with the gradients of the same parameters, in the same order. All
    ranks get the same value. For whole gradients it is torch's own value, to the last bit.
    """
    groups: dict[tuple[tuple[DeviceMesh, int], ...], list[Tensor]] = {}
    for gradient in gradients:
        local, split_by = _local_part(gradient)
        groups.setdefault(split_by, []).append(local)
    norms = []
    for split_by, parts in groups.items():
        norm = get_total_norm(parts)
        if split_by:
            squares = norm.to(torch.promote_types(norm.dtype, torch.float32)).square()
            for mesh, dimension in split_by:
                dist.all_reduce(squares, group=mesh.get_group(dimension))
            norm = squares.sqrt()
        norms.append(norm)
    return norms[0] if len(norms) == 1 else get_total_norm(norms)


def _local_part(gradient: Tensor) -> tuple[Tensor, tuple[tuple[DeviceMesh, int], ...]]:
    """(this rank's part of a gradient, the mesh dimensions that split it)."""
    if not isinstance(gradient, DTensor):
        return gradient, ()
    if any(placement.is_partial() for placement in gradient.placements):
        # Partial gradients must be summed before they are squared.
        gradient = gradient.redistribute(
            placements=[p if not p.is_partial() else Replicate() for p in gradient.placements]
        )
    mesh = gradient.device_mesh
    split_by = [
        (mesh, dimension)
        for dimension, placement in enumerate(gradient.placements)
        if not placement.is_replicate()
    ]
    return gradient.to_local(), tuple(split_by)
