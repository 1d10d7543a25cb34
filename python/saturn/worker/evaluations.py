"""When a task is evaluated, what its metrics were, and which evaluation was the best.

Evaluations are due every `evaluate_every` steps and after the last step, wherever the task trains.
Each checkpoint's manifest names the last evaluation, so an attempt that resumes from a checkpoint
knows whether one is still due at its step. If an evaluation is due where an attempt stops, the next
attempt makes it: a stop should not wait for it.

Only rank 0 knows the metrics, and it says which evaluation is the best. All ranks agree on whether
to save the best. How a model is evaluated is the business of `saturn.training.evaluation`.
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
    """The evaluator of the model that `stepper` trains; None if the task has no evaluation."""
    if definition.evaluate is None:
        return None
    return Evaluator(
        *(definition, stepper.parallel, gang),
        note=reporter.note,
        alive=reporter.alive,
        draws=stepper.draws,
    )


class Evaluations:
    """The evaluations of one attempt, as one rank sees them; none if the task has none."""

    def __init__(
        self,
        definition: TaskDefinition,
        gang: Gang,
        evaluator: Evaluator | None,
        steps: int,
        note: Callable[[str], None],
    ) -> None:
        """`steps` is the task's total; `note` tells the user something."""
        self._every, self._best_by = definition.evaluate_every, definition.best
        self._gang, self._evaluator, self._steps = gang, evaluator, steps
        self._note = note
        self._step_loss = definition.step_loss
        #: How many steps were finished at the last evaluation; 0 if there was none.
        self._done = 0
        #: `step` and `metrics` of the last evaluation, and of the best one.
        self._last: Mapping[str, Any] | None = None
        self._best: Mapping[str, Any] | None = None
        #: The previous best, until the new best's checkpoint is in place.
        self._before_best: Mapping[str, Any] | None = None
        self._noted: set[str] = set()

    def is_due(self, step: int, *, is_last: bool = False) -> bool:
        """Whether an evaluation is due after `step` steps.

        `is_last` says that the training ends here, though the task has more steps.
        """
        if self._evaluator is None or step <= self._done:
            return False
        return (
            is_last or step == self._steps or (self._every is not None and step % self._every == 0)
        )

    def evaluate(self, step: int, loss: float) -> Outcome:
        """Evaluate after `step` steps; every rank calls it. The outcome says whether it failed.

        `loss` is the last step's. If it is not finite, the model can't become the best.
        """
        assert self._evaluator is not None
        if self._step_loss is not None:
            self._step_loss.reached(step)
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
        """Whether the evaluation after `step` steps is the best so far."""
        return self._best is not None and self._best["step"] == step

    def not_saved(self, step: int) -> None:
        """Take back that `step` is the best: its checkpoint could not be written."""
        if self.is_best(step):
            self._best = self._before_best

    def state(self) -> dict[str, Any] | None:
        """The evaluations' entry in a checkpoint's manifest; None if nothing is evaluated."""
        if self._evaluator is None:
            return None
        return {"last": _plain(self._last), "best": _plain(self._best)}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Take over a state that `state` returned."""
        if self._evaluator is not None and state is not None:
            self._last, self._best = _read(state["last"]), _read(state["best"])
            self._done = 0 if self._last is None else self._last["step"]

    def message(self, taken_s: float | None) -> dict[str, Any] | None:
        """The message to the runtime on the last evaluation and the best; None if there is none."""
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
        before: float | None = None if self._best is None else self._best["metrics"].get(name)
        if before is None:  # an earlier `evaluate` may have had other metrics
            return True
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
    """An evaluation in the form that JSON can hold."""
    if found is None:
        return None
    return {"step": found["step"], "metrics": plain(found["metrics"])}


def _read(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An evaluation from the form that `_plain` returned."""
    if found is None:
        return None
    return {"step": found["step"], "metrics": numbers(found["metrics"])}
