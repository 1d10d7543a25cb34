"""Fetching one rank's slices: the dataset that a rank's own DataLoader reads.

It runs in the loader's worker processes where there are any, so it holds nothing of the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    DataLoader,
    Dataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from saturn.data import seeds
from saturn.rank.device_memory import lift
from saturn.rank.orphans import die_with_parent


@dataclass(frozen=True)
class FetchKey:
    """One slice to fetch: dataset indices, and where they stand in the epoch."""

    epoch: int
    position: int  # of the first index, counted in samples from the start of the epoch
    indices: list[Any]


class SliceDataset(Dataset[Any]):
    """`[FetchKey]` → the collated slice, every sample fetched under its own seed."""

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], seed: int, *, ready_made: bool
    ) -> None:
        self.dataset = dataset
        self._collate = collate
        self._seed = seed
        self._ready_made = ready_made  # one index fetches a whole batch
        self._draws_nothing = collate is default_collate and _draws_nothing(dataset)

    def __getitem__(self, key: FetchKey) -> Any:
        if self._ready_made:
            seeds.seed_fetch(seeds.sample_seed(self._seed, key.epoch, key.position))
            return self._collate(self.dataset[key.indices[0]])
        if self._draws_nothing:
            return self._collate([self.dataset[index] for index in key.indices])
        if hasattr(self.dataset, "__getitems__"):
            # The dataset fetches slices as a whole: one seed for each.
            seeds.seed_fetch(seeds.sample_seed(self._seed, key.epoch, key.position))
            return self._collate(self.dataset.__getitems__(key.indices))
        samples = []
        for offset, index in enumerate(key.indices):
            seeds.seed_fetch(seeds.sample_seed(self._seed, key.epoch, key.position + offset))
            samples.append(self.dataset[index])
        return self._collate(samples)


class WorkerStart:
    """What a loader's worker process does first: die with its rank, then the task's own start."""

    def __init__(self, worker_init_fn: Callable[[int], Any] | None) -> None:
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker_id: int) -> None:
        die_with_parent()
        lift()  # it holds data in host memory, but inherits its rank's limit
        if self._worker_init_fn is None:
            return
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, SliceDataset):
            # WorkerInfo refuses plain assignment. Its `dataset` is ours; the task's function
            # looks for its own, often to open files on it.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        self._worker_init_fn(worker_id)


def fetched(
    loader: DataLoader[Any], keys: Iterator[FetchKey], seed: int, *, pin_memory: bool
) -> Iterator[Any]:
    """What `keys` name of the loader's dataset, fetched as the loader says: by workers or not."""
    dataset = SliceDataset(
        loader.dataset, loader.collate_fn, seed, ready_made=loader.batch_sampler is None
    )
    workers: dict[str, Any] = {}
    if loader.num_workers > 0:
        workers = {
            "timeout": loader.timeout,
            "worker_init_fn": WorkerStart(loader.worker_init_fn),
            "multiprocessing_context": loader.multiprocessing_context,
            "prefetch_factor": loader.prefetch_factor,
        }
    own: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        sampler=keys,
        collate_fn=_same,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory and pin_memory,
        **workers,
    )
    with seeds.forked():
        return iter(own)


def _same(value: Any) -> Any:
    """Collate function of the rank's loader: `SliceDataset` has collated already."""
    return value


def _draws_nothing(dataset: Any) -> bool:
    """Whether fetching from `dataset` surely draws no random number."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset
