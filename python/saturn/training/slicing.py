"""How a task's batches may be sliced, and how much a slice counts: the outcome of `slice_check`.

The outcome belongs to the task, like its seed: all its attempts and trials use the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from saturn.data import nested
from saturn.rank.exceptions import PartsSkippedError
from saturn.tasks.definition import TaskDefinition

#: Slices count by their samples.
SAMPLES = "samples"
#: Slices count by those of their labels that are not ignored, or by the ones of a mask.
LABELS = "labels"
#: The unweighted losses of slices add up to the loss of the whole.
SUMS = "sums"
#: The task's own `loss_weight` gives the weight of a slice, and the check found it right.
GIVEN = "given"
#: The loss of a batch is not made of the losses of its parts, so no batch is ever cut.
WHOLE = "whole"

KINDS = (SAMPLES, LABELS, SUMS, GIVEN, WHOLE)
#: The label that torch's losses and those of transformers ignore.
IGNORED = -100


class LabelsDifferError(Exception):
    """The samples of a task do not all have the same number of labels that count."""


@dataclass(frozen=True)
class Slicing:
    """How the batches of one task may be sliced."""

    kind: str = SAMPLES
    #: The name of the batch's array with the labels that count (see `nested.arrays`).
    labels: str | None = None
    #: The position of the first label that counts: 1 for models that predict the next token.
    first_label: int = 0
    #: The label that does not count.
    ignored: int = IGNORED
    #: Whether the array is a mask: its ones count, or its weights.
    is_mask: bool = False
    #: How many labels count in each sample, if that is the reason why slices count by samples. A
    #: sample with another number changes the finding from there on (see `by_labels`).
    labels_each: int | None = None
    #: Why no batch may be cut once labels differ; None if slices then count by their labels.
    whole_if_labels_differ: str | None = None
    #: Whether a batch's first dimension counts its samples. If not, as where time comes first, a
    #: slice is still collated from its samples, but a technique must not cut it further.
    samples_first: bool = True
    #: Whether a forward changes buffers or parameters of the model, equally on every slice.
    changes_buffers: bool = False
    #: Whether a forward runs other layers for other draws or other samples; then devices that
    #: gather layers for each other would mix them up.
    skips_layers: bool = False
    #: The same of other parts with parameters, such as experts: some devices may use them, and
    #: others not.
    skips_parts: bool = False
    #: The error of the step that first showed skipped parts, if the check had not seen them; else
    #: None. Techniques are asked which knobs help (`Technique.retry_knobs`).
    skipped_later: str | None = None
    #: Whether collating draws random numbers: batches are then collated whole before they are cut.
    draws_in_collating: bool = False
    #: Why no batch may be cut, and what the user can change; None if batches may be cut.
    reason: str | None = None
    #: Why the check could not be made, so that samples, or `loss_weight`, are trusted; None if it
    #: was made.
    unchecked: str | None = None

    @classmethod
    def from_json(cls, data: Any) -> Slicing:
        """Read what `as_json` returned; raises `TypeError` or `ValueError` for anything else."""
        slicing = cls(**data)
        if slicing.kind not in KINDS or (slicing.kind == WHOLE) != (slicing.reason is not None):
            raise ValueError(f"{data} says nothing of slices")
        return slicing

    def as_json(self) -> dict[str, Any]:
        """This finding as plain data."""
        return asdict(self)

    @property
    def adds_up(self) -> bool:
        """Whether the losses of a batch's parts are summed, not averaged."""
        return self.kind == SUMS

    def weigher(self, definition: TaskDefinition) -> Callable[[Any], float] | None:
        """The function that weighs a batch or a slice; None if its samples count."""
        if self.kind == LABELS:
            return self.counted_labels
        loss_weight = definition.loss_weight
        return None if loss_weight is None else lambda batch: float(loss_weight(batch))

    def counted_labels(self, batch: Any) -> float:
        """How many labels of `batch` count."""
        labels = self._labels(batch)
        if labels is None:
            return 0.0
        if self.first_label and labels.dim() > 1:
            labels = labels[:, self.first_label :]
        return float(labels.sum() if self.is_mask else (labels != self.ignored).sum())

    def with_labels(self, batch: Any) -> Any:
        """`batch` with labels that count in place of ignored ones, so that its loss is a number.

        This is for a slice without weight whose rank must take part all the same. The gradient of
        a mean over no labels may be NaN, which a share of zero does not remove. (Only torch's own
        means give ignored labels no gradient.) Any class would do; class 0 exists in every model,
        and class 1 in every model that ignores class 0.
        """
        if self.kind != LABELS:
            return batch
        labels = self._labels(batch)
        if self.labels is None or labels is None:
            return batch
        counting = 1 if self.ignored == 0 else 0
        counted = labels.masked_fill(labels == self.ignored, counting)
        return nested.replaced(batch, self.labels, counted)

    def expect_labels(self, batch: Any) -> None:
        """Raise `LabelsDifferError` if the samples of `batch` don't have the expected labels."""
        if self.labels_each is None:
            return
        expected = self.labels_each * (nested.num_samples(batch) or 0)
        if (counted := self.counted_labels(batch)) != expected:
            then = (
                self.whole_if_labels_differ
                or "slices count by their labels, and not by their samples"
            )
            raise LabelsDifferError(
                f"{counted:g} labels count in a slice of the batch, where {expected} did in those "
                f"before it: from here on {then}. Training goes on from the last checkpoint"
            )

    def by_labels(self) -> Slicing:
        """The finding once samples have been found to differ; earlier steps stay valid."""
        if (reason := self.whole_if_labels_differ) is not None:
            return replace(
                self, kind=WHOLE, labels_each=None, whole_if_labels_differ=None, reason=reason
            )
        return replace(self, kind=LABELS, labels_each=None)

    def skipping(self, error: PartsSkippedError) -> Slicing:
        """The finding once a later step has skipped parts; earlier steps stay valid."""
        layers = self.skips_layers or error.whole_layers
        return replace(self, skips_layers=layers, skips_parts=True, skipped_later=str(error))

    def _labels(self, batch: Any) -> torch.Tensor | None:
        for name, array in nested.arrays(batch):
            if name == self.labels and isinstance(array, torch.Tensor):
                return array
        return None


#: The finding for a task that nobody has checked.
UNKNOWN = Slicing()
