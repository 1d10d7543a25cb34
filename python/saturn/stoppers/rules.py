"""Stoppers that end tasks by a simple rule, which each one's docstring says in a sentence.

None of them holds a task: for that, see `halving`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from saturn.stoppers.progress import ENDED, LOSS, Curve, Progress
from saturn.stoppers.stopper import STOP, Ruling, Stopper, Tasks, check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class Median(Stopper):
    """Ends a task whose best value is worse than the median of the others' means up to its step.

    (Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization".)

    Args:
        metric: as for `ASHA`.
        mode: as for `ASHA`.
        min_tasks: how many other tasks must have reached a task's step before it may be ended.
        min_steps: no task is ended before this many steps of its own; those of a task that it
            continues don't count.
    """

    min_tasks: int = 3
    min_steps: int = 1

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        super().__post_init__()
        check_whole("Median", "min_tasks", self.min_tasks, 1)
        check_whole("Median", "min_steps", self.min_steps, 1)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """Compare the task with other tasks that have reached its step."""
        step = task.curve(self.goal).steps[-1]
        if step - task.first_step < self.min_steps:
            return
        means = []
        for other in tasks.values():
            curve = other.curve(self.goal)
            if other is not task and curve.steps and curve.steps[-1] >= step:
                badness = [self.badness(value) for value in curve.until(step)]
                if badness:
                    means.append(statistics.fmean(badness))
        if len(means) < self.min_tasks:
            return
        best = min(self.badness(value) for value in task.curve(self.goal).values)
        median = statistics.median(means)
        if best > median:
            shown = -median if self.mode == "max" else median
            reason = f"its best {self.metric} is worse than the median of others, {shown:.6g}"
            yield Ruling(task.name, STOP, f"{reason} at step {step}")


@dataclass(frozen=True, kw_only=True)
class Plateau(Stopper):
    """Ends a task whose metric has not improved for `steps` steps.

    Args:
        metric: as for `ASHA`.
        mode: as for `ASHA`.
        steps: for how many steps the metric may fail to improve.
        min_delta: a value counts as better only if it is better by more than this.
    """

    steps: int
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        super().__post_init__()
        check_whole("Plateau", "steps", self.steps, 1)
        check_number("Plateau", "min_delta", self.min_delta, 0.0)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """End the task if it has not improved within the last steps."""
        *_, (step, best_step) = self._bests(task.curve(self.goal))
        if step - best_step >= self.steps:
            reason = f"its {self.metric} has not got better since step {best_step}"
            yield Ruling(task.name, STOP, reason)

    def is_trained(self, task: Progress) -> bool:
        """Whether the task's metric once failed to improve for as long."""
        bests = self._bests(task.curve(self.goal))
        return any(step - best_step >= self.steps for step, best_step in bests)

    def _bests(self, curve: Curve) -> Iterator[tuple[int, int]]:
        """Each step of a value, and the step of the best value until then."""
        best, best_step = math.inf, next(iter(curve.steps), 0)
        for step, value in zip(curve.steps, curve.values, strict=True):
            if self.badness(value) < best - self.min_delta:
                best, best_step = self.badness(value), step
            yield step, best_step


@dataclass(frozen=True, kw_only=True)
class Target(Stopper):
    """Ends a task whose metric is as good as wanted.

    Args:
        metric: as for `ASHA`.
        mode: as for `ASHA`.
        value: the value that is good enough.
        stop_all: whether the first task that reaches the value ends all others too.
    """

    value: float
    stop_all: bool = False

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        super().__post_init__()
        check_number("Target", "value", self.value)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """End the task, and perhaps all others, if the value is reached."""
        last = task.curve(self.goal).values[-1]
        if self.badness(last) > self.badness(self.value):
            return
        yield Ruling(task.name, STOP, f"its {self.metric} is {last:.6g}, as good as wanted")
        if self.stop_all:
            yield from self._others(task, tasks)

    def is_trained(self, task: Progress) -> bool:
        """Whether the task has once reached the value."""
        good = self.badness(self.value)
        return any(self.badness(value) <= good for value in task.curve(self.goal).values)

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """If a task has ended all others, end tasks that came later too."""
        first = self._first(tasks)
        return () if first is None else self._others(first, tasks)

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether a task has reached the value and so ends all others."""
        return self._first(tasks) is not None

    def _first(self, tasks: Tasks) -> Progress | None:
        """The task that ends all others; None if there is none."""
        reached = (task for task in tasks.values() if self.stop_all and self.is_trained(task))
        return next(reached, None)

    def _others(self, first: Progress, tasks: Tasks) -> Iterable[Ruling]:
        value = min(first.curve(self.goal).values, key=self.badness)
        reason = f"the {self.metric} of `{first.name}` is {value:.6g}, as good as wanted"
        for other in tasks.values():
            if other is not first and other.stage != ENDED:
                yield Ruling(other.name, STOP, reason)


@dataclass(frozen=True, kw_only=True)
class NaN(Stopper):
    """Ends a task whose loss, or the given metric, is not finite."""

    metric: str | None = LOSS

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """End the task if its newest value is not finite."""
        curve = task.curve(self.goal)
        if not math.isfinite(curve.values[-1]):
            reason = f"its {self.metric} is no finite number at step {curve.steps[-1]}"
            yield Ruling(task.name, STOP, reason)


@dataclass(frozen=True, kw_only=True)
class TimeLimit(Stopper):
    """Ends all remaining tasks once the run has trained for this time.

    Args:
        seconds: on the run's clock, which stands still while no process drives the run.
    """

    seconds: float

    goes_by_metric: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        super().__post_init__()
        check_number("TimeLimit", "seconds", self.seconds, 0.0)

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """End all tasks if the time is over."""
        if self.is_enough(now_s, tasks):
            for task in tasks.values():
                if task.stage != ENDED:
                    reason = f"the run's time is over, after {self.seconds:g} s"
                    yield Ruling(task.name, STOP, reason)

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether the time is over."""
        return now_s >= self.seconds


@dataclass(frozen=True, kw_only=True)
class Function(Stopper):
    """Ends a task if a function of its `Progress` returns true or a reason."""

    function: Callable[[Progress], Any] = field(default=bool)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """Ask the function."""
        answer = self.function(task)
        if answer:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            reason = answer if isinstance(answer, str) else f"{name} says so"
            yield Ruling(task.name, STOP, reason)
