"""The result of a run, as `search` and `orchestrate` return it.

It is read from the run's `report.json`, and holds plain data: nothing here asks a run in progress.
All tables (rows, CSV, text) have the same columns and the same order of tasks.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.plain.measures import number, numbers
from saturn.tasks.evaluation import MAX, MIN
from saturn.tasks.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The metrics of the model after `step` steps."""

    step: int
    #: By name; None for a value that was not finite, in runs of earlier versions only.
    metrics: Mapping[str, float | None]

    @classmethod
    def _of(cls, found: Mapping[str, Any] | None) -> Measured | None:
        return None if found is None else cls(step=found["step"], metrics=numbers(found["metrics"]))


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The result of one task. Times are seconds on the run's clock, from the run's beginning."""

    name: str
    #: `done`, `diverged` (trained to its end, with a loss that is not finite), `failed`,
    #: `cancelled` or `stopped` (by the run's stopper); `waiting`, `running` or `held` in a run that
    #: was interrupted or only searched.
    status: str
    #: Mean loss over the global batch of the last of `steps`; may be NaN or infinite.
    final_loss: float | None
    #: The last evaluation, and the best one, if the task has evaluations.
    evaluation: Measured | None = None
    best: Measured | None = None
    #: How many steps are finished.
    steps: int
    #: The strategy with which it trained last.
    strategy: Strategy | None
    start_s: float | None
    end_s: float | None
    #: Seconds of training: the sum over its attempts at training, from launch to end.
    train_s: float | None
    #: How often it was launched for training.
    attempts: int
    #: Why it failed, was cancelled or was stopped; and the worker's own traceback.
    error: str | None
    traceback: str
    #: The values that distinguish it from other tasks.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: The metric that ranks it: `loss`, or one of its evaluations; whether `min` or `max` is best.
    metric: str = "loss"
    mode: str = MIN
    #: Whether it is the rest of a script, after another task's training; it has no row.
    is_rest: bool = False

    @property
    def has_diverged(self) -> bool:
        """Whether its last loss is not finite, however the task ended."""
        return self.final_loss is not None and not math.isfinite(self.final_loss)

    @property
    def value(self) -> float | None:
        """The ranking value: `metric` of its best or else last evaluation, or its last loss."""
        if self.metric == "loss":
            return self.final_loss
        found = self.evaluation if self.best is None else self.best
        return None if found is None else found.metrics.get(self.metric)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of a run: its planned and realised times in seconds, and its tasks."""

    tasks: list[TaskResult]
    #: From the call that began the run to the end of training, trials included.
    total_s: float | None
    #: The part of `total_s` for starting the processes that drove the run, in seconds.
    startup_s: float
    #: The time of current practice from start to end: one task at a time on all devices.
    current_practice_total_s: float | None
    #: Whether that time rests on the estimate of an unmeasured strategy, and may be far off.
    current_practice_is_estimate: bool = False
    #: Whether all steps of all planned tasks were trained. If not, as in a search, the run did less
    #: than its plan, bound and current practice assume, so its time compares with none of them.
    did_all_that_was_planned: bool
    #: The realised time from the first plan with all tasks to the end of training; that plan's
    #: makespan; its lower bound. Both estimates are of that moment: a run may be shorter.
    makespan_s: float | None
    planned_makespan_s: float | None
    lower_bound_s: float | None
    #: The time of current practice from that plan on, by the same profile.
    current_practice_s: float | None
    run_dir: Path
    report_path: Path

    def rows(self) -> list[dict[str, Any]]:
        """One row for each task, in the order of docs/tables.md.

        First come tasks that are done or stopped, best first, then all others, then those that
        diverged, and last those without a value. The rest of a script, after a task's training, has
        no row: it trains nothing (`tasks` has it).

        Columns: `task`, `status`, the ranking value (under the metric's name), `steps`,
        `technique`, `gpus`, `train_s`, `attempts`, then the parameters (`parameter_<name>` if a
        column has that name). docs/tables.md explains each.
        """
        tasks = [task for task in self.tasks if not task.is_rest]
        return [_row(task) for task in sorted(tasks, key=_place)]

    def dataframe(self) -> Any:
        """The `rows` as a `pandas.DataFrame`; raises `InvalidInput` without pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise InvalidInput(
                "a dataframe needs the package pandas: pip install pandas; RunResult.rows() and "
                "RunResult.csv() hold the same without it"
            ) from None
        return pandas.DataFrame(self.rows())

    def csv(self) -> str:
        """The `rows` as CSV, with a header; unknown values are empty."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def __str__(self) -> str:
        """The `rows` as a table of plain text, without columns that are empty in all rows."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        names = [name for name in names if any(row.get(name) is not None for row in rows)]
        lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        # A run that goes on has no report yet.
        report = [f"report: {self.report_path}"] if self.report_path.exists() else []
        return "\n".join([*padded, *report])

    @classmethod
    def from_report(cls, report: Mapping[str, Any], run_dir: Path) -> RunResult:
        """Read the result out of a report (`report.json`)."""
        totals = report["totals"]
        strategies = strategies_by_task(report)
        return cls(
            tasks=[
                _task_result(task, strategies[index]) for index, task in enumerate(report["tasks"])
            ],
            total_s=totals["total_s"],
            startup_s=totals["startup_s"],
            current_practice_total_s=totals["current_practice_total_s"],
            current_practice_is_estimate=totals.get("current_practice_is_estimate", False),
            did_all_that_was_planned=totals["did_all_that_was_planned"],
            makespan_s=totals["makespan_s"],
            planned_makespan_s=totals["planned_makespan_s"],
            lower_bound_s=totals["lower_bound_s"],
            current_practice_s=totals["current_practice_s"],
            run_dir=run_dir,
            report_path=run_dir / "report.html",
        )

    @classmethod
    def from_status(
        cls,
        status: Mapping[str, Any],
        names: Mapping[str, str],
        parameters: Mapping[str, Mapping[str, Any]],
        run_dir: Path,
    ) -> RunResult:
        """The result of some tasks of a run that goes on.

        What only a whole run has (its plan, its start, current practice) is left out. `total_s` is
        from the moment when the first of the tasks was added to the end of the last.

        Args:
            status: as `Run.status` returns it.
            names: the tasks, by their names in the run; the values are their names in the result.
            parameters: what distinguishes each from other tasks, by its name in the run.
            run_dir: the run's directory.
        """
        found = {task["name"]: task for task in status["tasks"] if task["name"] in names}
        ends = [task["ended_s"] for task in found.values()]
        has_ended = bool(ends) and None not in ends
        begins = [task["added_s"] for task in found.values()]
        return cls(
            tasks=[
                _task_of_status(found[name], own, parameters.get(name, {}))
                for name, own in names.items()
            ],
            total_s=max(ends) - min(begins) if has_ended else None,
            startup_s=0.0,
            current_practice_total_s=None,
            did_all_that_was_planned=False,
            makespan_s=None,
            planned_makespan_s=None,
            lower_bound_s=None,
            current_practice_s=None,
            run_dir=run_dir,
            report_path=run_dir / "report.html",
        )


def strategies_by_task(report: Mapping[str, Any]) -> list[list[Strategy]]:
    """For each task of a report, every strategy that was tried for it or for a task like it."""
    found: list[list[Strategy]] = [[] for _ in report["tasks"]]
    for trial in report["trials"]:
        if trial["result"] is None:
            continue
        strategy = _strategy(trial, report.get("device_memory_bytes"))
        for task in dict.fromkeys([trial["task"], *trial["speaks_for"]]):
            found[task].append(strategy)
    return found


def trial_of(task: str, strategy: Strategy) -> dict[str, Any]:
    """A strategy in the form of a profile's trial."""
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
        final_loss=number(task["final_loss"]),
        evaluation=Measured._of((task.get("evaluation") or {}).get("last")),
        best=Measured._of((task.get("evaluation") or {}).get("best")),
        steps=task["step"],
        strategy=_selected(task, strategies),
        start_s=task["start_s"],
        end_s=task["end_s"],
        train_s=task["train_s"],
        attempts=task["attempts"],
        error=task["error"],
        traceback=task["traceback"],
        parameters=task.get("parameters", {}),
        is_rest=task.get("is_rest", False),
        **(task.get("goal") or {}),
    )


def _task_of_status(
    task: Mapping[str, Any], name: str, parameters: Mapping[str, Any]
) -> TaskResult:
    technique = task["technique"]
    return TaskResult(
        name=name,
        status=task["stage"],
        final_loss=number(task["loss"]),
        evaluation=Measured._of(task["evaluation"]),
        best=Measured._of(task["best"]),
        steps=task["step"],
        strategy=None
        if technique is None
        else Strategy(technique=technique, gpus=task["gpus"], knobs=task.get("knobs") or {}),
        start_s=task["started_s"],
        end_s=task["ended_s"],
        train_s=task["train_s"],
        attempts=task["attempts"],
        error=task["error"],
        traceback="",
        parameters=parameters,
        is_rest=task.get("is_rest", False),
        **(task["goal"] or {}),
    )


def _row(task: TaskResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "task": task.name,
        "status": task.status,
        task.metric: task.value,
        "steps": task.steps,
        "technique": None if task.strategy is None else task.strategy.technique,
        "gpus": None if task.strategy is None else task.strategy.gpus,
        "train_s": task.train_s,
        "attempts": task.attempts,
    }
    for name, value in task.parameters.items():
        row[f"parameter_{name}" if name in row else name] = value
    return row


def _cell(value: Any) -> str:
    """A value in few characters; empty if it is None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _place(task: TaskResult) -> tuple[int, float, str]:
    """The sort key of docs/tables.md; the ranking of the report (`ranking.rs`) is the same."""
    if task.value is None:
        return 3, 0.0, task.name
    if task.has_diverged or not math.isfinite(task.value):
        return 2, 0.0, task.name
    ended_well = task.status in ("done", "stopped")
    return 0 if ended_well else 1, -task.value if task.mode == MAX else task.value, task.name


def _selected(task: Mapping[str, Any], strategies: list[Strategy]) -> Strategy | None:
    if task["technique"] is None:
        return None
    for strategy in strategies:
        if (strategy.technique, strategy.gpus) == (task["technique"], task["gpus"]):
            return strategy
    return Strategy(technique=task["technique"], gpus=task["gpus"], knobs=task["knobs"])
