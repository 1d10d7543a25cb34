"""The pool: this user's open run on this machine, which takes the tasks of any program.

`saturn serve` drives it, and `saturn submit` adds the tasks of a sweep. So several sweeps share one
plan, and a terminal that is closed after `saturn submit` stops nothing. A pool is a run like any
other: verbs and `saturn.attach` find the newest pool by the name `pool`.

Pools are in `SATURN_HOME/pools`, each in a directory that is named by the time of its begin, and
after all earlier pools even if the clock was set back.
`saturn.runs.serving` starts them and takes them up again.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

from saturn.plain.home import home
from saturn.runs import joined, run_directory

#: What people call the newest pool.
NAME = "pool"
_FORMAT = "%Y%m%d-%H%M%S-%f"


def directory() -> Path:
    """Where pools are."""
    return home() / "pools"


def meant() -> Path | None:
    """The directory of the pool that is meant by `pool`; None if there is none.

    It is the pool of another person that this person has joined, or else this person's newest.
    """
    return joined.current() or newest()


def newest() -> Path | None:
    """The directory of this person's newest pool; None if there is none."""
    if not directory().is_dir():
        return None
    pools = filter(run_directory.has_begun, directory().iterdir())
    return max(pools, default=None, key=lambda pool: pool.name)


def new_name() -> str:
    """The name of a pool that begins now: the time, so that names are in the order of beginning.

    If the clock was set back since an earlier pool began, the name is the first after its name.
    """
    now = datetime.now(timezone.utc)
    for before in directory().iterdir() if directory().is_dir() else ():
        with contextlib.suppress(ValueError):  # a person has given the directory another name
            began = datetime.strptime(before.name, _FORMAT).replace(tzinfo=timezone.utc)
            now = max(now, began + timedelta(microseconds=1))
    return now.strftime(_FORMAT)
