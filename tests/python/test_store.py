"""What runs keep for later ones in `SATURN_HOME`, with real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from faces import make_task
from models import Mlp
from saturn import HParams
from sweep_run import Run


def task(name: str, lr: float = 0.1, **changes: Any) -> saturn.Task:
    return make_task(name, hparams=HParams(lr, batch_count=2), **changes)


def stored(home: Path) -> list[dict[str, Any]]:
    files = (home / "profiles").glob("*.v1.json")
    return [trial for file in sorted(files) for trial in json.loads(file.read_text())["trials"]]


def of_trial(known: dict[str, Any]) -> dict[str, Any]:
    """What the trial alone found of a strategy, without the date."""
    return {k: v for k, v in known.items() if k not in ("measured_unix_s", "trained")}


def were_known(run_dir: Path) -> dict[str, bool]:
    """For each task that was measured or known, whether its trial was known."""
    report = json.loads((run_dir / "report.json").read_text())
    names = [each["name"] for each in report["tasks"]]
    return {names[trial["task"]]: trial["reused"] for trial in report["trials"]}


def search(tasks: list[saturn.Task], **options: Any) -> dict[str, bool]:
    return were_known(saturn.search(tasks, ["ddp"], devices=1, **options).run_dir)


@pytest.mark.slow
def test_what_one_run_has_measured_later_runs_know(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert search([task("first")]) == {"first": False}
    (trial,) = stored(home)
    assert (trial["task"], trial["technique"], trial["outcome"]) == ("first", "ddp", "measured")
    assert trial["hardware"].endswith(", 1 thread a slot") and trial["software"]["torch"]
    assert "known from earlier runs" not in capsys.readouterr().err
    # A new learning rate is the same to measure; a wider model is not.
    wider = task("wider", get_model=partial(Mlp, 5))
    assert search([task("again", 0.2), wider]) == {"again": True, "wider": False}
    told = capsys.readouterr().err
    assert f"1 trial is known from earlier runs ({home}/profiles)" in told
    assert 'profile="none" measures anew' in told
    # Neither is it under a limit of memory.
    assert search([task("limited")], device_memory="2GiB") == {"limited": False}
    assert search([task("anew")], profile="none") == {"anew": False}
    assert sorted(trial["task"] for trial in stored(home)) == ["anew", "limited", "wider"]
    # What is submitted later knows it too.
    with saturn.start([], techniques=["ddp"], devices=1, keep_open=True) as run:
        run.submit([task("late", 0.3)])
    assert were_known(run.run_dir) == {"late": True}


SLOW_S = 0.05


def slow_in_training(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss that takes longer from the fortieth call of a process on, when no trial lasts."""
    calls: int = getattr(slow_in_training, "calls", 0) + 1
    slow_in_training.calls = calls  # type: ignore[attr-defined]
    if calls > 40:
        time.sleep(SLOW_S)
    return torch.nn.functional.cross_entropy(outputs, labels)


@pytest.mark.slow
def test_a_run_plans_by_what_an_earlier_run_has_trained(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = 140
    hparams = HParams(0.1, batch_count=steps)

    def planned_s(name: str) -> float:
        slow = make_task(name, hparams=hparams, loss_function=slow_in_training)
        result = saturn.orchestrate([slow], techniques=["ddp"], devices=1)
        (of_task,) = json.loads((result.run_dir / "report.json").read_text())["tasks"]
        return float(of_task["planned_s"])

    slow_s = (steps - 40) * SLOW_S
    assert planned_s("first") < slow_s
    (known,) = stored(home)
    assert known["outcome"] == "measured" and known["step_s"] < SLOW_S / 2
    assert known["trained"]["step_s"] > SLOW_S and known["trained"]["steps"] >= 10
    assert planned_s("second") > slow_s


@pytest.mark.slow
def test_a_store_that_can_not_be_used_costs_no_run(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    search([task("first")])
    (file,) = (home / "profiles").glob("*.v1.json")
    file.write_text("{")
    assert search([task("second")]) == {"second": False}
    told = capsys.readouterr().err
    assert str(file) in told and "set aside as" in told
    assert file.with_name(f"{file.name}.set-aside-1").read_text() == "{"
    assert len(stored(home)) == 1
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "a file"))
    assert search([task("third")]) == {"third": False}
    assert capsys.readouterr().err.count("trials are not kept for later runs") == 1


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_what_it_has_found(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.wait_for_step(1)
    home = tmp_path / "home"
    found = stored(home)
    assert found, "stored while the run goes on"
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    # As if it had been killed just before it stored them.
    for file in (home / "profiles").glob("*.v1.json"):
        file.unlink()
    run.resume()
    assert run.wait() == 0, run.stderr.read_text()
    # The run that goes on may have found more, and its training tells of its own intervals.
    assert all(one in map(of_trial, stored(home)) for one in map(of_trial, found))


def test_a_technique_s_own_text_is_one_of_its_versions(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saturn.tasks.profile_key import technique_digest
    from techniques_of_tests import Minimal

    class Other(Minimal):
        pass

    assert technique_digest(Minimal) == technique_digest(Minimal) != technique_digest(Other)


@pytest.mark.slow
def test_a_run_knows_how_wrong_the_forecasts_of_earlier_runs_here_were(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> dict[str, Any]:
        long = [HParams(0.1 + index / 10, batch_count=5000) for index in range(2)]
        tasks = [make_task(f"{name}-{one.lr}", hparams=one) for one in long]
        done = saturn.orchestrate(tasks, techniques=["ddp"], devices=1, name=name)
        program = Path(sys.executable).with_name("saturn")
        asked = [program, "status", done.run_dir, "--json"]
        told: dict[str, Any] = json.loads(subprocess.check_output(asked))
        return told

    assert run("first")["waiting_band"]["earlier"] == 0
    file = json.loads((home / "profiles" / "forecast-errors-1.json").read_text())
    ((kept,),) = [place["runs"] for place in file["places"]]
    assert kept["errors"]["waiting"], "the second task waited for the first"
    earlier = run("second")["waiting_band"]["earlier"]
    assert earlier == len(kept["errors"]["waiting"])
