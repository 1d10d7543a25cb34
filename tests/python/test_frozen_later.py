"""A forward that thaws or freezes parameters while the task trains."""

from __future__ import annotations

from pathlib import Path

import closeness
import in_process
import pytest
import reference
import torch
from harness import Runtime
from models import Mlp, definition
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp


class Thawing(Mlp):
    """Trains its head alone at first, and all of it from the third step on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.layers.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        if self.steps > 2:
            self.layers.requires_grad_(True)
        return super().forward(inputs)


class Freezing(Mlp):
    """Trains its layers in the first two steps alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        if self.steps > 2:
            self.layers.requires_grad_(False)
        return super().forward(inputs)


def test_a_parameter_that_thaws_later_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"parameter `layers.0.weight` was frozen when get_model"):
        in_process.train(definition(get_model=Thawing), Ddp(), tmp_path, steps=3)


def test_a_parameter_that_freezes_later_is_stepped_no_more(run: Runtime) -> None:
    task = definition(get_model=Freezing, lr=0.1)
    expected, _ = reference.train(task, 5)
    run.write_task(task)
    for ranks, steps in ((2, 3), (1, 4), (2, 5)):
        knobs = {"find_unused_parameters": ranks > 1}
        result = run.run(task.name, "ddp", ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS
