"""What a tuner is, and the tuner that is a list of stoppers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from saturn.stoppers.progress import LOSS, Progress
from saturn.stoppers.stopper import GO_ON, HOLD, STOP, Ruling, Stopper, Tasks
from saturn.tasks.evaluation import MIN

if TYPE_CHECKING:
    from saturn.runs.live import Run

#: Of several rulings on a task the strictest counts.
_STRICTNESS = {GO_ON: 0, HOLD: 1, STOP: 2}


class Tuner:
    """Says what is to come of a run's tasks; it is pickled into the run, which resumes with it.

    Called from one thread. Where it raises it is asked no more but for `given_up`, and the run goes
    on.
    """

    #: Whether it adds tasks to the run.
    suggests = False
    #: Whether a task that has diverged is ended, whatever its rule says of that.
    ends_diverged = True
    #: What it wants to see.
    metrics: frozenset[str] = frozenset()

    @property
    def goal(self) -> dict[str, Any]:
        """What the runtime is told of tasks that don't say what says how well they do."""
        return {}

    def check(self) -> None:
        """Refuse to go on with a run; raises `InvalidInput`, before anything of it is begun."""

    def began(self, run: Run, tasks: Tasks) -> None:
        """The run has begun or goes on, and `tasks` are what is known of it."""

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """A task has just reported a value."""
        return ()

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """Only tasks that are held are left, and no more will come."""
        return ()

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """So it stands at `now_s` on the run's clock; called as often as it is looked at."""
        return ()

    def over(self, tasks: Tasks) -> None:
        """The run is over, or stops; what it realised is in `tasks`."""

    def given_up(self, tasks: Tasks) -> Iterable[Ruling]:
        """It has raised: what is to come of the run without it. What is held goes on."""
        for task in tasks.values():
            if task.stage == "held":
                yield Ruling(task.name, GO_ON, "nothing holds it any more")


class Stopping(Tuner):
    """A list of stoppers, of which each has its metric."""

    def __init__(self, stoppers: Sequence[Stopper]) -> None:
        """Take them, with their metrics."""
        self.stoppers = list(stoppers)
        self.metrics = frozenset(one.goal for one in stoppers if one.goes_by_metric)
        self.ends_diverged = any(one.goes_by_metric for one in stoppers)

    @property
    def goal(self) -> dict[str, Any]:
        """The first metric that one of them goes by, but for the loss, which counts anyhow."""
        by_metric = [one for one in self.stoppers if one.goes_by_metric and one.goal != LOSS]
        if not by_metric:
            return {}
        return {"goal": {"metric": by_metric[0].goal, "mode": by_metric[0].mode or MIN}}

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """What those say that go by a metric that it has just reported."""
        just = {one for one in self.metrics if task.curve(one).steps[-1:] == [task.step]}
        return strictest(
            ruling
            for stopper in self.stoppers
            if stopper.goes_by_metric and stopper.goal in just
            for ruling in stopper.looked(task, tasks)
        )

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """What any says."""
        return strictest(one for stopper in self.stoppers for one in stopper.at_rest(tasks))

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """What any says."""
        return strictest(one for stopper in self.stoppers for one in stopper.at(now_s, tasks))

    def is_enough(self, now_s: float, tasks: Tasks) -> bool:
        """Whether one says that no more tasks are to be suggested."""
        return any(one.is_enough(now_s, tasks) for one in self.stoppers)

    def is_trained(self, task: Progress, tasks: Tasks) -> bool:
        """Whether a task was stopped since it needs no more training, not for doing badly."""
        return any(
            ruling.task == task.name and ruling.ruling == STOP
            for one in self.stoppers
            if one.ends_what_is_trained and task.values(one.goal)
            for ruling in one.looked(task, tasks)
        )


def strictest(rulings: Iterable[Ruling]) -> list[Ruling]:
    """One ruling a task: the strictest, of equal ones the first."""
    found: dict[str, Ruling] = {}
    for one in rulings:
        known = found.get(one.task)
        if known is None or _STRICTNESS[one.ruling] > _STRICTNESS[known.ruling]:
            found[one.task] = one
    return list(found.values())
