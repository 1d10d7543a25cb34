"""Fetch one rank's slices: the dataset that a rank's own DataLoader reads.

The dataset runs in the loader's worker processes, if there are any, so it holds nothing of the
rank. Which slices to fetch is the business of `saturn.data.slices`.
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

from saturn.data import nested, seeds
from saturn.data.drawing import Drawing
from saturn.rank.device_memory import lift
from saturn.rank.orphans import die_with_parent

#: The epoch that each dataset of this process was told last, by the dataset's id: datasets need no
#: hash.
_EPOCHS: dict[int, int] = {}


@dataclass(frozen=True)
class FetchKey:
    """One slice to fetch: the dataset indices of its whole batch, and its part of them."""

    epoch: int
    position: int  # the position of the batch's first index, in samples from the epoch's start
    indices: list[Any]
    low: int = 0
    high: int | None = None  # None: to the end of the batch

    @property
    def own(self) -> tuple[int, int]:
        """(low, high): the slice's part of the batch."""
        return self.low, len(self.indices) if self.high is None else self.high


class SliceDataset(Dataset[Any]):
    """`[FetchKey]` → the collated slice, with every sample fetched under its own seed.

    If a dataset fetches many samples at once and draws random numbers, samples are fetched one by
    one. If collating draws, the whole batch is fetched, collated, and then cut. So a sample's
    numbers don't depend on how its batch is cut.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], seed: int, *, ready_made: bool
    ) -> None:
        self.dataset = dataset
        _EPOCHS.pop(id(dataset), None)  # it may be that of a dataset that is gone
        self._collate = collate
        self._seed = seed
        self._ready_made = ready_made  # whether one index fetches a whole batch
        self._fetching = None if _draws_nothing(dataset) else Drawing(dataset)
        self._collating = None if collate is default_collate else Drawing(collate)
        self._fetches_many = hasattr(dataset, "__getitems__")
        self.draws_in_collating = False
        self._has_looked = False

    def __getitem__(self, key: FetchKey) -> Any:
        self._begin_epoch(key.epoch)
        if self._ready_made:
            (self._fetching or Drawing()).seed(self._sample_seed(key, 0))
            return self._collate(self.dataset[key.indices[0]])
        whole, own = (0, len(key.indices)), key.own
        if not self.draws_in_collating:
            batch = self._collated(key, self._samples(key, *own))
            # The first call may make a generator, which then drew from a seed of its own.
            is_new = not self._has_looked and self._has_new_generators()
            if not is_new and (not self.draws_in_collating or own == whole):
                return batch
        batch = self._collated(key, self._samples(key, *whole))
        return batch if own == whole else _part(batch, *own, len(key.indices))

    def _has_new_generators(self) -> bool:
        self._has_looked = True
        of_samples = self._fetching is not None and self._fetching.look_again()
        of_batch = self._collating is not None and self._collating.look_again()
        self.draws_in_collating |= of_batch
        return of_samples or of_batch

    def _begin_epoch(self, epoch: int) -> None:
        if not callable(set_epoch := getattr(self.dataset, "set_epoch", None)):
            return
        # An evaluation may read the same dataset, and tell it another epoch in between.
        if _EPOCHS.get(id(self.dataset)) != epoch:
            set_epoch(epoch)
            _EPOCHS[id(self.dataset)] = epoch

    def _samples(self, key: FetchKey, low: int, high: int) -> list[Any]:
        indices, dataset, fetching = key.indices[low:high], self.dataset, self._fetching
        if fetching is None:
            return [dataset[index] for index in indices]
        if self._fetches_many:
            fetching.seed(self._sample_seed(key, low))
            since = fetching.now()
            samples = dataset.__getitems__(indices)
            if len(indices) == 1 or not fetching.has_drawn(since):
                return list(samples)
            self._fetches_many = False
        many = getattr(dataset, "__getitems__", None)
        samples = []
        for offset, index in enumerate(indices, start=low):
            fetching.seed(self._sample_seed(key, offset))
            samples.append(dataset[index] if many is None else many([index])[0])
        return samples

    def _collated(self, key: FetchKey, samples: list[Any]) -> Any:
        collating = self._collating
        if collating is None:
            return self._collate(samples)
        collating.seed(seeds.collate_seed(self._seed, key.epoch, key.position))
        if self.draws_in_collating:
            return self._collate(samples)
        since = collating.now()
        batch = self._collate(samples)
        if collating.has_drawn(since):
            self.draws_in_collating = True
        return batch

    def _sample_seed(self, key: FetchKey, offset: int) -> int:
        return seeds.sample_seed(self._seed, key.epoch, key.position + offset)


def _part(batch: Any, low: int, high: int, size: int) -> Any:
    """Samples `low` to `high` of a collated batch of `size` samples."""
    if (found := nested.num_samples(batch)) != size:
        raise nested.CutError(
            f"get_dataloader's collate function draws random numbers, so a batch is collated as a "
            f"whole and cut then; but of {size} samples it makes arrays of {found}"
        )
    return nested.take(batch, low, high)


class WorkerStart:
    """The start of a loader's worker process: bind it to its rank, then run the task's start."""

    def __init__(self, worker_init_fn: Callable[[int], Any] | None) -> None:
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker_id: int) -> None:
        die_with_parent()
        lift()  # the worker inherits its rank's limit, but holds data in host memory
        if self._worker_init_fn is None:
            return
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, SliceDataset):
            # WorkerInfo refuses plain assignment. Its `dataset` is Saturn's, but the task's
            # function expects its own, often to open files on it.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        self._worker_init_fn(worker_id)


def fetched(
    loader: DataLoader[Any], keys: Iterator[FetchKey], seed: int, *, pin_memory: bool
) -> Iterator[Any]:
    """The slices for `keys`, fetched as the loader says: by worker processes or without."""
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
    """The collate function of the rank's loader: `SliceDataset` has already collated."""
    return value


def _draws_nothing(dataset: Any) -> bool:
    """Whether fetching from `dataset` certainly draws no random number."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset
