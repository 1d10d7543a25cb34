"""The keywords of `orchestrate`, `start`, `search` and `resume`."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import saturn
from faces import make_task
from saturn import native, verbs
from saturn.errors import InvalidInput, RunInterrupted
from saturn.runs import live, options
from saturn.runs.profiles import Profile
from saturn.runs.result import RunResult
from saturn.runs.settings import Settings
from saturn.runs.started import StartedRun


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (saturn.orchestrate, options.OrchestrateOptions),
        (saturn.start, options.RunOptions),
        (saturn.search, options.SearchOptions),
        (saturn.resume, options.ClusterOptions),
    ],
)
def test_every_keyword_is_shown_with_its_default_and_explained(
    function: Callable[..., Any], kind: Any
) -> None:
    signature = inspect.signature(function)
    shown = set(kind.__annotations__)
    assert shown <= set(signature.parameters)
    for name in shown:
        parameter = signature.parameters[name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == options.DEFAULTS[name]
        assert f"\n        {name}: " in (inspect.getdoc(function) or "").replace(
            "\n    ", "\n        "
        )
    assert "**options" not in (function.__doc__ or "")


def test_the_keywords_are_the_settings() -> None:
    of_settings = {field.name for field in fields(Settings)}
    # Only the pool of `saturn serve` is shared with other people.
    ours = {"mode", "interval_s", "keep_open", "share", "shares", "quotas"}
    assert set(options.RunOptions.__annotations__) - {"stopper"} == of_settings - ours


def test_a_run_that_is_stopped_again_prints_its_report_as_data_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopped:
        run_dir, _suggests = tmp_path, False

        def wait(self) -> None:
            raise RunInterrupted("stopped", run_dir=str(tmp_path), resume_command="saturn resume")

    asked = {"run_dir": str(tmp_path), "device_memory_bytes": None, "allow_other_hardware": False}
    asked |= {"wait": False, "cluster": {}, "json": True}
    monkeypatch.setattr(verbs, "resume", lambda *args, **options: Stopped())
    monkeypatch.setattr(native, "report", lambda run_dir: json.dumps({"run": str(run_dir)}))
    monkeypatch.setattr(sys, "argv", ["verbs", "resume", json.dumps(asked)])
    assert verbs.main() == 130
    assert json.loads(capsys.readouterr().out) == {"run": str(tmp_path)}
    monkeypatch.setattr(sys, "argv", ["verbs", "resume", json.dumps(asked | {"json": False})])
    assert verbs.main() == 130 and capsys.readouterr().out == ""


def test_a_sweep_that_is_stopped_prints_its_result_as_data_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(tasks: Any, **run_options: Any) -> None:
        raise RunInterrupted("stopped", run_dir=str(tmp_path), resume_command="saturn resume")

    (tmp_path / "train.py").write_text("import saturn\nsaturn.report(1, 0.5, total_steps=1)\n")
    file = tmp_path / "sweep.toml"
    file.write_text('script = "train.py"\n[grid]\nlr = [0.1, 0.2]\n')
    start = dict.fromkeys(["run_name", "devices", "device_memory", "runs_dir"])
    asked = {"file": str(file), "list": False, "start": {**start, "cluster": {}, "wait": False}}
    names = inspect.signature(saturn.RunResult).parameters
    totals = dict.fromkeys(name for name in names if name.endswith("_s"))
    report = {"totals": {**totals, "did_all_that_was_planned": False}, "tasks": [], "trials": []}
    monkeypatch.setattr(verbs, "orchestrate", stopped)
    monkeypatch.setattr(native, "report", lambda run_dir: json.dumps(report))
    for as_json in (True, False):
        asked["start"]["json"] = as_json
        monkeypatch.setattr(sys, "argv", ["verbs", "sweep", json.dumps(asked)])
        assert verbs.main() == 130
        printed = capsys.readouterr().out
        if as_json:
            assert json.loads(printed)["run_dir"] == str(tmp_path)
        else:
            assert printed == ""


@pytest.mark.parametrize("name", ["wait", "keep_open", "raise_on_failure"])
def test_a_text_in_the_place_of_a_flag_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is a str; it must be True or False"):
        Settings(mode="orchestrate", **{name: "no"}).checked()


def test_a_program_whose_modules_no_worker_could_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "10:30").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere:at:all", str(tmp_path / "10:30")])
    with pytest.raises(InvalidInput, match="10:30', and no worker could: in PYTHONPATH `:`"):
        Settings(mode="orchestrate").checked()
    monkeypatch.setattr(sys, "path", ["", *sys.path[:-1]])
    monkeypatch.chdir(tmp_path / "10:30")
    with pytest.raises(InvalidInput, match="10:30', and no worker could"):
        saturn.orchestrate([make_task("a")])


@pytest.mark.parametrize("function", [saturn.orchestrate, saturn.start, saturn.search])
def test_a_mistyped_keyword_is_named_with_the_right_one(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'devcies'; did you"):
        function([make_task("a")], devcies=2)


@pytest.mark.parametrize("given", [["ddp"], "ddp", ("ddp",)])
def test_techniques_in_the_place_of_the_interval_are_told(given: Any) -> None:
    for function in (saturn.orchestrate, saturn.start):
        with pytest.raises(TypeError, match=r"given by name: techniques=\['ddp'\]"):
            function([make_task("a")], given)


@pytest.fixture
def other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All cores are held, as by another run."""
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    monkeypatch.setenv("SATURN_LOCKS_DIR", str(locks))
    monkeypatch.chdir(tmp_path)
    held = []
    for core in os.sched_getaffinity(0):
        file = (locks / f"core-{core}.lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"pid": os.getpid(), "run": "/runs/other"}))
        file.flush()
        held.append(file)
    yield
    for file in held:
        file.close()


@pytest.mark.usefixtures("other_run")
def test_without_waiting_the_error_says_how_to_wait() -> None:
    with pytest.raises(saturn.RunFailed) as caught:
        saturn.orchestrate([make_task("a")], log=False)
    error = str(caught.value)
    assert "no device is free" in error and "(run `/runs/other`) holds core-" in error
    assert "`wait=True`" in error and "`--wait`" in error


@pytest.mark.usefixtures("other_run")
def test_ctrl_c_ends_the_waiting_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []

    def press_once_it_waits() -> None:
        until = time.monotonic() + 20
        while not told and time.monotonic() < until:
            time.sleep(0.02)
            told.extend(line for line in capsys.readouterr().err.splitlines() if "waiting" in line)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_once_it_waits).start()
    with pytest.raises(KeyboardInterrupt):
        saturn.orchestrate([make_task("a")], wait=True)
    [line] = told
    assert "waiting for devices: process " in line and "(run `/runs/other`) holds core-" in line
    assert list((tmp_path / "saturn_runs").iterdir()) == []


def test_ctrl_c_while_a_run_begins_is_told_as_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressed = threading.Event()

    def drive(*_: Any) -> str:
        pressed.wait(20)
        return json.dumps({"status": "interrupted"})

    def interrupted(run_dir: Path) -> bool:
        raise KeyboardInterrupt

    run = StartedRun(tmp_path, [], None, Profile([]), {}, None, None)
    run._interrupts = SimpleNamespace(press=pressed.set)
    monkeypatch.setattr(native, "is_driven", interrupted)
    monkeypatch.setattr(RunResult, "from_report", lambda report, run_dir: SimpleNamespace(tasks=[]))
    monkeypatch.setattr(live, "strategies_by_task", lambda report: [])
    with pytest.raises(RunInterrupted) as caught:
        run._begin(drive, None)
    assert caught.value.run_dir == str(tmp_path) and "saturn resume" in caught.value.resume_command


def test_a_cluster_has_a_queue_of_its_own() -> None:
    with pytest.raises(saturn.InvalidInput, match="wait is True, which waits for devices of one"):
        saturn.orchestrate([make_task("a")], cluster="auto", wait=True)
