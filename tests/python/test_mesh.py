"""Pipelines whose stages are split over tensor groups, by FSDP2, or both: as in plain torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import closeness
import model_kinds
import pytest
import reference
import torch
from harness import Runtime
from random_chains import weights
from saturn.tasks.definition import TaskDefinition

Move = tuple[str, int, int, dict[str, Any]]


def chain(run: Runtime, task: TaskDefinition, moves: list[Move]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps, knobs in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


#: A Llama whose embeddings are one, deep and wide enough for eight devices.
TIED = partial(model_kinds.llama, num_hidden_layers=4, tie_word_embeddings=True)
FSDP = {"stages": 2, "microbatches": 3}
TENSOR = {"tensor": 2, "microbatches": 3}
BOTH = {"stages": 2, "tensor": 2, "microbatches": 2}
EVERY_WAY: list[Move] = [
    ("ddp", 1, 1, {}),
    ("pipeline+fsdp", 4, 3, FSDP),
    ("pipeline+tensor", 4, 5, TENSOR),
    ("tensor+fsdp", 4, 6, {"tensor": 2}),
    ("pipeline+tensor+fsdp", 8, 8, BOTH),
    ("ddp", 2, 9, {}),
]


def check(run: Runtime, task: TaskDefinition, moves: list[Move]) -> None:
    """Losses and final weights are those of one process, never interrupted."""
    expected, model = reference.train(task, moves[-1][2], loss_of=model_kinds.loss_of(task))
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS
    _, state = weights(run.task_dir(task.name) / "checkpoints", task.get_model())
    assert closeness.ulps(state, model.state_dict()) < closeness.ACROSS


#: Gradients that are nothing but rounding must not come out as large as any other.
ADAM = partial(torch.optim.AdamW, eps=1e-3)


@pytest.mark.slow
def test_a_chain_through_every_shape_trains_as_plain_torch_does(run: Runtime) -> None:
    pytest.importorskip("transformers")
    task = model_kinds.task_of(
        "llama",
        get_model=TIED,
        batch_size=7,
        optimizer_cls=ADAM,
        gradient_accumulation_steps=2,
        batch_count=18,
        max_grad_norm=0.5,
    )
    check(run, task, EVERY_WAY)


@pytest.mark.slow(quick=["micro-batches"])
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        (
            {"batch_size": 1, "gradient_accumulation_steps": 3},
            [("tensor", 2, 3, {}), ("tensor+fsdp", 4, 5, {"tensor": 2})],
        ),
        ({"batch_size": 4}, [("pipeline+tensor", 4, 4, {"tensor": 2, "microbatches": 4})]),
    ],
    ids=["accumulated", "micro-batches"],
)
def test_batches_of_one_row_add_up(
    run: Runtime, changes: dict[str, Any], moves: list[Move]
) -> None:
    # What is added to every row, as the class token and the positions, gets the row's gradient.
    pytest.importorskip("transformers")
    task = model_kinds.task_of("vit", batch_count=18, optimizer_cls=ADAM, **changes)
    check(run, task, moves)
