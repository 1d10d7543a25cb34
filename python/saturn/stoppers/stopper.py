"""What a stopper is: something that is shown what tasks report, and says what is to come of them.

A stopper remembers nothing. All that it may rest on is what tasks have reported and where they
stand, which the run's journal has: so a resumed run decides as it would have without the stop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from saturn.stoppers.progress import Progress
from saturn.tasks.evaluation import MAX, MIN

#: The task trains on, or is taken up again; it waits at a checkpoint; it ends at a checkpoint.
GO_ON, HOLD, STOP = "go_on", "hold", "stop"


@dataclass(frozen=True)
class Ruling:
    """What is to come of a task, and why: a few words that come after its name."""

    task: str
    ruling: str
    reason: str


Tasks = Mapping[str, Progress]


@dataclass(frozen=True, kw_only=True)
class Stopper:
    """A rule for which tasks go on. Write a class of your own by overriding `looked`.

    Args:
        metric: name of what it compares tasks by: a metric of their evaluations, or `"loss"`. By
            default the metric that tasks call the best by (`Task(best=…)`), or the training loss
            where they don't evaluate.
        mode: `"min"` or `"max"`: whether less is better, or more. By default as `best` says, or
            `"min"`.
    """

    metric: str | None = None
    mode: str | None = None

    #: Whether its rule makes no sense without a metric.
    goes_by_metric: ClassVar[bool] = True

    #: Whether a task that it ends needs no more training, so that its value counts as if it was
    #: done. Others end tasks that do badly.
    ends_what_is_trained: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check it; raises `TypeError` or `ValueError`."""
        kind = type(self).__name__
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            raise TypeError(f"metric of {kind} is {self.metric!r}; it must be a metric's name")
        if self.mode not in (None, MIN, MAX):
            raise ValueError(f'mode of {kind} is {self.mode!r}; it must be "min" or "max"')

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """`task` has just reported a value of the metric; `tasks` are all, this one included."""
        return ()

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """Nothing trains or waits to: only tasks that are held are left, and no more will come."""
        return ()

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """It is `now_s` on the run's clock; called about once a second."""
        return ()

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether a search is to suggest no more tasks: it ends those that are left too."""
        return False

    @property
    def goal(self) -> str:
        """The metric, once it is known which."""
        assert self.metric is not None
        return self.metric

    def badness(self, value: float) -> float:
        """The value so that less is better; what is no finite number is worst."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.mode == MAX else value


def check_whole(kind: str, field: str, value: Any, least: int) -> None:
    """Raise `TypeError` or `ValueError` unless it is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} of {kind} is {value!r}; it must be a whole number")
    if value < least:
        raise ValueError(f"{field} of {kind} is {value}; it must be at least {least}")


def check_number(kind: str, field: str, value: Any, least: float = -math.inf) -> None:
    """Raise `TypeError` or `ValueError` unless it is a finite number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} of {kind} is {value!r}; it must be a number")
    if not math.isfinite(value) or value < least:
        wanted = "a finite number" if least == -math.inf else f"a number from {least:g} on"
        raise ValueError(f"{field} of {kind} is {value}; it must be {wanted}")
