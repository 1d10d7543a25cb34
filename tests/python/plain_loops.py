"""Training loops as a user of plain torch writes them: what Saturn's tasks are held against.

Nothing here comes from Saturn, not even its seeds. That takes tasks that draw no random number once
their model and loader are made: models that seed themselves, loaders that keep their order, no
dropout. What draws in fetching or collating is seeded by the documented formula, written out here.
(`reference` has the loops that know Saturn's seeds.)
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
from torch import nn


def epochs_of(loader: Any) -> Iterator[Any]:
    """A loader's batches, epoch after epoch; its dataset, or its sampler, is told of each."""
    epoch = 0
    while True:
        for part in (getattr(loader, "dataset", None), getattr(loader, "sampler", None)):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(
    model: nn.Module,
    batches: Iterable[Any],
    steps: int,
    *,
    loss_of: Callable[[nn.Module, Any], torch.Tensor] | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    accumulate: int = 1,
    max_grad_norm: float | None = None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
) -> dict[int, float]:
    """Train `model`; returns the loss of each step, from 1.

    With `accumulate`, each of so many batches is backpropagated by itself, its loss divided by
    their number.
    """
    if loss_of is None:
        loss_of = cross_entropy
    parameters = [p for p in model.parameters() if p.requires_grad]
    stepper = (optimizer or plain_sgd)(parameters)
    scheduler = schedule(stepper) if schedule is not None else None
    model.train()
    stream, losses = iter(batches), {}
    for step in range(1, steps + 1):
        total = 0.0
        for _ in range(accumulate):
            loss = loss_of(model, next(stream)) / accumulate
            loss.backward()
            total += loss.item()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        stepper.step()
        stepper.zero_grad()
        if scheduler is not None:
            scheduler.step()
        losses[step] = total
    return losses


def cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def plain_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def documented_seed(*parts: int | str) -> int:
    """A seed of a task's data, as docs/reference.md has it."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def seeded_batches(loader: Any, seed: int) -> Iterator[Any]:
    """Batches of a loader that keeps its order, fetched and collated under the documented seeds."""
    epoch = 0
    while True:
        position = 0
        for indices in loader.batch_sampler:
            samples = []
            for number, index in enumerate(indices, start=position):
                seed_all(documented_seed(seed, "sample", epoch, number))
                samples.append(loader.dataset[index])
            seed_all(documented_seed(seed, "collate", epoch, position))
            yield loader.collate_fn(samples)
            position += len(indices)
        epoch += 1
