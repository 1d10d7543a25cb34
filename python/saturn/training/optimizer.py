"""A task's optimizer: built over what one rank holds, and stepped.

Any torch optimizer does that steps on gradients alone. On parameters that are split over devices
(DTensors) it works as torch lets it; one that can't makes the technique not applicable.
"""

from __future__ import annotations

import inspect

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from saturn.definition import TaskDefinition
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function
from saturn.techniques.interface import NotApplicable

#: What torch says where an operation has no rule for split tensors.
_SPLITTING_TEXTS = ("sharding strategy", "placement")


def build_optimizer(definition: TaskDefinition, module: nn.Module) -> torch.optim.Optimizer:
    """The task's optimizer over the trainable parameters of `module`."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise TaskError("get_model returned a model without trainable parameters")
    optimizer_cls = definition.optimizer_cls or torch.optim.AdamW
    with task_function("optimizer_cls"):
        optimizer = optimizer_cls(parameters, lr=definition.lr)
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
    return optimizer


def step_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """One step; raises `NotApplicable` where torch can't do it on split parameters."""
    try:
        optimizer.step()
    except (RuntimeError, NotImplementedError) as error:
        # torch's Adafactor and its fused SGD, for two.
        text = str(error)
        if _holds_split(optimizer) and any(known in text for known in _SPLITTING_TEXTS):
            raise NotApplicable(
                f"{type(optimizer).__name__} can't step parameters that are split over devices: "
                f"{text.strip().splitlines()[0]}"
            ) from error
        raise


def _wants_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _holds_split(optimizer: torch.optim.Optimizer) -> bool:
    return any(
        isinstance(parameter, DTensor)
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
