"""What a run realised, as `search` and `orchestrate` return it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.evaluation import MAX, MIN
from saturn.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What an evaluation found of the model after so many steps."""

    step: int
    #: By name; None for what was no finite number.
    metrics: Mapping[str, float | None]

    @classmethod
    def _of(cls, found: Mapping[str, Any] | None) -> Measured | None:
        return None if found is None else cls(step=found["step"], metrics=found["metrics"])


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What a task did in a run. Times are seconds on the run's clock, from the run's beginning."""

    name: str
    #: `done`, `failed`, `cancelled` or `stopped` (by the run's stopper); `waiting`, `running` or
    #: `held` in a run that was interrupted or only searched.
    status: str
    #: Loss of the last step, the mean over its global batch.
    final_loss: float | None
    #: What its last evaluation found, and its best one, where the task has them.
    evaluation: Measured | None = None
    best: Measured | None = None
    #: Finished steps.
    steps: int
    #: What trained it last.
    strategy: Strategy | None
    start_s: float | None
    end_s: float | None
    #: Launches for training.
    attempts: int
    #: Why it failed, or was cancelled or stopped, and the worker's own traceback.
    error: str | None
    traceback: str
    #: The values that tell it from other tasks.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: What says how well it did: `loss`, or a metric of its evaluations; `min` or `max` is better.
    metric: str = "loss"
    mode: str = MIN

    @property
    def value(self) -> float | None:
        """How well the task did: `metric` in its best evaluation, or the last one, or the loss."""
        if self.metric == "loss":
            return self.final_loss
        found = self.evaluation if self.best is None else self.best
        return None if found is None else found.metrics.get(self.metric)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run did: how long it took and was planned to take, seconds, and its tasks."""

    tasks: list[TaskResult]
    makespan_s: float | None
    planned_makespan_s: float | None
    lower_bound_s: float | None
    #: What it would take to give all devices to one task at a time, by the same profile.
    current_practice_s: float | None
    run_dir: Path
    report_path: Path

    def rows(self) -> list[dict[str, Any]]:
        """A row a task, the best first; those without a value come last.

        Columns: `task`, `status`, how well it did (by the metric's name), `steps`, `technique`,
        `gpus`, `train_s` (from its first launch to its last end, seconds), `attempts`, then its
        parameters (`parameter_<name>` where a column has that name).
        """
        return [
            _row(task) for task in sorted(self.tasks, key=lambda one: (_badness(one), one.name))
        ]

    def dataframe(self) -> Any:
        """The `rows` as a `pandas.DataFrame`; raises `InvalidInput` where there is no pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise InvalidInput(
                "a dataframe needs the package pandas: pip install pandas; RunResult.rows() and "
                "RunResult.csv() hold the same without it"
            ) from None
        return pandas.DataFrame(self.rows())

    def csv(self) -> str:
        """The `rows` as CSV, with a line of names; what is not known is empty."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def __str__(self) -> str:
        """The `rows` as a table of plain text, without columns that are empty in all of them."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        names = [name for name in names if any(row.get(name) is not None for row in rows)]
        lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        return "\n".join([*padded, f"report: {self.report_path}"])

    @classmethod
    def from_report(cls, report: Mapping[str, Any], run_dir: Path) -> RunResult:
        """Read it out of a report (`report.json`, version 1)."""
        totals = report["totals"]
        strategies = strategies_by_task(report)
        return cls(
            tasks=[
                _task_result(task, strategies[index]) for index, task in enumerate(report["tasks"])
            ],
            makespan_s=totals["makespan_s"],
            planned_makespan_s=totals["planned_makespan_s"],
            lower_bound_s=totals["lower_bound_s"],
            current_practice_s=totals["current_practice_s"],
            run_dir=run_dir,
            report_path=run_dir / "report.html",
        )


def strategies_by_task(report: Mapping[str, Any]) -> list[list[Strategy]]:
    """For each task of a report, every strategy tried for the task, or for one that is alike."""
    found: list[list[Strategy]] = [[] for _ in report["tasks"]]
    for trial in report["trials"]:
        if trial["result"] is None:
            continue
        strategy = _strategy(trial, report.get("device_memory_bytes"))
        for task in dict.fromkeys([trial["task"], *trial["speaks_for"]]):
            found[task].append(strategy)
    return found


def trial_of(task: str, strategy: Strategy) -> dict[str, Any]:
    """A strategy in the form in which profiles hold it."""
    trial: dict[str, Any] = {
        "task": task,
        "technique": strategy.technique,
        "gpus": strategy.gpus,
        "knobs": dict(strategy.knobs),
        "outcome": strategy.status,
    }
    if strategy.device_memory_bytes is not None:
        trial["device_memory_bytes"] = strategy.device_memory_bytes
    return {**trial, **strategy.outcome}


def _strategy(trial: Mapping[str, Any], device_memory_bytes: int | None) -> Strategy:
    outcome = dict(trial["result"])
    status = outcome.pop("outcome")
    reason = next((outcome[key] for key in ("reason", "detail", "error") if key in outcome), None)
    return Strategy(
        technique=trial["technique"],
        gpus=trial["gpus"],
        knobs=trial["knobs"],
        status=status,
        reason=reason,
        step_s=outcome.get("step_s"),
        setup_s=outcome.get("setup_s"),
        peak_memory_bytes=outcome.get("peak_memory_bytes"),
        device_memory_bytes=device_memory_bytes,
        outcome=outcome,
    )


def _task_result(task: Mapping[str, Any], strategies: list[Strategy]) -> TaskResult:
    return TaskResult(
        name=task["name"],
        status=task["status"],
        final_loss=task["final_loss"],
        evaluation=Measured._of((task.get("evaluation") or {}).get("last")),
        best=Measured._of((task.get("evaluation") or {}).get("best")),
        steps=task["step"],
        strategy=_selected(task, strategies),
        start_s=task["start_s"],
        end_s=task["end_s"],
        attempts=task["attempts"],
        error=task["error"],
        traceback=task["traceback"],
        parameters=task.get("parameters", {}),
        **(task.get("goal") or {}),
    )


def _row(task: TaskResult) -> dict[str, Any]:
    is_trained = task.start_s is not None and task.end_s is not None
    row: dict[str, Any] = {
        "task": task.name,
        "status": task.status,
        task.metric: task.value,
        "steps": task.steps,
        "technique": None if task.strategy is None else task.strategy.technique,
        "gpus": None if task.strategy is None else task.strategy.gpus,
        "train_s": task.end_s - task.start_s if is_trained else None,  # type: ignore[operator]
        "attempts": task.attempts,
    }
    for name, value in task.parameters.items():
        row[f"parameter_{name}" if name in row else name] = value
    return row


def _cell(value: Any) -> str:
    """A value in few characters; empty where it is not known."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _badness(task: TaskResult) -> float:
    """So that the best is first, and what has no value last."""
    if task.value is None or not math.isfinite(task.value):
        return math.inf
    return -task.value if task.mode == MAX else task.value


def _selected(task: Mapping[str, Any], strategies: list[Strategy]) -> Strategy | None:
    if task["technique"] is None:
        return None
    for strategy in strategies:
        if (strategy.technique, strategy.gpus) == (task["technique"], task["gpus"]):
            return strategy
    return Strategy(technique=task["technique"], gpus=task["gpus"], knobs=task["knobs"])
