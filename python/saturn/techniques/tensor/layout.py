"""Spread one model over a tensor group: split modules by their styles, and copy the others.

Every parameter becomes a `DTensor` on the group's mesh, split or replicated, because optimizers and
norms take lists of one kind only. Whole modules still compute on plain tensors: while a unit (the
model, or one of its layers) runs, they hold local copies.

Between the modules of a plan, activations are plain tensors. All ranks of the group draw the same
random numbers. For activations that are split, dropout masks therefore repeat from rank to rank.
For whole activations, the same numbers keep the ranks equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from saturn.techniques.model.local_copies import LocalCopies, owners, replicated
from saturn.techniques.tensor.derived import OwnSizes
from saturn.techniques.tensor.plan import ModuleSplit


@dataclass(frozen=True)
class Styled:
    """A module that a style has been applied to."""

    name: str
    module: nn.Module
    hooks: frozenset[int]  # the ids of the hooks that the style put on the module


@dataclass(frozen=True)
class Layout:
    """How a module has been split over `size` ranks."""

    styled: Sequence[Styled]
    own_sizes: Sequence[OwnSizes]
    size: int


def split_over(
    module: nn.Module,
    splits: Sequence[ModuleSplit],
    own_sizes: Sequence[OwnSizes],
    mesh: DeviceMesh,
    device: torch.device,
    *,
    units: Sequence[nn.Module],
    are_gathered: bool = False,
) -> Layout:
    """Split `module`, which every rank built alike, over `mesh`, and move it to `device`.

    The device holds only one whole parameter at a time. `units` are the parts of `module` that may
    run by themselves: layers, which a backward may recompute after the model's forward. With
    `are_gathered`, FSDP2 has split the units too, so each gets its copies by itself.
    """
    holders_of_each = owners(module)
    styled = []
    for split in splits:
        if split.style is not None:
            before = _hooks(split.module)
            # Every rank has the same values, so each cuts out its own part.
            parallelize_module(split.module, mesh, split.style, src_data_rank=None)
            split.module.register_forward_hook(_own_output)
            styled.append(Styled(split.name, split.module, _hooks(split.module) - before))
    for holders in holders_of_each:
        first, name = holders[0]
        parameter = first._parameters[name]
        assert parameter is not None
        if not isinstance(parameter, DTensor):
            parameter = replicated(parameter, mesh, device)
        for holder, name in holders:
            holder._parameters[name] = parameter
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[name] = buffer.to(device)
    # These modules keep DTensors, which the hooks of their styles need.
    skipped = {each.module for each in styled}
    summed = {split.module for split in splits if split.summed}
    group = mesh.get_group()

    def sum_over_group(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=group)
        return gradient

    # FSDP2 takes a unit's gradients once the backward passes the unit's beginning. Copies made
    # outside the unit would get their gradients too late.
    inside = {part for unit in units for part in unit.modules()} if are_gathered else set()
    for unit in (module, *units):
        LocalCopies(
            # Parameters of another mesh are split over data ranks until their own unit runs.
            lambda parameter: parameter.device_mesh == mesh,
            skipped=skipped | inside if unit is module else skipped,
            change_gradient=lambda part: sum_over_group if part in summed else None,
        ).attach(unit)
    for sizes in own_sizes:
        sizes.divide(mesh.size())
    return Layout(styled, own_sizes, mesh.size())


class _Own(torch.autograd.Function):
    """A tensor with the same values that is not a view."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.data

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _own_output(_: nn.Module, __: Any, output: Any) -> Any:
    """Make a split module's output changeable in place, as Falcon needs it.

    The output is the local tensor of a `DTensor`, and torch forbids changing such a view.
    """
    if isinstance(output, Tensor) and not isinstance(output, DTensor) and output._is_view():
        return _Own.apply(output)
    return output


def _hooks(module: nn.Module) -> frozenset[int]:
    return frozenset((*module._forward_pre_hooks, *module._forward_hooks))
