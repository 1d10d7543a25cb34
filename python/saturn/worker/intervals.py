"""How long a task trains between two checkpoints, if the run doesn't say.

A checkpoint costs the time for which training stands still. A failure costs the training since the
last checkpoint, half an interval on average. The sum of both is smallest at an interval of
sqrt(2 * cost * mean time between failures): J. W. Young, "A first order approximation to the
optimum checkpoint interval" (1974). J. T. Daly has the higher orders (2006), which matter only if
checkpoints cost nearly as much as failures are apart.

The interval is for failures only: a switch, a pause and a stop write checkpoints of their own.
"""

from __future__ import annotations

import math

#: The interval until an attempt's first checkpoint has shown what a checkpoint costs.
_FIRST_S = 30.0
#: The shortest interval: below it, costs that aren't measured (disk, other tasks) would matter.
_LEAST_S = 10.0
#: The longest interval, whatever the formula says: a crash should never lose more than this.
_MOST_S = 600.0


class Interval:
    """Seconds between two checkpoints of one attempt."""

    def __init__(self, given_s: float | None, failure_every_s: float) -> None:
        """`given_s` is used unless it is None; `failure_every_s` is the mean between failures."""
        self._given_s, self._failure_every_s = given_s, failure_every_s
        self._found_s = _FIRST_S

    @property
    def seconds(self) -> float:
        """The interval that holds now."""
        return self._found_s if self._given_s is None else self._given_s

    def saved(self, blocked_s: float) -> None:
        """Note that a checkpoint made training stand still for `blocked_s` seconds."""
        best = math.sqrt(2 * blocked_s * self._failure_every_s)
        self._found_s = min(max(best, _LEAST_S), _MOST_S)
