"""Batches with other labels, which show how a loss counts its labels (see `slice_check`).

Only the labels differ; the inputs of the samples stay. No loss is computed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from saturn.data import nested
from saturn.training.slicing import IGNORED

#: The most arrays of ones that are taken for masks.
_MOST_MASKS = 3


@dataclass(frozen=True)
class Classes:
    """What a cross entropy of torch's says of the labels that it takes."""

    num: int
    #: A label that it ignores.
    ignored: int
    #: The classes of the least and of the largest weight; None if all weigh the same.
    lightest_and_heaviest: tuple[int, int] | None = None

    @classmethod
    def of(cls, scores: torch.Tensor, weights: torch.Tensor | None, ignored: int) -> Classes:
        """The classes of one call, whose `scores` have a column for each class."""
        if weights is None or bool((weights == weights[0]).all()):
            return cls(scores.shape[-1 if scores.dim() == 1 else 1], ignored)
        return cls(len(weights), ignored, (int(weights.argmin()), int(weights.argmax())))


def labels_of(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Arrays that may be labels, some of them ignored: whole numbers where a batch has labels."""
    is_pair = isinstance(batch, tuple | list)
    for name, array in nested.arrays(batch):
        if not isinstance(array, torch.Tensor) or array.dtype != torch.int64 or array.dim() == 0:
            continue
        says_so = name.startswith(".1") if is_pair else "label" in name or "target" in name
        if says_so or bool((array == IGNORED).any()):
            yield name, array


@dataclass(frozen=True)
class Counting:
    """An array of a batch whose entries a loss may count, except for `ignored` ones."""

    name: str
    ignored: int = IGNORED
    is_mask: bool = False

    @property
    def in_words(self) -> str:
        """Where some entries are ignored, in words."""
        return f"entries of `{self.name[1:]}`" if self.is_mask else "labels"


def countings_of(batch: Any, classes: Collection[Classes]) -> Iterator[Counting]:
    """What the loss of a batch may count, likeliest first.

    A cross entropy may have a label of its own that it ignores, such as padding. Then the labels
    may be any array of whole numbers: those of a language model are its inputs.
    """
    labels = [name for name, _ in labels_of(batch)]
    special = sorted({each.ignored for each in classes} - {IGNORED})
    known = {each.ignored for each in classes if 0 <= each.ignored < each.num}
    yield from (Counting(name, ignored) for ignored in (IGNORED, *special) for name in labels)
    masks = 0
    for name, array in nested.arrays(batch):
        if not isinstance(array, torch.Tensor) or array.dim() == 0 or not array.numel():
            continue
        if array.dtype == torch.int64 and name not in labels:
            yield from (Counting(name, ignored) for ignored in sorted(known))
        if not array.is_complex() and bool((array == 1).all()) and masks < _MOST_MASKS:
            masks += 1
            yield Counting(name, 0, is_mask=True)


def with_ignored_labels(
    parts: Sequence[Any], classes: Collection[Classes] = ()
) -> Iterator[tuple[Counting, list[Any]]]:
    """Variants of `parts`, whose first item is the whole, with some of the last labels ignored.

    If other labels were ignored too, a second variant lets all of those count. Samples without
    labels give no variant, since they fit any explanation.
    """
    for counting in countings_of(parts[0], classes):
        name = counting.name
        found = [dict(nested.arrays(part)).get(name) for part in parts]
        labels = [its for its in found if isinstance(its, torch.Tensor)]
        if len(labels) < len(parts) or not len(labels[-1]):
            continue
        cases = [labels]
        if counting.ignored == IGNORED and (all_count := _all_counting(labels)) is not None:
            cases.append(all_count)
        for case in cases:
            # Parts may be padded to another length than the whole.
            positions = min(case[0].shape[1], case[-1].shape[1]) if case[0].dim() > 1 else 1
            first, last = (_ignoring(case[at], positions, counting) for at in (0, -1))
            case = [first, *case[1:-1], last]
            variant = zip(parts, case, strict=True)
            yield counting, [nested.replaced(part, name, its) for part, its in variant]


def with_other_classes(
    parts: Sequence[Any], classes: Collection[Classes], *, may_guess: bool
) -> Iterator[list[Any]]:
    """Variants of `parts`, whose first item is the whole, with labels of other classes.

    The first samples may all be of one class, or none of them may have a label that the loss treats
    in its own way: padding, or a rare class with a large weight. Which labels are possible is known
    from `classes`, and from the largest label of the batch. With `may_guess`, class 1 is tried too
    if nothing but class 0 is known.
    """
    for name, of_whole in (*labels_of(parts[0]), *_marks_of(parts[0])):
        of_parts = [dict(nested.arrays(part)).get(name) for part in parts[1:]]
        labels = [of_whole, *(its for its in of_parts if isinstance(its, torch.Tensor))]
        if len(labels) < len(parts) or len(of_whole) != sum(map(len, labels[1:])):
            continue
        for low, high in _extremes(of_whole, classes, may_guess=may_guess):
            # Neighbours differ, and the first samples have labels in common with later ones.
            row = 0
            case = [_alternating(of_whole, low, high, 0)]
            for part in labels[1:]:
                case.append(_alternating(part, low, high, row))
                row += len(part)
            yield [nested.replaced(part, name, its) for part, its in zip(parts, case, strict=True)]


def _marks_of(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Arrays of floats where a batch has labels, if each of them is 0 or 1: two classes."""
    is_pair = isinstance(batch, tuple | list)
    for name, array in nested.arrays(batch):
        if not isinstance(array, torch.Tensor) or not array.is_floating_point() or not array.dim():
            continue
        says_so = name.startswith(".1") if is_pair else "label" in name or "target" in name
        if says_so and bool(((array == 0) | (array == 1)).all()):
            yield name, array


def _extremes(
    labels: torch.Tensor, classes: Collection[Classes], *, may_guess: bool
) -> list[tuple[int, int]]:
    """Pairs of labels between which a loss may tell the most."""
    counting = labels[labels != IGNORED]
    largest = int(counting.max()) if counting.numel() else 0
    if labels.is_floating_point():
        return [(0, 1)]
    last = max([largest, *(each.num - 1 for each in classes)])
    if last < 1 and may_guess:
        last = 1
    found = [each.lightest_and_heaviest for each in classes if each.lightest_and_heaviest]
    # A loss that ignores padding may be any code: then the padding is most often label 0.
    found += [(0, last)] if last else []
    return [(low, high) for low, high in dict.fromkeys(found) if low != high]


def _alternating(labels: torch.Tensor, low: int, high: int, first_row: int) -> torch.Tensor:
    """`labels` with `low` in rows of even number, and `high` in the others.

    Rows are counted from `first_row`. Labels that are ignored stay so.
    """
    rows = torch.arange(first_row, first_row + len(labels), device=labels.device) % 2
    rows = rows.view(-1, *[1] * (labels.dim() - 1)).expand_as(labels)
    changed = torch.where(rows == 0, low, high).to(labels.dtype)
    if not labels.is_floating_point():
        changed = torch.where(labels == IGNORED, labels, changed)
    return changed


def _all_counting(labels: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Labels of the whole and its parts, with class 0 in place of every ignored label.

    None if no label is ignored, or if the labels of the parts can't be matched with the whole's.
    """
    whole, *parts = (each.clone() for each in labels)
    if not bool((whole == IGNORED).any()) or len(whole) != sum(map(len, parts)):
        return None
    start = 0
    for part in parts:
        rows = whole[start : start + len(part)]
        start += len(part)
        if part.dim() > 1:
            rows, padding = rows[:, : part.shape[1]], rows[:, part.shape[1] :]
            if bool((padding != IGNORED).any()):
                return None
        if not torch.equal(rows, part):
            return None
        for each in (rows, part):
            each.masked_fill_(each == IGNORED, 0)
    return [whole, *parts]


def _ignoring(labels: torch.Tensor, positions: int, counting: Counting) -> torch.Tensor:
    """`labels` with the last sample's first label, and its labels of the later half, ignored.

    The first entry of a mask stays, unless it is the only one: attention needs one.
    """
    ignoring = labels.clone()
    last = ignoring[-1] if labels.dim() > 1 else ignoring[-1:]
    if not counting.is_mask or len(last) == 1:
        last[0] = counting.ignored
    last[(positions + 1) // 2 :] = counting.ignored
    return ignoring
