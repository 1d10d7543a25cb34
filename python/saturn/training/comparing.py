"""Compare the loss of a whole with the losses of its parts, for `slice_check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from saturn.data import nested
from saturn.training.label_cases import Counting
from saturn.training.steady import SteadyModel, TooSlowError


class PartRaisedError(Exception):
    """The task's code raises on a part, and did not on the whole; the message is a reason."""


@dataclass(frozen=True)
class Compared:
    """The loss of a whole, and its parts with their losses."""

    whole: float
    batches: Sequence[Any]
    losses: Sequence[float]
    tolerance: float
    #: Of what some entries were replaced by ignored ones; None if they were not.
    ignoring: Counting | None = None
    #: Whether the batches are the task's own, with no labels replaced.
    is_of_task: bool = False

    def is_made_by(self, weigh: Callable[[Any], float]) -> bool:
        """Whether the weighted mean of the parts' losses equals the whole's loss."""
        counted = [
            (weight, loss)
            for weight, loss in zip(map(weigh, self.batches), self.losses, strict=True)
            if weight > 0  # a part without weight may have no mean
        ]
        total = sum(weight for weight, _ in counted)
        return total > 0 and self.same(sum(weight * loss for weight, loss in counted) / total)

    def adds_up(self) -> bool:
        """Whether the parts' losses add up to the whole's."""
        return self.same(sum(self.losses))

    def same(self, other: float) -> bool:
        """Whether `other` is the whole's loss, up to rounding."""
        largest = max(abs(self.whole), *(abs(loss) for loss in self.losses if math.isfinite(loss)))
        return is_same(self.whole, other, self.tolerance * largest)


def compared(
    model: SteadyModel, whole: float, parts: Sequence[Any], *, has_odd_labels: bool = False
) -> Compared:
    """Compute the losses of `parts`, and compare them with the loss of the `whole`.

    Raises `PartRaisedError` if the task's code raises on a part, and did not on the whole.
    """
    try:
        losses = [model.loss(part, has_odd_labels=has_odd_labels) for part in parts]
    except TooSlowError:
        raise
    except Exception as error:
        sizes = texts([nested.num_samples(part) or 0 for part in parts])
        raise PartRaisedError(
            f"its batches can't be cut: the loss of {sizes} samples by themselves raises "
            f"{in_words(error)}"
        ) from error
    return Compared(whole, parts, losses, model.tolerance)


def in_words(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def is_same(one: float, other: float, tolerance: float) -> bool:
    """Whether two losses are the same up to `tolerance`."""
    return abs(one - other) <= tolerance


def num_samples(batch: Any) -> float:
    """The number of a batch's samples, as a weight."""
    return float(nested.num_samples(batch) or 0)


def texts(sizes: Sequence[int]) -> str:
    """Sizes in words: `1, 1 and 2`."""
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
