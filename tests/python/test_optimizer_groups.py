"""Optimizers that keep numbers in their groups: a move must not reset them, nor count as a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import definition
from saturn.checkpoint import manifest
from saturn.training.optimizer_groups import OptimizerGroups


class SelfScheduled(torch.optim.SGD):
    """Counts its steps in its groups, and sets the learning rate from that."""

    def __init__(self, parameters: Any, lr: float, **options: Any) -> None:
        super().__init__(parameters, lr=lr, weight_decay=0.05, **options)
        for group in self.param_groups:
            group.update(count=0, first_lr=lr, window=(0, None), label="warm-up")

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        for group in self.param_groups:
            group["count"] += 1
            group["lr"] = group["first_lr"] / (1 + 0.2 * group["count"])
            group["window"] = (group["count"], group["count"] + 1)
        return super().step(closure)


@pytest.mark.slow(quick=["momentum"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}], ids=["stateless", "momentum"])
def test_what_an_optimizer_counts_goes_on_after_a_move(
    run: Runtime, options: dict[str, Any]
) -> None:
    task = definition(optimizer_cls=partial(SelfScheduled, **options), lr=0.2)
    run.write_task(task)
    for technique, ranks, steps in [("ddp", 1, 3), ("fsdp", 2, 5), ("ddp", 2, 8), ("ddp", 1, 10)]:
        # A checkpoint after each step: none of them may count either.
        result = run.run("mlp", technique, ranks=ranks, steps=steps, checkpoint_every_s=0.0)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 10)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS
    content = manifest.read(run.task_dir("mlp") / "checkpoints" / "step-00000010")
    assert content is not None
    (group,) = content["optimizer_groups"]
    assert group == {"count": 10, "lr": pytest.approx(0.2 / 3), "window": [10, 11]}


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]


def test_only_plain_values_that_changed_are_kept() -> None:
    first, second, third = parameters()
    groups = [{"params": [first, second]}, {"params": [third], "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    kept = OptimizerGroups(optimizer)
    assert kept.changed() == [{}, {}]
    optimizer.param_groups[0].update(betas=(0.8, 0.9), scale=torch.ones(1), d=1e-6, tries=[1, None])
    optimizer.param_groups[1].update(lr=0.25, hook=print)
    changed = [{"betas": (0.8, 0.9), "d": 1e-6, "tries": [1, None]}, {"lr": 0.25}]
    assert kept.changed() == changed
    again = torch.optim.AdamW([{"params": [first]}, {"params": [third], "lr": 0.5}], lr=0.1)
    fresh = OptimizerGroups(again)
    again.param_groups[1]["eps"] = 7.0  # as by a step that does not count
    fresh.restore([{**changed[0], "betas": [0.8, 0.9]}, changed[1]])
    assert fresh.changed() == changed
    assert again.param_groups[1]["eps"] == 1e-8
    with pytest.raises(ValueError, match="settings of 1 groups of parameters; the optimizer has 2"):
        fresh.restore([{}])
