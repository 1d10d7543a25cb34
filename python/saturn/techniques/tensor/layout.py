"""Spread one model over a tensor group: split modules by their styles, whole ones in copies.

Every parameter becomes a `DTensor` on the group's mesh, split or replicated, because optimizers and
norms take lists of one kind only. Modules that stay whole still compute on plain tensors: while a
unit runs (the model, or one of its layers), they hold their local copies.

Between the modules of a plan, activations are plain tensors. Where a rank holds a part of them, its
peers draw the same random numbers for theirs, so masks of dropout repeat from rank to rank there;
where they are whole, the same numbers are what keeps the ranks alike.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import parallelize_module

from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.tensor.plan import ModuleSplit


@dataclass(frozen=True)
class Styled:
    """A module that a style has been applied to."""

    name: str
    module: nn.Module
    hooks: frozenset[int]  # the ids of the hooks that the style put on it


def split_over(
    module: nn.Module, splits: Sequence[ModuleSplit], mesh: DeviceMesh, device: torch.device
) -> list[Styled]:
    """Split `module`, which every rank built alike, over `mesh`, and move it to `device`.

    Only one parameter at a time is whole there. Returns the modules that have a style now.
    """
    owners = _owners(module)
    styled = []
    for split in splits:
        if split.style is not None:
            before = _hooks(split.module)
            # Every rank has the same values, so each cuts out its own.
            parallelize_module(split.module, mesh, split.style, src_data_rank=None)
            styled.append(Styled(split.name, split.module, _hooks(split.module) - before))
    for holders in owners:
        first, name = holders[0]
        parameter = first._parameters[name]
        assert parameter is not None
        if not isinstance(parameter, DTensor):
            parameter = _replicated(parameter, mesh, device)
        for holder, name in holders:
            holder._parameters[name] = parameter
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[name] = buffer.to(device)
    skipped = {each.module for each in styled}
    summed = {split.module for split in splits if split.summed}
    # Layers too: where one runs again in the backward, the model's own forward is over.
    for unit in (module, *repeated_layers(module)):
        _LocalCopies(mesh, skipped, summed).attach(unit)
    return styled


def _hooks(module: nn.Module) -> frozenset[int]:
    return frozenset((*module._forward_pre_hooks, *module._forward_hooks))


def _owners(module: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """For each parameter, the modules that hold it, with its name there."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((part, name))
    return list(owners.values())


def _replicated(parameter: nn.Parameter, mesh: DeviceMesh, device: torch.device) -> nn.Parameter:
    local = parameter.detach().to(device)
    whole = DTensor.from_local(local, mesh, [Replicate()], run_check=False)
    return nn.Parameter(whole, requires_grad=parameter.requires_grad)


class _LocalCopies:
    """Puts plain tensors in place of replicated parameters while a unit runs."""

    def __init__(
        self,
        mesh: DeviceMesh,
        skipped: Collection[nn.Module],
        summed: Collection[nn.Module],
    ) -> None:
        self._mesh = mesh
        self._skipped = skipped  # the hooks of their styles want DTensors
        self._summed = summed
        self._replaced: list[tuple[dict[str, Any], str, DTensor]] = []

    def attach(self, unit: nn.Module) -> None:
        """Around `unit`, and within its forward, which is what runs where it is recomputed."""
        unit.register_forward_pre_hook(self._put)
        unit.register_forward_hook(self._put_back, prepend=True, always_call=True)
        forward = unit.forward

        @functools.wraps(forward)
        def with_copies(*args: Any, **kwargs: Any) -> Any:
            if self._replaced:
                return forward(*args, **kwargs)
            self._put(unit)
            try:
                return forward(*args, **kwargs)
            finally:
                self._put_back()

        unit.forward = with_copies

    def _put(self, unit: nn.Module, *_: Any) -> None:
        for part in unit.modules():
            if part in self._skipped:
                continue
            parameters: dict[str, Any] = part._parameters
            for name, parameter in parameters.items():
                # Those of another mesh are split over data ranks until their own unit runs.
                if not isinstance(parameter, DTensor) or parameter.device_mesh != self._mesh:
                    continue
                local = parameter.to_local(grad_placements=[Replicate()])
                if part in self._summed and local.requires_grad:
                    local.register_hook(self._sum)  # type: ignore[no-untyped-call]
                self._replaced.append((parameters, name, parameter))
                parameters[name] = local

    def _put_back(self, *_: Any) -> None:
        for parameters, name, parameter in self._replaced:
            parameters[name] = parameter
        self._replaced.clear()

    def _sum(self, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=self._mesh.get_group())
        return gradient
