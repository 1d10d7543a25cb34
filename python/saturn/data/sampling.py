"""Which samples make up each batch of each epoch: the loader's own samplers draw from the seed.

The loader's own samplers are run, whatever they are, after all their random generators are seeded.
So any rank of any layout, at any time, computes the same order: only (seed, epoch) matter. If a
sampler keeps something from pass to pass, its earlier passes are made again first.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from saturn.data import drawing, seeds
from saturn.data.seeds import RandomState
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function

#: Attributes in which samplers hold other samplers.
_INNER_SAMPLERS = ("sampler", "batch_sampler", "base_sampler")
#: Attributes in which samplers hold the dataset, whose generators are seeded for each batch.
_OF_DATA = ("data_source", "dataset")
#: Batches that are sampled together, because saving and restoring the generators costs time.
_AT_ONCE = 64


class EpochBatches(Iterator[list[Any]]):
    """The dataset indices of each global batch of one epoch; batches may differ in size.

    If the loader has `batch_size=None`, each batch is the single index of a ready-made batch.
    Batches are sampled on request, because an epoch may be long, or endless.
    """

    def __init__(self, loader: DataLoader[Any], seed: int, epoch: int) -> None:
        """Raises `TaskError` if there is no batch."""
        parts = list(parts_of(loader.batch_sampler, loader.sampler, loader.generator))
        self._own = [part for part in parts if drawing.is_generator(part)]
        self._ahead: deque[list[Any]] = deque()
        with seeds.forked(), task_function("get_dataloader's sampler"):
            epoch_seed = seeds.epoch_seed(seed, epoch)
            seeds.seed_fetch(epoch_seed)
            for part in parts:
                _seed_part(part, epoch_seed, epoch)
            if loader.batch_sampler is not None:
                self._batches: Iterator[list[Any]] = map(list, iter(loader.batch_sampler))
            else:
                self._batches = ([index] for index in iter(loader.sampler))
            self._keep()
        if self.is_over:
            raise TaskError(
                "get_dataloader returned a loader without batches; the dataset is empty, or "
                "drop_last drops its only, incomplete batch"
            )

    @property
    def is_over(self) -> bool:
        """Whether no batch is left."""
        if not self._ahead:
            self._sample()
        return not self._ahead

    def __next__(self) -> list[Any]:
        if self.is_over:
            raise StopIteration
        return self._ahead.popleft()

    def _sample(self) -> None:
        # Between two calls, other code may draw from these generators; neither may disturb the
        # other.
        others = [drawing.state_of(generator) for generator in self._own]
        with seeds.forked(), task_function("get_dataloader's sampler"):
            self._state.set()
            for generator, state in zip(self._own, self._states, strict=True):
                drawing.set_state(generator, state)
            self._ahead.extend(islice(self._batches, _AT_ONCE))
            self._keep()
        for generator, state in zip(self._own, others, strict=True):
            drawing.set_state(generator, state)

    def _keep(self) -> None:
        self._state = RandomState.now(torch.device("cpu"))
        self._states = [drawing.state_of(generator) for generator in self._own]


def epoch_batches(
    loader: DataLoader[Any], seed: int, epoch: int, *, most: int | None = None
) -> list[list[Any]]:
    """All batches of one epoch; at most `most`, if given."""
    return list(islice(EpochBatches(loader, seed, epoch), most))


def catch_up(loader: DataLoader[Any], seed: int, epoch: int) -> int:
    """Bring the loader's samplers, which are fresh, to where they stand before `epoch`.

    A sampler may keep something from pass to pass: it counts passes, or shuffles a list in place.
    Then its earlier passes are made again. Returns their number.
    """
    parts = list(parts_of(loader.batch_sampler, loader.sampler, loader.generator))
    own = [part for part in parts if not _keeps_nothing(part)]
    for passed in range(epoch if own else 0):
        before = _memory_of(own)
        deque(EpochBatches(loader, seed, passed), maxlen=0)
        if before is not None and _memory_of(own) == before:
            return passed + 1
    return epoch if own else 0


def _keeps_nothing(part: Any) -> bool:
    """Whether a sampler is known to keep nothing but generators from pass to pass."""
    of_torch = type(part).__module__.startswith("torch.utils.data")
    return of_torch or drawing.is_generator(part) or getattr(part, "seeds_itself", False)


def _memory_of(parts: list[Any]) -> bytes | None:
    """What samplers hold beside data, generators and other samplers; None if it can't be told."""
    held = [
        {
            name: value
            for name, value in getattr(part, "__dict__", {}).items()
            if name not in (*_OF_DATA, *_INNER_SAMPLERS)
            and not isinstance(value, Sampler | Dataset)
            and not drawing.is_generator(value)
        }
        for part in parts
    ]
    try:
        return pickle.dumps(held)
    except Exception:  # objects may have reasons of their own not to be pickled
        return None


def num_batches(loader: Any) -> int | None:
    """Batches in one pass over `loader`; None if the loader doesn't say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def parts_of(*samplers: Any) -> Iterator[Any]:
    """The samplers, and all samplers and generators that they hold, each once.

    A sampler with a true attribute `seeds_itself` has no parts: it sets its generators itself.
    """
    seen: set[int] = set()
    pending = list(samplers)
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if getattr(part, "seeds_itself", False):
            continue
        for name, value in getattr(part, "__dict__", {}).items():
            if name in _INNER_SAMPLERS or isinstance(value, Sampler):
                pending.append(value)
            elif name not in _OF_DATA:
                pending.extend(drawing.generators_in((value,)))


def _seed_part(part: Any, epoch_seed: int, epoch: int) -> None:
    if drawing.is_generator(part):
        drawing.seed_generator(part, epoch_seed)
    elif callable(set_epoch := getattr(part, "set_epoch", None)):
        set_epoch(epoch)
