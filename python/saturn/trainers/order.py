"""The order in which a trainer's loader would give its samples, epoch by epoch.

A trainer shuffles by a generator of its own that is seeded with (seed, epoch), so its order follows
from these alone, as a task's order must. Other samplers (by length, or of the user's own) draw from
the process's random stream when an epoch begins, wherever that stands; `training.draws` says where.
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
    """A loader of the same batches, in the trainer's order wherever it is begun.

    `start` is where the random streams stand when the trainer begins to train, `seed` with what
    they were seeded last. `evaluates` where it is the loader of evaluations.
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
        generator=torch.Generator(),  # what it draws is drawn by `begin`
        **workers,
    )
    return made


def draw_for_workers() -> None:
    """Draw what a loader draws when it is iterated, as a seed for its workers."""
    torch.empty((), dtype=torch.int64).random_()


class TrainerBatches(Sampler[list[int]]):
    """The indices of each batch of the epoch that `set_epoch` has named."""

    def __init__(
        self,
        batch_sampler: Iterable[list[int]],
        *,
        seed: int | None,
        start: RandomState,
        keeps_workers: bool,
    ) -> None:
        """`seed` is for a random sampler; None where that draws from the process's stream.

        `keeps_workers`: the loader draws a seed for its workers in the first epoch alone.
        """
        # In a tuple, so that nobody who looks for samplers finds and seeds them.
        self._held = (batch_sampler,)
        self._own = tuple(
            (part, drawing.state_of(part))
            for part in parts_of(batch_sampler)
            if drawing.is_generator(part)
        )
        self._seed, self._start, self._keeps_workers = seed, start, keeps_workers
        self._start_of: Callable[[int], RandomState] | None = None
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """What comes is of this epoch."""
        self._epoch = epoch

    def follow(self, start_of: Callable[[int], RandomState]) -> None:
        """`start_of` says where the process's streams stand when an epoch begins."""
        self._start_of = start_of

    @property
    def follows_stream(self) -> bool:
        """Whether the order of an epoch is known only when all before it is done."""
        is_plain = type(self._held[0]) is BatchSampler
        return not self._is_seeded and not (
            is_plain and isinstance(self._sampler, SequentialSampler)
        )

    def __len__(self) -> int:
        return len(self._held[0])  # type: ignore[arg-type]

    def begin(self, epoch: int) -> None:
        """Draw what an epoch's beginning draws from the random streams, as they stand."""
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
        return getattr(self._held[0], "sampler", None)

    @property
    def _is_seeded(self) -> bool:
        return isinstance(self._sampler, RandomSampler) and self._seed is not None

    def _draw(self, epoch: int) -> list[list[int]]:
        """An epoch's batches, drawn from the random streams as they stand."""
        batch_sampler = self._held[0]
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
        for part in (self._held[0], self._sampler):
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(epoch)


class EvaluationBatches(TrainerBatches):
    """The same of an evaluation: each begins anew, but for loaders that keep their workers."""

    def set_epoch(self, epoch: int) -> None:
        """An evaluation is of no epoch."""

    def begin(self, epoch: int) -> None:
        """Begin the evaluation of this number, from 0, where the random streams stand."""
        self._start = RandomState.now(torch.device("cpu"))
        self._epoch = epoch if self._keeps_workers else 0
        super().begin(self._epoch)
