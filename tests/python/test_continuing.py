"""`continue_from`: a finished task trained longer equals one that trained as long in one go."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import pytest
import saturn
import torch
import trainer_models
from faces import make_task
from harness import Runtime, runtime
from models import Mlp
from saturn import HParams, Task
from saturn.checkpoint import best, manifest
from saturn.errors import InvalidInput
from saturn.runs import request
from saturn.runs.profiles import Profile
from saturn.sweeps.distinct import refuse_equal
from torch.optim.lr_scheduler import StepLR

STEPS, LONGER = 7, 17  # in the midst of an epoch of 6 steps


@pytest.fixture
def later(run: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Another run, after `run`."""
    with runtime(tmp_path_factory.mktemp("later"), run.warm) as opened:
        yield opened


def lr_steps(optimizer: torch.optim.Optimizer) -> StepLR:
    return StepLR(optimizer, 5, 0.5)


def task_of(name: str, steps: int, **changes: Any) -> Task:
    settings = {"lr": 0.02, "max_grad_norm": 0.5, "lr_scheduler": lr_steps, "dropout": 0.2}
    settings |= changes.pop("hparams", {})
    return make_task(
        name, hparams=HParams(steps=steps, **settings), seed=changes.pop("seed", 3), **changes
    )


def trained(run: Runtime, task: Task, steps: int, *where: Any) -> dict[int, float]:
    technique, ranks = where or ("ddp", 1)
    run.write_task(task.definition())
    result = run.run(task.name, technique, ranks=ranks, steps=steps)
    assert result.codes == [0] * ranks, result.logs
    notes = [note["text"] for note in result.of("note")]
    if task.continue_from is not None:
        assert any(f"from step {result.one('started')['step']} of `a`" in note for note in notes)
    return run.losses(task.name)


def begin(run: Runtime, task: Task) -> None:
    """What a run does with a task that continues another, before it launches anything."""
    packed = request.pack([task])
    run.write_task(task.definition())
    request.put_checkpoints(run.run_dir, packed, [f"tasks/{task.name}"])


OPTIMIZERS = {
    "adamw": {},
    "momentum": {"optimizer_cls": partial(torch.optim.SGD, momentum=0.9), "lr": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_losses_are_those_of_a_task_that_trained_as_long(
    run: Runtime, later: Runtime, kind: str
) -> None:
    hparams = OPTIMIZERS[kind]
    whole = trained(run, task_of("whole", LONGER, hparams=hparams), LONGER)
    trained(run, task_of("a", STEPS, hparams=hparams), STEPS)
    task = task_of("b", LONGER, hparams=hparams, continue_from=(run.run_dir, "a"))
    begin(later, task)
    shutil.rmtree(run.task_dir("a"))  # the run before may go
    found = trained(later, task, LONGER)
    assert found == {step: loss for step, loss in whole.items() if step > STEPS}


def test_the_run_is_told_from_which_step_it_goes_on(run: Runtime) -> None:
    trained(run, task_of("a", STEPS), STEPS)
    tasks = [task_of("b", LONGER, continue_from=(run.run_dir, "a")), task_of("new", LONGER)]
    b, new = (
        one.described("tasks/x", Profile([]), [], request.Wishes()) for one in request.pack(tasks)
    )
    assert (b["start_step"], b["steps"]) == (STEPS, LONGER), "its length includes those"
    assert "start_step" not in new


def test_it_moves_between_techniques(run: Runtime, later: Runtime) -> None:
    no_dropout = {"dropout": 0.0}
    whole = trained(run, task_of("whole", LONGER, hparams=no_dropout), LONGER)
    trained(run, task_of("a", STEPS, hparams=no_dropout), STEPS)
    task = task_of("b", LONGER, hparams=no_dropout, continue_from=(run.run_dir, "a"))
    begin(later, task)
    trained(later, task, STEPS + 4, "fsdp", 2)
    result = later.run("b", "ddp", ranks=2, steps=LONGER)
    assert result.one("started")["step"] == STEPS + 4, result.logs
    assert not result.of("note"), "it goes on from its own checkpoint"
    expected = {step: loss for step, loss in whole.items() if step > STEPS}
    assert closeness.ulps(later.losses("b"), expected) < closeness.ACROSS


def test_a_trial_takes_none_of_its_steps(run: Runtime, later: Runtime) -> None:
    trained(run, task_of("a", STEPS), STEPS)
    task = task_of("b", LONGER, continue_from=(run.run_dir, "a"))
    begin(later, task)
    trial = later.run("b", "ddp", kind="trial", knobs={})
    assert trial.one("trial")["step"] is None
    assert min(trained(later, task, LONGER)) == STEPS + 1


def test_a_trainer_is_trained_longer(
    run: Runtime, later: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    def made(name: str, steps: int, **options: Any) -> Task:
        make = trainer_models.causal(max_steps=steps, lr_scheduler_type="constant")
        return Task.from_trainer(make, name=name, **options)

    whole = trained(run, made("whole", 9), 9)
    trained(run, made("a", 4), 4)
    task = made("b", 9, continue_from=(run.run_dir, "a"))
    begin(later, task)
    found = trained(later, task, 9)
    assert found == {step: loss for step, loss in whole.items() if step > 4}


def test_the_best_checkpoint_comes_along(run: Runtime, later: Runtime) -> None:
    keeps = {"evaluate": norm, "evaluate_every": 2, "best": ("norm", "min")}
    trained(run, task_of("a", STEPS, **keeps), STEPS)
    kept = manifest.newest_valid(best.directory_of(run.task_dir("a") / "checkpoints"))
    assert kept is not None
    task = task_of("b", LONGER, continue_from=(run.run_dir, "a"), **keeps)
    begin(later, task)
    there = manifest.newest_valid(best.directory_of(later.task_dir("b") / "checkpoints"))
    assert there is not None and there[1] == kept[1]
    # With another measure it is no best.
    other = task_of("c", LONGER, continue_from=(run.run_dir, "a"), evaluate=norm)
    begin(later, other)
    assert not best.directory_of(later.task_dir("c") / "checkpoints").exists()


@pytest.mark.parametrize("wanted", [("size", "max"), ("norm", "max")])
def test_a_best_by_another_metric_is_no_best(
    run: Runtime, later: Runtime, wanted: tuple[str, str]
) -> None:
    keeps = {"evaluate": norm, "evaluate_every": 2, "best": ("norm", "min")}
    trained(run, task_of("a", STEPS, **keeps), STEPS)
    other = {"evaluate": norm if wanted[0] == "norm" else size, "best": wanted}
    task = task_of("b", LONGER, continue_from=(run.run_dir, "a"), **{**keeps, **other})
    begin(later, task)
    later.write_task(task.definition())
    result = later.run("b", "ddp", steps=LONGER)
    assert result.codes == [0], result.logs
    told = [message for message in result.of("evaluated") if "best" in message]
    assert told and all(message["best"]["step"] > STEPS for message in told)
    assert manifest.newest_valid(best.directory_of(later.task_dir("b") / "checkpoints"))


def size(model: torch.nn.Module) -> dict[str, float]:
    return {"size": float(sum(parameter.numel() for parameter in model.parameters()))}


def norm(model: torch.nn.Module) -> dict[str, float]:
    return {"norm": float(sum(parameter.norm() for parameter in model.parameters()))}


class Headed(Mlp):
    """A model with a head that the continued task had not."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.head = torch.nn.Linear(self.head.in_features, 2 * self.head.out_features)


@pytest.mark.parametrize(
    ("model", "technique", "words"),
    [
        (Headed, "ddp", "`head.weight` is {0} x {1} there, and {2} x {1} in the model"),
        (partial(Mlp, 4), "fsdp", "`layers.3.weight` is not in it, and {1} x {1} in the model"),
    ],
)
def test_another_model_can_not_continue_it(
    run: Runtime, model: Any, technique: str, words: str
) -> None:
    trained(run, task_of("a", STEPS), STEPS)
    task = task_of("b", LONGER, get_model=model, continue_from=(run.run_dir, "a"))
    begin(run, task)
    result = run.run("b", technique, steps=LONGER)
    failed = result.one("failed")
    classes, width = Mlp().head.weight.shape
    assert failed["kind"] == "task"
    assert words.format(classes, width, 2 * classes) in failed["error"]


def test_what_can_not_be_continued_is_refused(run: Runtime) -> None:
    def refused(name: str = "a", **changes: Any) -> str:
        steps = changes.pop("steps", LONGER)
        task = task_of("b", steps, continue_from=(run.run_dir, name), **changes)
        with pytest.raises(InvalidInput) as raised:
            request.pack([task])
        return str(raised.value)

    run.write_task(task_of("a", STEPS).definition())
    assert "there is no checkpoint" in refused()
    trained(run, task_of("a", STEPS), STEPS)
    assert "has no task `c`; it has `a`" in refused("c")
    assert "give it seed=3" in refused(seed=4)
    assert f"has trained {STEPS} steps" in refused(steps=STEPS)
    assert "state of AdamW" in refused(hparams={"optimizer_cls": torch.optim.SGD})
    assert "a step of 1 batches" in refused(hparams={"gradient_accumulation_steps": 2})
    assert "has an lr_scheduler" in refused(hparams={"lr_scheduler": None})
    groups = [{"params": ["*.bias"], "weight_decay": 0.0}]
    assert "had 0 parameter_groups" in refused(hparams={"parameter_groups": groups})
    # Two steps of four batches each would be two batches more than the epoch has.
    by_four = {"lr": 0.02, "gradient_accumulation_steps": 4}
    short = make_task("short", hparams=HParams(epochs=1, **by_four))
    trained(run, short, 2)
    longer = make_task(
        "b", hparams=HParams(epochs=2, **by_four), continue_from=(run.run_dir, "short")
    )
    with pytest.raises(InvalidInput, match=r"its 2 steps took 6 batches, and .* take 8"):
        request.pack([longer])
    epochs = make_task(
        "b",
        hparams=HParams(0.02, epochs=1, lr_scheduler=lr_steps),
        seed=3,
        continue_from=(run.run_dir, "a"),
    )
    with pytest.raises(InvalidInput, match="has trained 1 epochs"):
        request.pack([epochs])
    with pytest.raises(InvalidInput, match="is no run directory"):
        request.pack([task_of("b", LONGER, continue_from=("nowhere", "a"))])
    with pytest.raises(TypeError, match="it must be a run and the name of one of its tasks"):
        task_of("b", LONGER, continue_from=run.run_dir)
    with pytest.raises(ValueError, match="leave start_from out"):
        task_of("b", LONGER, continue_from=(run.run_dir, "a"), start_from=run.run_dir)


def test_tasks_of_a_sweep_may_differ_in_nothing_but_what_they_continue() -> None:
    def refuses(*bases: str) -> None:
        tasks = [
            task_of(name, LONGER, continue_from=("runs/first", base))
            for name, base in zip("xy", bases, strict=True)
        ]
        refuse_equal(tasks, [{"base": base} for base in bases], "makers.py:make")

    refuses("a", "b")
    with pytest.raises(ValueError, match="tasks `x` and `y` would train the same"):
        refuses("a", "a")


@pytest.mark.slow
def test_a_run_continues_a_task_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"devices": 1, "techniques": ["ddp"], "log": False}
    saturn.orchestrate([task_of("a", STEPS), task_of("whole", LONGER)], name="first", **options)
    task = task_of("b", LONGER, continue_from=("saturn_runs/first", "a"))
    run = saturn.start([task], name="second", **options)
    # Before anything is launched it stands where the other ended.
    while not run.status()["tasks"]:
        time.sleep(0.02)
    assert run.status().task("b")["step"] >= STEPS
    result = run.wait()
    (found,) = result.tasks
    assert (found.status, found.steps) == ("done", LONGER)
    runs = tmp_path / "saturn_runs"
    curves = [runs / "first/tasks/whole/metrics.jsonl", runs / "second/tasks/b/metrics.jsonl"]
    whole, longer = (curve.read_text().splitlines() for curve in curves)
    assert [_loss(line) for line in longer] == [_loss(line) for line in whole[STEPS:]]
    # What can't be continued leaves no run behind.
    with pytest.raises(InvalidInput, match="seed"):
        saturn.orchestrate([task_of("c", 99, seed=1, continue_from=(result, "b"))], name="third")
    assert not (runs / "third").exists()


def _loss(line: str) -> tuple[int, float]:
    entry = json.loads(line)
    return entry["step"], entry["loss"]
