"""Parameters without a dimension, such as CLIP's `logit_scale`, under techniques that split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from model_kinds import Scaled, task_of
from models import Calls
from saturn.checkpoint import manifest
from saturn.checkpoint.black_box_state import read_into
from torch.distributed.checkpoint import FileSystemReader

PLAN = {"head": "colwise_gather_output", "layers.*.inner": "colwise_gather_output"}
GROUPS = {"tensor": 2}
MOVES: list[tuple[str, int, dict[str, Any], int]] = [
    ("fsdp", 2, {}, 3),
    ("ddp", 1, {}, 4),
    ("fsdp", 3, {"activation_checkpointing": True}, 7),
    ("fsdp", 2, {"reshard_after_forward": False}, 9),
    ("pipeline", 2, {"everywhere": ["logit_scale", "fixed"]}, 10),
    ("fsdp", 1, {"cpu_offload": True}, 12),
]


def chain(run: Runtime, task: Any, moves: list[Any]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, knobs, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, knobs=knobs, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


#: With three ranks, one rank gets no sample.
FEW: dict[str, Any] = {"batch_size": 2}


@pytest.mark.slow(quick=["fewer-samples-than-ranks-in-three-moves"])
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, MOVES),
        ({"gradient_accumulation_steps": 3, "batch_count": 36, "max_grad_norm": 0.3}, MOVES),
        (FEW, MOVES),
        (FEW, MOVES[:3]),
    ],
    ids=[
        "plain",
        "accumulated-and-clipped",
        "fewer-samples-than-ranks",
        "fewer-samples-than-ranks-in-three-moves",
    ],
)
def test_scalars_train_as_in_plain_torch(
    run: Runtime, changes: dict[str, Any], moves: list[Any]
) -> None:
    task = task_of("scaled", lr=0.02, **changes)
    expected, _ = reference.train(task, moves[-1][-1])
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS


@pytest.mark.slow
def test_scalars_train_beside_layers_that_are_split_twice(run: Runtime) -> None:
    task = task_of("scaled", lr=0.02, hints={"tensor_plan": PLAN}, max_grad_norm=0.3)
    expected, _ = reference.train(task, 9)
    moves = [
        ("tensor+fsdp", 4, GROUPS, 3),
        ("fsdp", 2, {}, 5),
        ("tensor", 2, {}, 7),
        ("tensor+fsdp", 4, {**GROUPS, "activation_checkpointing": True}, 9),
    ]
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS


@pytest.mark.slow
def test_a_resume_is_bit_equal_and_a_checkpoint_holds_them_without_a_dimension(
    run: Runtime, tmp_path: Path
) -> None:
    parts = [("fsdp", 2, {}, step) for step in (1, 5, 9)]
    whole = chain(run, task_of("scaled", "whole", dropout=0.2), parts[-1:])
    assert chain(run, task_of("scaled", "parts", dropout=0.2), parts) == whole
    found = manifest.newest_valid(run.task_dir("parts") / "checkpoints")
    assert found is not None
    entries = FileSystemReader(found[0]).read_metadata().state_dict_metadata
    for name in ("logit_scale", "layers.1.gate"):
        assert tuple(entries[f"model.{name}"].size) == ()
        assert tuple(entries[f"optimizer.state.{name}.exp_avg"].size) == ()
    model = Scaled()
    read_into(*found, model)
    assert abs(model.logit_scale.item() - 0.7) > 1e-3, "it was trained"


def forget_to_average() -> None:
    from saturn.techniques.model.local_copies import WholeScalars

    WholeScalars.average_gradients = lambda self, data: None  # type: ignore[method-assign]


@pytest.mark.slow
def test_a_known_bad_variant_is_seen(run: Runtime) -> None:
    changes = {"lr": 0.02, "gradient_accumulation_steps": 2, "optimizer_cls": torch.optim.SGD}
    expected, _ = reference.train(task_of("scaled", **changes), 8)
    moves = [("fsdp", 3, {}, 8)]
    bad = task_of("scaled", "bad", hints={"by": Calls(forget_to_average)}, **changes)
    assert closeness.ulps(chain(run, bad, moves), expected) > 5 * closeness.ACROSS
    good = task_of("scaled", "good", **changes)
    assert closeness.ulps(chain(run, good, moves), expected) < closeness.ACROSS
