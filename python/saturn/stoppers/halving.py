"""Asynchronous successive halving.

Notation, as in Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning" (MLSys):
rungs k = 0, 1, … are at r·η^k steps; steps of a task that another one continues don't count.
Of the n tasks that have reached a rung, the best ⌊n/η⌋ go on
to the next. As more tasks reach the rung, the best may change. A task that is not among them is
held at a checkpoint and gives its devices back; it goes on if it is among them later.

A device that would stand idle trains the best held task ahead, up to its next rung at most, if a
task that goes on by its place is further. A task that comes to a rung ahead goes on if it is among
the best, but does not count as one of the n, so no more tasks go on for it. It is held again if
another task needs the device, or if no task that goes on by its place is left. So training ahead
ends no search later, unless a task that trained ahead turns out to be among the best.

If all tasks are held and none was trained to its end (n is no power of η), the best task of the
highest rung goes on. It goes on too if those that were trained to their ends were worse at that
rung: a short task may come to its end before this has seen its values. So a search ends with a
trained model, and no better model is left behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from saturn.stoppers.progress import ENDED, HELD, TRAINING, WAITING, Progress
from saturn.stoppers.stopper import AHEAD, GO_ON, HOLD, STOP, Ruling, Stopper, Tasks, check_whole

#: Without `min_steps`, this many rungs are used, the first at 1/η^3 of a task's steps.
_RUNGS = 3


@dataclass(frozen=True, kw_only=True)
class ASHA(Stopper):
    """Asynchronous successive halving (Li et al. 2020): the best of each rung go on.

    Args:
        metric: name of the metric that compares tasks; by default the metric of the tasks' best
            (`Task(best=…)`), or the training loss.
        mode: "min" or "max": which values are better; by default as the tasks' `best` says.
        min_steps: steps of the first rung; by default 1/eta^3 of each task's own steps, so that
            tasks of different lengths are compared at the same share of their training. The steps
            of a task that another one continues don't count.
        eta: one task in `eta` goes on to the next rung, which is at `eta` times the steps.
    """

    min_steps: int | None = None
    eta: int = 3

    def __post_init__(self) -> None:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        super().__post_init__()
        check_whole("ASHA", "eta", self.eta, 2)
        if self.min_steps is not None:
            check_whole("ASHA", "min_steps", self.min_steps, 1)

    def rungs(self, task: Progress) -> list[int]:
        """The steps of a task's rungs below its last step, ascending."""
        first = task.first_step
        if self.min_steps is None:
            if task.steps is None:
                return []
            own = task.steps - first
            divisors = [self.eta**power for power in range(_RUNGS, 0, -1)]
            rungs = {math.ceil(own / divisor) for divisor in divisors}
            return sorted(first + rung for rung in rungs if rung < own)
        rungs_at, rung = [], self.min_steps
        while first + rung < (task.steps or task.step + 1):
            rungs_at.append(first + rung)
            rung *= self.eta
        return rungs_at

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """If the task has reached a rung, decide which tasks go on from it."""
        steps = task.curve(self.goal).steps
        before = steps[-2] if len(steps) > 1 else 0
        reached = [k for k, rung in enumerate(self.rungs(task)) if before < rung <= steps[-1]]
        for rung in reached:
            best, order = self._ranked(rung, tasks)
            is_last = rung == reached[-1]
            for name in best:
                # If values are sparse, the task may already be held at a higher rung.
                if tasks[name].stage == HELD and self._rung(tasks[name]) == rung:
                    reason = (
                        f"{_place(name, order)} at {_at(self, tasks[name], rung)} is good enough"
                    )
                    yield Ruling(name, GO_ON, reason)
            if is_last and task.name not in best and task.stage != ENDED:
                place = f"{_place(task.name, order)} at {_at(self, task, rung)}"
                reason = f"{place}: {_best(len(best))}"
                yield Ruling(task.name, HOLD, reason)

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """End all held tasks, unless one is better than all that were trained to their ends."""
        held = [task for task in tasks.values() if task.stage == HELD]
        if not held:
            return
        done = [task for task in tasks.values() if task.end == "done"]
        first = min(held, key=lambda one: (-self._rung(one), self._badness(one)))
        if not done:
            yield Ruling(first.name, GO_ON, "it is the best, and nothing else is left to train")
        elif all(self._is_better(first, other) for other in done):
            place = _at(self, first, self._rung(first))
            reason = f"at {place} it is better than every task that was trained to its end"
            yield Ruling(first.name, GO_ON, reason)
        else:
            for task in held:
                place = _at(self, task, self._rung(task))
                reason = f"held at {place}, and another task has trained to its end"
                yield Ruling(task.name, STOP, reason)

    def idle(self, tasks: Tasks) -> Iterable[Ruling]:
        """Let the best held task train ahead, up to a rung that another task has passed."""
        _, by_place = self._open(tasks)
        furthest = max((self._rung(task) for task in by_place), default=-1)
        behind = [
            task
            for task in tasks.values()
            if task.stage == HELD
            and self._rung(task) < furthest
            and self._badness(task)[0] < math.inf
        ]
        if behind:
            first = min(behind, key=lambda one: (-self._rung(one), self._badness(one)))
            yield Ruling(first.name, GO_ON, AHEAD)

    def crowded(self, tasks: Tasks) -> Iterable[Ruling]:
        """Hold the worst task that trains ahead: another task, of this search or not, waits."""
        ahead, _ = self._open(tasks)
        if ahead:
            last = max(ahead, key=lambda one: (-self._rung(one), self._badness(one)))
            yield Ruling(last.name, HOLD, "it trained ahead, and another task needs its device")

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """Hold the tasks that train ahead once no other task trains or waits."""
        ahead, by_place = self._open(tasks)
        if not by_place:
            for task in ahead:
                yield Ruling(task.name, HOLD, "it trained ahead, and no other task trains any more")

    def _open(self, tasks: Tasks) -> tuple[list[Progress], list[Progress]]:
        """(tasks that train ahead, tasks that train or wait by their place or from the start)."""
        ahead: list[Progress] = []
        by_place: list[Progress] = []
        for task in tasks.values():
            if task.stage not in (TRAINING, WAITING):
                continue
            rung = self._rung(task)
            is_best = not task.is_ahead or task.name in self._ranked(rung, tasks)[0]
            (by_place if is_best else ahead).append(task)
        return ahead, by_place

    def _rung(self, task: Progress) -> int:
        """The highest rung that a task has reached; -1 if none."""
        steps = task.curve(self.goal).steps
        last = steps[-1] if steps else 0
        return sum(rung <= last for rung in self.rungs(task)) - 1

    def _badness(self, task: Progress) -> tuple[float, str]:
        return self._badness_at(self._rung(task), task), task.name

    def _badness_at(self, rung: int, task: Progress) -> float:
        """The badness of a task's value at a rung; infinite where it has none."""
        rungs = self.rungs(task)
        value = task.curve(self.goal).at(rungs[rung]) if 0 <= rung < len(rungs) else None
        return self.badness(math.nan if value is None else value)

    def _is_better(self, task: Progress, other: Progress) -> bool:
        """Whether a task is better at its highest rung than the other was there."""
        rung = self._rung(task)
        return self._badness_at(rung, task) < self._badness_at(rung, other)

    def _ranked(self, rung: int, tasks: Tasks) -> tuple[set[str], list[str]]:
        """(tasks that go on from a rung, all tasks that have reached it, best first)."""
        found = []
        came_ahead = []
        for task in tasks.values():
            rungs = self.rungs(task)
            value = task.curve(self.goal).at(rungs[rung]) if rung < len(rungs) else None
            if value is not None:
                found.append((self.badness(value), task.name))
                if task.came_ahead(rungs[rung]):
                    came_ahead.append(task.name)
        found.sort()
        # Who is among the best of the rung below has its place here, even if it came ahead.
        best_before = self._ranked(rung - 1, tasks)[0] if came_ahead and rung > 0 else set()
        by_place = len(found) - sum(name not in best_before for name in came_ahead)
        # A task without a finite value never goes on, even if few tasks are better.
        best = {name for badness, name in found[: by_place // self.eta] if badness < math.inf}
        return best, [name for _, name in found]


def _place(name: str, order: list[str]) -> str:
    return f"place {order.index(name) + 1} of {len(order)}"


def _best(number: int) -> str:
    words = {0: "none goes on yet", 1: "only the best goes on"}
    return words.get(number, f"only the best {number} go on")


def _at(asha: ASHA, task: Progress, rung: int) -> str:
    rungs = asha.rungs(task)
    return f"step {rungs[rung]}" if 0 <= rung < len(rungs) else f"step {task.step}"
