"""How long each part of an attempt's set-up took, in the order in which the parts follow."""

from __future__ import annotations

import time

from saturn.rank.process import seconds_alive


class Laps:
    """Made when a rank begins its work; its life until then is the first part, `launch_s`."""

    def __init__(self) -> None:
        self.parts = {"launch_s": seconds_alive()}
        self._began = time.monotonic()

    def end(self, part: str) -> None:
        """What was done since the last call, or since this was made, is `part`."""
        now = time.monotonic()
        self.parts[part] = now - self._began
        self._began = now

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.parts.values())
