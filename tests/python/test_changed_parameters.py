"""A forward that changes parameters is seen, whatever their types and places in memory."""

from __future__ import annotations

import pytest
import torch
from saturn.techniques.model.changed_parameters import ForwardWatch

TYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.complex64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_change_of_one_number_is_seen(dtype: torch.dtype) -> None:
    # Cut out of a longer tensor, at an odd place, and not in order.
    parameter = torch.arange(31).to(dtype)[1:].view(5, 6).t()
    watch = ForwardWatch()
    watch.begin([("other", torch.ones(3)), ("weight", parameter)])
    assert watch.changed() is None
    watch.begin([("other", torch.ones(3)), ("weight", parameter)])
    parameter[2, 3] += 1
    assert watch.changed() == "weight"


def test_forwards_are_watched_at_first_and_then_rarely() -> None:
    parameter, watch = torch.zeros(3), ForwardWatch()
    seen = []
    for number in range(1, 300):
        watch.begin([("weight", parameter)])
        parameter += 1
        if watch.changed():
            seen.append(number)
    assert seen == [1, 2, 3, 4, 128, 256]
