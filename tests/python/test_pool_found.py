"""Which pool is served, and which pool a command finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import saturn
from saturn import native
from saturn.errors import InvalidInput, RunOver
from saturn.runs import pool, serving


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pools are, of a home that has none yet."""
    monkeypatch.setenv("SATURN_HOME", str(tmp_path))
    return tmp_path / "pools"


def made(pools: Path, name: str) -> Path:
    (pools / name).mkdir(parents=True)
    (pools / name / "journal.db").touch()
    return pools / name


@pytest.mark.parametrize(
    ("status", "devices", "does"),
    [
        ("complete", None, "start"),
        ("interrupted", None, "resume"),
        ("interrupted", 4, "resume"),
        ("died", 2, "resume"),
        ("died", 0, "devices is 0"),
    ],
)
def test_which_pool_is_served(
    pools: Path, monkeypatch: pytest.MonkeyPatch, status: str, devices: int | None, does: str
) -> None:
    did: list[Any] = []
    monkeypatch.setattr(
        serving, "started", lambda tasks, settings, log: did.append(("start", settings))
    )
    monkeypatch.setattr(
        serving, "resumed", lambda run, **options: did.append(("resume", (run, options["devices"])))
    )
    monkeypatch.setattr(serving, "supervise", lambda run: run)
    monkeypatch.setattr(native, "is_driven", lambda run: False)
    # Of its 4 devices, one is set aside at the moment.
    told = json.dumps({"status": status, "pool": {"devices": 3}})
    monkeypatch.setattr(native, "status", lambda run: told)
    serving.serve(devices=3)
    [(_, settings)] = did
    assert settings.keep_open and settings.devices == 3 and settings.runs_dir == pools
    made(pools, "20261126-090000")
    newest = made(pools, "20261126-100000")
    (pools / "20261126-110000").mkdir()  # a start that was refused
    if does not in ("start", "resume"):
        with pytest.raises(InvalidInput, match=does):
            serving.serve(devices=devices)
        return
    serving.serve(devices=devices)
    assert did[1][0] == does
    assert does == "start" or did[1][1] == (newest, devices)


def test_shares_that_are_no_numbers_are_refused(pools: Path) -> None:
    with pytest.raises(TypeError, match=r"shares\['lena'\] is a str; it must be a number"):
        serving.serve(share="/srv/pool", shares={"lena": "2"})  # type: ignore[dict-item]
    assert not pools.exists()


def test_a_pool_is_found_by_its_name_and_connected_to_while_it_is_driven(
    pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunOver, match="there is no pool; to start it"):
        saturn.connect()
    with pytest.raises(InvalidInput, match="there is no run `pool`"):
        saturn.attach("pool")
    newest = made(pools, "20261126-100000")
    assert pool.newest() == newest and saturn.attach("pool").run_dir == newest
    with pytest.raises(RunOver, match="no process drives the pool"):
        saturn.connect()
    monkeypatch.setattr(native, "is_driven", lambda run: run == newest)
    assert saturn.connect().run_dir == newest
    # A run of that name comes first.
    near = made(tmp_path / "saturn_runs", "pool")
    assert saturn.attach("pool").run_dir == near


def test_a_pool_that_begins_after_the_clock_was_set_back_is_the_newest(pools: Path) -> None:
    made(pools, "0 is a name that is no time")
    first = pool.new_name()
    (pools / "20991231-235959-999998").mkdir()  # a start that was refused
    made(pools, "20991231-235959-999997")
    assert first < "20991231"
    later = made(pools, pool.new_name())
    assert later.name == "20991231-235959-999999" and pool.newest() == later
    assert pool.new_name() == "21000101-000000-000000"
