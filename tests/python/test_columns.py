"""Every column of Python's tables, as docs/tables.md defines it.

The run is the one of `crates/saturn-view/tests/views/columns.rs`. Beside it `tables.rs` follows
numbers from the ranks' messages to the report and the status, and keeps both in `columns/`, beside
the `rows` that every table must say. From there this test follows them to the rows, CSV, the
dataframe, the text and the notebook. `SATURN_WRITE_COLUMNS=1 cargo test -p saturn-view` writes
the files anew.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from saturn import RunResult
from saturn.notebook.page import render
from saturn.plain.measures import number

_FILES = Path(__file__).parent / "columns"
#: Columns of `rows()` whose values are those of the fixture; `loss` and metrics are apart.
_PLAIN = ("task", "status", "steps", "technique", "gpus", "train_s", "attempts")

Rows = list[dict[str, Any]]


def _read(name: str) -> Any:
    return json.loads((_FILES / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def expected() -> Rows:
    """Each task's row, the best first."""
    return sorted(_read("rows"), key=lambda row: row["place"])


@pytest.fixture(scope="module")
def result() -> RunResult:
    return RunResult.from_report(_read("report"), Path("run"))


def same(found: Any, told: Any, of: str) -> None:
    """Like `assert found == told`, where `told` is of a file and numbers may be NaN or sums."""
    told = number(told) if told in ("nan", "inf") else told
    if isinstance(told, float) and not math.isnan(told):
        assert found == pytest.approx(told, abs=1e-9), of
    else:
        assert repr(found) == repr(told), of


def test_the_fixture_has_tasks_of_each_kind(expected: Rows) -> None:
    statuses = {row["status"] for row in expected}
    assert statuses >= {"done", "diverged", "stopped", "paused", "failed", "cancelled"}
    assert {"resumed", "moved", "new"} <= {row["task"] for row in expected}
    assert {row["metric"] for row in expected} == {"loss", "eval_loss"}


def test_tasks_of_a_result_have_the_columns(result: RunResult, expected: Rows) -> None:
    tasks = {task.name: task for task in result.tasks}
    for row in expected:
        task = tasks[row["task"]]
        assert task.metric == row["metric"] and task.status == row["status"]
        assert (task.steps, task.attempts) == (row["steps"], row["attempts"])
        for name, found in [
            ("loss", task.final_loss),
            ("value", task.value),
            ("start_s", task.start_s),
            ("end_s", task.end_s),
            ("train_s", task.train_s),
            ("technique", task.strategy and task.strategy.technique),
            ("gpus", task.strategy and task.strategy.gpus),
        ]:
            same(found, row[name], f"{name} of {task.name}")


def test_rows_and_the_dataframe_have_the_columns(result: RunResult, expected: Rows) -> None:
    rows = result.rows()
    assert [row["task"] for row in rows] == [row["task"] for row in expected]
    frame = result.dataframe()
    for index, (row, told) in enumerate(zip(rows, expected, strict=True)):
        for name in _PLAIN:
            same(row[name], told[name], f"{name} of {told['task']}")
        same(row[told["metric"]], told["value"], told["task"])
        assert ("loss" in row) == (told["metric"] == "loss")
        for name, value in row.items():
            in_frame = frame[name][index]
            is_missing = value is None or (isinstance(value, float) and math.isnan(value))
            assert in_frame != in_frame or in_frame is None if is_missing else in_frame == value


def test_csv_and_text_have_the_columns(result: RunResult, expected: Rows) -> None:
    lines = list(csv.DictReader(result.csv().splitlines()))
    texts = str(result).splitlines()[1:]
    for line, text, told in zip(lines, texts, expected, strict=False):
        for name in (*_PLAIN, told["metric"]):
            value = told["value"] if name == told["metric"] else told[name]
            of = f"{name} of {told['task']}"
            if value is None or name in ("task", "status", "technique"):
                assert line[name] == (value or ""), of
            else:
                same(float(line[name]), float(value), of)
        assert text.split()[:2] == [told["task"], told["status"]]
        assert told["value"] is None or f"{number(told['value']):.6g}" in text.split()
    assert len(lines) == len(expected)


def test_the_notebook_has_the_columns(expected: Rows) -> None:
    page = render(_read("status"), {}, "")
    table = {
        cells[1]: cells
        for row in page.split("<tr>")
        if len(cells := re.findall(r"<td[^>]*>(.*?)</td>", row)) == 8
    }
    assert len(table) == len(expected)
    for told in expected:
        _, _, stage, by, steps, loss, evaluation, _ = table[told["task"]]
        assert stage == told["status"] and steps.endswith(f"{told['steps']}/100")
        assert by == (f"ddp &times; {told['gpus']}" if told["gpus"] else "")
        assert loss == ("" if told["loss"] is None else f"{number(told['loss']):.4g}")
        judged = f"eval_loss {number(told['value']):.4g}" if told["metric"] != "loss" else ""
        assert evaluation == judged
    headline = page[page.index("<div>") : page.index("</div>")]
    assert "5 of 12 tasks done, 2 diverged, 1 failed, 1 cancelled, 1 stopped" in headline
    assert "complete" not in headline, "a task has failed"


def test_numbers_of_the_run_are_those_of_the_report(result: RunResult) -> None:
    totals = _read("report")["totals"]
    for name in (
        "total_s",
        "startup_s",
        "current_practice_total_s",
        "did_all_that_was_planned",
        "makespan_s",
        "planned_makespan_s",
        "lower_bound_s",
        "current_practice_s",
    ):
        assert getattr(result, name) == totals[name], name
    assert not result.did_all_that_was_planned, "tasks were stopped, and are compared with no plan"
