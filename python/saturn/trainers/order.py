"""The order in which a trainer's loader would give its samples, epoch by epoch.

A trainer shuffles with a generator that is seeded with (seed, epoch). So its order depends on these
alone, as a task's order must. Other samplers (by length, or the user's own) draw from the process's
random stream when an epoch begins. `training.draws` gives the state of that stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from saturn.data import drawing, seeds
from saturn.data.sampling import parts_of
from saturn.data.seeds import RandomState


def in_order(
    loader: Any, trainer: Any, start: RandomState, seed: int, *, evaluates: bool = False
) -> Any:
    """A loader of the same batches in the trainer's order, from whichever epoch it begins.

    `start` is the state of the random streams when the trainer begins to train, and `seed` the last
    seed before. `evaluates` says that it is the loader of evaluations.
    """
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        return loader
    args = trainer.args
    data_seed = seed if args.data_seed is None else args.data_seed
    batches = (EvaluationBatches if evaluates else TrainerBatches)(
        loader.batch_sampler,
        seed=data_seed if args.accelerator_config.use_seedable_sampler else None,
        start=start,
        keeps_workers=loader.persistent_workers,
    )
    workers: dict[str, Any] = {}
    if loader.num_workers > 0:
        workers = {
            "prefetch_factor": loader.prefetch_factor,
            "multiprocessing_context": loader.multiprocessing_context,
            "worker_init_fn": loader.worker_init_fn,
        }
    made: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=batches,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory and torch.cuda.is_available(),
        generator=torch.Generator(),  # `begin` draws instead of this generator
        **workers,
    )
    return made


def draw_for_workers() -> None:
    """Draw the seed for its workers that a loader draws when it is iterated."""
    torch.empty((), dtype=torch.int64).random_()


class TrainerBatches(Sampler[list[int]]):
    """The indices of each batch of the epoch that `set_epoch` has named."""

    #: Code that seeds samplers must leave the generators of this sampler alone.
    seeds_itself = True

    def __init__(
        self,
        batch_sampler: Iterable[list[int]],
        *,
        seed: int | None,
        start: RandomState,
        keeps_workers: bool,
    ) -> None:
        """`seed` is for a random sampler; None if that draws from the process's stream.

        With `keeps_workers`, the loader draws a seed for its workers only in the first epoch.
        """
        self._batches_of = batch_sampler
        self._own = tuple(
            (part, drawing.state_of(part))
            for part in parts_of(batch_sampler)
            if drawing.is_generator(part)
        )
        self._seed, self._start, self._keeps_workers = seed, start, keeps_workers
        self._start_of: Callable[[int], RandomState] | None = None
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the batches to come."""
        self._epoch = epoch

    def follow(self, start_of: Callable[[int], RandomState]) -> None:
        """Take `start_of`, which gives the state of the process's streams at an epoch's start."""
        self._start_of = start_of

    @property
    def follows_stream(self) -> bool:
        """Whether an epoch's order is known only when all earlier epochs are done."""
        is_plain = type(self._batches_of) is BatchSampler
        return not self._is_seeded and not (
            is_plain and isinstance(self._sampler, SequentialSampler)
        )

    def __len__(self) -> int:
        return len(self._batches_of)  # type: ignore[arg-type]

    def begin(self, epoch: int) -> None:
        """Draw from the present random streams what an epoch's beginning draws."""
        if epoch == 0 or not self._keeps_workers:
            draw_for_workers()
        if self.follows_stream:
            self._draw(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        with seeds.forked():
            if self.follows_stream:
                (self._start if self._start_of is None else self._start_of(self._epoch)).set()
                if self._epoch == 0 or not self._keeps_workers:
                    draw_for_workers()
            return iter(self._draw(self._epoch))

    @property
    def _sampler(self) -> Any:
        return getattr(self._batches_of, "sampler", None)

    @property
    def _is_seeded(self) -> bool:
        return isinstance(self._sampler, RandomSampler) and self._seed is not None

    def _draw(self, epoch: int) -> list[list[int]]:
        """An epoch's batches, drawn from the present random streams."""
        batch_sampler = self._batches_of
        if self._is_seeded:
            assert self._seed is not None
            self._sampler.generator = torch.Generator().manual_seed(self._seed + epoch)
            return list(batch_sampler)
        for part, state in self._own:
            drawing.set_state(part, state)
        if self._own:
            with seeds.forked():
                for earlier in range(epoch):
                    self._tell(earlier)
                    list(batch_sampler)
        self._tell(epoch)
        return list(batch_sampler)

    def _tell(self, epoch: int) -> None:
        for part in (self._batches_of, self._sampler):
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(epoch)


class EvaluationBatches(TrainerBatches):
    """The batches of evaluations: each starts anew, unless the loader keeps its workers."""

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: an evaluation belongs to no epoch."""

    def begin(self, epoch: int) -> None:
        """Begin evaluation `epoch`, counted from 0, at the present random streams."""
        self._start = RandomState.now(torch.device("cpu"))
        self._epoch = epoch if self._keeps_workers else 0
        super().begin(self._epoch)
