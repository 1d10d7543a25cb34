"""The tables of `docs/evaluation` say what comes of their commands: small rows are made again."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = ROOT / "benches" / "evaluation"
sys.path.append(str(EVALUATION))

import arrivals  # noqa: E402
import page_tables  # noqa: E402
import tables  # noqa: E402


def test_small_rows_are_those_of_the_pages() -> None:
    command = [sys.executable, EVALUATION / "tables.py", "--check", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_table_has_a_place_and_is_filled() -> None:
    assert len(tables.TABLES) > 8
    for table in tables.TABLES:
        rows = table.split()[1].splitlines()
        assert [page_tables.cells(rows[0]), len(rows) > 2] == [table.header, True], table.name


ROWS = [["a", "1.00"], *([f"b{number}", "2.00 (1.9)"] for number in range(9)), ["c", "300"]]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> page_tables.Table:
    monkeypatch.setattr(page_tables, "ROOT", tmp_path)
    page = tmp_path / "docs" / "evaluation" / "some.md"
    page.parent.mkdir(parents=True)
    page.write_text("# Some\n\n<!-- table t: begin -->\n<!-- table t: end -->\n\nEnd\n")
    return of_rows(ROWS)


def of_rows(rows: list[list[str]]) -> page_tables.Table:
    def made(_quick: bool) -> Iterator[list[str]]:
        yield from rows

    return page_tables.Table("t", "some.md", ["name", "number"], made)


def test_a_written_table_is_the_pages(table: page_tables.Table) -> None:
    table.write()
    assert table.path.read_text().endswith("| c | 300 |\n<!-- table t: end -->\n\nEnd\n")
    assert table.differences(quick=False) == []


def test_other_words_and_missing_rows_are_told(table: page_tables.Table) -> None:
    table.write()
    assert "is now ['a', 'none']" in of_rows([["a", "none"]]).differences(quick=False)[0]
    assert "lacks the row" in of_rows([["f", "1.00"]]).differences(quick=False)[0]


def test_no_number_may_differ_by_more_than_rounding_and_two_percent(
    table: page_tables.Table,
) -> None:
    table.write()
    near = [["a", "1.02"], *ROWS[1:-1], ["c", "306"]]
    assert of_rows(near).differences(quick=False) == []
    # One number of twenty.
    told = of_rows([["a", "1.03"], *ROWS[1:]]).differences(quick=False)
    assert len(told) == 1 and "1.00 is now 1.03" in told[0]
    assert len(of_rows([*ROWS[:-1], ["c", "307"]]).differences(quick=False)) == 1


def test_a_number_may_differ_by_one_in_its_last_digit(table: page_tables.Table) -> None:
    of_rows([["a", "0.1"], ["b", "-0.1 %"]]).write()
    assert of_rows([["a", "0.2"], ["b", "-0.2 %"]]).differences(quick=False) == []
    assert len(of_rows([["a", "0.3"], ["b", "+0.1 %"]]).differences(quick=False)) == 2


def test_a_table_without_a_place_is_refused(table: page_tables.Table) -> None:
    table.path.write_text("# Some\n")
    with pytest.raises(SystemExit, match="has no place"):
        table.write()


def poisson(draws: random.Random, mean: float) -> int:
    number, product = 0, draws.random()
    while product > math.exp(-mean):
        number, product = number + 1, product * draws.random()
    return number


def test_hours_and_burst_size_of_a_stream_are_found() -> None:
    draws, begin, rows = random.Random(1), datetime(2020, 4, 1), []
    for place in range(60 * 144):
        at = begin + timedelta(minutes=10 * place)
        jobs = 5 * poisson(draws, 0.2 + at.hour / 24)
        rows.append({"time": str(at), "submit_gpu_job": str(jobs), "submit_gpu_num": str(2 * jobs)})
    found = arrivals.figures(rows)
    assert 4.6 < found["burst_size"] < 5.4
    assert found["gpus_a_job"] == 2
    for hour, jobs in enumerate(found["jobs_by_hour"]):
        assert abs(jobs / 30 - (0.2 + hour / 24)) < 0.2, hour


def test_kept_hours_are_those_of_a_day() -> None:
    kept = json.loads(arrivals.KEPT.read_text())
    assert abs(sum(kept["jobs_by_hour"]) / kept["jobs_a_day"] - 1) < 0.01
