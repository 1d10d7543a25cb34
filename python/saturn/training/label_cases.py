"""Batches with other labels, which show which labels a loss counts (see `slice_check`).

Only the labels differ; the inputs of the samples stay. No loss is computed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from saturn.data import nested
from saturn.training.slicing import IGNORED


def labels_of(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Arrays that may be labels, some of them ignored: whole numbers where a batch has labels."""
    is_pair = isinstance(batch, tuple | list)
    for name, array in nested.arrays(batch):
        if not isinstance(array, torch.Tensor) or array.dtype != torch.int64 or array.dim() == 0:
            continue
        says_so = name.startswith(".1") if is_pair else "label" in name or "target" in name
        if says_so or bool((array == IGNORED).any()):
            yield name, array


def with_ignored_labels(parts: Sequence[Any]) -> Iterator[list[Any]]:
    """Variants of `parts`, whose first item is the whole, with some of the last labels ignored.

    If other labels were ignored too, a second variant lets all of those count. Samples without
    labels give no variant, since they fit any explanation.
    """
    for name, of_whole in labels_of(parts[0]):
        of_parts = [dict(nested.arrays(part)).get(name) for part in parts[1:]]
        labels = [of_whole, *(its for its in of_parts if isinstance(its, torch.Tensor))]
        if len(labels) < len(parts) or not len(labels[-1]):
            continue
        cases = [labels] if (counting := _all_counting(labels)) is None else [labels, counting]
        for case in cases:
            # Parts may be padded to another length than the whole.
            positions = min(case[0].shape[1], case[-1].shape[1]) if case[0].dim() > 1 else 1
            case = [_ignoring(case[0], positions), *case[1:-1], _ignoring(case[-1], positions)]
            yield [nested.replaced(part, name, its) for part, its in zip(parts, case, strict=True)]


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


def _ignoring(labels: torch.Tensor, positions: int) -> torch.Tensor:
    """`labels` with the last sample's first label, and its labels of the later half, ignored."""
    ignoring = labels.clone()
    last = ignoring[-1] if labels.dim() > 1 else ignoring[-1:]
    last[0] = IGNORED
    last[(positions + 1) // 2 :] = IGNORED
    return ignoring
