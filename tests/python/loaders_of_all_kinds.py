"""Loaders of every kind, and their reading by `Data`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from saturn.data.slices import Data, Position, Slice
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

NUM_SAMPLES = 23
SEED = 5


class Numbers(Dataset[Any]):
    """Sample i is (i, 10 i)."""

    def __init__(self, num_samples: int = NUM_SAMPLES) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(float(index)), torch.tensor(10 * index)


class Augmented(Numbers):
    """Draws from every generator there is."""

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(()).item() + random.random() + np.random.rand()
        return torch.tensor([index, noise], dtype=torch.float64), torch.tensor(index)


class Bulk(Numbers):
    """Fetches many at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class ReadyMade(Dataset[Any]):
    """Each item is a whole batch, of 4, 5, 6 … samples."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        size = 4 + index
        return {"x": torch.arange(size) + 100 * index, "y": torch.ones(size, 2)}


class Stream(IterableDataset[Any]):
    """Shuffles with whatever generator is global; shared out over loader workers."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        order = torch.randperm(NUM_SAMPLES, generator=torch.Generator().manual_seed(1)).tolist()
        for number, index in enumerate(order):
            if info is None or number % info.num_workers == info.id:
                yield torch.tensor(float(index)), torch.tensor(10 * index)


class RandomStream(IterableDataset[Any]):
    """Draws as it goes."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(12):
            yield torch.tensor([index, torch.rand(()).item()]), torch.tensor(index)


class EvenFirst(Sampler[int]):
    """A sampler of one's own, with a generator of one's own."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.numpy = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        order = list(range(0, NUM_SAMPLES, 2))
        self.random.shuffle(order)
        rest = np.arange(1, NUM_SAMPLES, 2)
        self.numpy.shuffle(rest)
        return iter(order + rest.tolist())

    def __len__(self) -> int:
        return NUM_SAMPLES


class Growing(Sampler[list[int]]):
    """A batch sampler whose batches grow, in a new order each epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = [(index + 3 * self.epoch) % NUM_SAMPLES for index in range(NUM_SAMPLES)]
        start = 0
        for size in (1, 2, 4, 7, 9):
            yield order[start : start + size]
            start += size

    def __len__(self) -> int:
        return 5


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(99)


class ShufflingStream(IterableDataset[Any]):
    """A stream whose own generator runs on from epoch to epoch."""

    def __init__(self) -> None:
        self.rng = random.Random(0)

    def __iter__(self) -> Iterator[Any]:
        order = list(range(NUM_SAMPLES))
        self.rng.shuffle(order)
        return iter([Numbers()[index] for index in order])


LOADERS: dict[str, Callable[[], Any]] = {
    "stream with a generator": lambda: DataLoader(ShufflingStream(), 5),
    "sequential": lambda: DataLoader(Numbers(), batch_size=5),
    "shuffled": lambda: DataLoader(Numbers(), batch_size=5, shuffle=True),
    "drop_last": lambda: DataLoader(Numbers(), batch_size=5, shuffle=True, drop_last=True),
    "own generator": lambda: DataLoader(Numbers(), 5, shuffle=True, generator=generator()),
    "weighted": lambda: DataLoader(
        Numbers(), 5, sampler=WeightedRandomSampler(torch.arange(1.0, 24.0), NUM_SAMPLES)
    ),
    "subset sampler": lambda: DataLoader(Numbers(), 4, sampler=SubsetRandomSampler(range(3, 19))),
    "subset": lambda: DataLoader(Subset(Numbers(), range(2, 20)), 4, shuffle=True),
    "with replacement": lambda: DataLoader(
        Numbers(), 5, sampler=RandomSampler(Numbers(), replacement=True, num_samples=17)
    ),
    "own sampler": lambda: DataLoader(Numbers(), 5, sampler=EvenFirst()),
    "own batch sampler": lambda: DataLoader(Numbers(), batch_sampler=Growing()),
    "batch sampler": lambda: DataLoader(
        Numbers(), batch_sampler=BatchSampler(RandomSampler(Numbers()), 4, drop_last=False)
    ),
    "bulk": lambda: DataLoader(Bulk(), 5, shuffle=True),
    "tensors": lambda: DataLoader(
        TensorDataset(torch.arange(23.0), torch.arange(23) * 10), 5, shuffle=True
    ),
    "augmented": lambda: DataLoader(Augmented(), 5, shuffle=True),
    "augmented in workers": lambda: DataLoader(Augmented(), 5, shuffle=True, num_workers=2),
    "workers": lambda: DataLoader(Numbers(), 5, shuffle=True, num_workers=1, prefetch_factor=3),
    "pinned": lambda: DataLoader(Numbers(), 5, pin_memory=True),
    "batch_size=None": lambda: DataLoader(ReadyMade(), batch_size=None, shuffle=True),
    "stream": lambda: DataLoader(Stream(), batch_size=5),
    "stream in workers": lambda: DataLoader(Stream(), batch_size=5, num_workers=2),
    "random stream": lambda: DataLoader(RandomStream(), batch_size=5),
    "stream of batches": lambda: DataLoader(Stream(), batch_size=None, collate_fn=unsqueezed),
    "list": lambda: [pair(4), pair(3), pair(5)],
    "generator": lambda: (pair(size) for size in (4, 3, 5)),
}


def unsqueezed(sample: Any) -> Any:
    return sample[0].unsqueeze(0), sample[1].unsqueeze(0)


def pair(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(float(size)) + 10 * size, torch.arange(size)


def read(
    loader: Callable[[], Any], count: int, start: Position | None = None, **layout: int
) -> list[Slice]:
    slices = Data(loader, seed=SEED).slices(start or Position(), **layout)
    found = list(islice(slices, count))
    slices.close()
    return found


def tensors(batch: Any) -> list[torch.Tensor]:
    return list(batch.values()) if isinstance(batch, dict) else list(batch)
