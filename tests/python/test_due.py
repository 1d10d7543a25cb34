"""Due times as people say them, and submissions that depend on them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import saturn
from saturn import native, verbs
from saturn.errors import InvalidInput
from saturn.tasks.due import seconds_of, seconds_until

NOON = datetime(2026, 11, 27, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("due", "seconds"),
    [
        ("18:00", 6 * 3600),
        ("9:30", 21.5 * 3600),
        ("12:00", 24 * 3600),
        ("2026-11-28 12:00+00:00", 24 * 3600),
        ("+3h", 3 * 3600),
        ("+1h30m", 5400),
        ("+ 2d 1.5h", 2 * 86400 + 5400),
        ("+90min", 5400),
        ("+45s", 45),
        (timedelta(minutes=2), 120),
        (NOON + timedelta(hours=1), 3600),
    ],
)
def test_due_times_are_read(due: Any, seconds: float) -> None:
    assert seconds_until(due, NOON) == seconds


def test_durations_are_read() -> None:
    durations = ("2h", "1h30m", " 45 s ", "1.5m")
    assert [seconds_of(text) for text in durations] == [7200, 5400, 45, 90]
    for wrong in ("", "2", "+2h", "two hours", "18:00"):
        with pytest.raises(InvalidInput, match="is no duration; expected one such as 2h"):
            seconds_of(wrong)


@pytest.mark.parametrize(
    ("due", "words"),
    [
        ("tomorrow", "`tomorrow` is no due time; expected a time such as 18:00"),
        ("25:00", "`25:00` is no due time"),
        ("3h", "`3h` is no due time"),
        ("+3x", r"`\+3x` is no due time"),
        ("2026-11-26 12:00+00:00", "the due time has passed"),
        (timedelta(0), "the due time has passed"),
        (3600, "due is a int"),
    ],
)
def test_what_is_no_due_time_is_refused(due: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        seconds_until(due, NOON)


class Driver:
    """Answers as the process that drives a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        self.why_late: str | None = None
        self.end_s: float | None = 90.0
        monkeypatch.setattr(native, "ask", self.ask)
        monkeypatch.setattr(native, "status", lambda run_dir: json.dumps({"now_s": 50.0}))

    def ask(self, run_dir: Path, line: str) -> str:
        self.asked.append(json.loads(line))
        if "query" not in self.asked[-1]:
            return json.dumps({"ok": True})
        tasks = [{"name": one["name"], "end_s": self.end_s} for one in self.asked[-1]["tasks"]]
        preview = {"version": 1, "now_s": 50.0, "tasks": tasks}
        late = {} if self.why_late is None else {"why_late": self.why_late}
        return json.dumps({"ok": True, "preview": preview, **late})

    @property
    def kinds(self) -> list[str]:
        return [one.get("query") or one["command"] for one in self.asked]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def task(name: str, **wishes: Any) -> saturn.Task:
    hparams = saturn.HParams(lr=0.1, steps=1)
    return saturn.Task(dict, list, lambda outputs, labels: outputs, hparams, name=name, **wishes)


def test_a_due_time_is_a_deadline_on_the_runs_clock(driver: Driver, tmp_path: Path) -> None:
    saturn.Run(tmp_path).submit([task("a", deadline=7.0), task("b")], due="+1h")
    assert driver.kinds == ["preview", "submit"]
    for asked in driver.asked:
        assert [one["wishes"]["deadline_s"] for one in asked["tasks"]] == [3650.0, 3650.0]
    assert sorted(path.name for path in (tmp_path / "tasks").iterdir()) == ["a", "b"]


def test_a_soft_deadline_has_a_price_and_perhaps_a_ceiling(driver: Driver, tmp_path: Path) -> None:
    soft = {"deadline": 7.0, "late_price": 2, "most_late": 60}
    saturn.Run(tmp_path).submit([task("a", **soft), task("b", deadline=7.0)], deadline=9.0)
    soft_wishes, hard_wishes = (one["wishes"] for one in driver.asked[-1]["tasks"])
    expected = {"deadline_s": 9.0, "late_price": 2.0, "most_late_s": 60.0}
    assert expected.items() <= soft_wishes.items()
    # An engine of an earlier version knows none of these fields.
    assert "late_price" not in hard_wishes and "most_late_s" not in hard_wishes


@pytest.mark.parametrize(
    ("wishes", "error", "words"),
    [
        ({"late_price": 1.0}, ValueError, "give deadline too"),
        ({"deadline": 5.0, "most_late": 1.0}, ValueError, "give late_price too"),
        ({"deadline": 5.0, "late_price": 0}, ValueError, "late_price is 0"),
        ({"deadline": 5.0, "late_price": "high"}, TypeError, "late_price is a str"),
        ({"deadline": 5.0, "late_price": 1, "most_late": -1}, ValueError, "most_late is -1"),
    ],
)
def test_what_makes_no_soft_deadline_is_refused(
    wishes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        task("a", **wishes)


def test_tasks_that_would_be_late_are_not_submitted(driver: Driver, tmp_path: Path) -> None:
    driver.why_late = "`a` would end in 2 h, and it is due in 1 h"
    with pytest.raises(saturn.Refused, match="the due time can't be kept: `a` would") as refused:
        saturn.Run(tmp_path).submit(task("a"), due="+1h")
    assert refused.value.code == "late" and driver.kinds == ["preview"]
    assert not (tmp_path / "tasks").exists()
    # A deadline alone refuses nothing, and asks nothing.
    saturn.Run(tmp_path).submit(task("a"), deadline=60.0)
    assert driver.kinds == ["preview", "submit"]
    with pytest.raises(InvalidInput, match="`deadline` and `due` are both given"):
        saturn.Run(tmp_path).submit(task("b"), deadline=60.0, due="+1h")


def test_a_preview_submits_nothing(driver: Driver, tmp_path: Path) -> None:
    preview = saturn.Run(tmp_path).preview(task("a"), priority=2)
    assert preview["tasks"] == [{"name": "a", "end_s": 90.0}]
    assert driver.kinds == ["preview"] and not (tmp_path / "tasks").exists()


def submitted(tmp_path: Path, **asked: Any) -> None:
    """`saturn submit` of a sweep of two scripts."""
    (tmp_path / "train.py").touch()
    file = tmp_path / "sweep.toml"
    file.write_text('script = "train.py"\n[grid]\nlr = [0.1, 0.2]\n')
    usual = {"file": str(file), "run_dir": str(tmp_path / "it"), "run": "it", "name": None}
    verbs.submit_sweep(
        {
            **usual,
            "priority": None,
            "json": False,
            "due": None,
            "preview": False,
            "wait": False,
            **asked,
        }
    )


@pytest.mark.parametrize(
    ("end_s", "words"),
    [
        (90.0, "the plan keeps the due time"),
        (None, "not known yet: the ends of 2 of them are known once measured"),
    ],
)
def test_the_verb_says_whether_it_is_known_to_be_in_time(
    driver: Driver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    end_s: float | None,
    words: str,
) -> None:
    driver.end_s = end_s
    submitted(tmp_path, due="+1h")
    out, error = capsys.readouterr()
    assert len(out.splitlines()) == 2 and words in error
    submitted(tmp_path, due="+1h", json=True)
    told = json.loads(capsys.readouterr().out)
    assert [one["end_s"] for one in told["preview"]["tasks"]] == [end_s] * 2


def test_the_verb_prints_a_preview(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(tmp_path, preview=True, json=True)
    assert json.loads(capsys.readouterr().out)["now_s"] == 50.0
    assert driver.kinds == ["preview"]
