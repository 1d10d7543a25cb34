"""How long each part of an attempt's set-up took, in the order of the parts.

The parts cover the whole time since the process was forked or started, without gaps.
"""

from __future__ import annotations

import time

from saturn.rank.process import seconds_alive


class Laps:
    """A stopwatch that a rank makes when its work begins; its first part is `launch_s`.

    `launch_s` is the life of the process before the stopwatch was made.
    """

    def __init__(self) -> None:
        self.parts = {"launch_s": seconds_alive()}
        self._began = time.monotonic()

    def end(self, part: str) -> None:
        """End `part`, which began at the last call of `end`, or when this object was made."""
        now = time.monotonic()
        self.parts[part] = now - self._began
        self._began = now

    @property
    def total_s(self) -> float:
        """The time of all parts together."""
        return sum(self.parts.values())
