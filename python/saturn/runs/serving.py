"""`serve` and `connect`: drive the pool, and find the pool that another process drives."""

from __future__ import annotations

import json

from saturn import native
from saturn.errors import InvalidInput, RunOver
from saturn.plain.given_numbers import check_whole
from saturn.runs import pool
from saturn.runs.run import resumed, start
from saturn.runs.started import StartedRun
from saturn.tasks.surroundings import STARTED, Surroundings
from saturn.tuning.pool import Pool
from saturn.tuning.supervise import supervise

#: For how many seconds the tasks of a pool train on if its process dies, until the next takes them
#: up.
OUTLIVE_S = 900.0


def connect() -> Pool:
    """The pool that `saturn serve` drives on this machine, to submit tasks to.

    Example: `saturn.connect().submit(tasks)`.

    Raises `RunOver` if no process drives a pool.
    """
    newest = pool.newest()
    if newest is None or not native.is_driven(newest):
        was = "there is no pool" if newest is None else f"no process drives the pool {newest}"
        raise RunOver(f"{was}; to start it, in a terminal of its own: saturn serve")
    return Pool(newest)


def serve(
    *, devices: int | None = None, device_memory: int | str | None = None, wait: bool = False
) -> StartedRun:
    """Begin to drive a pool; returns at once.

    The newest pool goes on, from its checkpoints, if it was stopped or its driver died. If it is
    complete, or there is none, another one begins. The arguments are those of `orchestrate`. A pool
    that goes on keeps its earlier number of devices and memory limit where they are not given.

    Raises `InvalidInput` if a process drives the pool.
    """
    newest = pool.newest()
    if newest is None:
        return _begin(devices, device_memory, wait)
    if native.is_driven(newest):
        raise InvalidInput(f"a process drives the pool already, {newest}: saturn status pool")
    status = json.loads(native.status(newest))
    if status["status"] == "complete":
        return _begin(devices, device_memory, wait)
    of_pool = Surroundings.read(newest / STARTED)
    if of_pool is not None:
        Surroundings.here().refuse_other_python(of_pool)
    check_whole("devices", devices, least=1)
    return resumed(newest, device_memory=device_memory, devices=devices, options={"wait": wait})


def _begin(devices: int | None, device_memory: int | str | None, wait: bool) -> StartedRun:
    begun = start(
        [],
        keep_open=True,
        outlive_s=OUTLIVE_S,
        devices=devices,
        device_memory=device_memory,
        wait=wait,
        runs_dir=pool.directory(),
        name=pool.new_name(),
    )
    return supervise(begun)
