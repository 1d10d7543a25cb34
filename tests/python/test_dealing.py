"""How a step's joined batches are dealt to ranks, and which labels the check of slices ignores."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from saturn.data.dealing import Dealing, Planned
from saturn.training.label_cases import with_ignored_labels
from saturn.training.slicing import IGNORED


def dealt(batches: list[int], ranks: int) -> list[tuple[list[Planned], list[int]]]:
    """For each rank, the slices of a step with batches of these sizes, and the samples fetched."""
    first = 0
    of_step = []
    for size in batches:
        of_step.append(list(range(first, first + size)))
        first += size
    parts = []
    for rank in range(ranks):
        planned: deque[Planned] = deque()
        dealing = Dealing(lambda _: len(batches), rank, ranks, lambda _: True)
        keys = list(dealing.keys(of_step, 0, 0, 0, (0, len(batches)), planned))
        fetched = [
            index
            for key, slice_ in zip(keys, planned, strict=True)
            if slice_.num_samples
            for index in key.indices
        ]
        parts.append((list(planned), fetched))
    return parts


@pytest.mark.parametrize("batches", [[4, 4], [4] * 5, [3, 4, 4, 2], [1, 7], [6] * 11])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_joined_batches_are_dealt_whole_in_the_fewest_slices_no_larger_than_a_batch(
    batches: list[int], ranks: int
) -> None:
    parts = dealt(batches, ranks)
    assert sorted(index for _, fetched in parts for index in fetched) == list(range(sum(batches)))
    largest_part = -(-sum(batches) // ranks)
    fewest = -(-largest_part // max(batches))
    for slices, _ in parts:
        assert len(slices) == fewest
        assert max(slice_.num_samples for slice_ in slices) <= max(batches)
        assert [slice_.ends_step for slice_ in slices] == [False] * (fewest - 1) + [True]


def test_labels_of_parts_that_are_padded_less_than_the_whole_can_all_count() -> None:
    whole = torch.tensor([[1, IGNORED, 3, 4], [5, 6, IGNORED, IGNORED]])
    parts = [whole[:1], whole[1:, :2]]
    batches = [{"labels": each} for each in (whole, *parts)]
    (_, some_ignored), (_, all_count) = with_ignored_labels(batches)
    assert some_ignored[0]["labels"].tolist() == [[1, IGNORED, 3, 4], [IGNORED] * 4]
    assert all_count[0]["labels"].tolist() == [[1, 0, 3, 4], [IGNORED] * 4]
    assert all_count[1]["labels"].tolist() == [[1, 0, 3, 4]]
    assert all_count[2]["labels"].tolist() == [[IGNORED, IGNORED]]
