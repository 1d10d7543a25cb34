"""Steered sweeps in a pool of another person: whose tasks they decide about, and for how long."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faces import make_task
from fake_pool import Failing, FakePool, ends_bad
from saturn import native
from saturn.errors import InvalidInput, Refused, RunOver
from saturn.stoppers import ASHA
from saturn.tuning import steer, steered
from saturn.tuning.pool import Pool


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePool:
    return FakePool(tmp_path, monkeypatch)


def test_a_sweep_goes_on_later_if_nobody_drives_the_pool_of_another_person(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.stages = {"mine-a": "held"}
    sweep = pool.sweep("mine", ends_bad(), ["mine-a"])
    (pool.run_dir / "control.sock").symlink_to("door/control.sock")
    process = threading.Thread(target=partial(steer.main, pool.run_dir, "mine"), daemon=True)
    process.start()
    assert pool.was_asked.wait(100)

    def gone(_: Any) -> str:
        raise RunOver("the process that drives the pool is not there")

    monkeypatch.setattr(native, "status", gone)
    # Its process ends although another process may drive the pool already.
    process.join(timeout=100)
    assert not process.is_alive() and not sweep.has_ended
    assert pool.told == [], "the stopper has not failed"


def test_the_sweeps_of_an_earlier_pool_of_another_person_are_put_aside(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pool.run_dir / "control.sock").symlink_to("door/control.sock")
    now = ["first"]
    monkeypatch.setattr(native, "ask", lambda *_: json.dumps({"ok": True, "run": now[0]}))
    steered.fit_to_pool(pool.run_dir)
    sweep = pool.sweep("mine", ends_bad(), ["mine-a"])
    (sweep.directory / "output.log").write_text("of the first")
    with pytest.raises(Refused, match="a sweep `mine` already"):
        Pool(pool.run_dir).submit([make_task(name="mine")])
    now[0] = "second"
    Pool(pool.run_dir).submit([make_task(name="a")], stopper=ASHA(), name="mine")
    assert (sweep.directory / "tuner.pkl").exists(), "of the second"
    assert (pool.run_dir / "steered-first" / "mine" / "output.log").read_text() == "of the first"
    now[0] = "first"
    steered.fit_to_pool(pool.run_dir)
    assert (sweep.directory / "output.log").read_text() == "of the first"
    now[0] = "../second"
    with pytest.raises(InvalidInput, match="which is no pool's name"):
        steered.fit_to_pool(pool.run_dir)


@pytest.mark.parametrize("older", ["the process that drives the pool", "your agent"])
def test_older_versions_that_start_no_stopper_of_others_are_named(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch, older: str
) -> None:
    (pool.run_dir / "control.sock").symlink_to("door/control.sock")
    said: dict[str, Any] = {"ok": True, "run": "first"}
    if older == "your agent":
        (pool.run_dir / "steered").rmdir()
    else:
        said = {"ok": False, "code": "malformed", "error": "unknown variant `run`"}
    monkeypatch.setattr(native, "ask", lambda *_: json.dumps(said))
    with pytest.raises(InvalidInput, match=f"{older}.* is of an older version of Saturn"):
        steered.fit_to_pool(pool.run_dir)


def test_another_persons_task_is_not_taken_for_one_that_a_search_has_suggested(
    pool: FakePool,
) -> None:
    sweep = pool.sweep("mine", Failing(), None)
    own = {"name": "mine-trial-0", "dir": "tasks/mine-trial-0"}
    assert sweep.is_own(own) and not sweep.is_own({**own, "name": "other-trial-0"})
    assert not sweep.is_own({**own, "owner": "lena"}), "of a guest in one's own pool"
    (pool.run_dir / "control.sock").symlink_to("door/control.sock")
    for kept_in in ("tasks/mine-trial-0", "tasks/task-1~2"):
        assert sweep.is_own({**own, "dir": kept_in, "owner": "lena"}), "in another person's pool"
    # Of other people's tasks no directory is told. Where this person's files are, the pool does not
    # say: it could have others of them read.
    for elsewhere in (
        "",
        "tasks",
        "tasks/",
        "tasks/..",
        "tasks/a/b",
        "/home/lena/runs/x",
        "runs/x",
    ):
        assert not sweep.is_own({**own, "dir": elsewhere}), elsewhere
