"""Loaders that put each batch into the memory of an earlier one, as DALI and FFCV do."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import in_process
import models
import numpy as np
import pytest
import torch
from saturn.data import nested
from saturn.data.slices import Position
from saturn.data.whole_batches import WholeBatches
from saturn.techniques.ddp import Ddp
from saturn.training.stepper import build_data
from torch.utils.data import DataLoader, IterableDataset

ROWS, BATCHES = 4, 6


class Overwriting:
    """A stream of batches, of which all are the same two tensors."""

    def __init__(self) -> None:
        self._inputs = torch.empty(ROWS, models.WIDTH)
        self._labels = torch.empty(ROWS, dtype=torch.long)

    def __iter__(self) -> Iterator[Any]:
        for number in range(BATCHES):
            self._inputs[:] = torch.linspace(-1, number, models.WIDTH)
            self._labels[:] = number % models.NUM_CLASSES
            yield self._inputs, self._labels


class OverwritingDataset(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Overwriting())


def collating_into_a_buffer() -> DataLoader[Any]:
    """Map-style: the collate function fills the same tensors at each call."""
    buffers = Overwriting()

    def collate(samples: list[int]) -> Any:
        buffers._inputs[:] = torch.linspace(-1, samples[0] // ROWS, models.WIDTH)
        buffers._labels[:] = samples[0] // ROWS % models.NUM_CLASSES
        return buffers._inputs, buffers._labels

    return DataLoader(range(ROWS * BATCHES), ROWS, collate_fn=collate)  # type: ignore[arg-type]


LOADERS: dict[str, Callable[[], Any]] = {
    "stream": Overwriting,
    "iterable dataset": lambda: DataLoader(OverwritingDataset(), batch_size=None),
    "collate": collating_into_a_buffer,
}


@pytest.mark.parametrize("kind", LOADERS)
def test_the_batches_of_a_step_are_those_that_the_loader_gave(kind: str, tmp_path: Path) -> None:
    task = models.definition(
        get_dataloader=LOADERS[kind],
        gradient_accumulation_steps=3,
        batch_count=BATCHES,
        epoch_batches=BATCHES,
    )
    fresh = models.definition(
        get_dataloader=lambda: [tuple(map(torch.clone, batch)) for batch in Overwriting()],
        gradient_accumulation_steps=3,
        batch_count=BATCHES,
        epoch_batches=BATCHES,
    )
    losses, _ = in_process.train(task, Ddp(), tmp_path / "one", steps=2)
    expected, _ = in_process.train(fresh, Ddp(), tmp_path / "other", steps=2)
    assert losses == expected


def test_the_batches_of_a_round_of_an_evaluation_are_not_overwritten() -> None:
    batches = WholeBatches(Overwriting, seed=0, most=None)
    labels = [dealt.batch[1] for dealt in batches.dealt(0, 2)]
    assert [int(each[0]) for each in labels] == [0, 2, 4]


def test_a_batch_that_is_used_before_the_next_is_fetched_is_not_copied() -> None:
    loader = Overwriting()
    task = models.definition(get_dataloader=lambda: loader)
    with closing(build_data(task, torch.device("cpu"), print).slices(Position())) as slices:
        assert next(slices).batch[0] is loader._inputs


def test_a_copy_has_the_types_of_the_batch() -> None:
    Pair = namedtuple("Pair", "one other")

    class Cloning:
        def clone(self) -> str:
            return "a clone"

    tensor, array = torch.arange(3), np.arange(3)
    batch = {
        "pair": Pair(tensor, [array, "text"]),
        "user": UserDict(inner=(tensor,)),
        "object": Cloning(),
    }
    copy = nested.copied(batch)
    tensor += 1
    array += 1
    assert type(copy["pair"]) is Pair and type(copy["user"]) is UserDict
    assert copy["pair"].one.tolist() == copy["user"]["inner"][0].tolist() == [0, 1, 2]
    assert copy["pair"].other[0].tolist() == [0, 1, 2] and copy["pair"].other[1] == "text"
    assert copy["object"] == "a clone" and type(batch["object"]) is Cloning
