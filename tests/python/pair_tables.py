"""What a run's tables say of its tasks, and what they should say by docs/tables.md.

What they should say comes from elsewhere than the tables: losses and evaluations from
`metrics.jsonl`, steps from the checkpoints' manifests, launches and ends from the journal.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas
import pytest
from saturn import RunResult
from saturn.checkpoint import manifest
from saturn.plain.measures import number, numbers
from saturn.runs.result import Measured, TaskResult

SATURN = Path(sys.executable).with_name("saturn")


@dataclass(frozen=True)
class Attempt:
    """A launch for training, which has ended."""

    launch_s: float
    end_s: float
    strategy: Mapping[str, Any]


@dataclass
class Truth:
    """What is so of a task."""

    name: str
    #: Steps that its newest checkpoint holds; of the best checkpoint.
    steps: int
    best_step: int | None
    losses: dict[int, float | None]
    evaluations: dict[int, Mapping[str, float | None]]
    attempts: list[Attempt] = field(default_factory=list)
    #: What the first plan with a place for it gave it.
    planned_s: float | None = None

    @property
    def loss(self) -> float | None:
        return self.losses[self.steps] if self.steps else None

    @property
    def last(self) -> tuple[int, Mapping[str, float | None]] | None:
        """The last evaluation of the steps that count."""
        step = max((step for step in self.evaluations if step <= self.steps), default=None)
        return None if step is None else (step, self.evaluations[step])

    def best(self, metric: str, mode: str) -> int | None:
        """The step of the evaluation with the best finite value, the first of equal ones."""
        values = {
            step: value
            for step, found in self.evaluations.items()
            if step <= self.steps and (value := found[metric]) is not None and math.isfinite(value)
        }
        sign = -1 if mode == "max" else 1
        return min(values, key=lambda step: (sign * values[step], step), default=None)

    @property
    def train_s(self) -> float | None:
        taken = [attempt.end_s - attempt.launch_s for attempt in self.attempts]
        return sum(taken) if taken else None


def truths(run_dir: Path) -> dict[str, Truth]:
    """By name."""
    found: list[Truth] = []
    launched: dict[int, dict[str, Any]] = {}
    told: dict[str, int] = {}
    places: list[dict[str, Any]] = []
    for at_s, record in records(run_dir):
        kind = record["record"]
        if kind == "task_added":
            found.append(truth(run_dir / record["spec"]["dir"], record["spec"]["name"]))
        elif kind == "launched":
            launched[record["attempt"]] = {**record, "at_s": at_s}
        elif kind == "went_on":  # a trial, whose steps are the task's first
            launched[record["attempt"]]["purpose"] = "train"
        elif kind == "ended" and launched[record["attempt"]]["purpose"] == "train":
            of = launched[record["attempt"]]
            attempt = Attempt(of["at_s"], at_s, of["strategy"])
            found[of["task"]].attempts.append(attempt)
        elif kind == "checkpointed":
            told[found[launched[record["attempt"]]["task"]].name] = record["step"]
        elif kind == "task_ended" and record["end"]["how"] == "done":
            # A script that trains by itself has no checkpoint of Saturn's.
            told[found[record["task"]].name] = max(found[record["task"]].losses)
        elif kind in ("planned", "replanned"):
            places = planned(record, places)
            for place in places:
                task = found[place["task"]]
                if task.planned_s is None:
                    task.planned_s = place["end_s"] - place["start_s"]
    for one in found:
        # A rank that is killed may have saved and not said so: the tables know of it once the task
        # is launched again.
        saved, one.steps = one.steps, told.get(one.name, 0)
        assert saved >= one.steps or saved == 0, one
    return {one.name: one for one in found}


def planned(record: Mapping[str, Any], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The places of a plan, of which the journal may keep what the plan before had not."""
    if record["record"] == "planned":
        return list(record["plan"]["places"])
    places: list[dict[str, Any]] = []
    for part in record["places"]:
        match part:
            case [first, count]:
                places += before[first : first + count]
            case [number, start_s, end_s]:
                places.append({**before[number], "start_s": start_s, "end_s": end_s})
            case [number, gang, start_s, end_s]:
                times = {"start_s": start_s, "end_s": end_s}
                places.append({**before[number], "gang": gang, **times})
            case _:
                places.append(part)
    return places


def truth(directory: Path, name: str) -> Truth:
    kept, best = (manifest.newest_valid(directory / part) for part in ("checkpoints", "best"))
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return Truth(
        name,
        0 if kept is None else int(kept[1]["step"]),
        None if best is None else int(best[1]["step"]),
        {line["step"]: number(line["loss"]) for line in lines if "loss" in line},
        {line["step"]: numbers(line["evaluation"]) for line in lines if "evaluation" in line},
    )


def records(run_dir: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """(seconds on the run's clock, record) of the journal."""
    with sqlite3.connect(f"file:{run_dir / 'journal.db'}?mode=ro", uri=True) as journal:
        for at_s, text in journal.execute("SELECT at_s, record FROM record ORDER BY seq"):
            yield at_s, json.loads(text)
    journal.close()


#: A metric, and whether less of it is better or more: `min` or `max`.
Goal = tuple[str, str]


def judge(result: RunResult, goals: Mapping[str, Goal], bests: Mapping[str, Goal]) -> None:
    """Each column of each table says what is so, by its definition.

    `goals` is by what each task is ranked, where not by its loss; `bests` by what its best
    checkpoint is kept. `ended_s` of `saturn status` is when the task itself ended, so it is no
    column of these.
    """
    tables = Tables(result)
    for name, truth in truths(result.run_dir).items():
        tables.of(name).judge(truth, goals.get(name, ("loss", "min")), bests.get(name))


class Tables:
    """Every table of a run, as its readers get it."""

    def __init__(self, result: RunResult) -> None:
        run_dir, table = result.run_dir, result.csv()
        printed = asked("report", run_dir, "--csv")
        assert printed == table, (printed, table)
        self.rows = {row["task"]: row for row in result.rows()}
        self.lines = {line["task"]: line for line in csv.DictReader(io.StringIO(table))}
        self.frame = result.dataframe().set_index("task")
        self.results = {task.name: task for task in result.tasks}
        report = json.loads((run_dir / "report.json").read_text())
        self.reported = {task["name"]: task for task in report["tasks"]}
        status = json.loads(asked("status", run_dir, "--json"))
        self.status = {task["name"]: task for task in status["tasks"]}

    def of(self, name: str) -> TaskTables:
        return TaskTables(
            self.rows[name],
            self.lines[name],
            self.frame.loc[name],
            self.results[name],
            self.reported[name],
            self.status[name],
        )


@dataclass
class TaskTables:
    """One task in each table: a row, a line of CSV, a row of the dataframe, and so on."""

    row: Mapping[str, Any]
    line: Mapping[str, str]
    framed: Any
    found: TaskResult
    told: Mapping[str, Any]
    stands: Mapping[str, Any]

    def judge(self, truth: Truth, goal: Goal, best: Goal | None) -> None:
        found, told, stands = self.found, self.told, self.stands
        first, last = (truth.attempts[place] if truth.attempts else None for place in (0, -1))
        attempts = (len(truth.attempts), found.attempts, told["attempts"], stands["attempts"])
        self.row_has("status", told["status"], found.status, stands["stage"])
        self.row_has("steps", truth.steps, found.steps, told["step"], stands["step"])
        self.row_has("attempts", *attempts)
        for column in ("technique", "gpus"):
            own = None if found.strategy is None else getattr(found.strategy, column)
            expected = None if last is None else last.strategy[column]
            self.row_has(column, expected, own, told[column])
            if stands["stage"] != "waiting":  # else what the plan has for the task
                self.same(expected, stands[column])
        self.row_has("train_s", found.train_s, told["train_s"], stands["train_s"])
        assert found.train_s == pytest.approx(truth.train_s), (found, truth)
        self.same(truth.loss, found.final_loss, number(told["final_loss"]), number(stands["loss"]))
        self.same(first and first.launch_s, found.start_s, told["start_s"], stands["started_s"])
        self.same(last and last.end_s, found.end_s, told["end_s"])
        self.same(truth.planned_s, told["planned_s"])
        judge_evaluations(truth, best, told.get("evaluation"), stands, found)
        value = truth.loss
        if goal[0] != "loss":
            counts = found.evaluation if found.best is None else found.best
            value = None if counts is None else counts.metrics[goal[0]]
        self.row_has(goal[0], value)
        assert (found.metric, found.mode) == goal, found.name

    def same(self, expected: Any, *values: Any) -> None:
        # As text: no NaN equals another.
        apart = [value for value in values if repr(value) != repr(expected)]
        assert not apart, (self.found.name, expected, apart)

    def row_has(self, column: str, expected: Any, *others: Any) -> None:
        """A column of the rows, in their three forms; and what else says the same."""
        self.same(expected, self.row[column], *others)
        self.same("" if expected is None else str(expected), self.line[column])
        framed = self.framed[column]
        is_none = expected is None or expected != expected
        assert pandas.isna(framed) if is_none else framed == expected, column


def judge_evaluations(
    truth: Truth, goal: Goal | None, told: Any, stands: Any, found: TaskResult
) -> None:
    """The last evaluation and the best, wherever they stand.

    An evaluation of steps that were lost is still told as the last until the task is launched
    again, and after that none is until the next (docs/pairs.md): such a task is left out here. So
    is a script, whose metrics are no evaluations of Saturn's.
    """
    if max(truth.evaluations, default=0) > truth.steps or truth.name == "script":
        return
    last = truth.last
    told = told or {"last": None, "best": None}
    for one in (told["last"], stands["evaluation"], found.evaluation):
        assert written(one) == written(last), (truth.name, truth.steps, one, last)
    step = None if goal is None else truth.best(*goal)
    best = None if step is None else (step, truth.evaluations[step])
    for one in (told["best"], stands["best"], found.best):
        assert written(one) == written(best), (truth.name, truth.steps, one, best)
    assert truth.best_step == step, "the checkpoint of the best evaluation is kept"


def written(evaluation: Any) -> str:
    """An evaluation in one form: no NaN equals another."""
    if evaluation is None:
        return "none"
    if isinstance(evaluation, Measured):
        evaluation = evaluation.step, evaluation.metrics
    elif not isinstance(evaluation, tuple):
        evaluation = evaluation["step"], numbers(evaluation["metrics"])
    step, metrics = evaluation
    return repr((step, dict(sorted(metrics.items()))))


def judge_order(rows: list[dict[str, Any]], metric: str) -> None:
    """The best first, by a metric of which less is better; what diverged, or has none, last.

    Tasks that were trained, or stopped by the run's stopper, are compared with each other, and so
    are all others.
    """

    def is_last(row: dict[str, Any]) -> bool:
        return row["status"] == "diverged" or row[metric] is None

    assert [is_last(row) for row in rows] == sorted(map(is_last, rows)), rows
    for ends in (("done", "stopped"), ("failed", "cancelled")):
        ranked = [
            (row[metric], row["task"]) for row in rows if row["status"] in ends and not is_last(row)
        ]
        assert ranked == sorted(ranked), rows


def asked(*args: object) -> str:
    """What a command of `saturn` prints."""
    command = [SATURN, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
