"""`saturn report`: of several runs, and of damaged ones."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import made_up_runs
import pytest

SATURN = Path(sys.executable).parent / "saturn"
#: How a run was launched: of no matter to who reads it.
SETTINGS = {"python": "python3", "python_path": [], "cwd": "/", "preload": [], "devices": 2}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the records of two made-up runs."""
    directory = tmp_path_factory.mktemp("records")
    made_up_runs.write(directory, 10)
    return directory


@pytest.fixture
def runs(records: Path, tmp_path: Path) -> Path:
    """A directory in which `saturn_runs` has the two runs."""
    for name in ("sweep", "sweep-on-two"):
        run = tmp_path / "saturn_runs" / name
        run.mkdir(parents=True)
        journal = sqlite3.connect(run / "journal.db")
        journal.execute(
            "CREATE TABLE record (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, "
            "wall TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, record TEXT NOT NULL)"
        )
        journal.execute("CREATE TABLE settings (launch TEXT NOT NULL)")
        journal.execute("INSERT INTO settings VALUES (?)", (json.dumps(SETTINGS),))
        rows = json.loads((records / f"{name}.json").read_text())
        journal.executemany(
            "INSERT INTO record (at_s, record) VALUES (?, ?)",
            [(at_s, json.dumps(record)) for at_s, record in rows],
        )
        journal.execute("PRAGMA user_version = 2")
        journal.commit()
        journal.close()
    return tmp_path


def report(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SATURN), "report", *arguments], cwd=directory, capture_output=True, text=True
    )


def test_several_runs_are_one_page(runs: Path) -> None:
    done = report(runs, "sweep", "sweep-on-two")
    assert (done.returncode, done.stdout) == (0, "comparison.html\n"), done.stderr
    page = (runs / "comparison.html").read_text()
    assert "2 runs side by side" in page and "sweep-on-two" in page
    assert not (runs / "saturn_runs" / "sweep" / "report.html").exists()
    done = report(runs, "sweep", "sweep-on-two", "--out", "both.html")
    assert (runs / "both.html").read_text() == page and done.stdout == "both.html\n"


def test_several_runs_as_data(runs: Path) -> None:
    done = report(runs, "sweep", "sweep-on-two", "--json")
    compared = json.loads(done.stdout)
    assert done.returncode == 0 and not (runs / "comparison.html").exists()
    assert [(run["name"], run["devices"], run["totals"]["done"]) for run in compared["runs"]] == [
        ("sweep", 4, 12),
        ("sweep-on-two", 2, 14),
    ]
    shared = [task for task in compared["tasks"] if None not in task["runs"]]
    assert (compared["version"], len(compared["tasks"]), len(shared)) == (1, 14, 12)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("sweep", "saturn_runs/sweep"), "the run saturn_runs/sweep is named twice"),
        (("sweep", "sweep-on-two", "--csv"), "`--csv` prints the tasks of one run"),
        (("sweep", "--out", "x.html"), "`--out` is for the page of several runs"),
        (("sweep", "no-such-run"), "no run at `no-such-run`"),
        ((), "required arguments were not provided"),
    ],
)
def test_what_is_asked_wrongly(runs: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = report(runs, *arguments)
    assert done.returncode == 2 and expected in done.stderr and not done.stdout
    assert not list(runs.glob("*.html"))


def cut(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes()[:5000])


def forget(journal: Path) -> None:
    with sqlite3.connect(journal) as connection:
        connection.execute("DELETE FROM record WHERE seq = 9")


def garble(journal: Path) -> None:
    with sqlite3.connect(journal) as connection:
        connection.execute("UPDATE record SET record = '[7]' WHERE seq = 5")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda journal: journal.write_text("x" * 9999), "it is no SQLite database"),
        (cut, "a part of the file is missing"),
        (forget, "records before record 10 are missing"),
        (garble, "record 5: "),
    ],
)
def test_a_damaged_run_is_one_clear_line(
    runs: Path, damage: Callable[[Path], None], expected: str
) -> None:
    damage(runs / "saturn_runs" / "sweep" / "journal.db")
    for arguments in (("sweep",), ("sweep-on-two", "sweep")):
        done = report(runs, *arguments)
        assert done.returncode == 5 and not done.stdout
        assert len(done.stderr.splitlines()) == 1 and expected in done.stderr, done.stderr
        assert "sweep/journal.db` is damaged: " in done.stderr
        assert "replace the file with a copy of it" in done.stderr
    assert not (runs / "comparison.html").exists()
