"""The order in which a trainer's loader would give its samples, epoch by epoch.

A trainer shuffles by a generator of its own that is seeded with (seed, epoch), so its order follows
from these alone, as a task's order must. Other samplers (by length, or of the user's own) draw from
the process's random stream, wherever that stands; here they draw from where it stands at the
trainer's beginning, with what its loader draws at each epoch's start. That is the trainer's own
order as long as nothing else draws: neither dropout nor the fetching of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler

from saturn.data import seeds
from saturn.data.seeds import RandomState


def in_order(loader: Any, trainer: Any, start: RandomState) -> Any:
    """A loader of the same batches, in the trainer's order wherever it is begun.

    `start` is where the random streams stand when the trainer begins to train.
    """
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        return loader
    args = trainer.args
    seed = args.seed if args.data_seed is None else args.data_seed
    batches = TrainerBatches(
        loader.batch_sampler,
        seed=seed if args.accelerator_config.use_seedable_sampler else None,
        start=start,
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
        **workers,
    )
    return made


class TrainerBatches(Sampler[list[int]]):
    """The indices of each batch of the epoch that `set_epoch` has named."""

    def __init__(
        self, batch_sampler: Iterable[list[int]], *, seed: int | None, start: RandomState
    ) -> None:
        """`seed` is for a random sampler; None where that draws from the process's stream."""
        # In a tuple, where nobody looks for samplers to be seeded.
        self._held = (batch_sampler,)
        self._seed, self._start = seed, start
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """What comes is of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._held[0])  # type: ignore[arg-type]

    def draw(self) -> None:
        """Draw what an epoch's beginning draws from the random streams, as they stand."""
        torch.empty((), dtype=torch.int64).random_()  # the loader does, for its workers
        if not self._is_seeded:
            list(self._held[0])

    @property
    def _is_seeded(self) -> bool:
        sampler = getattr(self._held[0], "sampler", None)
        return isinstance(sampler, RandomSampler) and self._seed is not None

    def __iter__(self) -> Iterator[list[int]]:
        batch_sampler = self._held[0]
        sampler: Any = getattr(batch_sampler, "sampler", None)
        with seeds.forked():
            if self._is_seeded:
                sampler.generator = torch.Generator().manual_seed((self._seed or 0) + self._epoch)
                return iter(list(batch_sampler))
            self._start.set()
            batches: list[list[int]] = []
            for epoch in range(self._epoch + 1):
                for part in (batch_sampler, sampler):
                    if callable(set_epoch := getattr(part, "set_epoch", None)):
                        set_epoch(epoch)
                torch.empty((), dtype=torch.int64).random_()
                batches = list(batch_sampler)
            return iter(batches)
