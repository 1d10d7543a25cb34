"""Which samples make up each batch of each epoch: drawn in the loader's own way, from the seed.

The loader's own samplers are run, whatever they are, after seeding everything they could draw
from. So any rank of any layout, at any time, computes the same order; only (seed, epoch) matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from saturn.data import seeds
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function

#: Attributes under which samplers hold other samplers.
_INNER_SAMPLERS = ("sampler", "batch_sampler", "base_sampler")


def epoch_batches(
    loader: DataLoader[Any], seed: int, epoch: int, *, most: int | None = None
) -> list[list[Any]]:
    """The dataset indices of each global batch of one epoch; batches may differ in size.

    For loaders with `batch_size=None`, each batch is the one index of a ready-made batch. With
    `most`, so many batches at most.
    """
    with seeds.forked(), task_function("get_dataloader's sampler"):
        epoch_seed = seeds.epoch_seed(seed, epoch)
        seeds.seed_fetch(epoch_seed)
        for part in _parts(loader):
            _seed_part(part, epoch_seed, epoch)
        if loader.batch_sampler is not None:
            batches = [list(batch) for batch in islice(loader.batch_sampler, most)]
        else:
            batches = [[index] for index in islice(loader.sampler, most)]
    if not batches:
        raise TaskError(
            "get_dataloader returned a loader without batches; the dataset is empty, or "
            "drop_last drops its only, incomplete batch"
        )
    return batches


def num_batches(loader: Any) -> int | None:
    """Batches in one pass over `loader`; None where it doesn't say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _parts(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's samplers and whatever samplers and generators they hold, each once."""
    seen: set[int] = set()
    pending: list[Any] = [loader.batch_sampler, loader.sampler, loader.generator]
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for name, value in getattr(part, "__dict__", {}).items():
            if (
                name in _INNER_SAMPLERS
                or isinstance(value, Sampler | torch.Generator | random.Random)
                or hasattr(value, "bit_generator")
            ):
                pending.append(value)


def _seed_part(part: Any, epoch_seed: int, epoch: int) -> None:
    if isinstance(part, torch.Generator):
        part.manual_seed(epoch_seed)
    elif isinstance(part, random.Random):
        part.seed(epoch_seed)
    elif hasattr(part, "bit_generator"):  # a numpy Generator
        part.bit_generator.state = type(part.bit_generator)(epoch_seed).state
    elif callable(set_epoch := getattr(part, "set_epoch", None)):
        set_epoch(epoch)
