"""What a user wishes for a task's schedule: priority, deadline (hard or soft), release, and order.

They mean the same on a `Task`, in `submit`, and for a task of a run in progress. Times are
seconds on the run's clock, which begins when the run's workers are ready to train. The clock stands
still while no process drives the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from saturn.tasks.task import Task

    Before: TypeAlias = str | Task | Iterable[str | Task]

_LARGEST = 2**31 - 1


def checked_priority(priority: int) -> int:
    """Check a priority; raises `TypeError` or `ValueError`."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority is a {type(priority).__name__}; it must be a whole number")
    if abs(priority) > _LARGEST:
        raise ValueError(f"priority is {priority}; it must be from {-_LARGEST} to {_LARGEST}")
    return priority


def checked_time(field: str, seconds: float) -> float:
    """Check a time on the run's clock; raises `TypeError` or `ValueError`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        raise TypeError(f"{field} is a {kind}; it must be a number of seconds on the run's clock")
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(
            f"{field} is {seconds}; it must be a number of seconds on the run's clock, from 0 on"
        )
    return float(seconds)


def checked_deadline(deadline: float | None) -> float | None:
    """Check a deadline, which may be None; raises `TypeError` or `ValueError`."""
    return None if deadline is None else checked_time("deadline", deadline)


def checked_lateness(
    deadline: float | None, late_price: float | None, most_late: float | None
) -> tuple[float | None, float | None]:
    """Check what makes a deadline soft; raises `TypeError` or `ValueError`."""
    if late_price is None:
        if most_late is not None:
            raise ValueError(
                "most_late is for a soft deadline: give late_price too, the price of a second late"
            )
        return None, None
    if isinstance(late_price, bool) or not isinstance(late_price, int | float):
        raise TypeError(f"late_price is a {type(late_price).__name__}; it must be a number")
    if not 1e-6 <= late_price <= 1e6:
        raise ValueError(f"late_price is {late_price}; it must be a number from 1e-6 to 1e6")
    if deadline is None:
        raise ValueError("late_price is for a task with a deadline: give deadline too")
    most = None if most_late is None else checked_time("most_late", most_late)
    return float(late_price), most


def names_before(after: Before) -> list[str]:
    """Names of the tasks that must come before; raises `TypeError`."""
    from saturn.tasks.task import Task

    given = [after] if isinstance(after, str | Task) else list(after)
    names = []
    for one in given:
        if not isinstance(one, str | Task):
            kind = type(one).__name__
            raise TypeError(f"after holds a {kind}; it must hold tasks or their names")
        names.append(one if isinstance(one, str) else one.name)
    return list(dict.fromkeys(names))
