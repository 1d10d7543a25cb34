"""Check that an optimizer over a part of a model has the settings of one over the whole model.

A task's `optimizer_cls` may be a function that gives parameters settings by their place, such as
smaller learning rates to lower layers, or that makes groups only for what it gets. A rank of a
pipeline holds only some parameters, so the function would give them the settings of others. It is
called here with stand-ins for all parameters, without memory, and the settings are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from saturn.data import seeds
from saturn.data.seeds import RandomState
from saturn.rank.exceptions import NotApplicable
from saturn.tasks.definition import TaskDefinition
from saturn.training.optimizer_groups import plain_of

#: Settings that say how a step is computed, and not what.
_FORMS = ("fused", "foreach", "capturable", "differentiable")


class StandIns:
    """Stand-ins for the trainable parameters of a whole model, before it is spread."""

    def __init__(self, module: nn.Module) -> None:
        self._by_name: dict[str, nn.Parameter] = {}
        made: dict[int, nn.Parameter] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                if id(parameter) not in made:
                    made[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="meta"))
                self._by_name[name] = made[id(parameter)]
        self._all = list(made.values())

    def expect_same_settings(
        self, definition: TaskDefinition, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Raise `NotApplicable` if `optimizer`, over a part of the model, has other settings."""
        if definition.parameter_groups or definition.optimizer_cls is None:
            return  # by name, or the same for all
        try:
            with seeds.forked():
                whole = definition.optimizer_cls(self._all, lr=definition.lr)
        except Exception:  # it may refuse stand-ins
            return
        wanted, found = _settings(whole), _settings(optimizer)
        differ = [
            name
            for name, own in module.named_parameters(remove_duplicate=False)
            if own.requires_grad and found.get(id(own)) != wanted.get(id(self._by_name[name]))
        ]
        if differ or len(whole.param_groups) != len(optimizer.param_groups):
            which = f" (`{differ[0]}`)" if differ else ""
            raise NotApplicable(
                "optimizer_cls gives parameters other settings where a device holds only a part of "
                f"the model{which}: by their place, or by what else it gets; give them by name, as "
                "HParams(parameter_groups=…)"
            )


def expect_separable(definition: TaskDefinition, optimizer: torch.optim.Optimizer) -> None:
    """Raise `NotApplicable` if a parameter's step depends on the other parameters of `optimizer`.

    It does if the optimizer limits the norm of all gradients itself, for example. torch's own
    optimizers step each parameter by itself. Others are tried on two small parameters, together and
    one by one.
    """
    if type(optimizer).__module__.startswith("torch.optim") or definition.optimizer_cls is None:
        return
    with seeds.forked():
        torch.manual_seed(0)
        values = [torch.randn(4, 3), torch.randn(2, 3)]
        steps = [[10.0 * torch.randn_like(value) for value in values] for _ in range(2)]
        before = RandomState.now(torch.device("cpu"))
        try:
            together = _stepped(definition, values, steps)
            apart = [
                _stepped(definition, [value], [[of_step[number]] for of_step in steps])[0]
                for number, value in enumerate(values)
            ]
        except Exception:  # it may take parameters of other shapes alone
            return
        if before.has_moved():
            return  # its steps are random, so they differ in any case
    for start, one, other in zip(values, together, apart, strict=True):
        moved = float((one - start).abs().max())
        if float((one - other).abs().max()) > 1e-3 * moved:
            raise NotApplicable(
                f"the optimizer, a {type(optimizer).__name__}, steps each parameter by all "
                "gradients (it may limit their norm), and here a device holds only a part of the "
                "model; HParams(max_grad_norm=…) limits the norm under every technique"
            )


def _stepped(
    definition: TaskDefinition,
    values: Sequence[torch.Tensor],
    steps: Sequence[Sequence[torch.Tensor]],
) -> list[torch.Tensor]:
    """`values` after steps of the task's optimizer with these gradients."""
    assert definition.optimizer_cls is not None  # the caller has checked
    parameters = [nn.Parameter(value.clone()) for value in values]
    optimizer = definition.optimizer_cls(parameters, lr=definition.lr)
    for gradients in steps:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def _settings(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """Each parameter's settings, by its id."""
    found: dict[int, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        plain = {key: value for key, value in plain_of(group).items() if key not in _FORMS}
        found |= {id(parameter): plain for parameter in group["params"]}
    return found
