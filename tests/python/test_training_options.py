"""Accumulation, clipping and schedulers: the task's own, under every technique."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import black_boxes
import closeness
import pytest
import reference
import saturn
import torch
from harness import Runtime
from models import Mlp, definition, shuffled_loader
from saturn.checkpoint import manifest
from saturn.tasks.definition import TaskDefinition
from saturn.training.accumulation import Accumulation
from techniques_of_tests import spec_of
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR

MOVES = [("ddp", 1, 1), ("fsdp", 2, 3), ("ddp", 3, 4), ("fsdp", 3, 5), ("ddp", 2, 6)]
#: 17 batches of which the seventh begins an epoch, in steps of three: the last has two.
ACCUMULATING = {"gradient_accumulation_steps": 3, "batch_count": 17}


def chain(run: Runtime, task: TaskDefinition, moves: list[Any]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


def weights(run: Runtime, task: str) -> dict[str, torch.Tensor]:
    """The model of the newest checkpoint."""
    from torch.distributed.checkpoint import FileSystemReader, load

    newest = manifest.newest_valid(run.task_dir(task) / "checkpoints")
    assert newest is not None
    state = {"model": Mlp().state_dict()}
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        load(state, storage_reader=FileSystemReader(newest[0]), no_dist=True)
    return state["model"]


@pytest.mark.slow(quick=["all-of-them"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(ACCUMULATING, id="accumulation"),
        pytest.param({"max_grad_norm": 0.4}, id="clipping"),
        pytest.param(
            {
                **ACCUMULATING,
                "max_grad_norm": 0.4,
                "optimizer_cls": partial(SGD, momentum=0.9),
                "lr_scheduler": partial(OneCycleLR, max_lr=0.3, total_steps=6),
            },
            id="all-of-them",
        ),
    ],
)
def test_a_tasks_options_mean_the_same_under_every_strategy(
    run: Runtime, changes: dict[str, Any]
) -> None:
    expected, model = reference.train(definition(**changes), 6)
    # On one rank to the last bit, with stops or without.
    alone = chain(run, definition("alone", **changes), [("ddp", 1, 2), ("ddp", 1, 6)])
    assert closeness.is_same(alone, expected)
    assert closeness.is_same(weights(run, "alone"), model.state_dict())
    moved = chain(run, definition("moved", **changes), MOVES)
    assert closeness.ulps(moved, expected) < closeness.ACROSS


def test_each_option_changes_the_training() -> None:
    # What the test above compares would be worth nothing if the options did nothing.
    plain, _ = reference.train(definition(), 6)
    for changes in (
        {"max_grad_norm": 0.4},
        {"gradient_accumulation_steps": 2},
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"lr_scheduler": partial(OneCycleLR, max_lr=0.3, total_steps=6)},
    ):
        changed, _ = reference.train(definition(**changes), 6)
        assert closeness.ulps(changed, plain) > 10 * closeness.ACROSS, changes


@pytest.mark.slow
def test_a_weighed_loss_is_the_mean_over_all_batches_of_a_step(run: Runtime) -> None:
    def weighted_mean(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return (losses * labels).sum() / labels.sum().clamp(min=1)

    task = definition(
        loss_function=weighted_mean, loss_weight=lambda batch: batch[1].sum(), **ACCUMULATING
    )
    whole, _ = reference.train(task, 6)
    assert closeness.ulps(chain(run, task, MOVES), whole) < closeness.ACROSS


def test_batches_and_steps_are_counted_from_the_tasks_first_batch() -> None:
    counted = Accumulation(definition(**ACCUMULATING), None)
    assert [counted.next_step(batches) for batches in (0, 3, 4, 14, 15, 17)] == [3, 3, 2, 1, 2, 1]
    assert [counted.steps(batches) for batches in (0, 2, 3, 16, 17)] == [0, 0, 1, 5, 6]
    assert [counted.batches(steps) for steps in (0, 5, 6, 7)] == [0, 15, 17, 21]
    assert [counted.is_past_end(batches) for batches in (17, 18)] == [False, True]
    epochs = definition(epochs=3, batch_count=None, gradient_accumulation_steps=4)
    assert Accumulation(epochs, 6).total == 18 and Accumulation(epochs, None).total is None
    assert Accumulation(epochs, None).next_step(17) == 3


def test_a_black_box_is_counted_in_batches_and_stops_between_steps(run: Runtime) -> None:
    task = definition(gradient_accumulation_steps=3, batch_count=17)
    run.write_task(task)
    technique = spec_of(black_boxes.Static, "black_box")
    result = run.run("mlp", technique, steps=4)
    assert result.codes == [0], result.logs
    assert result.one("finished")["step"] == 4
    saved = manifest.newest_valid(run.task_dir("mlp") / "checkpoints")
    assert saved is not None and (saved[1]["batches"], saved[1]["step"]) == (12, 4)
    result = run.run("mlp", technique, steps=6)
    assert result.one("started")["step"] == 4 and result.one("finished")["step"] == 6
    saved = manifest.newest_valid(run.task_dir("mlp") / "checkpoints")
    assert saved is not None and (saved[1]["batches"], saved[1]["step"]) == (17, 6)
    trial = run.run("mlp", technique, kind="trial").one("trial")
    assert trial["outcome"]["step_s"] == 3 * 0.25
    run.write_task(definition("slow", gradient_accumulation_steps=3, batch_count=60_000))
    gang = run.launch("slow", spec_of(black_boxes.Slow, "black_box"), steps=20_000)
    gang.wait_for("progress", step=2)
    gang.stop()
    stopped = gang.wait().one("stopped")["step"]
    saved = manifest.newest_valid(run.task_dir("slow") / "checkpoints")
    assert saved is not None and saved[1]["batches"] == 3 * stopped


def test_a_step_that_a_black_box_left_half_done_is_finished(run: Runtime) -> None:
    run.write_task(definition(**ACCUMULATING))
    assert run.run("mlp", spec_of(black_boxes.SavesEachBatch, "black_box"), steps=6).codes == [1]
    saved = manifest.newest_valid(run.task_dir("mlp") / "checkpoints")
    assert saved is not None and (saved[1]["batches"], saved[1]["step"]) == (4, 1)
    for steps, batches in ((2, 6), (6, 17)):
        result = run.run("mlp", "fsdp", ranks=2, steps=steps)
        assert result.codes == [0, 0], result.logs
        saved = manifest.newest_valid(run.task_dir("mlp") / "checkpoints")
        assert saved is not None and (saved[1]["batches"], saved[1]["step"]) == (batches, steps)


def test_a_run_counts_steps_and_trains_with_all_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"gradient_accumulation_steps": 4, "max_grad_norm": 0.4}
    # 3 epochs of 6 batches are 5 steps; the other is shorter than its trial.
    lengths = {"epochs": ({"epochs": 3}, 5), "batches": ({"batch_count": 10}, 3)}
    tasks = [
        saturn.Task(
            Mlp,
            shuffled_loader,
            nn.functional.cross_entropy,
            saturn.HParams(
                lr=0.01,
                **length,
                **options,
                lr_scheduler=partial(OneCycleLR, max_lr=0.03, total_steps=steps),
            ),
            name=name,
            seed=3,
        )
        for name, (length, steps) in lengths.items()
    ]
    result = saturn.orchestrate(tasks, techniques=["ddp"], devices=1, log=False)
    for task, outcome in zip(tasks, result.tasks, strict=True):
        length, steps = lengths[task.name]
        batch_count = length.get("batch_count", 18)
        schedule = task.hparams.lr_scheduler
        same = definition(batch_count=batch_count, lr_scheduler=schedule, **options)
        expected, _ = reference.train(same, steps)
        assert outcome.steps == steps
        assert closeness.is_same(outcome.final_loss, expected[steps])
