"""A task's optimizer: built over the parameters that one rank holds, and stepped.

Any torch optimizer works that steps on gradients alone. Parameters that are split over devices are
DTensors; an optimizer that can't step DTensors makes the technique not applicable.

If a task gives settings to parameters by name, each of its `parameter_groups` is a group of the
optimizer on every rank, even on a rank without the group's parameters. A group for all unnamed
parameters comes first, unless there is a group for `*`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import NotApplicable
from saturn.training import optimizer_form

#: The pattern that matches all names.
EVERY = "*"
#: The characters that make a name a pattern.
_WILD = frozenset("*?[")
#: Parts of torch's messages about operations without a rule for split tensors.
_SPLITTING_TEXTS = ("sharding strategy", "placement")


def build_optimizer(
    definition: TaskDefinition, module: nn.Module, device: torch.device
) -> torch.optim.Optimizer:
    """The task's optimizer over the trainable parameters of `module`.

    `device` is the rank's own, even if a technique keeps the parameters elsewhere.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise TaskError("get_model returned a model without trainable parameters")
    optimizer_cls = definition.optimizer_cls or torch.optim.AdamW
    groups = parameter_groups(definition.parameter_groups, module)
    with task_function("optimizer_cls"):
        optimizer = optimizer_cls(groups or parameters, lr=definition.lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TaskError(
            f"optimizer_cls returned a {type(optimizer).__name__}; it must be a class (or a "
            "functools.partial of one) that makes a torch.optim.Optimizer from (parameters, lr=…)"
        )
    if _wants_closure(optimizer):
        raise TaskError(
            f"optimizer_cls returned a {type(optimizer).__name__}, whose step wants a closure that "
            "computes the loss again; Saturn computes it once a step"
        )
    return optimizer_form.choose_form(optimizer, optimizer_cls, on_accelerator=device.type != "cpu")


def parameter_groups(
    described: Sequence[Mapping[str, Any]], module: nn.Module
) -> list[dict[str, Any]]:
    """The trainable parameters of `module` in the groups of `described`; empty without groups.

    A parameter is in the first group with a pattern that matches one of its names.
    """
    if not described:
        return []
    groups: list[dict[str, Any]] = [{**group, "params": []} for group in described]
    rest: list[nn.Parameter] = []
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(parameter, []).append(name)
    exact = [set(group["params"]) for group in described]
    for parameter, own in names.items():
        for group, plain, like in zip(groups, exact, described, strict=True):
            if not plain.isdisjoint(own) or _matches(own, like["params"]):
                group["params"].append(parameter)
                break
        else:
            rest.append(parameter)
    takes_all = any(EVERY in group["params"] for group in described)
    return groups if takes_all else [{"params": rest}, *groups]


def unmatched(described: Sequence[Mapping[str, Any]], module: nn.Module, gang: Gang) -> list[str]:
    """The names and patterns of `described` that match no parameter of the gang's whole model.

    All ranks call this, and get the same answer: a rank of a pipeline holds only a part of the
    model. Parameters that don't train count too.
    """
    asked = list(dict.fromkeys(name for group in described for name in group["params"]))
    if not asked:
        return []
    own = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    found = gang.sum([float(name in own or _matches(own, [name])) for name in asked])
    return [name for name, num_ranks in zip(asked, found, strict=True) if num_ranks == 0]


def _matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    wild = [pattern for pattern in patterns if not _WILD.isdisjoint(pattern)]
    return any(fnmatchcase(name, pattern) for name in names for pattern in wild)


def step_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Take one step; raises `NotApplicable` if torch can't step split parameters."""
    optimizer_form.suit_gradients(optimizer)
    try:
        optimizer.step()
    except (RuntimeError, NotImplementedError) as error:
        # For example torch's Adafactor and its fused SGD.
        text = str(error)
        if _holds_split(optimizer) and any(known in text for known in _SPLITTING_TEXTS):
            raise NotApplicable(
                f"{type(optimizer).__name__} can't step parameters that are split over devices: "
                f"{text.strip().splitlines()[0]}"
            ) from error
        raise


def unstepped(optimizer: torch.optim.Optimizer, module: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters of `module` that the task has left out of its optimizer."""
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    return [each for each in module.parameters() if each.requires_grad and id(each) not in stepped]


def _wants_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _holds_split(optimizer: torch.optim.Optimizer) -> bool:
    return any(
        isinstance(parameter, DTensor)
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
