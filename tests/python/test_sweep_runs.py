"""Sweeps and scripts from the file or command line to their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import saturn
from saturn import verbs
from saturn.errors import TasksFailed
from saturn.runs.outlook import Outlook
from saturn.tasks.task import Task

COUNTING = Path(__file__).parent / "counting_script.py"
SATURN = Path(sys.executable).with_name("saturn")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(COUNTING.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_saturn(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SATURN, *args], capture_output=True, text=True, timeout=120, check=False)


def test_a_task_that_raises_in_its_trials_leaves_the_other_tasks_their_plan(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = iter([["lr=0.1", "lr=0.3"], ["lr=0.3"]])

    def outlook(*_: Any, **__: Any) -> Outlook:
        return Outlook({"tasks": [{"name": "lr=0.1"}]}, 0, next(known))

    def search(tasks: list[Task], *, raise_on_failure: bool = True, **_: Any) -> Any:
        assert [task.name for task in tasks] == ["lr=0.1", "lr=0.3"]
        if raise_on_failure:
            raise TasksFailed("1 of 2 tasks failed", SimpleNamespace(tasks=[]))
        good, bad = (SimpleNamespace(name=task.name, error=None) for task in tasks)
        bad.error = "ValueError: no data"
        return SimpleNamespace(tasks=[good, bad])

    monkeypatch.setattr(verbs, "outlook", outlook)
    monkeypatch.setattr(verbs, "search", search)
    (directory / "sweep.toml").write_text(
        'script = "train.py"\nsteps = 60\n[grid]\nlr = [0.1, 0.3]\n'
    )
    assert verbs.problem({"file": "sweep.toml", "devices": None, "trials": True}) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {"tasks": [{"name": "lr=0.1"}]}
    assert "lr=0.3: ValueError: no data" in told.err


def test_a_sweep_from_the_file_to_its_end(directory: Path) -> None:
    (directory / "sweep.toml").write_text(
        'script = "train.py"\nsteps = 60\nresume = false\n'
        'args = ["--steps", 60, "--step_s", 0.02]\n'
        "[grid]\nlr = [0.1, 0.3]\n[run]\ndevices = 1\nname = 'all'\n"
    )
    planned = run_saturn("plan", "sweep.toml")
    assert planned.returncode == 2 and not planned.stdout, planned
    assert "2 of 2 tasks are not measured here yet: `lr=0.1`, `lr=0.3`" in planned.stderr
    assert "saturn plan sweep.toml --trials" in planned.stderr
    listed = run_saturn("sweep", "sweep.toml", "--list")
    assert listed.stdout.splitlines() == [
        "lr=0.1  python train.py --steps 60 --step_s 0.02 --lr 0.1",
        "lr=0.3  python train.py --steps 60 --step_s 0.02 --lr 0.3",
    ]
    done = run_saturn("sweep", "sweep.toml")
    assert done.returncode == 0, done.stderr
    names = [line.split()[1] for line in done.stdout.splitlines()]
    assert names == ["lr=0.1", "lr=0.3"], "by their last loss"
    report = json.loads((directory / "saturn_runs" / "all" / "report.json").read_text())
    measured = [trial for trial in report["trials"] if not trial["reused"]]
    assert len(measured) == 1, "a learning rate makes no other speed"
    # What that run has found is known, and enough for a plan.
    planned = run_saturn("plan", "sweep.toml", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert len(plan["assignments"]) == 2 and plan["makespan_s"] > 1.2
    assert {one["technique"] for one in plan["assignments"]} == {"script"}


@pytest.mark.slow
def test_a_script_from_the_command_line(directory: Path) -> None:
    done = run_saturn(
        "run",
        "--devices",
        "2",
        "--gpus",
        "2",
        "--no-resume",
        "--run-name",
        "one",
        *(
            "--json",
            "train.py",
            "--odd",
            "length",
            "--steps",
            "30",
        ),
    )
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["name"], task["steps"], task["strategy"]["gpus"]) == ("train", 30, 2)
    wrong = run_saturn("run", "trane.py")
    assert wrong.returncode == 2 and "did you mean `train.py`?" in wrong.stderr
    failed = run_saturn("run", "--devices", "1", "train.py", "--odd", "wordless")
    assert failed.returncode == 1 and "never reported a step; have it call" in failed.stderr


@pytest.mark.slow
def test_a_script_that_cannot_resume_says_so(directory: Path) -> None:
    task = saturn.Task.script("train.py", ["--steps", 4000], steps=4000, resume=False, name="mute")
    run = saturn.start([task], devices=1, name="explained")
    try:
        while (found := run.explain("mute"))["reasons"][0]["code"] != "trains":
            assert not run.is_over, found
    finally:
        run.stop()
    assert "can't resume from a checkpoint" in found["reasons"][0]["sentence"]
    with pytest.raises(saturn.RunInterrupted):
        run.wait()
