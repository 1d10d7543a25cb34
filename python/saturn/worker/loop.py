"""Train a managed task from its last checkpoint to its last step, to a switch or to a stop request.

All ranks of the gang run this in step; rank 0 alone reports and keeps the metrics.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saturn.checkpoint.background_save import Save
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data.slices import Position, Slice
from saturn.definition import TaskDefinition
from saturn.rank.gang import Gang
from saturn.techniques.interface import Technique
from saturn.training.optimizer_groups import OptimizerGroups
from saturn.training.stepper import Stepper
from saturn.worker import slicing as slicings
from saturn.worker.build import Builds
from saturn.worker.export import export
from saturn.worker.intervals import Interval
from saturn.worker.laps import Laps
from saturn.worker.metrics import Metrics
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec

#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: Steps over which recent seconds a step are averaged.
_RECENT_STEPS = 32


@dataclass(frozen=True)
class Taken:
    """A task's first steps, as one rank has taken them in a trial."""

    #: As it came with the model that was built.
    definition: TaskDefinition
    stepper: Stepper
    #: Slices of each step after these.
    pieces: Iterator[list[Slice]]
    #: Of each step.
    losses: list[float]
    position: Position


def train(
    spec: Spec, definition: TaskDefinition, technique: Technique, gang: Gang, reporter: Reporter
) -> None:
    """Run one attempt; returns when its steps are done or a stop was honoured."""
    with reporter.alive_while_computing():
        laps = Laps()
        gang.device_memory.building()
        builds = Builds(spec.task_dir, definition, gang, reporter)
        slicing = slicings.agreed(spec, definition, technique, gang, builds, reporter)
        built = builds.fresh()
        definition, module = built.definition, built.module
        del built  # the stepper's alone from here on: a technique may replace all of it
        stepper = Stepper(
            *(definition, technique, gang, spec.knobs or {}),
            module=module,
            slicing=slicing,
            note=reporter.note,
        )
        del module
        attempt = _Attempt(spec, definition, gang, reporter, stepper, builds)
        laps.end("build_s")
        attempt.begin(laps)
    attempt.run()


def go_on(spec: Spec, gang: Gang, reporter: Reporter, builds: Builds, taken: Taken) -> None:
    """Train on from what a trial has taken; the spec says how far, and with which knobs."""
    attempt = _Attempt(spec, taken.definition, gang, reporter, taken.stepper, builds)
    attempt.begin_after(taken)
    attempt.run()


class _Attempt:
    """One rank's part in an attempt, from its beginning (`begin`, `begin_after`) on."""

    def __init__(
        self,
        spec: Spec,
        definition: TaskDefinition,
        gang: Gang,
        reporter: Reporter,
        stepper: Stepper,
        builds: Builds,
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
            OptimizerGroups(stepper.optimizer),
            stepper.lr_schedule,
            stepper.loss_scale,
            # Copies would lie in the memory that is limited, while training needs it.
            may_stage=spec.device_kind != "cpu" or spec.device_memory_bytes is None,
        )
        self._done, self._loss, self._position = 0, math.nan, Position()
        self._stopping = False
        #: Steps in the checkpoint that this began from.
        self._start = 0
        self._pieces: Iterator[list[Slice]] = iter(())
        self._observer = _Observer(spec.task_dir, reporter) if gang.rank == 0 else None
        self._saved_at = time.monotonic()
        self._interval = Interval(spec.checkpoint_every_s, spec.failure_every_s)

    def begin(self, laps: Laps) -> None:
        """Stand where the last checkpoint does."""
        with self._gang.device_memory.lifted(), self._reporter.alive_throughout():
            self._load()
        self._start = self._done
        laps.end("load_s")
        # Stopped before it began, as after a crash between a checkpoint and its report.
        self._stopping = self._gang.sum([self._reporter.wants_stop_at(self._done)])[0] > 0
        self._pieces = self._stepper.pieces(self._position)
        if self._goes_on:
            # Fetched before training counts as begun: a stream is first read again up to there.
            self._pieces = itertools.chain([next(self._pieces)], self._pieces)
        if self._observer is not None:
            laps.end("data_s")
            self._observer.started(self._done, laps)
        self._saved_at = time.monotonic()

    def begin_after(self, taken: Taken) -> None:
        """Stand where a trial does. The runtime knows that it goes on."""
        self._done = len(taken.losses)
        self._loss, self._position = taken.losses[-1], taken.position
        self._pieces = taken.pieces
        if self._observer is not None:
            self._observer.took(taken.losses)

    def run(self) -> None:
        """Train; every rank stops after the same step."""
        while self._goes_on:
            self._step()
        if self._done > self._start:
            self._save(background=False)
        if self._done < self._steps:
            self._end({"type": "stopped", "step": self._done})
            return
        if (save_dir := self._definition.save_dir) is not None:
            if self._gang.rank == 0:
                with self._reporter.alive_throughout():
                    export(self._spec, self._definition, save_dir, self._done, self._reporter)
            self._gang.sum([0.0])  # the others stay until the model is where it should be
        if self._gang.rank == 0:
            self._builds.remove()
        self._end({"type": "finished", "step": self._done, "loss": self._loss})

    @property
    def _goes_on(self) -> bool:
        return self._done < self._steps and not self._stopping

    def _load(self) -> None:
        if (newest := self._checkpoints.newest()) is None:
            return
        directory, manifest = newest
        self._position = self._checkpoints.load(
            directory, manifest, self._stepper.parallel, self._stepper.optimizer
        )
        self._done = manifest["step"]
        self._loss = math.nan if manifest["loss"] is None else manifest["loss"]
        if manifest["format"] != "dcp":
            self._reporter.note(
                "the last save came from a black-box technique and holds the model alone: the "
                "optimizer starts fresh"
            )

    def _step(self) -> None:
        began = time.monotonic()
        of_step = next(self._pieces)
        if is_saving := self._checkpoints.is_saving:
            self._saved_at = began
        is_due = not is_saving and began - self._saved_at >= self._interval.seconds
        result = self._stepper.step(
            of_step,
            stop=self._reporter.wants_stop_at(self._done + 1),
            save=self._gang.rank == 0 and is_due,
        )
        self._done += 1
        self._loss, self._position = result.loss, of_step[-1].after
        self._stopping = result.stop
        if self._observer is not None:
            self._observer.stepped(self._done, self._loss, time.monotonic() - began)
        self._tell_saves()
        if result.save and self._goes_on:
            self._save(background=True)

    def _save(self, *, background: bool) -> None:
        with self._gang.device_memory.host(), self._reporter.alive_throughout():
            self._checkpoints.save(
                *(self._stepper.parallel, self._stepper.optimizer),
                step=self._done,
                position=self._position,
                loss=self._loss,
                background=background,
            )
        self._saved_at = time.monotonic()
        self._tell_saves()

    def _tell_saves(self) -> None:
        for ended in self._checkpoints.take_ended():
            self._interval.saved(ended.blocked_s)
            if self._observer is not None:
                self._observer.saved(ended)

    def _end(self, message: dict[str, object]) -> None:
        if self._observer is not None:
            self._observer.ended(message)


class _Observer:
    """What rank 0 tells about training: messages to the runtime, and `metrics.jsonl`."""

    def __init__(self, task_dir: Path, reporter: Reporter) -> None:
        self._reporter = reporter
        self._metrics = Metrics(task_dir)
        self._recent_s: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._first = True
        self._told = 0.0
        self._warned = False
        self._told_metrics = False

    def started(self, step: int, laps: Laps) -> None:
        self._reporter.send(
            {"type": "started", "step": step, "setup_s": laps.total_s, "parts": laps.parts}
        )

    def took(self, losses: list[float]) -> None:
        """Steps from the first on were taken in a trial."""
        for step, loss in enumerate(losses, start=1):
            self.stepped(step, loss, None)
        self._first = False

    def stepped(self, step: int, loss: float, step_s: float | None) -> None:
        self._metrics.add(step, loss)
        if self._metrics.failure is not None and not self._told_metrics:
            self._told_metrics = True
            self._reporter.note(
                f"the losses from step {step} on can't be written: {self._metrics.failure}; they "
                "are kept until they can, and training goes on"
            )
        if not math.isfinite(loss) and not self._warned:
            self._warned = True
            self._reporter.note(f"the loss is {loss} at step {step}")
        # The first step of an attempt warms up: its time says little about the next.
        if step_s is not None and not self._first:
            self._recent_s.append(step_s)
        self._first = False
        now = time.monotonic()
        if now - self._told >= _PROGRESS_EVERY_S:
            self._told = now
            recent = self._recent_s
            self._reporter.send(
                {
                    "type": "progress",
                    "step": step,
                    "loss": loss,
                    "step_s": sum(recent) / len(recent) if recent else None,
                }
            )

    def saved(self, save: Save) -> None:
        failure = save.failure
        if failure is None:
            self._reporter.send(
                {
                    "type": "checkpoint",
                    "step": save.step,
                    "save_s": save.save_s,
                    "blocked_s": save.blocked_s,
                }
            )
        elif failure.kind != "peer_lost":  # an echo: whoever went away is the news
            self._reporter.note(
                f"the checkpoint after step {save.step} could not be written ({failure.kind}): "
                f"{failure.error}; the one before it stays, and training waits for the next"
            )

    def ended(self, message: dict[str, object]) -> None:
        self._metrics.close()
        self._reporter.send(message)
