"""How long a task trains between two checkpoints, where the run doesn't say.

A checkpoint costs the time for which training stands still; a failure costs what has been trained
since the last, half an interval on average. Both together are least at an interval of
sqrt(2 * cost * mean time between failures): J. W. Young, "A first order approximation to the
optimum checkpoint interval" (1974); J. T. Daly has the higher orders (2006), which matter only
where checkpoints cost nearly as much as failures are apart.

What doesn't fail is saved too: a switch, a pause and a stop write a checkpoint of their own.
"""

from __future__ import annotations

import math

#: Until the first checkpoint of an attempt has shown its cost.
_FIRST_S = 30.0
#: No shorter, or the cost of what isn't measured (the disk, other tasks) would tell.
_LEAST_S = 10.0
#: No longer, whatever the formula says: a person who sees a crash is not to lose more than that.
_MOST_S = 600.0


class Interval:
    """Seconds between two checkpoints of one attempt."""

    def __init__(self, given_s: float | None, failure_every_s: float) -> None:
        """`given_s` holds where it is not None. Failures: mean seconds between two."""
        self._given_s, self._failure_every_s = given_s, failure_every_s
        self._found_s = _FIRST_S

    @property
    def seconds(self) -> float:
        """What holds now."""
        return self._found_s if self._given_s is None else self._given_s

    def saved(self, blocked_s: float) -> None:
        """Training stood still so long for a checkpoint."""
        best = math.sqrt(2 * blocked_s * self._failure_every_s)
        self._found_s = min(max(best, _LEAST_S), _MOST_S)
