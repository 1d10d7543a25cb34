"""A loss that is no finite number, from the step that it is of to each table that shows it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from models import NUM_CLASSES, WIDTH, shuffled_loader
from saturn import HParams, RunResult, Task
from saturn.plain.measures import number, numbers, plain
from saturn.plain.series import values_of
from saturn.stoppers import ASHA, NaN, Plateau, Progress
from saturn.tuning.reports import WINDOW, TaskReports
from saturn.tuning.tuner import Stopping

SATURN = Path(sys.executable).with_name("saturn")
STEPS = 40


def loss_of(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, labels)


def linear() -> torch.nn.Module:
    return torch.nn.Linear(WIDTH, NUM_CLASSES)


def far_off() -> torch.nn.Module:
    model = linear()
    with torch.no_grad():
        model.weight.fill_(math.inf)
    return model


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunResult]:
    """A run of a task that is well, one that explodes, and one that is NaN from its first step."""

    def task(name: str, model: Any, lr: float) -> Task:
        hparams = HParams(lr=lr, batch_count=STEPS, optimizer_cls=torch.optim.SGD)
        return Task(model, shuffled_loader, loss_of, hparams, name=name)

    tasks = [task("exploded", linear, 1e38), task("nan", far_off, 0.1), task("well", linear, 0.1)]
    directory = tmp_path_factory.mktemp("runs")
    yield saturn.orchestrate(tasks, devices=1, techniques=["ddp"], runs_dir=directory, log=False)


def test_each_table_of_a_run_has_the_last_loss(finished: RunResult) -> None:
    rows = finished.rows()
    assert [row["task"] for row in rows] == ["well", "exploded", "nan"]
    assert [row["status"] for row in rows] == ["done", "diverged", "diverged"]
    assert math.isfinite(rows[0]["loss"])
    run_dir = finished.run_dir
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["totals"]["done"], report["totals"]["diverged"]) == (1, 2)
    asked = subprocess.run([SATURN, "status", run_dir, "--json"], capture_output=True, check=True)
    status = {task["name"]: task for task in json.loads(asked.stdout)["tasks"]}
    csv = {line.split(",")[0]: line.split(",") for line in finished.csv().splitlines()}
    frame = finished.dataframe().set_index("task")
    for row in rows:
        name = row["task"]
        told = next(task for task in report["tasks"] if task["name"] == name)
        lines = (run_dir / told["dir"] / "metrics.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        assert last["step"] == STEPS == row["steps"] == status[name]["step"]
        # The same number in each, bit by bit, but that no NaN equals another.
        values = [
            row["loss"],
            next(task.final_loss for task in finished.tasks if task.name == name),
            float(csv[name][2]),
            float(frame["loss"][name]),
            values_of(last)["train/loss"],
            number(told["final_loss"]),
            number(status[name]["loss"]),
            number(last["loss"]),
        ]
        assert len({repr(value) for value in values}) == 1, values
        assert status[name]["stage"] == row["status"] == csv[name][1] == frame["status"][name]
        trained_s = [row["train_s"], float(csv[name][6]), frame["train_s"][name]]
        trained_s += [told["train_s"], status[name]["train_s"]]
        assert len(set(trained_s)) == 1, trained_s
    printed = subprocess.run(
        [SATURN, "status", run_dir], capture_output=True, text=True, check=True
    )
    line = next(line for line in printed.stdout.splitlines() if line.startswith("nan "))
    assert line.split()[:2] == ["nan", "diverged"] and line.split().count("nan") == 2
    assert str(finished).splitlines()[-2].split()[:3] == ["nan", "diverged", "nan"]


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, -math.inf, 0, 3])
def test_numbers_come_through_json_as_they_are(value: float) -> None:
    text = json.dumps(plain({"loss": value, "metrics": {"a": value}}), allow_nan=False)
    read = json.loads(text)
    assert repr(number(read["loss"])) == repr(float(value))
    assert repr(numbers(read["metrics"])["a"]) == repr(float(value))
    assert [number(one) for one in (None, "low", True)] == [None, None, None]


def test_trackers_are_told_numbers_that_are_not_finite() -> None:
    told = values_of({"step": 3, "loss": "nan", "lr": 0.1})
    assert math.isnan(told["train/loss"]) and told["train/lr"] == 0.1
    told = values_of({"step": 3, "evaluation": {"eval_a": "-inf", "b": None}})
    assert told == {"eval/a": -math.inf}


def progress(name: str, *values: float) -> Progress:
    task = Progress(name)
    task.steps, task.stage = 27, "training"
    for step, value in enumerate(values, start=1):
        task.add(step, {"acc": value})
    return task


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_no_stopper_takes_such_a_number_for_a_good_one(value: float, mode: str) -> None:
    asha = ASHA(metric="acc", mode=mode, min_steps=1, eta=2)
    tasks = {one.name: one for one in (progress("a", value), progress("b", value))}
    (ruling,) = asha.looked(tasks["a"], tasks)
    assert (ruling.task, ruling.ruling) == ("a", "hold"), "half go on, but none of these"
    tasks["c"] = progress("c", 0.5)
    assert list(asha.looked(tasks["c"], tasks)) == []
    plateau = Plateau(metric="acc", mode=mode, steps=2)
    task = progress("a", 0.5, value, value)
    (ruling,) = plateau.looked(task, {"a": task})
    assert "since step 1" in ruling.reason


def test_a_task_has_diverged_once_no_loss_of_a_window_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reports = TaskReports("a", path, {"acc"})

    def has_diverged(*losses: object) -> bool:
        with path.open("a") as file:
            for loss in losses:
                has_diverged.step += 1  # type: ignore[attr-defined]
                step = has_diverged.step  # type: ignore[attr-defined]
                file.write(json.dumps({"step": step, "loss": loss}) + "\n")
        list(reports.read())
        return reports.has_diverged

    has_diverged.step = 0  # type: ignore[attr-defined]
    assert not has_diverged(*["nan"] * (WINDOW - 1))
    assert not has_diverged(1.0, *["inf"] * (WINDOW - 1))
    assert has_diverged("nan"), "whatever metric the stopper goes by"
    assert not has_diverged(1.0)
    assert Stopping([NaN()]).ends_diverged


def test_lists_of_numbers_are_json_too() -> None:
    assert plain({"tasks": [{"loss": math.nan}, (math.inf, 1.0)]}) == {
        "tasks": [{"loss": "nan"}, ["inf", 1.0]]
    }
