"""What is freed under a device's limit: kept where there is room, else given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from in_process import gang_of_one, stepper_of
from models import definition
from saturn.data.slices import Position
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp
from torch import nn

#: A rank in small: a model of `STATE` MB, steps that need `STEP` MB in blocks of 4 MB.
RANK = """
import gc, resource, sys
import torch
from saturn.rank.device_memory import DeviceMemory

limit, state, step, then = (int(argument) * 10**6 for argument in sys.argv[1:5])
torch.set_num_threads(1)
memory = DeviceMemory(torch.device("cpu"), limit or None)
memory.building()
model = torch.zeros(state // 4)
memory.spreading()
memory.training()

def train(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(1_000_000) for _ in range(size // 4_000_000)]
    del blocks
    memory.stepped(is_repeatable=sys.argv[5] == "repeatable")
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


def steps(
    limit_mb: int, state_mb: int, step_mb: int, then_mb: int, how: str = "once"
) -> tuple[int, int, str]:
    """Page faults of the first step and of the third, and how larger steps after them went."""
    numbers = [str(number) for number in (limit_mb, state_mb, step_mb, then_mb)]
    out = subprocess.run(
        [sys.executable, "-c", RANK, *numbers, how], check=True, capture_output=True, text=True
    ).stdout.split()
    return int(out[0]), int(out[1]), out[2]


def test_what_is_freed_is_kept_where_the_limit_has_room() -> None:
    first, later, larger = steps(600, 20, 80, 480)
    assert later < first / 2  # holes in the heap cost some blocks anew
    assert larger == "passed"  # what was kept is not in the way of what is allowed


def test_all_is_kept_where_nothing_is_limited() -> None:
    first, later, larger = steps(0, 20, 80, 480)
    assert later < first / 2  # holes in the heap cost some blocks anew
    assert larger == "passed"


def test_what_is_freed_goes_where_memory_is_scarce() -> None:
    first, later, larger = steps(120, 20, 80, 90)
    assert later > first / 2
    assert larger == "passed"


def test_more_is_kept_where_a_step_can_be_taken_again() -> None:
    first, later, _ = steps(200, 20, 80, 80, "repeatable")
    assert later < first / 2  # holes in the heap cost some blocks anew
    first, later, _ = steps(200, 20, 80, 80)
    assert later > first / 2


@pytest.mark.slow(quick=["12"])
@pytest.mark.parametrize("step_mb", [12, 80])
def test_the_limit_holds_in_both_cases(step_mb: int) -> None:
    assert steps(160, 20, step_mb, 180)[2] == "failed"


class Failing:
    """The sum of squares; but its `at`-th call finds no memory, having drawn from the random
    stream."""

    def __init__(self, at: int, message: str) -> None:
        self.at, self.message, self.calls = at, message, 0

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.at:
            torch.rand(3)
            raise RuntimeError(self.message)
        return outputs.square().mean()


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 4))


def losses(directory: Path, loss: Failing, *, keeps_freed: bool) -> list[float]:
    """Of three steps, where what is freed is kept after the first, or not."""
    task = definition(get_model=with_batch_norm, loss_function=loss)
    directory.mkdir()
    with gang_of_one(directory) as gang:
        stepper = stepper_of(task, Ddp(), gang)
        pieces = stepper.pieces(Position())
        found = []
        for _ in range(3):
            staged = stepper.stage(next(pieces))
            found.append(stepper.step(staged, stop=False, save=False).result().loss)
            gang.device_memory.keeps_freed = keeps_freed
        pieces.close()
        module = stepper.parallel.module
        return [*found, float(sum(each.double().sum() for each in module.state_dict().values()))]


OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"


def test_a_step_that_runs_out_for_what_is_kept_is_taken_again(tmp_path: Path) -> None:
    undisturbed = losses(tmp_path / "a", Failing(0, ""), keeps_freed=True)
    assert losses(tmp_path / "b", Failing(2, OUT_OF_MEMORY), keeps_freed=True) == undisturbed
    with pytest.raises(TaskError, match="can't allocate"):  # there is no more to be had
        losses(tmp_path / "c", Failing(2, OUT_OF_MEMORY), keeps_freed=False)
    with pytest.raises(TaskError, match="too long"):
        losses(tmp_path / "d", Failing(2, "too long"), keeps_freed=True)
