"""A model is inspected once, on no device; strategies that can't run are never launched."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from faces import make_task
from harness import Runtime
from live_gangs import Result
from models import Mlp, definition, shuffled_loader
from saturn import HParams
from saturn.techniques import Knobs, Setting
from saturn.techniques.ddp import Ddp
from saturn.training.slicing import Slicing
from techniques_of_tests import spec_of
from torch import nn
from torch.utils.data import DataLoader


def found(result: Result) -> dict[str, Any]:
    assert result.codes == [0], result.logs
    inspection: dict[str, Any] = result.one("inspected")["inspection"]
    return inspection


def findings(inspection: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(one["technique"], one["gpus"]): one["finding"] for one in inspection["verdicts"]}


class ToldWhere(Mlp):
    """Leaves a word in the log of where it was built."""

    def __init__(self) -> None:
        super().__init__()
        print("built on", next(self.parameters()).device)


class LooksAtValues(ToldWhere):
    """Can't be built without values."""

    def __init__(self) -> None:
        super().__init__()
        if float(self.head.weight.abs().sum()) == 0.0:
            raise ValueError("no weights")


class NeedsValues(Ddp):
    """Says no on what only a model with weights shows."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        largest = max(float(parameter.detach().abs().max()) for parameter in module.parameters())
        return f"its weights go up to {largest > 0}" if setting.gpus == 2 else None


class Broken(Ddp):
    """Raises when it is asked."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        raise RuntimeError("it was never tried")


class Picky(Ddp):
    """Takes one device alone, and says why."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        return "two are a crowd" if setting.gpus == 2 else None


def test_a_look_tells_sizes_and_verdicts_without_weights(run: Runtime) -> None:
    run.write_task(definition(get_model=ToldWhere))
    # What was found of its slices is there: that takes weights.
    known = run.task_dir("mlp") / "build" / "slices.json"
    known.parent.mkdir()
    known.write_text(json.dumps(Slicing().as_json()))
    result = run.inspect("mlp", ["ddp", "fsdp", "pipeline"], gpus=[1, 2, 8])
    inspection = found(result)
    assert "built on meta" in result.logs and "built on cpu" not in result.logs
    parameters = sum(parameter.numel() for parameter in Mlp().parameters())
    assert inspection["parameters"] == parameters
    assert inspection["parameter_bytes"] == inspection["trainable_bytes"] == 4 * parameters
    assert inspection["layers"] == 3 and inspection["batches_per_epoch"] == 6
    assert inspection["optimizer_state_ratio"] == pytest.approx(2.0, rel=1e-2)
    assert 11 * parameters < inspection["checkpoint_bytes"] < 13 * parameters
    said = findings(inspection)
    assert said["ddp", 1]["can_run"]["least_memory_bytes"] == pytest.approx(
        16 * parameters, rel=0.1
    )
    assert said["ddp", 1]["can_run"]["knob_sets"] == 2, "the second recomputes"
    assert "nothing to split" in said["fsdp", 1]["not_applicable"]["reason"]
    assert "can_run" in said["fsdp", 2]
    assert "too few for 8 stages" in said["pipeline", 8]["not_applicable"]["reason"]


def test_what_fits_no_device_is_too_large_in_words(run: Runtime) -> None:
    run.write_task(definition())
    said = findings(found(run.inspect("mlp", device_memory_bytes=5000)))
    assert "needs at least 9 kB of 5 kB a device" in said["ddp", 1]["out_of_memory"]["detail"]


def test_a_model_that_must_be_built_for_real_is(run: Runtime) -> None:
    run.write_task(definition(get_model=LooksAtValues))
    result = run.inspect("mlp")
    assert found(result)["layers"] == 3
    assert result.logs.count("built on cpu") == 2, "once more to compare its slices"


def test_a_technique_that_needs_weights_gets_them_and_one_that_raises_is_left_to_trials(
    run: Runtime,
) -> None:
    run.write_task(definition(get_model=ToldWhere))
    result = run.inspect("mlp", [spec_of(NeedsValues), spec_of(Broken), "ddp"])
    said = findings(found(result))
    assert said["needsvalues", 2] == {"not_applicable": {"reason": "its weights go up to True"}}
    assert result.logs.count("built on cpu") == 2, "once more to compare its slices"
    assert {technique for technique, _ in said} == {"needsvalues", "ddp"}
    assert "it was never tried" in result.logs


def no_batches() -> DataLoader[Any]:
    return DataLoader(torch.utils.data.TensorDataset(torch.zeros(0, 3)), batch_size=2)


def first_batch_raises() -> Any:
    def batches() -> Any:
        raise OSError("no file")
        yield

    return batches()


def unbuildable() -> nn.Module:
    raise OSError("no weights here")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"get_model": unbuildable}, "get_model raised OSError: no weights here"),
        ({"get_dataloader": first_batch_raises}, "get_dataloader's loader raised OSError: no file"),
        ({"get_dataloader": no_batches}, "a loader without batches"),
        ({"hints": {"attention": "nobody's"}}, "hints['attention'] names `nobody's`"),
    ],
)
def test_what_the_tasks_functions_raise_is_told(
    run: Runtime, changes: dict[str, Any], error: str
) -> None:
    run.write_task(definition(**changes))
    result = run.inspect("mlp")
    failed = result.one("failed")
    assert failed["kind"] == "task" and error in failed["error"]
    assert result.codes == [1] and not result.of("inspected")


class HalfPrecision(Mlp):
    """Some of it in a type that is too coarse to be trained in."""

    def __init__(self) -> None:
        super().__init__()
        self.layers.to(torch.bfloat16)
        self.head.to(torch.float16).requires_grad_(False)


@pytest.mark.parametrize("model", [HalfPrecision, Mlp])
def test_trained_weights_of_low_precision_are_pointed_out(run: Runtime, model: Any) -> None:
    run.write_task(definition(get_model=model))
    result = run.inspect("mlp")
    assert result.codes == [0], result.logs
    told = [one["text"] for one in result.of("note") if "weights" in one["text"]]
    if model is Mlp:
        assert told == []
        return
    [text] = told
    for part in (
        "95% of the trained weights",
        "are bfloat16",
        "1/256",
        "build the model in float32",
    ):
        assert part in text


# End to end.


def records(run_dir: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(run_dir / "journal.db") as journal:
        rows = journal.execute("SELECT record FROM record ORDER BY seq").fetchall()
    return [json.loads(row[0]) for row in rows]


def launches(run_dir: Path) -> Counter[tuple[str, str, int]]:
    return Counter(
        (one["purpose"], one["strategy"]["technique"], one["strategy"]["gpus"])
        for one in records(run_dir)
        if one["record"] == "launched"
    )


def test_no_gang_is_launched_to_say_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saturn.register("picky", Picky)
    tasks = [
        make_task(name, hparams=HParams(lr=lr, batch_count=4))
        for name, lr in (("a", 0.1), ("b", 0.2))
    ]
    result = saturn.orchestrate(
        tasks,
        techniques=["picky", "fsdp", "pipeline"],
        devices=2,
        name="looked-at",
        trial_budget="full",
    )
    assert [task.status for task in result.tasks] == ["done", "done"]
    tried = launches(result.run_dir)
    assert tried["inspection", "", 0] == 1
    trials = {key[1:]: number for key, number in tried.items() if key[0] == "trial"}
    assert trials == {("picky", 1): 1, ("fsdp", 2): 1, ("pipeline", 2): 1}
    shown = capsys.readouterr().err
    assert shown.count("inspect  ") == 1 and "(and 1 like it)" in shown
    assert re.search(r"can't run: fsdp . 1, picky . 2, pipeline . 1\n", shown)
    assert "nothing to split" not in shown, "the reason is for whoever asks"
    report = json.loads((result.run_dir / "report.json").read_text())
    ruled_out = {
        (one["technique"], one["gpus"]) for one in report["trials"] if one.get("ruled_out")
    }
    assert ruled_out == {("fsdp", 1), ("picky", 2), ("pipeline", 1)}
    profile = json.loads((result.run_dir / "profile.json").read_text())
    reasons = [one["reason"] for one in profile["trials"] if one["outcome"] == "not_applicable"]
    assert "two are a crowd" in reasons


def test_models_that_cannot_be_built_and_that_need_values_and_epochs_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    unbuilt = [
        make_task(name, get_model=unbuildable, hparams=HParams(lr=lr, batch_count=4))
        for name, lr in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    ]
    real = make_task("real", get_model=LooksAtValues, hparams=HParams(lr=0.1, batch_count=4))
    batches = partial(shuffled_loader, 4)
    epochs = make_task("epochs", get_dataloader=batches, hparams=HParams(lr=0.1, epochs=2))
    result = saturn.orchestrate(
        [*unbuilt, real, epochs],
        techniques=["ddp"],
        devices=1,
        name="looked-at",
        raise_on_failure=False,
    )
    assert {task.name: (task.status, task.steps) for task in result.tasks} == {
        **dict.fromkeys("abc", ("failed", 0)),
        "real": ("done", 4),
        "epochs": ("done", 22),
    }
    # A `get_model` that raises is told with one traceback, and no trial is run.
    tried = launches(result.run_dir)
    assert tried["inspection", "", 0] == 5 and tried["trial", "ddp", 1] == 2
    shown = capsys.readouterr().err
    assert shown.count("in unbuildable") == 1, "one traceback"
    assert shown.count("like `a`: ") >= 2
    # A task in epochs is planned with the batches that were counted.
    looks = [one["inspection"] for one in records(result.run_dir) if one["record"] == "inspected"]
    assert sorted(look["batches_per_epoch"] for look in looks if look is not None) == [6, 11]
