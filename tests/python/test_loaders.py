"""Loaders of every kind: what the ranks read is the global batch, from any position."""

from __future__ import annotations

import random
import re
import threading
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from loaders_of_all_kinds import LOADERS, NUM_SAMPLES, SEED, Augmented, Numbers, read, tensors
from saturn.data import seeds
from saturn.data.sampling import epoch_batches
from saturn.data.slices import Data, Position
from saturn.rank.exceptions import TaskError
from torch.utils.data import DataLoader, Sampler, TensorDataset, get_worker_info

# Newer Pythons warn of the forks that a DataLoader makes for its workers.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.slow(quick=[f"7-{kind}" for kind in LOADERS])
@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("data_size", [2, 3, 7])
def test_the_ranks_slices_are_the_global_batch(kind: str, data_size: int) -> None:
    whole = read(LOADERS[kind], 9)
    parts = [
        read(LOADERS[kind], 9, data_rank=rank, data_size=data_size) for rank in range(data_size)
    ]
    for step, expected in enumerate(whole):
        pieces = [part[step] for part in parts]
        assert sum(piece.num_samples for piece in pieces) == expected.num_samples
        assert {piece.num_global for piece in pieces} == {expected.num_samples}
        assert {piece.after for piece in pieces} == {expected.after}
        sizes = [piece.num_samples for piece in pieces]
        assert max(sizes) - min(sizes) <= 1
        for number, tensor in enumerate(tensors(expected.batch)):
            counted = [
                tensors(piece.batch)[number][: piece.num_samples]
                for piece in pieces
                if piece.num_samples
            ]
            assert torch.equal(torch.cat(counted), tensor)
        # A rank without samples has one to compute on all the same.
        assert all(len(tensors(piece.batch)[0]) >= 1 for piece in pieces)


@pytest.mark.parametrize("kind", LOADERS)
def test_reading_goes_on_from_any_position(kind: str) -> None:
    whole = read(LOADERS[kind], 13)
    for start in (1, 4, 5, 8, 10):
        resumed = read(LOADERS[kind], 13 - start, whole[start - 1].after)
        for expected, found in zip(whole[start:], resumed, strict=True):
            assert found.after == expected.after and found.num_global == expected.num_global
            for one, other in zip(tensors(expected.batch), tensors(found.batch), strict=True):
                assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["shuffled", "weighted", "own sampler", "augmented"])
def test_epochs_differ_and_seeds_decide(kind: str) -> None:
    loader = LOADERS[kind]
    assert isinstance(loader(), DataLoader)
    assert epoch_batches(loader(), SEED, 0) == epoch_batches(loader(), SEED, 0)
    assert epoch_batches(loader(), SEED, 0) != epoch_batches(loader(), SEED, 1)
    assert epoch_batches(loader(), SEED, 0) != epoch_batches(loader(), SEED + 1, 0)


def test_a_sample_draws_from_the_seed_of_its_place_in_the_epoch_however_it_is_cut() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(Augmented(12), batch_size=3)

    def drawn(epoch: int, place: int) -> list[float]:
        seeds.seed_fetch(seeds.sample_seed(SEED, epoch, place))
        sample: list[float] = Augmented(12)[place][0].tolist()
        return sample

    expected = [drawn(epoch, place) for epoch in range(2) for place in range(12)]
    batches = read(loader, 8)
    assert [sample for piece in batches for sample in piece.batch[0].tolist()] == expected
    for deals in (lambda sizes: True, lambda sizes: False):  # whether a step's batches are joined
        steps = Data(loader, seed=SEED).steps(
            *(Position(), lambda done: 2), data_rank=0, data_size=1, deals=deals
        )
        pieces = [piece for step in islice(steps, 4) for piece in step]
        steps.close()
        assert [sample for piece in pieces for sample in piece.batch[0].tolist()] == expected


class CountedBulk(Augmented):
    """Fetches many at once, counts them, and draws."""

    fetched = 0

    def __getitems__(self, indices: list[int]) -> list[Any]:
        CountedBulk.fetched += len(indices)
        return [self[index] for index in indices]


def test_once_samples_are_known_to_draw_each_is_fetched_once() -> None:
    CountedBulk.fetched = 0
    read(lambda: DataLoader(CountedBulk(20), 5), 4)
    assert CountedBulk.fetched == 20 + 5, "only the first batch shows it"


def test_the_samples_that_are_looked_at_first_are_those_of_the_first_step() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(Augmented(), 4, shuffle=True)

    whole, *parts = Data(loader, seed=SEED).parts_of_first(4)
    first = read(loader, 1)[0].batch
    for number, tensor in enumerate(first):
        assert torch.equal(whole[number], tensor)
        assert torch.equal(torch.cat([part[number] for part in parts]), tensor)


def test_a_loader_whose_workers_were_taken_from_it_fetches_by_itself() -> None:
    def loader() -> DataLoader[Any]:
        made = DataLoader(Numbers(), 5, num_workers=2, prefetch_factor=3)
        made.num_workers = 0
        return made

    expected = read(LOADERS["sequential"], 6)
    for one, other in zip(expected, read(loader, 6), strict=True):
        assert torch.equal(one.batch[0], other.batch[0])


def test_every_sample_of_an_epoch_is_seen_once() -> None:
    for kind in ("sequential", "shuffled", "own sampler", "own batch sampler"):
        seen = [index for batch in epoch_batches(LOADERS[kind](), SEED, 3) for index in batch]
        assert sorted(seen) == list(range(NUM_SAMPLES)), kind


def test_samples_seen_are_counted() -> None:
    assert [piece.after.samples for piece in read(LOADERS["own batch sampler"], 6)] == [
        *(1, 3, 7, 14, 23),
        24,
    ]
    assert read(LOADERS["batch_size=None"], 4)[-1].after.samples == 4 + 5 + 6 + 7


def test_reading_leaves_the_order_to_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = read(LOADERS["shuffled"], 3)
    torch.manual_seed(2)
    random.seed(2)
    other = read(LOADERS["shuffled"], 3)
    assert all(torch.equal(a.batch[0], b.batch[0]) for a, b in zip(one, other, strict=True))


class ByClass(Sampler[int]):
    """A sampler with a generator of its own for each class, in a list and in an object."""

    def __init__(self) -> None:
        self.rngs = [random.Random(number) for number in range(2)]
        self.helper = SimpleNamespace(order=random.Random(2))

    def __iter__(self) -> Iterator[int]:
        classes = [list(range(0, NUM_SAMPLES, 2)), list(range(1, NUM_SAMPLES, 2))]
        for rng, indices in zip(self.rngs, classes, strict=True):
            rng.shuffle(indices)
        self.helper.order.shuffle(classes)
        return iter([index for indices in classes for index in indices])

    def __len__(self) -> int:
        return NUM_SAMPLES


def test_generators_in_lists_and_objects_of_a_sampler_are_seeded_with_each_epoch() -> None:
    loader = DataLoader(Numbers(), 5, sampler=ByClass())
    drawn = [epoch_batches(loader, SEED, epoch) for epoch in (0, 1, 2)]
    assert drawn[0] != drawn[1] != drawn[2]
    # As after a resume in the second epoch.
    assert epoch_batches(DataLoader(Numbers(), 5, sampler=ByClass()), SEED, 1) == drawn[1]


class InPlace(Sampler[int]):
    """Shuffles its own list at each pass, as bucketing samplers do."""

    def __init__(self) -> None:
        self.order = list(range(20))

    def __iter__(self) -> Iterator[int]:
        random.shuffle(self.order)
        return iter(list(self.order))

    def __len__(self) -> int:
        return 20


class Counting(InPlace):
    """Counts its passes, and turns the order by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.lock = threading.Lock()  # can't be pickled

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter([*self.order[self.passes :], *self.order[: self.passes]])


@pytest.mark.parametrize("sampler", [InPlace, Counting])
@pytest.mark.parametrize("accumulates", [False, True])
def test_samplers_that_keep_something_go_on_from_any_position(
    sampler: type[Sampler[int]], accumulates: bool
) -> None:
    numbers = TensorDataset(torch.arange(20))

    def of_steps(start: Position) -> Iterator[tuple[list[int], Position]]:
        data = Data(lambda: DataLoader(numbers, batch_size=4, sampler=sampler()), seed=1)
        deals = (lambda sizes: True) if accumulates else None
        steps = data.steps(
            start, lambda done: 2 if accumulates else 1, data_rank=0, data_size=1, deals=deals
        )
        for of_step in steps:
            yield [int(n) for piece in of_step for n in piece.batch[0]], of_step[-1].after

    whole = list(islice(of_steps(Position()), 18))
    assert len({tuple(numbers) for numbers, _ in whole}) > 6, "epochs differ"
    for number, (_, after) in enumerate(whole[:-3], start=1):
        assert list(islice(of_steps(after), 3)) == whole[number : number + 3]


def test_samplers_that_keep_nothing_are_not_run_again() -> None:
    passes = []

    class Constant(InPlace):
        def __iter__(self) -> Iterator[int]:
            passes.append(True)
            return iter(self.order)

    numbers = TensorDataset(torch.arange(20))
    data = Data(lambda: DataLoader(numbers, batch_size=4, sampler=Constant()), seed=1)
    next(data.slices(Position(epoch=30)))
    assert len(passes) == 2  # one to see that it keeps nothing, and the epoch's own


def test_a_stream_that_keeps_something_is_told_of_once() -> None:
    class Shuffled:
        def __init__(self) -> None:
            self.order = list(range(8))

        def __iter__(self) -> Iterator[torch.Tensor]:
            random.shuffle(self.order)
            return iter(torch.tensor(self.order).split(4))

    class ByEpoch(Shuffled):
        def set_epoch(self, epoch: int) -> None:
            self.order = list(range(epoch, epoch + 8))

    for stream, told in ((Shuffled, ["order"]), (ByEpoch, [])):
        notes: list[str] = []
        data = Data(stream, seed=1, note=notes.append)
        list(islice(data.slices(Position()), 7))
        assert [re.findall("its own `(.*)` in each pass", note)[0] for note in notes] == told


@pytest.mark.parametrize("deals", [None, lambda sizes: True])
def test_a_length_that_is_not_true_is_told_of_once(deals: Any) -> None:
    class Unequal(Sampler[list[int]]):
        """Batches of as many tokens as fit: their number varies."""

        def __init__(self, length: int) -> None:
            self.length = length

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 1, 2], [3], [4, 5]])

        def __len__(self) -> int:
            return self.length

    numbers = TensorDataset(torch.arange(6))
    for length, told in ((4, ["epoch 0 has had 3 batches, and the loader's length is 4"]), (3, [])):
        notes: list[str] = []
        sampler = Unequal(length)
        data = Data(
            lambda sampler=sampler: DataLoader(numbers, batch_sampler=sampler),  # type: ignore[misc]
            seed=1,
            note=notes.append,
        )
        steps = data.steps(Position(), lambda done: 1, data_rank=0, data_size=1, deals=deals)
        list(islice(steps, 8))
        assert [note.partition(": ")[0] for note in notes] == told


def test_random_splits_of_the_loader_function_are_the_same_in_every_process() -> None:
    def split() -> DataLoader[Any]:
        train, _ = torch.utils.data.random_split(Numbers(), [15, 8])
        return DataLoader(train, batch_size=5)

    assert torch.equal(read(split, 1)[0].batch[0], read(split, 1)[0].batch[0])


def test_collate_function_and_worker_start_are_kept(tmp_path: Path) -> None:
    class Opens(Numbers):
        handle: str | None = None

        def __getitem__(self, index: int) -> Any:
            assert self.handle == "open"
            return super().__getitem__(index)

    def start(worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.handle = "open"  # type: ignore[attr-defined]
        (tmp_path / str(worker_id)).touch()

    def collate(samples: list[Any]) -> dict[str, torch.Tensor]:
        return {"mine": torch.stack([inputs for inputs, _ in samples])}

    found = read(
        lambda: DataLoader(Opens(), 4, num_workers=2, worker_init_fn=start, collate_fn=collate), 3
    )
    assert torch.equal(found[1].batch["mine"], torch.arange(4.0, 8.0))
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


Point = namedtuple("Point", "x y")


def test_streams_of_nested_batches_are_cut_through_and_through() -> None:
    batch = (
        {"ids": torch.arange(6), "names": list("abcdef"), "scale": torch.tensor(2.0)},
        [Point(torch.arange(6) * 2, np.arange(6)), 7, None],
    )
    first = read(lambda: [batch], 1, data_rank=1, data_size=3)[0].batch
    assert first[0]["ids"].tolist() == [2, 3] and first[0]["names"] == ["c", "d"]
    assert first[0]["scale"] == 2.0 and first[1][1:] == [7, None]
    assert first[1][0].x.tolist() == [4, 6] and first[1][0].y.tolist() == [2, 3]


def test_one_rank_takes_batches_of_any_type_as_they_are() -> None:
    batch = UserDict(text=["a", "b"])
    assert read(lambda: [batch], 1)[0].batch is batch


def test_a_resumed_stream_says_what_it_costs() -> None:
    notes: list[str] = []
    slices = Data(LOADERS["stream"], seed=SEED, note=notes.append).slices(Position(0, 3, 15))
    next(slices)
    assert len(notes) == 1 and "read 3 batches of the stream again" in notes[0]
    notes.clear()
    next(Data(LOADERS["shuffled"], seed=SEED, note=notes.append).slices(Position(0, 3, 15)))
    assert notes == []


class Explodes(Numbers):
    def __getitem__(self, index: int) -> Any:
        raise KeyError("no such sample")


def raising() -> Any:
    raise FileNotFoundError("/data/train.bin")


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (raising, "get_dataloader raised FileNotFoundError: /data/train.bin"),
        (lambda: DataLoader(Explodes(), 4), "get_dataloader's loader raised KeyError"),
        (lambda: DataLoader(Explodes(), 4, num_workers=1), "KeyError: 'no such sample'"),
        (lambda: 7, "get_dataloader returned a int; it must return a DataLoader"),
        (list, "get_dataloader's loader gave no batch in epoch 0"),
        (lambda: DataLoader(Numbers(3), 4, drop_last=True), "drop_last drops its only"),
        (
            lambda: [(torch.zeros(4), torch.zeros(3))],
            "batches hold arrays of 4 and of 3 samples",
        ),
        (lambda: [(torch.zeros(4), list("abcdef"))], "batches hold a list, which Saturn can't cut"),
        (lambda: [({"a"}, torch.zeros(4))], "batches hold a set, which Saturn can't cut"),
        (lambda: ["text"], "batches are a str without any tensor"),
    ],
)
def test_what_is_wrong_with_a_loader_is_said(loader: Callable[[], Any], message: str) -> None:
    with pytest.raises(TaskError) as caught:
        read(loader, 1, data_rank=0, data_size=2)
    assert message in str(caught.value)
