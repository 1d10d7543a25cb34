"""A loss with parameters of its own, which nobody would train, fails the task by their name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import models
import pytest
import torch
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp
from torch import nn
from torch.nn.functional import cross_entropy

CLASSES = models.NUM_CLASSES


class Scaled(nn.Module):
    """A loss with one parameter: a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs * self.factor, labels)


class Holding:
    """No module, but it holds one."""

    def __init__(self, *, is_read: bool = False) -> None:
        self.parts, self.is_read = {"loss": Scaled()}, is_read

    def __call__(self, outputs: Any, labels: Any) -> torch.Tensor:
        if self.is_read:
            with torch.no_grad():
                self.parts["loss"](outputs, labels)
            return cross_entropy(outputs, labels)
        return self.parts["loss"](outputs, labels)


GLOBAL = Scaled()


def by_global(outputs: Any, labels: Any) -> torch.Tensor:
    return GLOBAL(outputs, labels)


def by_closure() -> Callable[..., Any]:
    own = Scaled()
    return lambda outputs, labels: own(outputs, labels)


def by_tensor() -> Callable[..., Any]:
    factor = torch.ones(CLASSES, requires_grad=True)
    return lambda outputs, labels: cross_entropy(outputs * factor, labels)


def stepping(model: Any, batch: Any) -> torch.Tensor:
    inputs, labels = batch
    return GLOBAL(model(inputs), labels)


FACTOR = "the loss has a parameter to train (`factor` of Scaled)"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss_function": by_global}, FACTOR),
        ({"loss_function": by_closure()}, FACTOR),
        ({"loss_function": Scaled().forward}, FACTOR),
        ({"loss_function": Holding()}, FACTOR),
        ({"loss_function": by_tensor()}, "(a tensor of shape (5,))"),
        ({"loss_function": None, "training_step": stepping}, FACTOR),
    ],
    ids=["global", "closure", "method", "object", "tensor", "training_step"],
)
def test_a_loss_that_would_have_to_be_trained_fails(
    changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskError) as raised:
        in_process.train(models.definition(**changes), Ddp(), tmp_path, steps=1)
    assert told in str(raised.value)


def test_a_module_that_is_only_read_and_the_model_itself_may_be_in_a_loss(tmp_path: Path) -> None:
    model = models.Mlp()
    frozen = Scaled().requires_grad_(False)
    teacher = Holding(is_read=True)

    def loss(outputs: Any, labels: Any) -> torch.Tensor:
        penalty = model.head.weight.square().sum()
        return teacher(outputs, labels) + frozen(outputs, labels) + penalty

    task = models.definition(loss_function=loss, get_model=lambda: model)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=2)
    assert len(losses) == 2
