"""What is freed under a device's limit: kept where there is room, else given back."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A rank in small: a model of `STATE` MB, steps that need `STEP` MB in blocks of 4 MB.
RANK = """
import gc, resource, sys
import torch
from saturn.rank.device_memory import DeviceMemory

limit, state, step, then = (int(argument) * 10**6 for argument in sys.argv[1:])
torch.set_num_threads(1)
memory = DeviceMemory(torch.device("cpu"), limit)
memory.building()
model = torch.zeros(state // 4)
memory.spreading()
memory.training()

def train(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(1_000_000) for _ in range(size // 4_000_000)]
    del blocks
    memory.stepped()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = train(step)
train(step)
print(first, train(step))
try:
    for _ in range(3):
        train(then)
    print("passed")
except (MemoryError, RuntimeError):
    print("failed")
"""


def steps(limit_mb: int, state_mb: int, step_mb: int, then_mb: int) -> tuple[int, int, str]:
    """Page faults of the first step and of the third, and how larger steps after them went."""
    numbers = [str(number) for number in (limit_mb, state_mb, step_mb, then_mb)]
    out = subprocess.run(
        [sys.executable, "-c", RANK, *numbers], check=True, capture_output=True, text=True
    ).stdout.split()
    return int(out[0]), int(out[1]), out[2]


def test_what_is_freed_is_kept_where_the_limit_has_room() -> None:
    first, later, larger = steps(600, 20, 80, 480)
    assert later < first / 20
    assert larger == "passed"  # what was kept is not in the way of what is allowed


def test_what_is_freed_goes_where_memory_is_scarce() -> None:
    first, later, larger = steps(120, 20, 80, 90)
    assert later > first / 2
    assert larger == "passed"


@pytest.mark.parametrize("step_mb", [12, 80])
def test_the_limit_holds_in_both_cases(step_mb: int) -> None:
    assert steps(160, 20, step_mb, 180)[2] == "failed"
