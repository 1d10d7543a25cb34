"""What a slice counts in the loss, where ranks share it, and what ranks agree on after a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import gang_of_one
from models import WIDTH, Mlp, definition
from saturn.data.slices import Position, Slice
from saturn.rank.device_memory import DeviceMemory
from saturn.rank.exceptions import NotApplicable, TaskError
from saturn.techniques import Knobs, Objective, ParallelModel, Technique
from saturn.techniques.ddp import Ddp
from saturn.training.agreement import agree
from saturn.training.slicing import GIVEN, IGNORED, LABELS, WHOLE, Slicing
from saturn.training.stepper import Stepper
from saturn.training.weighing import Weighing
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler


class FakeGang:
    """Four ranks: this one, and others whose values for the first sum are known."""

    rank, world_size, device = 0, 4, torch.device("cpu")
    device_memory = DeviceMemory(device, None)

    def __init__(self, others: Sequence[float]) -> None:
        self._others = list(others)

    def sum(self, values: Sequence[float]) -> list[float]:
        return list(values)  # losses and flags: the other ranks have none

    def begin_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        return lambda: [values[0] + sum(self._others)]


class Recording(ParallelModel):
    """Notes the share that its slice is said to have."""

    def __init__(self, module: nn.Module, data_size: int) -> None:
        self.module, self.data_rank, self.data_size = module, 0, data_size
        self.share = 0.0

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> torch.Tensor:
        self.share = share
        return torch.tensor(1.0)


class Sharing(Technique):
    """Cuts the batch into `data_size` slices, fewer than there are ranks."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        return Recording(module, knobs["data_size"])


class Phases(DeviceMemory):
    """Writes down a rank's phases as they begin. Each phase has a limit of its own."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"), None)
        self.told: list[Any] = []

    def building(self) -> None:
        self.told.append("building")

    def spreading(self) -> None:
        self.told.append("spreading")

    def training(self, *, saves_memory: bool = False) -> None:
        self.told.append(("training", saves_memory))

    def stepped(self, *, is_repeatable: bool) -> None:
        self.told.append("stepped")


@pytest.mark.parametrize("saves_memory", [False, True])
def test_a_device_s_memory_is_limited_from_the_building_of_the_model_to_its_training(
    saves_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, "saves_memory", saves_memory)
    gang: Any = FakeGang([])
    gang.device_memory = memory = Phases()

    def get_model() -> nn.Module:
        memory.told.append("the model is built")
        return Mlp()

    def get_dataloader() -> Any:
        memory.told.append("the loader is made")
        return definition().get_dataloader()

    task = definition(get_model=get_model, get_dataloader=get_dataloader)
    stepper = Stepper(task, Sharing(), gang, {"data_size": 4}, note=print)
    piece = Slice((torch.zeros(2, WIDTH), torch.zeros(2)), 2, 8, Position(batches=1))
    stepper.step(stepper.stage([piece]), stop=False, save=False)
    built = ["building", "the model is built", "spreading", "the loader is made"]
    assert memory.told == [*built, ("training", saves_memory), "stepped"]


@pytest.mark.parametrize(
    ("data_size", "others", "share"),
    [
        # This rank's slice weighs 3. One slice for all; two for two ranks each; one for each.
        (1, [3.0, 3.0, 3.0], 1.0),
        (2, [3.0, 5.0, 5.0], 3 / 8),
        (4, [1.0, 2.0, 4.0], 3 / 10),
    ],
)
def test_a_slice_that_ranks_share_is_weighed_once(
    data_size: int, others: list[float], share: float
) -> None:
    task = definition(loss_weight=lambda batch: 3.0)
    gang: Any = FakeGang(others)
    stepper = Stepper(task, Sharing(), gang, {"data_size": data_size}, note=print)
    piece = Slice((torch.zeros(2, 12), torch.zeros(2)), 2, 8, Position(batches=1))
    result = stepper.step(stepper.stage([piece]), stop=False, save=False).result()
    assert isinstance(stepper.parallel, Recording)
    assert stepper.parallel.share == pytest.approx(share) and result.loss == 1.0


@pytest.mark.parametrize(("stop", "save"), [(True, False), (False, True), (False, False)])
def test_what_one_rank_wants_after_a_step_is_agreed_on(stop: bool, save: bool) -> None:
    gang: Any = FakeGang([])
    agreement = agree(gang, [(torch.tensor(2.0), 1.0)], stop=stop, save=save)
    assert (agreement.result().stop, agreement.result().save) == (stop, save)


def test_a_rank_tells_the_losses_that_it_has_of_slices_that_count_and_the_gradient_norm() -> None:
    gang: Any = FakeGang([])
    losses = [
        (None, 2.0),  # another rank has it, as in a pipeline
        (torch.tensor(math.nan), 0.0),
        (torch.tensor(3.0), 1.0),
        (torch.tensor(6.0), 2.0),
    ]
    norm = torch.tensor(0.25)
    result = agree(gang, losses, stop=False, save=False, gradient_norm=norm).result()
    assert (result.loss, result.gradient_norm) == (5.0, 0.25)


def test_batches_that_must_stay_whole_are_cut_for_two_ranks_no_more_than_for_more() -> None:
    whole = Slicing(WHOLE, reason="samples are compared")
    gang: Any = FakeGang([])
    for data_size in (2, 4):
        with pytest.raises(NotApplicable, match="samples are compared"):
            knobs = {"data_size": data_size}
            Stepper(definition(), Sharing(), gang, knobs, slicing=whole, note=print)
    Stepper(definition(), Sharing(), gang, {"data_size": 1}, slicing=whole, note=print)


def mean_by_hand(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of labels that count. Without any, its gradient is NaN; that of torch's own mean is zero."""
    each = nn.functional.cross_entropy(outputs, labels.clamp(min=0), reduction="none")
    return (each * (labels != IGNORED)).sum() / (labels != IGNORED).sum()


def batches_of(labels: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each label, a batch of two samples that have it."""
    inputs = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
    return [(inputs, torch.full((2,), label)) for label in labels]


def test_a_batch_without_labels_that_count_leaves_the_gradients_as_they_are(tmp_path: Path) -> None:
    def one_step(labels: Sequence[int]) -> tuple[float, list[list[float]]]:
        task = definition(
            get_model=partial(Mlp, depth=1),
            get_dataloader=partial(batches_of, labels),
            loss_function=mean_by_hand,
            gradient_accumulation_steps=len(labels),
            batch_count=len(labels),
        )
        slicing = Slicing(LABELS, labels=".1")
        with gang_of_one(tmp_path) as gang:
            stepper = Stepper(task, Ddp(), gang, {}, slicing=slicing, note=print)
            staged = stepper.stage(next(stepper.pieces(Position())))
            loss = stepper.step(staged, stop=False, save=False).result().loss
            return loss, [weight.tolist() for weight in stepper.parallel.module.parameters()]

    assert one_step([2, IGNORED]) == one_step([2])


@pytest.mark.parametrize(
    ("slicing", "weighed"),
    [
        (Slicing(LABELS, labels=".1"), "the number of labels that are not -100"),
        (Slicing(GIVEN), "loss_weight"),
    ],
)
def test_where_nothing_counts_the_batches_of_the_step_are_told(
    slicing: Slicing, weighed: str
) -> None:
    task = definition(loss_weight=(lambda batch: 0.0) if slicing.kind == GIVEN else None)
    gang: Any = FakeGang([0.0])
    stepper = Stepper(task, Sharing(), gang, {"data_size": 4}, slicing=slicing, note=print)
    batch = (torch.zeros(2, WIDTH), torch.full((2,), IGNORED))
    pieces = [Slice(batch, 2, 8, Position(batches=number)) for number in (3, 4)]
    with pytest.raises(TaskError, match=f"^{weighed} of batches 3 to 4 together is 0; it must be"):
        stepper.step(stepper.stage(pieces), stop=False, save=False)


@pytest.mark.parametrize(
    ("has_step_loss", "data_size", "keeps_batches", "slicing", "may_deal"),
    [
        (True, 2, False, Slicing(), True),
        (False, 2, False, Slicing(), False),
        (True, 1, False, Slicing(), False),
        (True, 2, True, Slicing(), False),
        (True, 2, False, Slicing(LABELS, labels=".1"), False),
    ],
)
def test_a_step_s_batches_are_dealt_anew_where_a_trainer_s_sum_over_batches_allows_it(
    has_step_loss: bool, data_size: int, keeps_batches: bool, slicing: Slicing, may_deal: bool
) -> None:
    gang: Any = FakeGang([])
    step_loss: Any = object() if has_step_loss else None
    objective: Any = None
    weighing = Weighing(
        *(gang, slicing, objective),
        data_size=data_size,
        counts_samples=slicing.kind != LABELS,
        step_loss=step_loss,
        keeps_batches=keeps_batches,
    )
    assert weighing.may_deal == may_deal


def halving(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 0.5**step)


def test_the_rate_of_the_first_group_is_told_and_follows_its_schedule_to_the_last_step(
    tmp_path: Path,
) -> None:
    task = definition(
        batch_count=3,
        lr=0.8,
        lr_scheduler=halving,
        parameter_groups=[{"params": ["head.*"], "lr": 80.0}],
    )
    with gang_of_one(tmp_path) as gang:
        stepper = Stepper(task, Ddp(), gang, {}, note=print)
        assert stepper.steps_behind == 0, "on a CPU slot the result of a step is there at once"
        assert [len(group["params"]) for group in stepper.optimizer.param_groups] == [8, 2]
        pieces, rates = stepper.pieces(Position()), []
        for _ in range(5):  # a trial of a short task takes steps beyond its end
            agreement = stepper.step(stepper.stage(next(pieces)), stop=False, save=False)
            assert agreement.facts is not None
            rates.append(agreement.facts.lr)
        pieces.close()
    assert rates == [0.8, 0.4, 0.2, 0.1, 0.1]


def test_a_step_s_tokens_are_those_of_its_global_batches() -> None:
    gang: Any = FakeGang([])
    stepper = Stepper(definition(), Sharing(), gang, {"data_size": 4}, note=print)
    tokens = {"input_ids": torch.zeros(2, 6, dtype=torch.int64)}
    of_tokens = Slice(tokens, 2, 8, Position(batches=1))
    empty = Slice(tokens, 0, 3, Position(batches=2))  # another rank has this batch
    assert stepper.stage([of_tokens, of_tokens, empty]).num_tokens == 2 * 8 * 6
    of_features = Slice((torch.zeros(2, WIDTH), torch.zeros(2)), 2, 8, Position(batches=2))
    assert stepper.stage([of_tokens, of_features]).num_tokens is None
