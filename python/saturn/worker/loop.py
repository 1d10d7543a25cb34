"""Train a managed task from its last checkpoint to its last step, a switch or a stop request.

All ranks of the gang run this loop in step; only rank 0 reports and keeps the metrics.

On an accelerator the host runs one step ahead: it reads a step's loss after it has launched the
next step on the device (`Stepper.steps_behind`). Ranks agree on stops and saves within a step's
results, so they ask for a stop or a save one step early. All ranks then stop, or save, after the
same step. A stop that is known one step before its step comes at exactly that step.

The loop does not decide where a task runs, and does not know how a technique spreads the model.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from saturn.checkpoint import best
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data.slices import Position, Slice
from saturn.plain.measures import number
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Technique
from saturn.training import skipping
from saturn.training.agreement import Agreement, StepFacts, StepResult
from saturn.training.evaluation import Evaluator
from saturn.training.optimizer import unmatched
from saturn.training.step_loss import OwnEnd
from saturn.training.stepper import Staged, Stepper
from saturn.worker import slicing as slicings
from saturn.worker.build import Builds
from saturn.worker.evaluations import Evaluations, evaluator_of
from saturn.worker.export import export, publish
from saturn.worker.intervals import Interval
from saturn.worker.laps import Laps
from saturn.worker.observer import Observer
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec

#: How long a rank that fails waits for the results of the steps before its failure.
_LAST_WORDS_S = 1.0


@dataclass(frozen=True)
class Taken:
    """A task's first steps, as one rank took them in a trial."""

    #: The definition that came with the built model.
    definition: TaskDefinition
    stepper: Stepper
    #: The data of the next step, if it has already been staged.
    staged: Staged | None
    #: The slices of each step after the staged one.
    pieces: Iterator[list[Slice]]
    #: The loss of each step.
    losses: list[float]
    position: Position
    #: None if the task has no evaluations.
    evaluator: Evaluator | None = None


def train(
    spec: Spec, definition: TaskDefinition, technique: Technique, gang: Gang, reporter: Reporter
) -> None:
    """Run one attempt; returns when its steps are done or it has stopped on request."""
    with reporter.alive_while_computing():
        laps = Laps()
        gang.device_memory.building()
        builds = Builds(spec.task_dir, definition, gang, reporter)
        slicing = slicings.agreed(spec, definition, technique, gang, builds, reporter)
        knobs = skipping.knobs_for(technique, spec.knobs or {}, slicing)
        if knobs != (spec.knobs or {}):
            reporter.note(
                "some devices skip parts of the model that others use, as an earlier attempt has "
                f"found: it trains with {json.dumps(knobs)}"
            )
        built = builds.fresh()
        definition, module = built.definition, built.module
        del built  # only the stepper may hold the module: a technique may replace all of it
        stepper = Stepper(
            *(definition, technique, gang, knobs),
            module=module,
            slicing=slicing,
            note=reporter.note,
        )
        del module
        evaluator = evaluator_of(definition, stepper, gang, reporter)
        attempt = _Attempt(spec, definition, gang, reporter, stepper, builds, evaluator)
        laps.end("build_s")
        attempt.begin(laps)
    attempt.run()


def go_on(spec: Spec, gang: Gang, reporter: Reporter, builds: Builds, taken: Taken) -> None:
    """Go on training after a trial's steps; the spec says how far, and with which knobs."""
    attempt = _Attempt(
        spec, taken.definition, gang, reporter, taken.stepper, builds, taken.evaluator
    )
    attempt.begin_after(taken)
    attempt.run()


class _Attempt:
    """One rank's part in an attempt; `begin` or `begin_after` starts it."""

    def __init__(
        self,
        spec: Spec,
        definition: TaskDefinition,
        gang: Gang,
        reporter: Reporter,
        stepper: Stepper,
        builds: Builds,
        evaluator: Evaluator | None,
    ) -> None:
        assert spec.steps is not None  # `spec.load` has checked it
        self._spec = spec
        self._definition = definition
        self._gang = gang
        self._reporter = reporter
        self._steps = spec.steps
        self._stepper = stepper
        self._builds = builds
        self._checkpoints = Checkpoints(
            spec.checkpoints_dir,
            gang,
            {
                "task": spec.task,
                "technique": spec.technique.name,
                "gpus": spec.gpus,
                "knobs": spec.knobs or {},
                "attempt": spec.attempt,
                "precision": definition.precision,
                "deterministic": definition.deterministic,
                "tf32": definition.tf32,
            },
            stepper.optimizer_groups,
            stepper.lr_schedule,
            stepper.loss_scale,
            stepper.draws,
            # On limited CPU slots, a staged copy would take memory that training needs.
            may_stage=spec.device_kind != "cpu" or spec.device_memory_bytes is None,
        )
        self._evaluations = Evaluations(definition, gang, evaluator, spec.steps, reporter.note)
        self._done, self._loss, self._position = 0, math.nan, Position()
        step_loss = definition.step_loss
        self._own_end: OwnEnd | None = None if step_loss is None else step_loss.own_end
        #: Whether the task's own code has ended its training at the last finished step.
        self._is_over = False
        is_heard_at_steps = self._own_end is not None and self._own_end.at_steps
        # Such code can end training at any step, so a step's results must be read at once.
        self._behind = 0 if is_heard_at_steps else stepper.steps_behind
        #: The losses at the last two saves, by step.
        self._saved_losses: dict[int, float] = {}
        #: The latest steps whose results haven't been read.
        self._unread: deque[tuple[int, Agreement]] = deque()
        #: The number of steps after which all ranks stop, or save; None if nobody asked.
        self._stops_at: int | None = None
        self._saves_at: int | None = None
        self._has_asked_to_save = False  # whether this rank asked for a save that hasn't come yet
        #: Whether the newest checkpoint, or one being written, holds the whole present state.
        self._is_saved = False
        self._pieces: Iterator[list[Slice]] = iter(())
        self._staged: Staged | None = None
        self._observer = None
        if gang.rank == 0:
            listener = None if step_loss is None else step_loss.listener(reporter.note)
            self._observer = Observer(spec, reporter, listener)
        self._saved_at = time.monotonic()
        self._interval = Interval(spec.checkpoint_every_s, spec.failure_every_s)

    def begin(self, laps: Laps) -> None:
        """Load the last checkpoint, and get ready to train."""
        with self._gang.device_memory.lifted(), self._reporter.alive_throughout():
            self._load()
        self._is_saved = True
        laps.end("load_s")
        # The attempt may have to stop now, as after a crash between a checkpoint and its report.
        self._agree_on_stops(self._done)
        self._pieces = self._stepper.pieces(self._position)
        if self._goes_on and not self._evaluations.is_due(self._done):
            # Fetched before training counts as begun: a stream is read again up to its position. An
            # evaluation comes first: the order of the next epoch may depend on the random numbers
            # that it draws.
            self._staged = self._stepper.stage(next(self._pieces))
        if self._observer is not None:
            laps.end("data_s")
            self._observer.started(self._done, laps)
            # Sent again: a crash may have come between the checkpoint and the evaluation's report.
            self._observer.evaluated(self._evaluations.message(None))
        self._saved_at = time.monotonic()

    def begin_after(self, taken: Taken) -> None:
        """Take over a trial's state. The runtime already knows that the trial goes on."""
        self._done = len(taken.losses)
        self._loss, self._position = taken.losses[-1], taken.position
        self._staged, self._pieces = taken.staged, taken.pieces
        self._note_unmatched_groups()
        self._agree_on_stops(self._done + 1)
        if self._observer is not None:
            self._observer.took(taken.losses)

    def run(self) -> None:
        """Train; every rank stops after the same step."""
        try:
            self._evaluate_if_due()
            while self._goes_on:
                self._step()
                if self._own_end is not None and self._own_end.at_steps:
                    self._ask_whether_over()
                self._evaluate_if_due()
        except Exception:
            self._say_last_words()
            raise
        self._read_all()
        if not self._is_saved:
            self._save(background=False)
        if self._done < self._steps and not self._is_over:
            self._end({"type": "stopped", "step": self._done})
            return
        definition, save_dir = self._definition, self._definition.save_dir
        publishes = definition.step_loss is not None and definition.step_loss.publishes
        if save_dir is not None or publishes:
            if self._gang.rank == 0:
                with self._reporter.alive_throughout():
                    if save_dir is not None:
                        export(self._spec, definition, save_dir, self._done, self._reporter)
                    if publishes:
                        publish(self._spec, definition, self._done, self._reporter)
            self._gang.sum([0.0])  # the other ranks wait here until the copies are in place
        if self._gang.rank == 0:
            self._builds.remove()
        self._end({"type": "finished", "step": self._done, "loss": self._loss})

    @property
    def _goes_on(self) -> bool:
        stops = self._stops_at is not None and self._stops_at <= self._done
        return self._done < self._steps and not stops and not self._is_over

    def _agree_on_stops(self, first: int) -> None:
        """Agree on a stop at `first`, or at a later step that no running step can ask about."""
        asked_about = range(first, self._done + self._behind + 1)
        if not asked_about:
            return
        wanted = self._gang.sum([self._reporter.wants_stop_at(step) for step in asked_about])
        for step, num_ranks in zip(asked_about, wanted, strict=True):
            if num_ranks:
                self._stops_at = step
                return

    def _load(self) -> None:
        if (newest := self._checkpoints.newest()) is None:
            self._note_unmatched_groups()
            return
        directory, manifest = newest
        self._evaluations.restore(manifest.get("evaluation"))
        if (listener := manifest.get("listener")) is not None:
            self._is_over = listener["is_over"]
            if self._observer is not None:
                self._observer.restore(listener)
        self._position = self._checkpoints.load(
            directory, manifest, self._stepper.parallel, self._stepper.optimizer
        )
        self._done = manifest["step"]
        if self._gang.rank == 0 and self._evaluations.is_best(self._done):
            best.repair(directory, self._done)
        if (before := manifest.get("continued")) is not None:
            self._reporter.note(
                f"it goes on from step {self._done} of `{before['task']}`, of {before['run']}"
            )
        loss = number(manifest["loss"])
        self._loss = math.nan if loss is None else loss
        if manifest["format"] != "dcp":
            self._reporter.note(
                "the last save came from a black-box technique and holds the model alone: the "
                "optimizer starts fresh"
            )

    def _note_unmatched_groups(self) -> None:
        groups = self._definition.parameter_groups
        if names := unmatched(groups, self._stepper.parallel.module, self._gang):
            listed = ", ".join(f"`{name}`" for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._reporter.note(
                f"`parameter_groups` names {listed}{more}, which no parameter of the model has: "
                "no setting holds for such a name"
            )

    def _step(self) -> None:
        began = time.monotonic()
        staged = self._staged or self._stepper.stage(next(self._pieces))
        if is_saving := self._checkpoints.is_saving:
            self._saved_at = began
        may_ask = not (is_saving or self._has_asked_to_save)
        is_due = may_ask and began - self._saved_at >= self._interval.seconds
        self._has_asked_to_save |= is_due
        told_after = self._done + 1 + self._behind
        agreement = self._stepper.step(
            staged,
            stop=self._reporter.wants_stop_at(told_after),
            save=self._gang.rank == 0 and is_due,
        )
        self._done, self._position, self._is_saved = self._done + 1, staged.after, False
        self._unread.append((self._done, agreement))
        self._staged = None
        if self._behind and self._goes_on and not self._evaluations.is_due(self._done):
            # Fetched and copied to the device while it computes. If an evaluation is due, it comes
            # first: the order of the next epoch may depend on the random numbers that it draws.
            self._staged = self._stepper.stage(next(self._pieces))
        if len(self._unread) > self._behind:
            # This round read the step before the step that it launched. On average, a round takes
            # as long as a step.
            self._read(lambda: time.monotonic() - began)
        self._tell_saves()
        if self._saves_at is not None and self._saves_at <= self._done:
            self._saves_at = None
            if self._goes_on:
                self._read_all()
                self._save(background=True)

    def _evaluate_if_due(self) -> None:
        is_stop = not self._goes_on and self._done < self._steps and not self._is_over
        evaluates_at_end = self._own_end is not None and self._own_end.evaluates
        is_last = self._is_over and evaluates_at_end
        if is_stop or not self._evaluations.is_due(self._done, is_last=is_last):
            return
        self._read_all()
        with self._reporter.alive_while_computing():
            outcome = self._evaluations.evaluate(self._done, self._loss)
        if outcome.has_failed:
            # The training so far is saved before the evaluation's error is raised.
            self._save(background=False)
            outcome.expect()
        if self._observer is not None:
            message = self._evaluations.message(outcome.taken_s)
            self._observer.evaluated(message, metrics=outcome.metrics)
        self._is_saved = False
        if self._own_end is not None:
            self._ask_whether_over()
        if self._goes_on and self._evaluations.is_best(self._done):
            self._save(background=True)

    def _ask_whether_over(self) -> None:
        """End training here if the task's own code wants that; rank 0 tells all other ranks."""
        if self._done >= self._steps or self._is_over:
            return
        wants = self._observer is not None and self._observer.is_over
        self._is_over = self._gang.sum([wants])[0] > 0
        if self._is_over:
            self._is_saved = False
            self._reporter.note(
                f"a callback of the trainer ended the training after step {self._done} of "
                f"{self._steps}"
            )

    def _read_all(self) -> None:
        """Wait until the device has finished all steps that it was given."""
        while self._unread:
            self._read()

    def _read(self, taken_s: Callable[[], float] | None = None) -> None:
        step, agreement = self._unread.popleft()
        self._note(step, agreement.result(), agreement.facts, taken_s)

    def _note(
        self,
        step: int,
        result: StepResult,
        facts: StepFacts | None,
        taken_s: Callable[[], float] | None = None,
    ) -> None:
        self._loss = result.loss
        if result.stop and self._stops_at is None:
            self._stops_at = step + self._behind
        if result.save and self._saves_at is None:
            self._saves_at = step + self._behind
        if self._observer is not None:
            self._observer.stepped(
                *(step, self._loss, None if taken_s is None else taken_s()),
                facts=facts,
                gradient_norm=result.gradient_norm,
            )

    def _say_last_words(self) -> None:
        """Report the losses that are known. The caller raises the failure in any case."""
        with contextlib.suppress(Exception):  # for example, the device is lost
            for step, agreement in self._unread:
                if (result := agreement.result_within(_LAST_WORDS_S)) is None:
                    return
                self._note(step, result, agreement.facts)

    def _save(self, *, background: bool) -> None:
        with self._gang.device_memory.host(), self._reporter.alive_throughout():
            self._checkpoints.save(
                *(self._stepper.parallel, self._stepper.optimizer),
                step=self._done,
                position=self._position,
                loss=self._loss,
                evaluation=self._evaluations.state(),
                is_best=self._evaluations.is_best(self._done),
                listener=None if self._observer is None else self._observer.state(self._is_over),
                background=background,
            )
        # One checkpoint may still be written in the background while the next is requested.
        self._saved_losses = {**dict(list(self._saved_losses.items())[-1:]), self._done: self._loss}
        self._saved_at, self._has_asked_to_save = time.monotonic(), False
        self._is_saved = True
        self._tell_saves()

    def _tell_saves(self) -> None:
        for ended in self._checkpoints.take_ended():
            self._interval.saved(ended.blocked_s)
            if ended.failure is not None:
                self._evaluations.not_saved(ended.step)
            if self._observer is not None:
                self._observer.saved(ended, self._saved_losses.get(ended.step))

    def _end(self, message: dict[str, object]) -> None:
        if self._observer is not None:
            self._observer.ended(message)
