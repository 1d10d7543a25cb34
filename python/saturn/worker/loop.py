"""Train a managed task from its last checkpoint to its last step, to a switch or to a stop request.

All ranks of the gang run this in step; rank 0 alone reports and keeps the metrics.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from saturn.definition import TaskDefinition
from saturn.techniques.interface import Technique
from saturn.worker.background_save import Save
from saturn.worker.checkpoint import Checkpoints
from saturn.worker.data import Position, Slice
from saturn.worker.export import export
from saturn.worker.gang import Gang
from saturn.worker.laps import Laps
from saturn.worker.metrics import Metrics
from saturn.worker.optimizer_groups import OptimizerGroups
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec
from saturn.worker.stepper import Stepper

#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: Steps over which recent seconds a step are averaged.
_RECENT_STEPS = 32


def train(
    spec: Spec, definition: TaskDefinition, technique: Technique, gang: Gang, reporter: Reporter
) -> None:
    """Run one attempt; returns when its steps are done or a stop was honoured."""
    assert spec.steps is not None  # `spec.load` has checked it
    laps = Laps()
    end = spec.steps if spec.stop_at_step is None else min(spec.stop_at_step, spec.steps)
    stepper = Stepper(
        definition, technique, gang, spec.knobs or {}, note=reporter.note, alive=reporter.alive
    )
    checkpoints = Checkpoints(
        spec.checkpoints_dir,
        gang,
        {
            "task": spec.task,
            "technique": spec.technique.name,
            "gpus": spec.gpus,
            "knobs": spec.knobs or {},
            "attempt": spec.attempt,
        },
        OptimizerGroups(stepper.optimizer),
        stepper.lr_schedule,
        # Copies would lie in the memory that is limited, while training needs it.
        may_stage=spec.device_kind != "cpu" or spec.device_memory_bytes is None,
    )
    laps.end("build_s")
    done, loss, position = 0, math.nan, Position()
    if (newest := checkpoints.newest()) is not None:
        directory, manifest = newest
        reporter.alive()
        with gang.device_memory.lifted():
            position = checkpoints.load(directory, manifest, stepper.parallel, stepper.optimizer)
        reporter.alive()
        done = manifest["step"]
        loss = math.nan if manifest["loss"] is None else manifest["loss"]
        if manifest["format"] != "dcp":
            reporter.note(
                "the last save came from a black-box technique and holds the model alone: the "
                "optimizer starts fresh"
            )
    laps.end("load_s")
    pieces: Iterator[list[Slice]] = stepper.pieces(position)
    if done < end:
        # Fetched before training counts as begun: a stream is first read again up to there.
        pieces = itertools.chain([next(pieces)], pieces)
    observer = _Observer(spec.task_dir, reporter) if gang.rank == 0 else None
    if observer is not None:
        laps.end("data_s")
        observer.started(done, laps)
    start, saved_at = done, time.monotonic()

    def save(*, background: bool) -> None:
        nonlocal saved_at
        with gang.device_memory.host():
            checkpoints.save(
                *(stepper.parallel, stepper.optimizer),
                step=done,
                position=position,
                loss=loss,
                background=background,
            )
        saved_at = time.monotonic()
        tell_saves()

    def tell_saves() -> None:
        for ended in checkpoints.take_ended():
            if observer is not None:
                observer.saved(ended)

    while done < end:
        began = time.monotonic()
        of_step = next(pieces)
        if is_saving := checkpoints.is_saving:
            saved_at = began
        is_due = not is_saving and began - saved_at >= spec.checkpoint_every_s
        due = gang.rank == 0 and is_due
        result = stepper.step(of_step, stop=reporter.stop_requested, save=due)
        done, loss, position = done + 1, result.loss, of_step[-1].after
        if observer is not None:
            observer.stepped(done, loss, time.monotonic() - began)
        tell_saves()
        if result.stop and done < end:
            save(background=False)
            if observer is not None:
                observer.ended({"type": "stopped", "step": done})
            return
        if result.save and done < end:
            save(background=True)
    if done > start:
        save(background=False)
    if done < spec.steps:
        # The task goes on under another strategy from here.
        if observer is not None:
            observer.ended({"type": "stopped", "step": done})
        return
    if definition.save_dir is not None:
        if gang.rank == 0:
            export(spec, definition, definition.save_dir, done, reporter)
        gang.sum([0.0])  # the others stay until the model is where it should be
    if observer is not None:
        observer.ended({"type": "finished", "step": done, "loss": loss})


class _Observer:
    """What rank 0 tells about training: messages to the runtime, and `metrics.jsonl`."""

    def __init__(self, task_dir: Path, reporter: Reporter) -> None:
        self._reporter = reporter
        self._metrics = Metrics(task_dir)
        self._recent_s: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._first = True
        self._told = 0.0
        self._warned = False

    def started(self, step: int, laps: Laps) -> None:
        self._reporter.send(
            {"type": "started", "step": step, "setup_s": laps.total_s, "parts": laps.parts}
        )

    def stepped(self, step: int, loss: float, step_s: float) -> None:
        self._metrics.add(step, loss)
        if not math.isfinite(loss) and not self._warned:
            self._warned = True
            self._reporter.note(f"the loss is {loss} at step {step}")
        # The first step of an attempt warms up: its time says little about the next.
        if not self._first:
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
