"""What a slice counts in the loss, where ranks of a gang share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from models import definition
from saturn.data.slices import Position, Slice
from saturn.rank.device_memory import DeviceMemory
from saturn.techniques import Knobs, Objective, ParallelModel, Technique
from saturn.training.stepper import Stepper
from torch import nn


class FakeGang:
    """Four ranks: this one, and others whose values for the first sum are known."""

    rank, world_size, device = 0, 4, torch.device("cpu")
    device_memory = DeviceMemory(device, None)

    def __init__(self, others: Sequence[float]) -> None:
        self._others = list(others)

    def sum(self, values: Sequence[float]) -> list[float]:
        return list(values)  # losses and flags: the other ranks have none

    def begin_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        return lambda: [values[0] + sum(self._others)]


class Recording(ParallelModel):
    """Notes the share that its slice is said to have."""

    def __init__(self, module: nn.Module, data_size: int) -> None:
        self.module, self.data_rank, self.data_size = module, 0, data_size
        self.share = 0.0

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> torch.Tensor:
        self.share = share
        return torch.tensor(1.0)


class Sharing(Technique):
    """Cuts the batch into `data_size` slices, fewer than there are ranks."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        return Recording(module, knobs["data_size"])


@pytest.mark.parametrize(
    ("data_size", "others", "share"),
    [
        # This rank's slice weighs 3. One slice for all; two for two ranks each; one for each.
        (1, [3.0, 3.0, 3.0], 1.0),
        (2, [3.0, 5.0, 5.0], 3 / 8),
        (4, [1.0, 2.0, 4.0], 3 / 10),
    ],
)
def test_a_slice_that_ranks_share_is_weighed_once(
    data_size: int, others: list[float], share: float
) -> None:
    task = definition(loss_weight=lambda batch: 3.0)
    gang: Any = FakeGang(others)
    stepper = Stepper(task, Sharing(), gang, {"data_size": data_size}, note=print)
    piece = Slice((torch.zeros(2, 12), torch.zeros(2)), 2, 8, Position(batches=1))
    result = stepper.step(stepper.stage([piece]), stop=False, save=False).result()
    assert isinstance(stepper.parallel, Recording)
    assert stepper.parallel.share == pytest.approx(share) and result.loss == 1.0
