"""The interface of stoppers: a stopper sees the tasks' reports, and decides what becomes of them.

A stopper keeps no state. Its decisions may rest only on the tasks' reports and stages, which the
run's journal has. So a resumed run decides as it would have without the interruption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from saturn.stoppers.progress import Progress
from saturn.tasks.evaluation import MAX, MIN

#: A task trains on or is taken up again; it waits at a checkpoint; it ends at a checkpoint.
GO_ON, HOLD, STOP = "go_on", "hold", "stop"
#: The reason with which a held task trains ahead. The journal keeps it, so a later process knows.
AHEAD = "it is the best of those that are held, and a device would stand idle"


@dataclass(frozen=True)
class Ruling:
    """What becomes of a task, and why: the reason is a few words that follow the task's name."""

    task: str
    ruling: str
    reason: str


Tasks = Mapping[str, Progress]


@dataclass(frozen=True, kw_only=True)
class Stopper:
    """A rule for which tasks go on. Write a class of your own by overriding `looked`.

    Args:
        metric: name of the metric that compares tasks: a metric of their evaluations, or `"loss"`.
            By default the metric of the tasks' best (`Task(best=…)`), or the training loss if they
            don't evaluate.
        mode: `"min"` or `"max"`: which values are better. By default as `best` says, or `"min"`.
    """

    metric: str | None = None
    mode: str | None = None

    #: Whether its rule needs a metric.
    goes_by_metric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        kind = type(self).__name__
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            raise TypeError(f"metric of {kind} is {self.metric!r}; it must be a metric's name")
        if self.mode not in (None, MIN, MAX):
            raise ValueError(f'mode of {kind} is {self.mode!r}; it must be "min" or "max"')

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """React to a value of the metric that `task`, one of `tasks`, has just reported."""
        return ()

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """React when only held tasks are left: none trains or waits to, and no more will come."""
        return ()

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """Called about once a second; `now_s` is the time on the run's clock."""
        return ()

    def idle(self, tasks: Tasks) -> Iterable[Ruling]:
        """Called if a device has stood idle for a while, and no task waits: one may train ahead.

        A task that goes on with the reason `AHEAD` is `Progress.is_ahead` until the next ruling.
        """
        return ()

    def crowded(self, tasks: Tasks) -> Iterable[Ruling]:
        """Called if a task has waited for a device for a while; it may be another search's task."""
        return ()

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether a search must suggest no more tasks; the stopper then ends those left, too."""
        return False

    def is_trained(self, task: Progress) -> bool:
        """Whether the rule ended `task`, or would have, since it needs no more training.

        The value of such a task counts as if the task was done. A task trains on for some steps
        after the ruling, so its newest value alone doesn't tell. Other rules end tasks that do
        badly.
        """
        return False

    @property
    def goal(self) -> str:
        """The metric; to be read only once it is known."""
        assert self.metric is not None
        return self.metric

    def badness(self, value: float) -> float:
        """The value as a number of which less is better; infinity if the value is not finite."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.mode == MAX else value


def check_whole(kind: str, field: str, value: Any, least: int) -> None:
    """Raise `TypeError` or `ValueError` unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} of {kind} is {value!r}; it must be a whole number")
    if value < least:
        raise ValueError(f"{field} of {kind} is {value}; it must be at least {least}")


def check_number(kind: str, field: str, value: Any, least: float = -math.inf) -> None:
    """Raise `TypeError` or `ValueError` unless the value is a finite number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} of {kind} is {value!r}; it must be a number")
    if not math.isfinite(value) or value < least:
        wanted = "a finite number" if least == -math.inf else f"a number from {least:g} on"
        raise ValueError(f"{field} of {kind} is {value}; it must be {wanted}")
