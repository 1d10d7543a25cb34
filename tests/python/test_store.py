"""What runs keep for later ones in `SATURN_HOME`, with real runs."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import saturn
from faces import make_task
from models import Mlp
from saturn import HParams
from sweep_run import Run


def task(name: str, lr: float = 0.1, **changes: Any) -> saturn.Task:
    return make_task(name, hparams=HParams(lr, batch_count=2), **changes)


def stored(home: Path) -> list[dict[str, Any]]:
    files = (home / "profiles").glob("*.v1.json")
    return [trial for file in sorted(files) for trial in json.loads(file.read_text())["trials"]]


def were_known(run_dir: Path) -> dict[str, bool]:
    """For each task that was measured or known, whether its trial was known."""
    report = json.loads((run_dir / "report.json").read_text())
    names = [each["name"] for each in report["tasks"]]
    return {names[trial["task"]]: trial["reused"] for trial in report["trials"]}


def search(tasks: list[saturn.Task], **options: Any) -> dict[str, bool]:
    return were_known(saturn.search(tasks, ["ddp"], devices=1, **options).run_dir)


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
    without_date = [{k: v for k, v in one.items() if k != "measured_unix_s"} for one in found]
    # The run that goes on may have found more.
    assert all(one in stored(home) for one in without_date)


def test_a_technique_s_own_text_is_one_of_its_versions(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saturn.profile_key import technique_digest
    from techniques_of_tests import Minimal

    class Other(Minimal):
        pass

    assert technique_digest(Minimal) == technique_digest(Minimal) != technique_digest(Other)
