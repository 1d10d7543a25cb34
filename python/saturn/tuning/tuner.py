"""The interface of tuners, and the tuner that is a list of stoppers.

A tuner only decides. `saturn.tuning.watch` reads the reports and sends the decisions to the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from saturn.stoppers.progress import LOSS, Progress
from saturn.stoppers.stopper import GO_ON, HOLD, STOP, Ruling, Stopper, Tasks
from saturn.tasks.evaluation import MIN

if TYPE_CHECKING:
    from saturn.tuning.scope import Scope

#: If there are several rulings on a task, the strictest counts.
_STRICTNESS = {GO_ON: 0, HOLD: 1, STOP: 2}


class Tuner:
    """Decides what becomes of a run's tasks; it is pickled into the run, which resumes with it.

    All calls come from one thread. If a call raises, the tuner is only asked for `given_up` from
    then on, and the run goes on.
    """

    #: Whether the tuner adds tasks to the run.
    suggests = False
    #: Whether a task that has diverged is ended, even if no rule says so.
    ends_diverged = True
    #: Names of the metrics that the tuner wants to see.
    metrics: frozenset[str] = frozenset()

    @property
    def goal(self) -> dict[str, Any]:
        """The goal for tasks that have none of their own: metric and mode, for the runtime."""
        return {}

    def check(self) -> None:
        """Check that a run can resume with this tuner, before it begins; `InvalidInput` if not."""

    def began(self, scope: Scope, tasks: Tasks) -> None:
        """The run has begun or resumed; `tasks` has everything that is known of its tasks."""

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """React to the value that a task has just reported."""
        return ()

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """React when only held tasks are left, and no more will come."""
        return ()

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """Called regularly; `now_s` is the time on the run's clock."""
        return ()

    def idle(self, tasks: Tasks) -> Iterable[Ruling]:
        """Called if a device has stood idle for a while, no task waits, and no more will come."""
        return ()

    def crowded(self, tasks: Tasks) -> Iterable[Ruling]:
        """Called if no device has been idle for a while, and a task waits for one."""
        return ()

    def run_ended(self, tasks: Tasks) -> None:
        """The run is over or stops; `tasks` has the final state."""

    def given_up(self, tasks: Tasks) -> Iterable[Ruling]:
        """Rulings after the tuner has raised: held tasks go on."""
        for task in tasks.values():
            if task.stage == "held":
                yield Ruling(task.name, GO_ON, "nothing holds it any more")


class Stopping(Tuner):
    """A list of stoppers; each has its metric."""

    def __init__(self, stoppers: Sequence[Stopper]) -> None:
        """Make it of stoppers whose metrics are known."""
        self.stoppers = list(stoppers)
        self.metrics = frozenset(one.goal for one in stoppers if one.goes_by_metric)
        self.ends_diverged = any(one.goes_by_metric for one in stoppers)

    @property
    def goal(self) -> dict[str, Any]:
        """The first metric of a stopper that is not the loss; the loss is the default anyway."""
        by_metric = [one for one in self.stoppers if one.goes_by_metric and one.goal != LOSS]
        if not by_metric:
            return {}
        return {"goal": {"metric": by_metric[0].goal, "mode": by_metric[0].mode or MIN}}

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of the stoppers whose metric the task has just reported."""
        just = {one for one in self.metrics if task.curve(one).steps[-1:] == [task.step]}
        return strictest(
            ruling
            for stopper in self.stoppers
            if stopper.goes_by_metric and stopper.goal in just
            for ruling in stopper.looked(task, tasks)
        )

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of all stoppers."""
        return strictest(one for stopper in self.stoppers for one in stopper.at_rest(tasks))

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of all stoppers."""
        return strictest(one for stopper in self.stoppers for one in stopper.at(now_s, tasks))

    def idle(self, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of all stoppers."""
        return strictest(one for stopper in self.stoppers for one in stopper.idle(tasks))

    def crowded(self, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of all stoppers."""
        return strictest(one for stopper in self.stoppers for one in stopper.crowded(tasks))

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether a stopper says that no more tasks must be suggested."""
        return any(one.is_enough(now_s, tasks) for one in self.stoppers)

    def is_trained(self, task: Progress) -> bool:
        """Whether a task was stopped because it needs no more training, not for doing badly."""
        return any(one.is_trained(task) for one in self.stoppers)


def strictest(rulings: Iterable[Ruling]) -> list[Ruling]:
    """One ruling for each task: the strictest, and the first among equals."""
    found: dict[str, Ruling] = {}
    for one in rulings:
        known = found.get(one.task)
        if known is None or _STRICTNESS[one.ruling] > _STRICTNESS[known.ruling]:
            found[one.task] = one
    return list(found.values())
