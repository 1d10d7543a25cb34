"""Which samples of a step one rank gets: its part of each batch, or of all batches joined.

If gradients are accumulated over small batches, a part of each batch may leave ranks without
samples, and devices without work. With sixteen batches of one sample, one of two ranks would always
have nothing. Joined to one batch of sixteen, each rank gets eight samples, in slices no larger than
a batch was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saturn.data.fetch import FetchKey


@dataclass(frozen=True)
class Planned:
    """A slice that was requested from the loader: its size, and the position after it."""

    num_samples: int
    num_global: int
    epoch: int
    batch: int
    #: How many batches training advances with it, and samples, if these differ from its batch's.
    batches: int = 1
    passed: int | None = None
    ends_step: bool = True
    #: How many batches its step has, if they were joined.
    step_batches: int | None = None


@dataclass(frozen=True)
class Dealing:
    """How one rank gets its part of a step's batches."""

    #: How many batches the next step takes, given the number of batches done.
    next_step: Callable[[int], int]
    data_rank: int
    data_size: int
    #: Whether batches of these sizes may be joined and dealt as one.
    deals: Callable[[Sequence[int]], bool]

    def keys(
        self,
        of_step: Sequence[list[Any]],
        epoch: int,
        first_batch: int,
        position: int,
        after: tuple[int, int],
        planned: deque[Planned],
    ) -> Iterator[FetchKey]:
        """What to fetch for one step, which starts at a batch and sample position of an epoch.

        `after` is the epoch and batch that come next. Each slice's size is added to `planned`.
        """
        if len(of_step) > 1 and self.deals([len(batch) for batch in of_step]):
            yield from self._of_all(of_step, epoch, position, after, planned)
            return
        for number, batch in enumerate(of_step, start=first_batch + 1):
            low, high = bounds(len(batch), self.data_rank, self.data_size)
            is_last = number == first_batch + len(of_step)
            stands = after if is_last else (epoch, number)
            planned.append(Planned(high - low, len(batch), *stands, ends_step=is_last))
            yield FetchKey(epoch, position, batch, *own_part(low, high))
            position += len(batch)

    def _of_all(
        self,
        of_step: Sequence[list[Any]],
        epoch: int,
        position: int,
        after: tuple[int, int],
        planned: deque[Planned],
    ) -> Iterator[FetchKey]:
        every = [index for batch in of_step for index in batch]
        largest = max(map(len, of_step))
        low, high = bounds(len(every), self.data_rank, self.data_size)
        # As many slices as the largest rank's part needs, because all ranks take part in each.
        most = -(len(every) // -self.data_size)
        number = -(most // -largest)
        for piece in range(number):
            start, stop = bounds(high - low, piece, number)
            is_last = piece + 1 == number
            planned.append(
                Planned(
                    *(stop - start, largest, *after),
                    batches=len(of_step) - number + 1 if is_last else 1,
                    passed=len(every) if is_last else 0,
                    ends_step=is_last,
                    step_batches=len(of_step),
                )
            )
            first = low + start if start < stop else 0
            own = every[low + start : low + stop] or every[:1]
            yield FetchKey(epoch, position + first, own)


def own_part(low: int, high: int) -> tuple[int, int]:
    """The samples that a rank fetches: a rank without samples fetches the first, with weight 0.

    So every rank takes part in every collective.
    """
    return (low, high) if low < high else (0, 1)


def bounds(size: int, data_rank: int, data_size: int) -> tuple[int, int]:
    """The part of `size` samples for one of `data_size` ranks; parts differ by at most one."""
    return size * data_rank // data_size, size * (data_rank + 1) // data_size
