"""Read a trainer's optimizer and scheduler, and make them anew from what was read.

A technique replaces the parameters for which an optimizer was made. So only these count: its class,
its settings, and which parameters, by name, have which settings.
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from saturn.errors import InvalidInput
from saturn.training.optimizer import EVERY
from saturn.training.optimizer_form import FormChosen


@dataclass(frozen=True)
class OptimizerReading:
    """An optimizer in a form that can be made anew, for any module with the same names."""

    #: Called with parameter groups and `lr=`.
    optimizer_cls: Callable[..., Any]
    #: The groups in the form of `HParams(parameter_groups=…)`.
    groups: list[dict[str, Any]]

    @property
    def kind(self) -> tuple[Any, ...]:
        """The facts that decide how long its steps take."""
        made = self.optimizer_cls
        keywords = made.keywords if isinstance(made, functools.partial) else {}
        cls = made.func if isinstance(made, functools.partial) else made
        flags = {name: keywords.get(name) for name in ("fused", "foreach", "amsgrad", "momentum")}
        return cls, sorted(flags.items()), len(self.groups)


def read(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    name: str = "the trainer's optimizer",
    *,
    form_is_chosen: bool = True,
) -> OptimizerReading:
    """Read an optimizer; `InvalidInput`, beginning with `name`, if it can't be made anew.

    `form_is_chosen` says whether `fused` and `foreach` stay as they are even where none is set.
    """
    cls = type(optimizer)
    names: dict[int, list[str]] = {}
    for of_parameter, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(of_parameter)
    groups = []
    for group in optimizer.param_groups:
        strangers = [p for p in group["params"] if id(p) not in names]
        if strangers:
            raise InvalidInput(
                f"{name} ({cls.__name__}) holds {len(strangers)} parameters that "
                "are not its model's; make it of `model.parameters()`"
            )
        own = [each for p in group["params"] for each in names[id(p)]]
        groups.append({**group, "params": own})
    if groups:
        groups[-1]["params"] = [*groups[-1]["params"], EVERY]
    keywords = {
        setting: value
        for setting, value in optimizer.defaults.items()
        if _takes(cls, setting, value)
    }
    keywords.pop("lr", None)
    made_by = FormChosen if form_is_chosen else functools.partial
    reading = OptimizerReading(made_by(cls, **keywords), groups)
    _see_that_it_is_the_same(optimizer, reading, name)
    return reading


def check_covers(optimizer: torch.optim.Optimizer, model: nn.Module, name: str) -> None:
    """Raise `InvalidInput`, which begins with `name`, if it lacks a parameter that trains."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for of_parameter, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in held:
            raise InvalidInput(
                f"{name} does not have the parameter `{of_parameter}`; say "
                "`requires_grad_(False)` of what is not to be trained"
            )


def _takes(cls: type[Any], name: str, value: Any) -> bool:
    return name in inspect.signature(cls).parameters


def _see_that_it_is_the_same(
    optimizer: torch.optim.Optimizer, reading: OptimizerReading, name: str
) -> None:
    """Make the optimizer anew for the same parameters, and compare the two."""
    cls = type(optimizer)
    groups = [
        {**described, "params": list(group["params"])}
        for described, group in zip(reading.groups, optimizer.param_groups, strict=True)
    ]
    try:
        again = reading.optimizer_cls(groups, lr=optimizer.defaults.get("lr", 0.0))
    except Exception as error:
        raise InvalidInput(
            f"{name} ({cls.__name__}) can't be built again from its settings, as "
            f"every technique must do: {type(error).__name__}: {error}"
        ) from error
    same = type(again) is cls and [_plain(group) for group in again.param_groups] == [
        _plain(group) for group in optimizer.param_groups
    ]
    if not same:
        raise InvalidInput(
            f"{name} ({cls.__name__}) differs when it is built again from its "
            "settings, as every technique must do"
        )


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def scheduler_for(trainer: Any, optimizer: torch.optim.Optimizer, *, steps: int) -> Any:
    """The trainer's scheduler, for `optimizer` and a training of `steps` steps."""
    if trainer.lr_scheduler is None:
        trainer.optimizer = optimizer
        try:
            return trainer.create_scheduler(num_training_steps=steps, optimizer=optimizer)
        finally:
            trainer.lr_scheduler = None
    return scheduler_over(optimizer, trainer.lr_scheduler)


def scheduler_over(optimizer: torch.optim.Optimizer, given: Any) -> Any:
    """A copy of the scheduler `given`, for `optimizer` instead of its own optimizer."""
    # torch marks an optimizer's `step` when a scheduler is made for it, and later expects the mark.
    settings = [dict(_plain(group)) for group in optimizer.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LambdaLR(optimizer, lambda step: 1.0)
    for group, before in zip(optimizer.param_groups, settings, strict=True):
        group.update(before)
    return copy.deepcopy(given, {id(given.optimizer): optimizer})
