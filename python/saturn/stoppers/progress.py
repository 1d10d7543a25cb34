"""What a stopper knows of a task: the values that it has reported so far, and its stage.

Values come in the order of steps, each step once: a step that is trained again after a crash is not
seen again. A value that is not finite is NaN here, even if it was infinite.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

#: The training loss: the mean over the last steps (see `saturn.tuning.reports`).
LOSS = "loss"

#: The stages of a task, as far as they matter to a stopper.
TRAINING, WAITING, HELD, ENDED = "training", "waiting", "held", "ended"


class Curve:
    """The values of one metric of one task, by step."""

    def __init__(self) -> None:
        """Make an empty curve."""
        self.steps: list[int] = []
        self.values: list[float] = []

    def add(self, step: int, value: float) -> None:
        """Add the value after `step` finished steps, which must exceed earlier ones."""
        self.steps.append(step)
        self.values.append(value)

    def at(self, step: int) -> float | None:
        """The first value after at least `step` steps; None if there is none yet."""
        index = bisect_left(self.steps, step)
        return self.values[index] if index < len(self.values) else None

    def until(self, step: int) -> list[float]:
        """The values after at most `step` steps."""
        return self.values[: bisect_right(self.steps, step)]


class Progress:
    """A task as a stopper sees it."""

    def __init__(self, name: str) -> None:
        """Make a task of which only the name is known."""
        #: The task's name.
        self.name = name
        #: The task's number of steps; None until it is known.
        self.steps: int | None = None
        #: The steps of the task that it continues, which are part of all step numbers here; or 0.
        self.first_step = 0
        #: How many steps were finished when it last reported a value.
        self.step = 0
        #: `training`, `waiting`, `held` (by the stopper) or `ended`.
        self.stage = WAITING
        #: How it ended: `done`, `diverged`, `failed`, `cancelled` or `stopped`; None before.
        self.end: str | None = None
        #: Between which steps it trained only because a device would have stood idle. The last may
        #: have no end yet.
        self._ahead: list[tuple[int, float]] = []
        self._curves: dict[str, Curve] = {}

    @property
    def is_ahead(self) -> bool:
        """Whether it trains only because a device would stand idle otherwise."""
        return bool(self._ahead) and self._ahead[-1][1] == math.inf

    def train_ahead(self, is_ahead: bool) -> None:
        """Note that from its present step on it trains only because a device would stand idle.

        Or that it no longer does.
        """
        if is_ahead and not self.is_ahead:
            self._ahead.append((self.step, math.inf))
        elif not is_ahead and self.is_ahead:
            self._ahead[-1] = (self._ahead[-1][0], self.step)

    def came_ahead(self, step: int) -> bool:
        """Whether it trained to this step only because a device would have stood idle."""
        return any(first < step <= last for first, last in self._ahead)

    def curve(self, metric: str) -> Curve:
        """The values of a metric; empty if the task has reported none."""
        return self._curves.get(metric) or Curve()

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that the task has reported."""
        return sorted(self._curves)

    def values(self, metric: str) -> list[tuple[int, float]]:
        """(step, value) for each reported value of the metric."""
        curve = self.curve(metric)
        return list(zip(curve.steps, curve.values, strict=True))

    def last(self, metric: str) -> float | None:
        """The newest value of a metric; None if there is none."""
        curve = self.curve(metric)
        return curve.values[-1] if curve.values else None

    def add(self, step: int, values: dict[str, float]) -> None:
        """Add the values that the task has reported after `step` steps."""
        for metric, value in values.items():
            curve = self._curves.setdefault(metric, Curve())
            if not curve.steps or step > curve.steps[-1]:
                curve.add(step, value)
        self.step = max(self.step, step)

    def __repr__(self) -> str:
        """Show name, step and stage."""
        return f"Progress({self.name!r}, step {self.step} of {self.steps}, {self.stage})"
