"""Let a model compute on parameters that every rank holds whole as `DTensor`s.

They are `DTensor`s because optimizers, norms and checkpoints take lists of one kind only. While a
unit (the model, or one of its layers) runs, plain tensors replace them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate


def owners(module: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """For each parameter, the modules that hold it, with its name there."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((part, name))
    return list(found.values())


def replicated(parameter: nn.Parameter, mesh: DeviceMesh, device: torch.device) -> nn.Parameter:
    """`parameter`, equal on every rank, as a `DTensor` that all ranks of `mesh` hold whole."""
    local = parameter.detach().to(device)
    whole = DTensor.from_local(local, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return nn.Parameter(whole, requires_grad=parameter.requires_grad)


class LocalCopies:
    """Replaces replicated parameters by plain tensors while a unit runs."""

    def __init__(
        self,
        is_replicated: Callable[[DTensor], bool],
        *,
        skipped: Collection[nn.Module] = (),
        change_gradient: Callable[[nn.Module], Callable[[Tensor], Tensor] | None] = (
            lambda part: None
        ),
    ) -> None:
        """`is_replicated` says which parameters; modules in `skipped` keep theirs.

        `change_gradient` gives, for a module, a function that its copies' gradients pass through.
        """
        self._is_replicated = is_replicated
        self._skipped = skipped
        self._change_gradient = change_gradient
        self._replaced: list[tuple[dict[str, Any], str, DTensor]] = []

    def attach(self, unit: nn.Module) -> None:
        """Replace parameters around `unit`, and within its forward, which recomputation calls."""
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
                if not isinstance(parameter, DTensor) or not self._is_replicated(parameter):
                    continue
                local = parameter.to_local(
                    grad_placements=[Replicate()] * parameter.device_mesh.ndim
                )
                change = self._change_gradient(part) or functools.partial(_own, parameter)
                if local.requires_grad:
                    local.register_hook(change)  # type: ignore[no-untyped-call]
                self._replaced.append((parameters, name, parameter))
                parameters[name] = local

    def _put_back(self, *_: Any) -> None:
        for parameters, name, parameter in self._replaced:
            parameters[name] = parameter
        self._replaced.clear()


def _own(parameter: DTensor, gradient: Tensor) -> Tensor | None:
    """Copy the first gradient of `parameter`, so that it has memory of its own.

    A `DTensor` keeps its first gradient as it is, and adds others to it in place. But that gradient
    may share memory with another parameter's. For example, if a batch has one row, a parameter that
    is added to each row gets the rows' own gradient.
    """
    return gradient.clone() if parameter.grad is None else None


class WholeScalars:
    """The parameters of a module that have no dimension, which FSDP2 can't split.

    Every rank holds and steps them. Their gradients are averaged over the data ranks, as FSDP2 does
    with all other gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        mesh: DeviceMesh,
        device: torch.device,
        *,
        units: Collection[nn.Module],
    ) -> None:
        """`mesh` has all ranks; `units` are the parts of `module` that may run by themselves.

        Replaces the scalars of `module`; to be called before FSDP2 or any other change.
        """
        self._parameters: list[nn.Parameter] = []
        for holders in owners(module):
            first, first_name = holders[0]
            parameter = first._parameters[first_name]
            if parameter is None or parameter.dim() > 0:
                continue
            whole = replicated(parameter, mesh, device)
            for holder, name in holders:
                holder._parameters[name] = whole
            self._parameters.append(whole)
        self._ids = {id(parameter) for parameter in self._parameters}
        if self._parameters:
            for unit in (module, *units):
                LocalCopies(lambda parameter: id(parameter) in self._ids).attach(unit)

    @property
    def ignored(self) -> set[nn.Parameter]:
        """The parameters that `fully_shard` must leave alone."""
        return set(self._parameters)

    def average_gradients(self, data: DeviceMesh) -> None:
        """Replace each gradient by its mean over `data`; on ranks that lack it, it counts as 0."""
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if not trained or data.size() == 1:
            return
        gradients = [_local(parameter.grad) for parameter in trained]
        device = next(_local(parameter).device for parameter in trained)
        # A gradient that is missing here may exist elsewhere, so their number is summed too.
        columns = [[0.0, 0.0] if each is None else [each, 1.0] for each in gradients]
        sums = torch.stack(
            [
                torch.as_tensor(number, dtype=torch.float64, device=device)
                for column in columns
                for number in column
            ]
        ).view(-1, 2)
        for group in data.get_all_groups():
            dist.all_reduce(sums, group=group)
        for parameter, gradient, (total, number) in zip(trained, gradients, sums, strict=True):
            if gradient is not None:
                gradient.copy_(total / data.size())
            elif number > 0:
                parameter.grad = torch.zeros_like(parameter)
                _local(parameter.grad).copy_(total / data.size())


@overload
def _local(tensor: Tensor) -> Tensor: ...
@overload
def _local(tensor: None) -> None: ...
def _local(tensor: Tensor | None) -> Tensor | None:
    """This rank's part of a tensor; all of a tensor that is whole."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor
