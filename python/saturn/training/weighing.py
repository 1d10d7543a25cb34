"""How much each slice of a step counts, relative to the whole step.

For most tasks the loss of a step is the mean over everything that counts in its batches. So a
slice's share is its weight divided by the step's total. If the task has a `StepLoss`, the loss of a
step is the sum of its batches' losses, and a slice's share is relative to its own batch.

The ranks begin to sum totals when a step is staged, and wait for the sums when it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from saturn.data.slices import Slice
from saturn.rank.exceptions import TaskError
from saturn.rank.gang import Gang
from saturn.training.objective import TaskObjective
from saturn.training.slicing import LABELS, Slicing
from saturn.training.step_loss import StepItems, StepLoss


@dataclass(frozen=True)
class Shares:
    """How much the slices of one rank count in a step."""

    #: For each slice, its share of the whole step.
    shares: Sequence[float]
    #: For each slice, the weight of its loss in the sum over all ranks.
    weights: Sequence[float]
    #: This rank's part of the divisor of that sum; None: the sum of its weights.
    count: float | None
    items: StepItems


class Weighing:
    """Weighs the slices of one rank for one task."""

    def __init__(
        self,
        gang: Gang,
        slicing: Slicing,
        objective: TaskObjective,
        *,
        data_size: int,
        counts_samples: bool,
        step_loss: StepLoss | None,
        keeps_batches: bool = False,
    ) -> None:
        """With `counts_samples`, slices count by their samples; else the objective weighs them.

        With `keeps_batches`, the batches of a step must stay apart.
        """
        self._gang, self._slicing, self._objective = gang, slicing, objective
        self._data_size, self._counts_samples = data_size, counts_samples
        self._step_loss = step_loss
        parts_add_up = slicing.adds_up or counts_samples
        #: Whether a step's batches may be joined and dealt anew. They may if a sample's weight
        #: depends on nothing of its batch except the batch's size.
        self.may_deal = (
            step_loss is not None and data_size > 1 and parts_add_up and not keeps_batches
        )

    def deals(self, sizes: Sequence[int]) -> bool:
        """Whether batches of these sizes may be joined; means are joined only at equal sizes."""
        return self._slicing.adds_up or min(sizes) == max(sizes)

    def begin(self, slices: Sequence[Slice]) -> Callable[[], Shares]:
        """Begin to weigh; returns a function that waits for all ranks. Every rank calls both."""
        if self._step_loss is not None:
            return self._of_batches(slices, self._step_loss)
        return self._of_step(slices)

    def _of_step(self, slices: Sequence[Slice]) -> Callable[[], Shares]:
        items = StepItems(None, len(slices))
        if self._counts_samples:
            if len(slices) > 1 or self._gang.world_size > 1:
                self._expect_labels(slices)
            counts = [float(piece.num_samples) for piece in slices]
            num_global = float(sum(piece.num_global for piece in slices))
            return lambda: Shares([count / num_global for count in counts], counts, None, items)
        counts = self._counts(slices)
        sums = self._begin_sum([sum(counts)])

        def wait() -> Shares:
            (total,) = sums()
            self._expect_weight(total, slices)
            return Shares([count / total for count in counts], counts, None, items)

        return wait

    def _of_batches(self, slices: Sequence[Slice], step_loss: StepLoss) -> Callable[[], Shares]:
        told = 1.0 if self._gang.rank == 0 else 0.0
        own_items = step_loss.count([piece.batch for piece in slices if piece.num_samples])
        if self._data_size == 1:
            # Every batch is whole, so its share is 1.
            whole = [1.0] * len(slices)
            shares = Shares(whole, whole, told, StepItems(own_items, len(slices)))
            return lambda: shares
        to_add: list[float] = []
        if self._slicing.adds_up:
            counts = [float(piece.num_samples > 0) for piece in slices]
        elif self._counts_samples:
            self._expect_labels(slices)
            counts = [piece.num_samples / piece.num_global for piece in slices]
        else:
            counts = to_add = self._counts(slices)
        num_batches = slices[0].step_batches or len(slices)
        is_counting = step_loss.count([slices[0].batch]) is not None
        sums = self._begin_sum([float(own_items or 0), *to_add])

        def wait() -> Shares:
            num_items, *totals = sums()
            shares = list(counts)
            for number, total in enumerate(totals):
                self._expect_weight(total, slices[number : number + 1])
                shares[number] /= total
            # A tensor in float32, like any loss, as a rank alone would count items.
            items = torch.tensor(num_items) if is_counting else None
            return Shares(shares, shares, told, StepItems(items, num_batches))

        return wait

    def _counts(self, slices: Sequence[Slice]) -> list[float]:
        return [
            self._objective.slice_weight(piece.batch) if piece.num_samples else 0.0
            for piece in slices
        ]

    def _expect_labels(self, slices: Sequence[Slice]) -> None:
        for piece in slices:
            self._slicing.expect_labels(piece.batch)

    def _begin_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        if self._data_size == 1:
            return lambda: list(values)
        # Ranks that share a slice each add its weight, so the sum is divided by their number.
        ranks_a_slice = self._gang.world_size / self._data_size
        of_all = self._gang.begin_sum(values)
        return lambda: [total / ranks_a_slice for total in of_all()]

    def _expect_weight(self, total: float, slices: Sequence[Slice]) -> None:
        if total > 0:
            return
        last = slices[-1].after.batches
        which = (
            f"batch {last}"
            if len(slices) == 1
            else f"batches {last - len(slices) + 1} to {last} together"
        )
        counts_labels = self._slicing.kind == LABELS
        weighed = "the number of labels that are not -100" if counts_labels else "loss_weight"
        raise TaskError(
            f"{weighed} of {which} is {total:g}; it must be positive for a whole step "
            "(for example the number of its tokens)"
        )
