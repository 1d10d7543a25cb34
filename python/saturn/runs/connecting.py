"""`connect`: the pool that another process drives."""

from __future__ import annotations

from saturn import native
from saturn.errors import RunOver
from saturn.runs import joined, pool
from saturn.tuning.pool import Pool


def connect() -> Pool:
    """The pool that `saturn serve` drives on this machine, to submit tasks to.

    It is the pool of another person after `saturn join`, and else this person's own.

    Example: `saturn.connect().submit(tasks)`.

    Raises `RunOver` if no process drives a pool.
    """
    of_other = joined.reached()
    if of_other is not None:
        return Pool(of_other)
    newest = pool.newest()
    if newest is None or not native.is_driven(newest):
        was = "there is no pool" if newest is None else f"no process drives the pool {newest}"
        raise RunOver(
            f"{was}; to start it, in a terminal of its own: saturn serve; to use another person's: "
            "saturn join DOOR"
        )
    return Pool(newest)
