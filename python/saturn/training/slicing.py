"""How a task's batches may be cut, and what a part of one counts: the outcome of `slice_check`.

It belongs to the task, like its seed: every attempt and trial of it goes by the same finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from saturn.data import nested
from saturn.tasks.definition import TaskDefinition

#: Parts count by their samples.
SAMPLES = "samples"
#: Parts count by those of their labels that are not `IGNORED`.
LABELS = "labels"
#: The losses of parts, unweighted, add up to that of the whole.
SUMS = "sums"
#: The task's own `loss_weight` says what a part counts, and is right.
GIVEN = "given"
#: The loss of a batch is not made of those of its parts: no batch is ever cut.
WHOLE = "whole"

KINDS = (SAMPLES, LABELS, SUMS, GIVEN, WHOLE)
#: The label that stands for none, in torch's losses and those of transformers.
IGNORED = -100


class LabelsDifferError(Exception):
    """Not all samples of a task have the same number of labels that count."""


@dataclass(frozen=True)
class Slicing:
    """What was found of one task."""

    kind: str = SAMPLES
    #: Which of a batch's arrays holds the labels that count (see `nested.arrays`).
    labels: str | None = None
    #: The position of the first label that counts: 1 for models that predict the next token.
    first_label: int = 0
    #: How many labels count in each sample, where that is why samples do. One that has another
    #: number makes it another finding from there on (see `by_labels`).
    labels_each: int | None = None
    #: Why no batch may be cut from there on; None where samples then count by their labels.
    whole_if_labels_differ: str | None = None
    #: Whether a forward changes buffers or parameters of the model, the same on every slice.
    changes_buffers: bool = False
    #: Whether collating draws random numbers: then batches are collated as they are, and cut.
    draws_in_collating: bool = False
    #: Why no batch may be cut, and what to change; None where they may.
    reason: str | None = None
    #: Why it could not be checked, so that samples, or `loss_weight`, are trusted; None where it
    #: was.
    unchecked: str | None = None

    @classmethod
    def from_json(cls, data: Any) -> Slicing:
        """What `as_json` has made; raises `TypeError` or `ValueError` for anything else."""
        slicing = cls(**data)
        if slicing.kind not in KINDS or (slicing.kind == WHOLE) != (slicing.reason is not None):
            raise ValueError(f"{data} says nothing of slices")
        return slicing

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @property
    def adds_up(self) -> bool:
        """Whether the losses of a batch's parts are summed, not averaged."""
        return self.kind == SUMS

    def weigher(self, definition: TaskDefinition) -> Callable[[Any], float] | None:
        """What says how much a batch, or a part of one, counts; None where its samples do."""
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
        return float((labels != IGNORED).sum())

    def with_labels(self, batch: Any) -> Any:
        """`batch`, none of whose labels counts, with labels that do: its loss is a number.

        For a slice that counts nothing and whose rank must take part all the same. Any class will
        do, and every model has the first.
        """
        if self.kind != LABELS:
            return batch
        labels = self._labels(batch)
        if self.labels is None or labels is None:
            return batch
        return nested.replaced(batch, self.labels, labels.masked_fill(labels == IGNORED, 0))

    def expect_labels(self, batch: Any) -> None:
        """Raise `LabelsDifferError` where samples no longer count alike."""
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
        """What holds once samples have been found to differ: the same for all before them."""
        if (reason := self.whole_if_labels_differ) is not None:
            return replace(
                self, kind=WHOLE, labels_each=None, whole_if_labels_differ=None, reason=reason
            )
        return replace(self, kind=LABELS, labels_each=None)

    def _labels(self, batch: Any) -> torch.Tensor | None:
        for name, array in nested.arrays(batch):
            if name == self.labels and isinstance(array, torch.Tensor):
                return array
        return None


#: Of a task that nobody has looked at.
UNKNOWN = Slicing()
