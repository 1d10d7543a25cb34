"""`serve`: drive the pool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from saturn import native
from saturn.errors import InvalidInput
from saturn.plain.given_numbers import check_number, check_whole
from saturn.runs import pool
from saturn.runs.run import resumed, started
from saturn.runs.settings import PathLike, Settings
from saturn.runs.started import StartedRun
from saturn.tasks.surroundings import STARTED, Surroundings
from saturn.tuning.supervise import supervise

#: For how many seconds the tasks of a pool train on if its process dies, until the next takes them
#: up.
OUTLIVE_S = 900.0


def serve(
    *,
    devices: int | None = None,
    device_memory: int | str | None = None,
    wait: bool = False,
    share: PathLike | None = None,
    shares: Mapping[str, float] | None = None,
    quotas: Mapping[str, int] | None = None,
) -> StartedRun:
    """Begin to drive a pool; returns at once.

    The newest pool goes on, from its checkpoints, if it was stopped or its driver died. If it is
    complete, or there is none, another one begins. The arguments are those of `orchestrate`. A pool
    that goes on keeps its earlier number of devices and memory limit where they are not given.
    `share` is a directory, which is made, at which other people of this machine join the pool.
    `shares` says how large the shares of some of them are beside one another, by login name or
    user id; everybody else's is 1. `quotas` says how many devices the tasks of some of them may
    hold at once; everybody else's may hold all. Both hold until others are given.

    Raises `InvalidInput` if a process drives the pool, and for people who are not there.
    """
    door = None if share is None else Path(share).absolute()
    for name, size in (shares or {}).items():
        check_number(f"shares[{name!r}]", size)
    for name, quota in (quotas or {}).items():
        check_whole(f"quotas[{name!r}]", quota, least=1)
    newest = pool.newest()
    if newest is None:
        return _begin(devices, device_memory, wait, door, shares, quotas)
    if native.is_driven(newest):
        raise InvalidInput(f"a process drives the pool already, {newest}: saturn status pool")
    status = json.loads(native.status(newest))
    if status["status"] == "complete":
        return _begin(devices, device_memory, wait, door, shares, quotas)
    of_pool = Surroundings.read(newest / STARTED)
    if of_pool is not None:
        Surroundings.here().refuse_other_python(of_pool)
    check_whole("devices", devices, least=1)
    return resumed(
        newest,
        device_memory=device_memory,
        devices=devices,
        share=door,
        shares=shares,
        quotas=quotas,
        options={"wait": wait},
    )


def _begin(
    devices: int | None,
    device_memory: int | str | None,
    wait: bool,
    door: Path | None,
    shares: Mapping[str, float] | None,
    quotas: Mapping[str, int] | None,
) -> StartedRun:
    settings = Settings(
        mode="orchestrate",
        keep_open=True,
        outlive_s=OUTLIVE_S,
        max_switches=1,
        devices=devices,
        device_memory=device_memory,
        wait=wait,
        share=door,
        shares=shares,
        quotas=quotas,
        runs_dir=pool.directory(),
        name=pool.new_name(),
    )
    return supervise(started([], settings, log=True))
