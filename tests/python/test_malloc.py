"""What is freed under a device's limit: kept where there is room, else given back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from in_process import gang_of_one, stepper_of
from models import definition
from saturn.data.slices import Position
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp
from torch import nn

#: A parent that forks a rank in small for each line of its input. The rank has a model of `STATE`
#: MB; its steps need `STEP` MB in blocks of 4 MB.
RANKS = """
import os, resource, sys
import torch
from saturn.rank.device_memory import DeviceMemory

torch.set_num_threads(1)
for line in sys.stdin:
    if not (rank := os.fork()):
        break
    os.waitpid(rank, 0)
else:
    sys.exit()
*numbers, how = line.split()
limit, state, step, then = (int(number) * 10**6 for number in numbers)
memory = DeviceMemory(torch.device("cpu"), limit or None)
memory.building()
model = torch.zeros(state // 4)
memory.spreading()
memory.training()

def train(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(1_000_000) for _ in range(size // 4_000_000)]
    del blocks
    memory.stepped(is_repeatable=how == "repeatable")
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = train(step)
train(step)
third = train(step)
try:
    for _ in range(3):
        train(then)
    outcome = "passed"
except (MemoryError, RuntimeError):
    outcome = "failed"
print(first, third, outcome, flush=True)
os._exit(0)
"""

#: Page faults of the first step and of the third, and how larger steps after them went.
Steps = Callable[..., tuple[int, int, str]]


@pytest.fixture(scope="module")
def steps() -> Iterator[Steps]:
    """Has a new process train, of (limit, state, step, larger steps) in MB, and a word on how."""
    parent = subprocess.Popen(
        [sys.executable, "-c", RANKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    asked, answers = parent.stdin, parent.stdout

    def of(*numbers_mb: int, how: str = "once") -> tuple[int, int, str]:
        asked.write(f"{' '.join(map(str, numbers_mb))} {how}\n")
        asked.flush()
        first, third, outcome = answers.readline().split()
        return int(first), int(third), outcome

    yield of
    parent.communicate()
    assert parent.returncode == 0


def is_kept(first: int, later: int) -> bool:
    """Whether a later step found memory that was freed.

    Where memory is given back, a later step has all faults of the first. Where it is kept, a later
    step has 5 to 55% of them: holes in the heap, which differ from process to process, cost some
    blocks anew.
    """
    return later < 0.9 * first


def test_what_is_freed_is_kept_where_the_limit_has_room(steps: Steps) -> None:
    first, later, larger = steps(600, 20, 80, 480)
    assert is_kept(first, later)
    assert larger == "passed"  # what was kept is not in the way of what is allowed


def test_all_is_kept_where_nothing_is_limited(steps: Steps) -> None:
    first, later, larger = steps(0, 20, 80, 480)
    assert is_kept(first, later)
    assert larger == "passed"


def test_what_is_freed_goes_where_memory_is_scarce(steps: Steps) -> None:
    first, later, larger = steps(120, 20, 80, 90)
    assert not is_kept(first, later)
    assert larger == "passed"


def test_more_is_kept_where_a_step_can_be_taken_again(steps: Steps) -> None:
    first, later, _ = steps(200, 20, 80, 80, how="repeatable")
    assert is_kept(first, later)
    first, later, _ = steps(200, 20, 80, 80)
    assert not is_kept(first, later)


@pytest.mark.slow(quick=["12"])
@pytest.mark.parametrize("step_mb", [12, 80])
def test_the_limit_holds_in_both_cases(steps: Steps, step_mb: int) -> None:
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
