"""Hooks on a model's parameters do what they do in a loop by hand, or are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import Mlp, definition


def hooked(kind: str) -> Mlp:
    model = Mlp()
    weight = model.layers[1].weight
    if kind == "mask":
        weight.register_hook(lambda gradient: gradient * torch.arange(12.0).gt(6).float())
    elif kind == "limit":
        weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    else:
        weight.register_post_accumulate_grad_hook(halve)
    return model


def halve(parameter: Any) -> None:
    parameter.grad.mul_(0.5)


@pytest.mark.parametrize(
    ("kind", "technique", "ranks", "reason"),
    [
        ("mask", "ddp", 2, None),
        ("mask", "fsdp", 2, "would be lost"),
        ("mask", "pipeline", 2, None),
        ("limit", "ddp", 1, None),
        ("limit", "ddp", 2, "is not linear"),
        ("limit", "offload", 1, None),
        ("sum", "ddp", 1, None),
        ("sum", "ddp", 2, "gets the gradient of a whole batch"),
        ("sum", "offload", 1, "gets the gradient of a whole batch"),
    ],
)
def test_hooks_of_parameters_are_kept_or_refused(
    kind: str, technique: str, ranks: int, reason: str | None, run: Runtime
) -> None:
    task = definition(get_model=partial(hooked, kind))
    run.write_task(task)
    knobs = {"microbatches": 2} if technique == "pipeline" else {}
    result = run.run(task.name, technique, ranks=ranks, steps=4, knobs=knobs)
    if reason is None:
        assert result.codes == [0] * ranks, result.logs
        expected, _ = reference.train(task, 4)
        assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS
    else:
        failed = result.of("failed")[0]
        assert failed["kind"] == "not_applicable" and reason in failed["error"]
