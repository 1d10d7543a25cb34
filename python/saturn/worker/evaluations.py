"""When a task is evaluated, and what becomes of that: its metrics, and which was the best.

Due every so many steps, and after the last: at the same steps whatever the task's moves. What was
done is part of each checkpoint's manifest, so an attempt that goes on from a checkpoint knows
whether an evaluation is still due at its step. One that is due where an attempt is to stop is left
to the next attempt: a stop should not wait for it.

Rank 0 alone knows metrics, and says which is the best; all ranks agree on whether to save it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from saturn.plain.measures import numbers, plain
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.evaluation import MIN
from saturn.training.evaluation import Evaluator, Outcome
from saturn.training.stepper import Stepper
from saturn.worker.report import Reporter


def evaluator_of(
    definition: TaskDefinition, stepper: Stepper, gang: Gang, reporter: Reporter
) -> Evaluator | None:
    """What evaluates the model that `stepper` trains; None where the task has no evaluation."""
    if definition.evaluate is None:
        return None
    return Evaluator(
        *(definition, stepper.parallel, gang),
        note=reporter.note,
        alive=reporter.alive,
        draws=stepper.draws,
    )


class Evaluations:
    """Those of one attempt, as one rank takes part in them; none where the task has none."""

    def __init__(
        self,
        definition: TaskDefinition,
        gang: Gang,
        evaluator: Evaluator | None,
        steps: int,
        note: Callable[[str], None],
    ) -> None:
        """`steps` are the task's in all; `note` tells the person something."""
        self._every, self._best_by = definition.evaluate_every, definition.best
        self._gang, self._evaluator, self._steps = gang, evaluator, steps
        self._note = note
        #: Finished steps at the last evaluation; 0 where there was none.
        self._done = 0
        #: Of the last evaluation and of the best: `step` and `metrics`.
        self._last: Mapping[str, Any] | None = None
        self._best: Mapping[str, Any] | None = None
        #: The best before this one, as long as this one's checkpoint isn't in place.
        self._before_best: Mapping[str, Any] | None = None
        self._noted: set[str] = set()

    def is_due(self, step: int, *, is_last: bool = False) -> bool:
        """Whether the model is to be evaluated as it is after `step` steps.

        `is_last` where no more are to come, though the task has more.
        """
        if self._evaluator is None or step <= self._done:
            return False
        return (
            is_last or step == self._steps or (self._every is not None and step % self._every == 0)
        )

    def evaluate(self, step: int, loss: float) -> Outcome:
        """Evaluate after `step` steps; every rank calls it. Whether it failed, the outcome says.

        `loss` is that of the last step: where it is no finite number, the model is not the best.
        """
        assert self._evaluator is not None
        outcome = self._evaluator.run()
        if outcome.has_failed:
            return outcome
        self._done = step
        found = {"step": step, "metrics": dict(outcome.metrics)}
        is_well = self._gang.rank == 0 and math.isfinite(loss)
        is_best = is_well and self._is_best(outcome.metrics)
        if self._gang.sum([is_best])[0]:
            self._before_best, self._best = self._best, found
        self._last = found
        self._point_out(step, outcome.metrics)
        return outcome

    def is_best(self, step: int) -> bool:
        """Whether the model as it is after `step` steps is the best so far."""
        return self._best is not None and self._best["step"] == step

    def not_saved(self, step: int) -> None:
        """The checkpoint of `step` could not be written: it can't be the best."""
        if self.is_best(step):
            self._best = self._before_best

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint's manifest says of them; None where nothing is evaluated."""
        if self._evaluator is None:
            return None
        return {"last": _plain(self._last), "best": _plain(self._best)}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Take over what `state` gave."""
        if self._evaluator is not None and state is not None:
            self._last, self._best = _read(state["last"]), _read(state["best"])
            self._done = 0 if self._last is None else self._last["step"]

    def message(self, taken_s: float | None) -> dict[str, Any] | None:
        """What the runtime is told: the last one and the best; None where there was none."""
        if self._last is None:
            return None
        message: dict[str, Any] = {"type": "evaluated", **self._last, "evaluation_s": taken_s}
        if self._best is not None and self._best_by is not None:
            message["best"] = {**self._best, "metric": self._best_by[0]}
        return message

    def _is_best(self, metrics: Mapping[str, float]) -> bool:
        if self._best_by is None:
            return False
        name, which = self._best_by
        value: float = metrics[name]
        if not math.isfinite(value):
            return False
        if self._best is None:
            return True
        before: float = self._best["metrics"][name]
        return value < before if which == MIN else value > before

    def _point_out(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if math.isfinite(value) or name in self._noted:
                continue
            self._noted.add(name)
            is_judged_by = self._best_by is not None and name == self._best_by[0]
            and_so = ", and can't be the best" if is_judged_by else ""
            self._note(f"the metric `{name}` is {value} at step {step}{and_so}")


def _plain(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """As JSON can hold it."""
    if found is None:
        return None
    return {"step": found["step"], "metrics": plain(found["metrics"])}


def _read(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What `_plain` gave."""
    if found is None:
        return None
    return {"step": found["step"], "metrics": numbers(found["metrics"])}
