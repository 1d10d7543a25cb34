"""Measure a managed task under one technique on one gang: the fastest of its knob sets.

A knob set that fails on one rank must not hang the other ranks. So each set runs in a process group
of its own, and the ranks compare outcomes through the rendezvous file, which outlives the group. On
GPUs, the peers of a failed rank are taken out of their collectives (`rank.peer_watch`). If a peer
still doesn't come, as where it waits for the failed rank to open a group, the failed rank reports
its failure and the runtime ends the gang. So it does if the device is lost. The cause is then
known, and only thriftier knobs stay untried. A trial never touches the task's checkpoints and
metrics.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from saturn.checkpoint import cost as checkpoint_cost
from saturn.data.slices import Position
from saturn.rank.core_wait import CoreWait
from saturn.rank.device_memory import lift
from saturn.rank.exceptions import PeerLost
from saturn.rank.failure import Earlier, Failure, describe, is_of_data
from saturn.rank.gang import Gang
from saturn.rank.memory import PeakMemory
from saturn.rank.peer_watch import PeerWatch
from saturn.rank.process import seconds_alive
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Knobs, Setting, Technique
from saturn.training.saved_build import Built
from saturn.training.slicing import Slicing
from saturn.training.stepper import Stepper
from saturn.worker import slicing as slicings
from saturn.worker.build import Builds
from saturn.worker.evaluations import evaluator_of
from saturn.worker.fit import Fit, optimizer_state_ratio, rungs_of
from saturn.worker.loop import Taken, go_on
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec
from saturn.worker.timing import Limits, StepTimer

Outcome = dict[str, Any]

#: Outcomes of a knob set that no trial has: what another rank failed of, and what may pass.
_OF_THE_MOMENT = ("peer_lost", "host_memory")
#: A knob set whose steps take this many times as long as the best one's is timed no further.
_HOPELESS = 1.15
#: How long a failed rank waits until its peers know of the failure: longer than a step takes.
_PEERS_S = 60.0
#: The same for a rank that failed while it opened a group. Peers that still open it can't be told
#: (`rank.peer_watch`), and other knobs open the same group, so there is little to wait for.
_OPENING_PEERS_S = 3.0


def trial(
    spec: Spec, definition: TaskDefinition, technique: Technique, gang: Gang, reporter: Reporter
) -> None:
    """Run one trial; rank 0 reports its outcome. Errors of the task's own code are raised."""
    startup_s = seconds_alive()
    gang.device_memory.building()
    builds = Builds(spec.task_dir, definition, gang, reporter)
    # Before memory is counted, because the check's own memory is no part of the measurement.
    slicing = slicings.agreed(spec, definition, technique, gang, builds, reporter)
    memory = PeakMemory(spec.device_kind)
    began = time.monotonic()
    built = builds.fresh()
    module = built.module
    built_s = time.monotonic() - began
    setting = _setting(spec, definition, gang, module)
    # The inspection asked this too, but of the model on `meta`; and the inspection may have failed.
    if (reason := technique.reason_against(module, setting)) is not None:
        _report(gang, reporter, {}, {"outcome": "not_applicable", "reason": reason})
        return
    rungs = [[spec.knobs]] if spec.knobs is not None else rungs_of(technique, module, setting)
    rungs = slicings.uncut(technique, setting, rungs, slicing)
    if not rungs:
        _report(gang, reporter, {}, {"outcome": "not_applicable", "reason": slicing.reason})
        return
    fit = Fit(technique, module, setting, itertools.chain(*rungs))
    measurement = _Measurement(
        *(spec, technique, gang, reporter, memory, builds, slicing),
        fresh=[(built, startup_s + built_s)],
        startup_s=startup_s,
        asks_for_changes=spec.knobs is None,
    )
    del module, built  # only the measurement holds the model from here on
    # Every rank's answer counts, because another attempt may write the first checkpoint just now,
    # and all ranks must decide alike.
    are_fresh = "trained" not in gang.exchange(
        "has-trained", "trained" if spec.has_checkpoints else "fresh"
    )
    search = _Search(technique, fit, measurement)
    search.climb(rungs, are_fresh=are_fresh)
    if (best := search.best) is not None:
        _note_what_was_left_out(spec, reporter, fit)
    if (found := best or search.failed) is None:
        return
    if found[1]["outcome"] == "host_memory":
        # It may be a passing shortage: the engine repeats the trial before it counts.
        error, text = found[1]["error"], found[1]["traceback"]
        raise Earlier(Failure(kind="host_memory", error=error, traceback=text))
    if measurement.taken is None or best is None:
        _report(gang, reporter, *found)
        return
    _report(gang, reporter, *found, step=len(measurement.taken.losses))
    # Rank 0 hears the answer for all ranks, since each would hear it at another moment.
    steps = reporter.steps_to_go_on_for() if gang.rank == 0 else 0
    steps = round(gang.sum([float(steps)])[0])
    if steps:
        as_training = replace(spec, kind="train", knobs=dict(best[0]), steps=steps)
        go_on(as_training, gang, reporter, builds, measurement.taken)


def _setting(spec: Spec, definition: TaskDefinition, gang: Gang, module: nn.Module) -> Setting:
    """What the technique may know; equal on every rank, so that all ranks decide alike."""
    texts = gang.exchange("device-memory", json.dumps(gang.device_memory.total_bytes))
    devices = [size for size in map(json.loads, texts) if size is not None]
    return Setting(
        gpus=spec.gpus,
        device_kind=spec.device_kind,
        hints=definition.hints,
        precision=definition.precision,
        model_caller=definition.model_caller,
        device_memory_bytes=min(devices, default=None),
        optimizer_state_ratio=optimizer_state_ratio(definition, module, gang.device),
        node_gpus=gang.node_gpus,
    )


@dataclass
class _Measurement:
    """This rank's part in measuring knob sets, one after another."""

    spec: Spec
    technique: Technique
    gang: Gang
    reporter: Reporter
    memory: PeakMemory
    builds: Builds
    slicing: Slicing
    #: At first a model that is already built, and the seconds from launch until it was; then empty.
    #: The list hands the model over. Any other reference would hold the group's connections open,
    #: and peers of a failed rank would wait on them for ever.
    fresh: list[tuple[Built, float]]
    startup_s: float
    numbers: Iterator[int] = field(default_factory=itertools.count)
    #: Whether model and steps are kept, so that the task can go on from them.
    keeps_steps: bool = False
    #: Knobs whose steps take longer than this are not worth exact timing.
    enough_s: float = math.inf
    #: Whether the technique is asked for changes, until one set was measured; and its answer.
    asks_for_changes: bool = False
    changes: Knobs | None = None
    taken: Taken | None = None
    #: Seconds of an evaluation, once they are known.
    evaluation_s: float | None = None
    #: This rank's failure with the present knob set. Not the exception, which would hold the model,
    #: and with it the group's connections.
    failure: Failure | None = None

    def agreed_outcome_of(self, knobs: Knobs) -> Outcome:
        """The gang's outcome for one knob set; every rank calls this."""
        self.memory.restart()
        self.failure = None
        name = f"trial-{next(self.numbers)}"
        with self.gang.outliving(name) as watch:
            own = self._outcome_of(knobs, watch)
            if self.taken is None:
                # If the device no longer answers, no other knobs can be tried here.
                with self._cause_of(torch.AcceleratorError):
                    self._let_go()
        within_s = None
        if self.failure is not None and watch is not None:
            within_s = _OPENING_PEERS_S if self.gang.has_failed_opening else _PEERS_S
        with self._cause_of(PeerLost):
            texts = self.gang.exchange(name, json.dumps(own), within_s=within_s)
        self.reporter.alive()
        agreed = _agree([json.loads(text) for text in texts])
        if agreed["outcome"] == "measured":
            self.asks_for_changes = False
            self.evaluation_s = agreed.get("evaluation_s")
        if agreed["outcome"] != "measured" and self.taken is not None:
            self.taken = None
            self._let_go(is_broken=True)
        return agreed

    def drop_steps(self) -> None:
        """Free the set whose steps were kept, since the task does not go on from them."""
        if self.taken is not None:
            self.taken = None
            self._let_go()

    @contextlib.contextmanager
    def _cause_of(self, consequence: type[Exception]) -> Iterator[None]:
        """Raise this rank's own failure in place of an exception that only follows from it."""
        try:
            yield
        except consequence:
            if self.failure is None:
                raise
            raise Earlier(self.failure) from None

    def _let_go(self, *, is_broken: bool = False) -> None:
        """Free everything of a knob set; `is_broken` says that the set failed on another rank."""
        self.gang.close(is_broken=is_broken, has_failed=self.failure is not None)
        gc.collect()
        if self.gang.device.type != "cpu":
            torch.accelerator.synchronize(self.gang.device)  # raises if the device is lost
            torch.accelerator.empty_cache()

    def _outcome_of(self, knobs: Knobs, watch: PeerWatch | None) -> Outcome:
        """This rank's outcome; the caller frees what the knob set leaves behind."""
        try:
            return self._run_steps(knobs)
        except Exception as error:
            failure = describe(error, device_kind=self.spec.device_kind)
            lift()  # the rest of the work must not fail for lack of memory
            if watch is not None and watch.has_lost_peer:
                # A rank that was taken out of its collectives may fail in any way.
                return {"outcome": "peer_lost", "error": failure.error, "traceback": ""}
            if failure.kind == "task" and is_of_data(error):
                # The data fails under every technique, so no other technique is tried.
                raise Earlier(replace(failure, kind="certain")) from error
            if failure.kind in ("task", "no_space"):
                raise  # no knob helps against this
            if watch is not None:
                watch.fail()
            self.failure = failure
            if failure.kind == "not_applicable":
                return {"outcome": "not_applicable", "reason": failure.error}
            if failure.kind == "out_of_memory":
                return {"outcome": "out_of_memory", "detail": failure.error}
            return {
                "outcome": failure.kind if failure.kind in _OF_THE_MOMENT else "failed",
                "error": failure.error,
                "traceback": failure.traceback,
            }

    def _run_steps(self, knobs: Knobs) -> Outcome:
        began = time.monotonic()
        # Seconds from launch that any attempt with these knobs would have spent by now.
        before_s = self.fresh[0][1] if self.fresh else self.startup_s
        definition, module = self._built()
        with self.reporter.alive_while_computing():
            stepper = Stepper(
                *(definition, self.technique, self.gang, knobs),
                module=module,
                slicing=self.slicing,
                note=self.reporter.note,
            )
            del module
            evaluator = evaluator_of(definition, stepper, self.gang, self.reporter)
            if self.asks_for_changes:
                stepper.parallel.begin_trial()
            self.memory.forget_building()
            pieces = stepper.pieces(Position())
            ready = itertools.chain([next(pieces)], pieces)
        # The set-up that an attempt with these knobs needs before its first step.
        setup_s = before_s + time.monotonic() - began
        least = max(2, self.spec.timed_steps)
        most = max(least, self.spec.max_timed_steps)
        limits = Limits(self.spec.warmup_steps, least, most, self.enough_s)
        with contextlib.closing(CoreWait()) as wait:
            waited_s = wait.waited_s if self.gang.device.type == "cpu" else lambda: 0.0
            timer = StepTimer(
                *(stepper, self.gang, limits), alive=self.reporter.alive, waited_s=waited_s
            )
            timing = timer.time(ready)
        if self.asks_for_changes:
            self.changes = self.technique.changes_after(knobs, stepper.parallel)
            # The task goes on from these steps only if no other set is measured.
            self.keeps_steps = self.keeps_steps and self.changes is None
        if (every := definition.evaluate_every) is not None:
            # With more steps, taken or staged, training would have evaluated in between.
            staged = len(timer.losses) + stepper.steps_behind
            self.keeps_steps = self.keeps_steps and staged <= every
        step_loss = definition.step_loss
        if step_loss is not None and step_loss.own_end is not None and step_loss.own_end.at_steps:
            self.keeps_steps = False  # its code may end training at any step, but isn't called here
        if not self.keeps_steps:
            pieces.close()
        evaluation_s = self.evaluation_s  # knobs change an evaluation's time little
        if evaluator is not None and evaluation_s is None:
            with self.reporter.alive_while_computing():
                evaluation_s = evaluator.time()
        peak_bytes = self.memory.peak_bytes()
        with self.gang.device_memory.host(), self.reporter.alive_throughout():
            checkpoint_s = checkpoint_cost.measure(
                stepper.parallel, stepper.optimizer, self.gang, self.spec.scratch_dir
            )
        outcome: Outcome = {
            "outcome": "measured",
            "step_s": timing.step.step_s,
            "setup_s": setup_s,
            "checkpoint_s": checkpoint_s,
            "peak_memory_bytes": peak_bytes,
            "timed_steps": timing.num_timed,
        }
        if evaluation_s is not None:
            outcome["evaluation_s"] = evaluation_s
        if math.isfinite(timing.step.relative_error):
            outcome["relative_error"] = timing.step.relative_error
        if timing.warmup_s is not None:
            outcome["warmup_s"] = timing.warmup_s
        if timing.variation is not None:
            outcome["variation"] = timing.variation
        if stepper.data.batches_per_epoch is not None:
            outcome["batches_per_epoch"] = stepper.data.batches_per_epoch
        if self.keeps_steps:
            self.taken = Taken(
                *(definition, stepper, timer.staged, timer.ahead),
                losses=timer.losses,
                position=timer.position,
                evaluator=evaluator,
            )
        return outcome

    def _built(self) -> tuple[TaskDefinition, nn.Module]:
        """A model for this knob set alone, because parallelising changes the model."""
        if self.fresh:
            built = self.fresh.pop()[0]
        else:
            self.gang.device_memory.building()
            built = self.builds.fresh()
        return built.definition, built.module


@dataclass
class _Search:
    """The knob sets of a trial, rung after rung: the fastest set, and what became of the others."""

    technique: Technique
    fit: Fit
    measurement: _Measurement
    best: tuple[Knobs, Outcome] | None = None
    #: If no set could be measured, the failure that says most.
    failed: tuple[Knobs, Outcome] | None = None
    #: The set with the changes that the technique asked for after its first set was measured.
    changed: Knobs | None = None
    #: Whether the task has not trained yet, so that steps of the trial can be its first.
    are_fresh: bool = False

    def climb(self, rungs: Iterable[list[Knobs]], *, are_fresh: bool) -> None:
        """Try the sets of each rung; the next, thriftier rung only if memory ran out for all."""
        self.are_fresh = are_fresh
        for rung in rungs:
            failures = self._try(rung)
            first = failures[0] if failures else None
            # If nothing fits, the outcome of the thriftiest knobs says most.
            if self.failed is None or (first is not None and _is_out_of_memory(first[1])):
                self.failed = first
            if self.best is not None or not any(_is_out_of_memory(one) for _, one in failures):
                break

    def _try(self, rung: list[Knobs]) -> list[tuple[Knobs, Outcome]]:
        """Try the sets of a rung; returns the failures."""
        failures = []
        pending = list(rung)
        while pending:
            knobs = pending.pop(0)
            if (reason := self.fit.why_not(knobs)) is not None:
                outcome: Outcome = {"outcome": "out_of_memory", "detail": reason}
            else:
                # No set is measured beside another, which would need memory. So only the last set
                # can be kept. What it computes on must be as it was for the first.
                is_alone = len(rung) == 1 and self.best is None
                is_like_first = is_alone or self.measurement.builds.repeats
                self.measurement.keeps_steps = self.are_fresh and not pending and is_like_first
                outcome = self.measurement.agreed_outcome_of(knobs)
            if outcome["outcome"] == "measured":
                pending = self._measured(knobs, outcome, pending)
                if self.best is not None and self.best[0] is not knobs:
                    self.measurement.drop_steps()
            elif (again := self._again(knobs, outcome)) is not None:
                pending.insert(0, again)  # its outcome stands for both sets
            else:
                failures.append((knobs, outcome))
        return failures

    def _measured(self, knobs: Knobs, outcome: Outcome, pending: list[Knobs]) -> list[Knobs]:
        """Note a set that was measured; returns the sets that are still to be tried."""
        changes = self.measurement.changes
        if self.best is None and changes is not None:
            self.changed = {**knobs, **changes}
            pending = [self.changed, *pending]
        if self.best is None or outcome["step_s"] < self.best[1]["step_s"]:
            self.best = (knobs, outcome)
            self.measurement.enough_s = _HOPELESS * outcome["step_s"]
            if knobs is self.changed and changes is not None:
                return [self.technique.changed(each, changes) for each in pending]
        return pending

    def _again(self, knobs: Knobs, outcome: Outcome) -> Knobs | None:
        """The set to try in place of one that failed; None if there is none."""
        if outcome["outcome"] not in ("failed", "not_applicable"):
            return None
        return self.technique.retry_knobs(knobs, outcome.get("error") or outcome["reason"])


def _is_out_of_memory(outcome: Outcome) -> bool:
    return bool(outcome["outcome"] == "out_of_memory")


def _agree(outcomes: list[Outcome]) -> Outcome:
    """The gang's outcome: its worst failure, or rank 0's times with the largest memory."""
    for kind in ("out_of_memory", "host_memory", "not_applicable", "failed", "peer_lost"):
        for outcome in outcomes:
            if outcome["outcome"] == kind:
                return {**outcome, "outcome": "failed"} if kind == "peer_lost" else outcome
    peak = max(outcome["peak_memory_bytes"] for outcome in outcomes)
    return {**outcomes[0], "peak_memory_bytes": peak}


def _note_what_was_left_out(spec: Spec, reporter: Reporter, fit: Fit) -> None:
    """Note which knob sets were not tried, since the outcome only shows those that were."""
    devices = "1 device" if spec.gpus == 1 else f"{spec.gpus} devices"
    for knobs, reason in fit.left_out:
        reporter.note(f"{spec.technique.name} on {devices} with {json.dumps(knobs)} {reason}")


def _report(
    gang: Gang, reporter: Reporter, knobs: Knobs, outcome: Outcome, step: int | None = None
) -> None:
    """Report the outcome; `step` says that this many steps of the task are done and may count."""
    if gang.rank == 0:
        reporter.send({"type": "trial", "knobs": knobs, "outcome": outcome, "step": step})
