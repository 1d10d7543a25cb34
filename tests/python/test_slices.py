"""What is cut trains as what is whole, and what can't be cut is refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import pytest
import reference
import saturn
import sliced_models as sliced
import torch
from faces import make_task
from harness import Runtime
from live_gangs import Result
from models import Calls, definition
from saturn import HParams
from saturn.tasks.definition import TaskDefinition

MOVES = [("ddp", 1, 2), ("ddp", 3, 5), ("fsdp", 2, 8), ("pipeline", 2, 11), ("ddp", 2, 13)]


def chain(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int]], **options: Any
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps, **options)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


def own_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def num_labels(batch: Any) -> float:
    return float((batch["labels"][:, 1:] != -100).sum())


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("with_blanks", [False, True])
def test_padded_labels_count_by_their_number(
    run: Runtime, together: int, with_blanks: bool
) -> None:
    pytest.importorskip("transformers")
    task = sliced.padded_task(
        get_dataloader=partial(sliced.padded_rows, with_blanks=with_blanks),
        gradient_accumulation_steps=together,
        batch_count=13 * together,
    )
    # Over the batches of a step, too: their labels are those of one larger batch.
    by_hand = replace(task, loss_weight=num_labels)
    expected, _ = reference.train(by_hand, 13, loss_of=own_loss)
    assert closeness.ulps(chain(run, task, MOVES), expected) < closeness.ACROSS


def test_losses_that_are_sums_add_up(run: Runtime) -> None:
    task = sliced.sum_task(lr=0.001)
    expected, _ = reference.train(task, 13)
    losses = chain(run, task, MOVES)
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def count_samples() -> None:
    from saturn.worker import slicing

    slicing.check = lambda *args, **options: slicing.Slicing()  # type: ignore[attr-defined]


@pytest.mark.slow(quick=["sum_task"])
@pytest.mark.parametrize("of", [sliced.padded_task, sliced.sum_task, sliced.clip_task])
def test_without_looking_they_would_train_otherwise(run: Runtime, of: Any) -> None:
    pytest.importorskip("transformers")
    task = of(hints={"by": Calls(count_samples)}, lr=0.001)
    loss_of = None if task.loss_function else own_loss
    expected, _ = reference.train(task, 4, loss_of=loss_of)
    losses = chain(run, task, [("ddp", 2, 4)])
    assert closeness.ulps(losses, expected) > 100 * closeness.ACROSS


CLIP_PLAN = {
    f"clip.{part}_model.encoder.layers.*.{layer}": style
    for part in ("text", "vision")
    for layer, style in (
        ("self_attn.q_proj", "colwise"),
        ("self_attn.k_proj", "colwise"),
        ("self_attn.v_proj", "colwise"),
        ("self_attn.out_proj", "rowwise"),
        ("mlp.fc1", "colwise"),
        ("mlp.fc2", "rowwise"),
    )
}


@pytest.mark.slow
def test_clip_trains_exactly_wherever_a_batch_stays_whole(run: Runtime) -> None:
    pytest.importorskip("transformers")
    task = sliced.clip_task(hints={"tensor_plan": CLIP_PLAN})
    expected, _ = reference.train(task, 9, loss_of=own_loss)
    moves = [("ddp", 1, 3), ("tensor", 2, 6), ("fsdp", 1, 9)]
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS


def refusal(result: Result) -> str:
    assert not result.of("finished")
    told = [message["error"] for message in result.of("failed", rank=0)]
    assert [message["kind"] for message in result.of("failed", rank=0)] == ["not_applicable"]
    return str(told[0])


@pytest.mark.slow(quick=["contrastive", "clip"])
@pytest.mark.parametrize(
    "task",
    [
        definition("contrastive", loss_function=sliced.contrastive),
        sliced.clip_task(),
        sliced.experts_task(balanced=True),
    ],
    ids=lambda task: task.name,
)
def test_batches_that_must_stay_whole_are_cut_by_nobody(run: Runtime, task: TaskDefinition) -> None:
    pytest.importorskip("transformers")
    run.write_task(task)
    outcome = run.run(task.name, "ddp", ranks=2, kind="trial").one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable"
    assert "its batches can't be cut" in outcome["reason"]
    for technique in ("ddp", "fsdp"):
        told = refusal(run.run(task.name, technique, ranks=2, steps=3))
        assert told == outcome["reason"]
    alone = run.run(task.name, "ddp", ranks=1, steps=3)
    assert alone.codes == [0], alone.logs


def test_a_pipeline_of_one_micro_batch_keeps_it_whole(run: Runtime) -> None:
    task = definition("contrastive", loss_function=sliced.contrastive)
    expected, _ = reference.train(task, 6)
    losses = chain(run, task, [("pipeline", 2, 6)], knobs={"microbatches": 1})
    assert closeness.ulps(losses, expected) < closeness.ACROSS
    told = refusal(run.run(task.name, "pipeline", ranks=2, steps=7, knobs={"microbatches": 2}))
    assert "its batches can't be cut" in told
    outcome = run.run(task.name, "pipeline", ranks=2, kind="trial").one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable"


def test_labels_that_differ_later_are_seen_then(run: Runtime) -> None:
    pytest.importorskip("transformers")
    task = sliced.padded_task("late", get_dataloader=sliced.padded_late)
    run.write_task(task)
    first = run.run(task.name, "ddp", ranks=2, steps=7)
    assert not first.of("finished")
    told = first.of("failed", rank=0)[0]
    assert told["kind"] == "error" and "count by their labels" in told["error"]
    expected, _ = reference.train(task, 7, loss_of=own_loss)
    losses = chain(run, task, [("ddp", 2, 4), ("fsdp", 3, 7)])
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def penalized(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, labels) + 0.1 * outputs.square().mean()


def test_cross_entropy_with_a_penalty_is_cut_while_all_labels_count(run: Runtime) -> None:
    task = definition("penalized", loss_function=penalized)
    expected, _ = reference.train(task, 4)
    assert closeness.ulps(chain(run, task, [("ddp", 2, 4)]), expected) < closeness.ACROSS


def test_what_was_found_once_holds_for_all_attempts(run: Runtime) -> None:
    task = definition()
    chain(run, task, [("ddp", 2, 2)])
    found = run.task_dir(task.name) / "build" / "slices.json"
    before = found.stat().st_mtime_ns
    chain(run, task, [("ddp", 2, 4), ("fsdp", 2, 5)])
    assert found.stat().st_mtime_ns == before


def test_a_loss_that_can_not_be_compared_is_trusted_and_told(run: Runtime) -> None:
    def in_training_alone(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            raise RuntimeError("there is no gradient")
        return torch.nn.functional.cross_entropy(outputs, labels)

    task = definition(loss_function=in_training_alone)
    run.write_task(task)
    result = run.run(task.name, "ddp", ranks=2, steps=2)
    assert result.codes == [0, 0], result.logs
    [note] = [one["text"] for one in result.of("note") if "slices" in one["text"]]
    assert "there is no gradient" in note and "samples" in note


# Looked at before anything is launched.


def test_an_inspection_rules_out_what_would_cut(run: Runtime) -> None:
    run.write_task(definition(loss_function=sliced.contrastive))
    result = run.inspect("mlp", ["ddp", "fsdp", "pipeline", "offload"], gpus=[1, 2])
    said = {
        (one["technique"], one["gpus"]): one["finding"]
        for one in result.one("inspected")["inspection"]["verdicts"]
    }
    assert "can_run" in said["ddp", 1]
    for technique in ("ddp", "fsdp", "pipeline"):
        assert "can't be cut" in said[technique, 2]["not_applicable"]["reason"]
    # What it has found, a gang need not.
    before = (run.task_dir("mlp") / "build" / "slices.json").stat().st_mtime_ns
    run.run("mlp", "ddp", ranks=2, kind="trial")
    assert (run.task_dir("mlp") / "build" / "slices.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_contrastive_sweep_is_planned_on_one_device_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = [
        make_task(name, loss_function=sliced.contrastive, hparams=HParams(lr=lr, batch_count=6))
        for name, lr in (("a", 0.1), ("b", 0.2))
    ]
    result = saturn.orchestrate(tasks, devices=2, name="contrastive", trial_budget="full")
    assert [task.status for task in result.tasks] == ["done", "done"]
    profile = json.loads((result.run_dir / "profile.json").read_text())
    measured = [one for one in profile["trials"] if one["outcome"] == "measured"]
    assert {one["gpus"] for one in measured} == {1}
    ruled_out = [one for one in profile["trials"] if "can't be cut" in one.get("reason", "")]
    assert {(one["technique"], one["gpus"]) for one in ruled_out} == {
        *(("ddp", 2), ("fsdp", 2), ("pipeline", 2))
    }
    assert len(list((result.run_dir / "slices").iterdir())) == 1, "one for both"
