"""Losses that keep something from call to call fail by name, or are told of."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import in_process
import pytest
import reference
import torch
from models import NUM_CLASSES, Mlp, definition
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp
from saturn.training.loss_memory import LossMemory
from torch import nn
from torch.nn.functional import cross_entropy


class Centered(nn.Module):
    """Moves the outputs by their running mean, as DINO does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(NUM_CLASSES))

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(outputs - self.center, labels)
        self.center.mul_(0.9).add_(outputs.detach().mean(0), alpha=0.1)
        return loss


class Replaced(Centered):
    """The same with a new tensor for each mean, as in the code of DINO's authors."""

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(outputs - self.center, labels)
        self.center = self.center * 0.9 + outputs.detach().mean(0) * 0.1
        return loss


class Annealed:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return cross_entropy(outputs, labels) + 0.01 * self.calls * outputs.square().mean()


def annealed_by_dict() -> Any:
    state = {"calls": 0}

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        state["calls"] += 1
        return cross_entropy(outputs, labels) * (1 + state["calls"])

    return loss


def annealed_by_variable() -> Any:
    calls = 0

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return cross_entropy(outputs, labels) * (1 + calls)

    return loss


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        (Centered(), "`center` of Centered"),
        (Replaced(), "`center` of Replaced"),
        (Annealed(), "`calls` of Annealed"),
        (annealed_by_dict(), "`calls` of a dict"),
        (annealed_by_variable(), "`calls` of a function"),
    ],
)
def test_a_loss_that_depends_on_its_calls_is_refused(loss: Any, kept: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"since loss_function keeps {kept} from call to call"):
        in_process.train(definition(loss_function=loss), Ddp(), tmp_path, steps=1)


class Logging(nn.Module):
    """Keeps numbers and tensors that no later loss depends on, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("mean", torch.zeros(()))
        self.weights = torch.ones(NUM_CLASSES)  # which nothing changes

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(())
        loss = cross_entropy(outputs, labels, weight=self.weights) * (1 + noise)
        self.calls += 1
        self.mean.lerp_(loss.detach(), 0.1)
        return loss


def test_what_a_loss_keeps_for_a_log_is_told_once_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logging = Logging()
    task = definition(loss_function=logging)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=4)
    assert capsys.readouterr().out.count("loss_function keeps `calls` of Logging from call") == 1
    assert logging.calls == 4, "the second look at a loss leaves no trace"
    expected, _ = reference.train(definition(loss_function=Logging()), 4)
    assert losses == expected


class CountingModel(Mlp):
    def __init__(self, *, is_saved: bool) -> None:
        super().__init__()
        self.forwards = 0
        self.longest = 0
        if is_saved:
            self.head = Saved(self.head)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        self.longest = max(self.longest, len(inputs))
        return super().forward(inputs)


class Saved(nn.Sequential):
    """Counts too, and saves the count."""

    count = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return super().forward(inputs)

    def get_extra_state(self) -> Any:
        return torch.tensor(self.count)

    def set_extra_state(self, state: Any) -> None:
        self.count = int(state)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_number_that_a_model_counts_is_told_once(
    is_saved: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = definition(get_model=partial(CountingModel, is_saved=is_saved))
    in_process.train(task, Ddp(), tmp_path, steps=6)
    told = capsys.readouterr().out
    assert told.count("keeps `forwards` of CountingModel as a plain number") == 1
    assert told.count("begins anew") == 1


def test_plain_losses_are_told_nothing_of() -> None:
    notes: list[str] = []
    for loss in (cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1), lambda o, t: o.sum()):
        memory = LossMemory(loss, torch.device("cpu"), notes.append)
        outputs, labels = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])
        for _ in range(5):
            memory.watched(partial(loss, outputs, labels))
    assert notes == []
