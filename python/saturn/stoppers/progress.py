"""What a stopper knows of a task: the values that it has reported so far, and where it stands.

Values come in the order of steps, each step once: steps that are trained again after a crash are
not seen again. A value that is no finite number is NaN here, whatever it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

#: Of training: the mean over the last steps (see `saturn.tuning.reports`).
LOSS = "loss"

#: Where a task stands, as far as a stopper cares.
TRAINING, WAITING, HELD, ENDED = "training", "waiting", "held", "ended"


class Curve:
    """The values of one metric of one task, by step."""

    def __init__(self) -> None:
        """Empty."""
        self.steps: list[int] = []
        self.values: list[float] = []

    def add(self, step: int, value: float) -> None:
        """Take in the value after `step` finished steps, more than those before."""
        self.steps.append(step)
        self.values.append(value)

    def at(self, step: int) -> float | None:
        """The first value after at least so many steps; None where there is none yet."""
        index = bisect_left(self.steps, step)
        return self.values[index] if index < len(self.values) else None

    def until(self, step: int) -> list[float]:
        """The values after at most so many steps."""
        return self.values[: bisect_right(self.steps, step)]

    def running_means(self) -> list[float]:
        """For each value the mean of it and those before."""
        sums = accumulate(self.values)
        return [total / number for number, total in enumerate(sums, 1)]


class Progress:
    """A task as a stopper sees it."""

    def __init__(self, name: str) -> None:
        """Nothing is known but its name."""
        #: The task's name.
        self.name = name
        #: Steps that it trains in all; None until that is known.
        self.steps: int | None = None
        #: Finished steps when it last reported a value.
        self.step = 0
        #: `training`, `waiting`, `held` (by the stopper) or `ended`.
        self.stage = WAITING
        #: How it ended: `done`, `diverged`, `failed`, `cancelled` or `stopped`; None before.
        self.end: str | None = None
        self._curves: dict[str, Curve] = {}

    def curve(self, metric: str) -> Curve:
        """The values of a metric; empty where it has reported none."""
        return self._curves.get(metric) or Curve()

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that it has reported."""
        return sorted(self._curves)

    def values(self, metric: str) -> list[tuple[int, float]]:
        """Steps, and the value of the metric after so many."""
        curve = self.curve(metric)
        return list(zip(curve.steps, curve.values, strict=True))

    def last(self, metric: str) -> float | None:
        """The newest value of a metric."""
        curve = self.curve(metric)
        return curve.values[-1] if curve.values else None

    def add(self, step: int, values: dict[str, float]) -> None:
        """Take in what it has reported after so many steps."""
        for metric, value in values.items():
            curve = self._curves.setdefault(metric, Curve())
            if not curve.steps or step > curve.steps[-1]:
                curve.add(step, value)
        self.step = max(self.step, step)

    def __repr__(self) -> str:
        """Name it."""
        return f"Progress({self.name!r}, step {self.step} of {self.steps}, {self.stage})"
