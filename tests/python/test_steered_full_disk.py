"""A sweep that a pool didn't get keeps no name, so the same submission can be tried again."""

from __future__ import annotations

import errno
from types import ModuleType
from typing import Any

import pytest
from faces import make_task
from saturn import native
from saturn.errors import RunFailed
from saturn.plain import durable
from saturn.runs import run_directory
from saturn.stoppers import ASHA
from saturn.tuning import steered
from saturn.tuning.pool import Pool
from saturn.tuning.steered import SteeredSweep
from test_steered import FakePool, pool  # noqa: F401  (a fixture)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (steered, "asdict"),  # of the sweep's own file
        (run_directory, "_fresh_directory"),
        (durable, "sync_all"),  # of the files of its tasks
    ],
)
def test_a_full_disk_keeps_no_name_of_a_sweep_or_of_its_tasks(
    pool: FakePool,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    function: str,
) -> None:
    task, stopper = make_task("a"), ASHA(metric="loss")
    with monkeypatch.context() as patch:
        patch.setattr(module, function, full)
        with pytest.raises((OSError, RunFailed), match="No space left"):
            Pool(pool.run_dir).submit(task, stopper=stopper, name="mine")
    assert not list((pool.run_dir / "steered").iterdir()) and not pool.told
    assert not list(pool.run_dir.glob("tasks/*"))
    Pool(pool.run_dir).submit(task, stopper=stopper, name="mine")
    assert len(pool.told) == 1 and (pool.run_dir / "tasks/a/task.pkl").exists()


def test_a_sweep_stays_if_the_pool_may_have_its_tasks(
    pool: FakePool,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: Any) -> str:
        raise RunFailed("no answer")

    monkeypatch.setattr(native, "ask", lost)
    with pytest.raises(RunFailed, match="no answer"):
        Pool(pool.run_dir).submit(make_task("a"), stopper=ASHA(metric="loss"), name="mine")
    assert SteeredSweep(pool.run_dir, "mine").about.tasks == ["a"]
    assert (pool.run_dir / "tasks/a/task.pkl").exists()
