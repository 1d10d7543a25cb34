"""Evaluations in training: the same steps and metrics whatever the moves, and the best kept."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import pytest
import saturn
import stateful_models
import torch
from faces import make_task
from harness import Runtime
from models import Calls, Mlp, dataset, definition
from saturn import Evaluation, HParams, export
from saturn.checkpoint import best, manifest
from saturn.errors import InvalidInput
from torch.utils.data import DataLoader

#: Differences between techniques, and their sums' orders, are far below.
Metrics = dict[str, float]


def eval_loader() -> DataLoader[Any]:
    return DataLoader(dataset(), batch_size=16)  # of 16, 16 and 12: two ranks have two rounds


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    right = outputs.argmax(-1) == labels
    return {"accuracy": right.float().mean(), "right": int(right.sum())}


EVALUATION = Evaluation(eval_loader, accuracy)
#: (technique, ranks, up to which step): stops where an evaluation is due, and where none is.
MOVES = [
    ("ddp", 2, 3),
    ("fsdp", 2, 4),
    ("pipeline+fsdp", 4, 9),
    ("tensor", 2, 10),
    ("offload", 1, 12),
]


def told(messages: list[dict[str, Any]]) -> list[tuple[int, bool]]:
    """(step, whether it was evaluated now) of what the runtime was told of evaluations."""
    return [(one["step"], one["evaluation_s"] is not None) for one in messages]


@pytest.mark.slow
def test_moves_change_neither_when_a_task_is_evaluated_nor_what_is_found(run: Runtime) -> None:
    task = partial(definition, get_model=partial(Mlp, 4), evaluate=EVALUATION, evaluate_every=4)
    run.write_task(task("whole"))
    assert run.run("whole", steps=12).codes == [0]
    expected = run.evaluations("whole")
    assert [step for step, _ in expected] == [4, 8, 12]
    run.write_task(task("moved", hints={"tensor_plan": {"layers.*": "colwise_rep"}}))
    seen = []
    for technique, ranks, stop in MOVES:
        result = run.run("moved", technique, ranks=ranks, steps=12, stop_at_step=stop)
        assert result.codes == [0] * ranks, result.logs
        seen.append(told(result.of("evaluated")))
    # Due where the second stops, so left to the third; the last ones are told again what is known.
    again = [(8, False)]
    assert seen == [[], [], [(4, True), (8, True)], again, [*again, (12, True)]]
    found = run.evaluations("moved")
    assert [step for step, _ in found] == [4, 8, 12]
    for (_, one), (_, other) in zip(expected, found, strict=True):
        assert one["right"] == other["right"]
        assert closeness.ulps(other, one) < closeness.ACROSS


def test_the_host_runs_ahead_of_gpus_but_for_evaluations(gpu_run: Runtime) -> None:
    task = partial(definition, get_model=partial(Mlp, 4), evaluate=EVALUATION, evaluate_every=4)
    gpu_run.write_task(task("slot", best=("eval_loss", "max")))
    assert gpu_run.run("slot", steps=10, device_kind="cpu").codes == [0]
    gpu_run.write_task(task("gpus", best=("eval_loss", "max")))
    for technique, stop in (("pipeline", 8), ("ddp", 9), ("fsdp", 10)):
        result = gpu_run.run("gpus", technique, ranks=2, steps=10, stop_at_step=stop)
        assert result.codes == [0, 0], result.logs
    expected, found = gpu_run.evaluations("slot"), gpu_run.evaluations("gpus")
    assert [step for step, _ in found] == [4, 8, 10]
    for (_, one), (_, other) in zip(expected, found, strict=True):
        assert closeness.ulps(other, one) < closeness.ACROSS
    kept = [manifest.newest_valid(gpu_run.task_dir(name) / "best") for name in ("slot", "gpus")]
    assert kept[0] is not None and kept[1] is not None and kept[0][1]["step"] == kept[1][1]["step"]


def counting() -> torch.nn.Module:
    """Its forward counts batches, and uses the number, in eval mode too."""
    return stateful_models.Layered(stateful_models.Counting())


def test_a_buffer_that_an_evaluation_changes_is_put_back(run: Runtime) -> None:
    """Else it would count other batches on each number of devices: 3 on one, 2 on two."""
    task = partial(definition, get_model=counting)
    run.write_task(task("alone"))
    assert run.run("alone", steps=6).codes == [0]
    found = {}
    for name, ranks in (("one", 1), ("two", 2)):
        run.write_task(task(name, evaluate=EVALUATION, evaluate_every=2))
        assert run.run(name, ranks=ranks, steps=6).codes == [0] * ranks
        found[name] = dict(run.evaluations(name))
    assert run.losses("one") == run.losses("alone")
    assert closeness.ulps(run.losses("two"), run.losses("alone")) < closeness.ACROSS
    for step, metrics in found["one"].items():
        assert closeness.ulps(found["two"][step], metrics) < closeness.ACROSS


def falls_then_rises() -> Evaluation:
    """One whose metric is least at its second evaluation."""
    values = iter([3.0, 1.0, 2.0])
    return Evaluation(eval_loader, lambda outputs, labels: {"a": next(values)})


def test_the_best_checkpoint_is_kept_beside_the_last(run: Runtime) -> None:
    task = definition(evaluate=falls_then_rises(), evaluate_every=4, best=("a", "min"))
    run.write_task(task)
    result = run.run("mlp", "fsdp", ranks=2, steps=12)
    assert result.codes == [0, 0], result.logs
    last = result.of("evaluated")[-1]
    assert (last["metrics"]["a"], last["best"]["step"], last["best"]["metric"]) == (2.0, 8, "a")
    directory = run.task_dir("mlp")
    kept = manifest.newest_valid(directory / best.DIRECTORY)
    assert kept is not None and kept[1]["step"] == 8
    assert [path.name for path in (directory / best.DIRECTORY).iterdir()] == ["step-00000008"]
    newest = manifest.newest_valid(directory / "checkpoints")
    assert newest is not None and newest[1]["evaluation"]["best"]["step"] == 8
    # As after a crash between the checkpoint and its being kept: whoever goes on from it keeps it.
    for path in (directory / "checkpoints" / "step-00000012").iterdir():
        path.unlink()
    for path in kept[0].iterdir():
        path.unlink()
    assert run.run("mlp", steps=9).one("started")["step"] == 8
    assert manifest.newest_valid(directory / best.DIRECTORY) is not None
    with pytest.raises(InvalidInput, match=r"its checkpoint is .*best/step-00000008"):
        export(run.run_dir, "mlp", run.run_dir / "there", which="best")


def break_metrics() -> Any:
    from saturn.rank.exceptions import TaskError
    from saturn.training import evaluation

    def broken(*_: Any) -> Any:
        raise TaskError("metrics raised ValueError: odd")

    evaluation.metrics_of = broken
    return {}


def test_what_was_trained_is_saved_where_an_evaluation_fails(run: Runtime) -> None:
    hints = {"calls": Calls(break_metrics)}
    run.write_task(definition(evaluate=EVALUATION, evaluate_every=4, hints=hints))
    result = run.run("mlp", "fsdp", ranks=2, steps=12)
    failed = next(one for one in result.of("failed") if one["kind"] == "task")
    assert failed["error"] == "evaluate: metrics raised ValueError: odd"
    assert run.checkpoints("mlp") == ["step-00000004"]


@pytest.mark.parametrize("every", [3, 2])
def test_a_trial_times_an_evaluation_and_goes_on_where_none_was_passed(
    run: Runtime, every: int
) -> None:
    run.write_task(definition(evaluate=EVALUATION, evaluate_every=every))
    result = run.run("mlp", "ddp", kind="trial", ranks=2, knobs={}, goes_on_to=6)
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert 0 < trial["outcome"]["evaluation_s"] < 5
    # Its three steps are the task's first where the first evaluation comes after them.
    assert trial["step"] == (3 if every == 3 else None)
    if every == 3:
        assert told(result.of("evaluated")) == [(3, True), (6, True)]


def test_an_inspection_tells_of_a_loader_that_gives_nothing(run: Runtime) -> None:
    run.write_task(definition(evaluate=Evaluation(list)))
    failed = run.inspect("mlp").one("failed")
    assert failed["kind"] == "task"
    assert failed["error"].startswith("evaluate: get_dataloader's loader gave no batch")


def norm_of_head(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    outputs = model(torch.zeros(3, 12))
    return {"norm": outputs.norm(), "rows": torch.tensor(len(outputs))}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_plans_and_tells_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = [
        make_task(
            name,
            hparams=HParams(lr=0.01, batch_count=20),
            evaluate=evaluate,
            evaluate_every=8,
            best=best,
            techniques=["ddp"],
        )
        for name, evaluate, best in (
            ("loader", EVALUATION, ("eval_loss", "min")),
            ("function", norm_of_head, None),
        )
    ]
    result = saturn.orchestrate(tasks, devices=2, profile="none")
    loader, function = result.tasks
    assert (loader.status, function.status) == ("done", "done")
    assert loader.evaluation is not None and loader.best is not None
    assert loader.evaluation.step == 20 and loader.best.step in (8, 16, 20)
    assert loader.evaluation.metrics.keys() == {"eval_loss", "accuracy", "right"}
    assert function.evaluation is not None and function.best is None
    assert function.evaluation.metrics["rows"] == 3
    report = json.loads((result.run_dir / "report.json").read_text())
    assert [one["step"] for one in report["tasks"][0]["evaluation"]["all"]] == [8, 16, 20]
    outcomes = [trial["result"] for trial in report["trials"] if trial["result"] is not None]
    measured = [outcome for outcome in outcomes if outcome["outcome"] == "measured"]
    assert measured and all(outcome["evaluation_s"] > 0 for outcome in measured)
    status = saturn.attach(result.run_dir).status()
    assert status.task("loader")["evaluation"]["step"] == 20
    assert "Evaluation</h2>" in result.report_path.read_text()
    assert "eval_loss" in capsys.readouterr().err
