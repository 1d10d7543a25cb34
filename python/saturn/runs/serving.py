"""`serve` and `connect`: drive the pool, and find the pool that another process drives."""

from __future__ import annotations

import json

from saturn import native
from saturn.errors import InvalidInput, RunOver
from saturn.runs import pool
from saturn.runs.run import resume, start
from saturn.runs.started import StartedRun
from saturn.tasks.surroundings import STARTED, Surroundings
from saturn.tuning.pool import Pool
from saturn.tuning.supervise import supervise


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
    complete, or there is none, another one begins. The arguments are those of `orchestrate`.

    Raises `InvalidInput` if a process drives the pool, or if it has other devices than `devices`.
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
    has = status["pool"]["devices"]
    if devices not in (None, has):
        raise InvalidInput(
            f"the pool {newest} goes on with the {has} devices that it has, not with {devices}. "
            "For a pool with others, end this one first: saturn serve, and then saturn close pool"
        )
    return resume(newest, device_memory=device_memory, wait=wait)


def _begin(devices: int | None, device_memory: int | str | None, wait: bool) -> StartedRun:
    begun = start(
        [],
        keep_open=True,
        devices=devices,
        device_memory=device_memory,
        wait=wait,
        runs_dir=pool.directory(),
        name=pool.new_name(),
    )
    return supervise(begun)
