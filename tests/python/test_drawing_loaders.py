"""Data that is drawn as it is fetched or collated is the same under every technique."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import drawing_loaders as drawing
import plain_loops
import pytest
import torch
from harness import Runtime, runtime
from models import definition
from saturn.data.sampling import EpochBatches
from saturn.data.slices import Data, Position, Slice
from saturn.tasks.definition import TaskDefinition
from saturn.training.slice_check import check
from saturn.training.slicing import LABELS, SAMPLES, WHOLE, Slicing
from saturn.training.stepper import build_model
from torch import nn
from torch.utils.data import DataLoader, Sampler
from warm_parent import Warm

# Newer Pythons warn of the forks that a DataLoader makes for its workers.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

SEED = 5


def read(loader: Any, count: int, start: Position | None = None, **layout: int) -> list[Slice]:
    slices = Data(loader, seed=SEED).slices(start or Position(), **layout)
    found = list(islice(slices, count))
    slices.close()
    return found


def same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow(quick=[f"7-{kind}" for kind in drawing.LOADERS])
@pytest.mark.parametrize("kind", drawing.LOADERS)
@pytest.mark.parametrize("data_size", [2, 7])
def test_the_ranks_slices_are_the_batch_of_one_rank(kind: str, data_size: int) -> None:
    pytest.importorskip("transformers")
    loader = drawing.LOADERS[kind]
    whole = read(loader, 6)
    parts = [read(loader, 6, data_rank=rank, data_size=data_size) for rank in range(data_size)]
    for step, expected in enumerate(whole):
        pieces = [part[step] for part in parts if part[step].num_samples]
        for name, array in expected.batch.items():
            # Padded to the longest of the slice, where collating has nothing to do with others.
            found = torch.cat([piece.batch[name] for piece in pieces])
            torch.testing.assert_close(found, array, rtol=0, atol=0)


@pytest.mark.parametrize("kind", drawing.LOADERS)
def test_resumed_it_draws_the_same(kind: str) -> None:
    pytest.importorskip("transformers")
    loader = drawing.LOADERS[kind]
    whole = read(loader, 9)
    for start in (1, 5):
        for one, other in zip(
            whole[start:], read(loader, 9 - start, whole[start - 1].after), strict=True
        ):
            same(dict(one.batch), dict(other.batch))


def test_epochs_draw_anew() -> None:
    batches = read(drawing.masked, 10)
    one, other = batches[0], batches[5]  # 26 samples are five batches
    assert other.after == Position(1, 1, 32, 6)
    assert not torch.equal(one.batch["input_ids"], other.batch["input_ids"])


def masked_task(**changes: Any) -> TaskDefinition:
    momentum = partial(torch.optim.SGD, momentum=0.9)
    fields: dict[str, Any] = {"optimizer_cls": momentum, "lr": 0.1, "batch_count": 60}
    fields |= {"get_dataloader": drawing.masked, "loss_function": drawing.of_masked}
    return definition("task", get_model=drawing.TokenNet, **{**fields, **changes})


def found(task: TaskDefinition) -> Slicing:
    data = Data(task.get_dataloader, seed=task.seed)
    return check(task, lambda: build_model(task), data, device=torch.device("cpu"))


class Head(nn.Linear):
    def __init__(self, features: int) -> None:
        super().__init__(features, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.to(self.weight.dtype))


def mean_of_squares(outputs: torch.Tensor, batch: Any) -> torch.Tensor:
    return outputs.square().mean()


def test_collating_that_draws_is_no_reason_to_keep_batches_whole() -> None:
    pytest.importorskip("transformers")
    slicing = found(masked_task())
    assert (slicing.kind, slicing.draws_in_collating, slicing.unchecked) == (LABELS, True, None)
    for kind, features, draws in (("mixed up", 2, True), ("bulk", 2, False), ("cropped", 3, False)):
        task = definition(
            get_model=partial(Head, features),
            get_dataloader=drawing.LOADERS[kind],
            loss_function=mean_of_squares,
        )
        slicing = found(task)
        assert (slicing.kind, slicing.draws_in_collating) == (SAMPLES, draws), slicing


def test_a_drawn_batch_that_can_not_be_cut_is_kept_whole_for_that_reason() -> None:
    loader = partial(DataLoader, drawing.Numbers(), 6, collate_fn=drawing.twice)
    slicing = found(
        definition(get_model=partial(Head, 2), get_dataloader=loader, loss_function=mean_of_squares)
    )
    assert slicing.kind == WHOLE and slicing.reason is not None
    assert "collate function draws random numbers" in slicing.reason
    assert "of 4 samples it makes arrays of 8" in slicing.reason


@pytest.fixture
def ranks(tmp_path: Any, warm: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm) as opened:
        yield opened


def test_masks_are_the_same_under_every_technique(ranks: Runtime) -> None:
    task = masked_task()
    ranks.write_task(task)
    moves = [("ddp", 1), ("ddp", 2), ("fsdp", 2), ("pipeline", 2), ("ddp", 3)]
    for number, (technique, size) in enumerate(moves, start=1):
        result = ranks.run("task", technique, ranks=size, steps=3 * number)
        assert result.codes == [0] * size, result.logs
    expected = plain_loops.train(
        task.get_model(),
        plain_loops.seeded_batches(task.get_dataloader(), task.seed),
        15,
        loss_of=lambda model, batch: drawing.of_masked(model(**batch), batch),
    )
    losses = ranks.losses("task")
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", drawing.EPOCHS)
def test_a_dataset_is_told_of_each_epoch_also_where_training_goes_on(kind: str) -> None:
    loader = drawing.EPOCHS[kind]
    whole = read(loader, 13)
    # The stream's epoch ends where no batch is left.
    assert [int(piece.batch["x"][0, 1]) for piece in whole] == [0] * 5 + [1] * 5 + [2] * 3
    for start in (3, 5, 7, 11):
        resumed = read(loader, 13 - start, whole[start - 1].after, data_rank=1, data_size=2)
        for one, other in zip(whole[start:], resumed, strict=True):
            assert torch.equal(one.batch["x"][len(one.batch["x"]) // 2 :], other.batch["x"])


def test_a_stream_s_epochs_have_the_orders_of_a_loop_by_hand() -> None:
    by_hand = islice(plain_loops.epochs_of(drawing.EPOCHS["stream"]()), 13)
    for expected, found in zip(by_hand, read(drawing.EPOCHS["stream"], 13), strict=True):
        same(expected, found.batch)


class Endless(Sampler[int]):
    """Has no end; counts what it was asked for."""

    asked = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            Endless.asked += 1
            yield int(torch.randint(drawing.NUM_SAMPLES, ()))


def endless() -> DataLoader[Any]:
    return DataLoader(drawing.Numbers(), 6, sampler=Endless(), collate_fn=drawing.plain)


def test_a_sampler_without_an_end_is_asked_only_for_what_comes_soon() -> None:
    Endless.asked = 0
    whole = read(endless, 200)
    assert Endless.asked < 2000
    torch.manual_seed(0)  # what others draw meanwhile changes nothing
    for one, other in zip(whole[70:], read(endless, 130, whole[69].after), strict=True):
        same(one.batch, other.batch)


def test_epochs_sampled_bit_by_bit_are_those_sampled_at_once() -> None:
    def own() -> DataLoader[Any]:
        numbers, generator = range(1000), torch.Generator()
        return DataLoader(numbers, 3, shuffle=True, generator=generator)  # type: ignore[arg-type]

    at_once = list(EpochBatches(own(), SEED, 2))
    loader = own()
    slowly = []
    for batch in EpochBatches(loader, SEED, 2):
        slowly.append(batch)
        loader.generator.manual_seed(1)
        torch.manual_seed(len(slowly))
    assert slowly == at_once
    assert sorted(index for batch in slowly for index in batch) == list(range(1000))
