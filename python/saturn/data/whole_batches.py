"""A loader's batches, each whole, dealt to data ranks: the data of an evaluation.

Batches are dealt in rounds, one for each data rank, so that ranks whose forwards share collectives
run equally many. In the last round a rank may have no batch; the round's first batch then stands in
for it, without counting.

The batches and their order are the same each time, on any number of ranks. From a map-style
dataset, a rank fetches only its own batches; a stream it reads in full.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from saturn.data.fetch import FetchKey, fetched
from saturn.data.sampling import epoch_batches, num_batches
from saturn.data.slices import Data
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function
from saturn.rank.hidden_group import hidden_group

#: A loader without length that gives more batches than this is assumed to be endless.
MOST_UNTOLD = 10_000


@dataclass(frozen=True)
class Dealt:
    """One batch, as one rank gets it."""

    number: int  # the batch's number in the loader's order, from 0
    batch: Any
    counts: bool  # False if it only stands in for a missing batch


class WholeBatches(Data):
    """The batches of one pass through a loader."""

    def __init__(
        self,
        get_dataloader: Callable[[], Any],
        *,
        seed: int,
        most: int | None,
        pin_memory: bool = False,
    ) -> None:
        """At most `most` batches; all if it is None. Raises `TaskError` without a loader."""
        # What is kept of a batch for the metrics, such as its labels, may be the batch's own.
        super().__init__(get_dataloader, seed=seed, pin_memory=pin_memory, holds_several=True)
        self._most = most
        self._was_read = False

    @property
    def number(self) -> int | None:
        """The number of batches; None if the loader has no length."""
        known = [one for one in (num_batches(self.loader), self._most) if one is not None]
        return None if num_batches(self.loader) is None else min(known)

    def dealt(self, data_rank: int, data_size: int) -> Generator[Dealt, None, None]:
        """One rank's batch of each round, from the first round on.

        Raises `TaskError` if there is no batch, or no end of batches.
        """
        if self._is_map_style:
            return self._dealt_by_indices(data_rank, data_size)
        return self._dealt_from_stream(data_rank, data_size)

    @property
    def _limit(self) -> int | None:
        """Most batches to read; one too many, if the loader must be shown to be endless."""
        if self._most is not None:
            return self._most
        return None if num_batches(self.loader) is not None else MOST_UNTOLD + 1

    def _expect_an_end(self, found: int) -> None:
        if self._most is None and self._limit is not None and found >= self._limit:
            raise TaskError(
                f"get_dataloader's loader has no length, and no end after {MOST_UNTOLD} batches; "
                "say how many are to be read, as saturn.Evaluation(…, batches=100)"
            )

    def _dealt_by_indices(self, data_rank: int, data_size: int) -> Generator[Dealt, None, None]:
        batches = epoch_batches(self.loader, self._seed, 0, most=self._limit)
        self._expect_an_end(len(batches))
        positions = [0]
        for indices in batches:
            positions.append(positions[-1] + len(indices))
        rounds = range(0, len(batches), data_size)
        numbers = [
            first + data_rank if first + data_rank < len(batches) else first for first in rounds
        ]
        keys = (FetchKey(0, positions[number], batches[number]) for number in numbers)
        found = fetched(self.loader, keys, self._seed, pin_memory=self._pin_memory)
        for first, number in zip(rounds, numbers, strict=True):
            with hidden_group(), task_function("get_dataloader's loader"):
                batch = next(found)
            yield Dealt(number, batch, number == first + data_rank)

    def _dealt_from_stream(self, data_rank: int, data_size: int) -> Generator[Dealt, None, None]:
        if self._is_read_once and self._was_read:
            self.loader = self._make_loader()
        self._was_read = True
        batches = enumerate(islice(self._read_stream(), self._limit))
        total = 0
        while of_round := list(islice(batches, data_size)):
            total += len(of_round)
            self._expect_an_end(total)
            counts = data_rank < len(of_round)
            number, batch = of_round[data_rank if counts else 0]
            yield Dealt(number, batch, counts)
        if total == 0:
            raise TaskError(
                "get_dataloader's loader gave no batch; it must give some each time it is iterated"
            )

    def _read_stream(self) -> Iterator[Any]:
        iterator, number = self._open_stream(0), 0
        while True:
            batch, found = self._next_of_stream(iterator, 0, number)
            if not found:
                return
            yield batch
            number += 1
