"""Run a script: to train, or for a few steps of a trial.

This process is the script's launcher and its only line to the runtime. It follows what the script
reports, times it, asks it to stop, and keeps in mind where its last checkpoint lies. What a script
saves, it saves by itself: a checkpoint counts once the script has reported its path.

A trial starts the script as training does. Where nothing stands in the way it goes on as the
training of its task; else it is killed, and what it has written stays where it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saturn import durable
from saturn.rank.failure import Earlier, Failure, describe
from saturn.script import REPORT, ScriptDefinition
from saturn.worker.metrics import Metrics
from saturn.worker.report import Reporter
from saturn.worker.script_processes import Processes
from saturn.worker.script_reports import Report, Reports, Unsound
from saturn.worker.spec import Spec

#: Seconds between two looks at a script.
_LOOK_S = 0.02
#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: Seconds between two looks at the memory of the processes.
_MEMORY_EVERY_S = 0.5
#: A trial ends where steps are known so well, or this long were timed.
_PRECISION, _TIMED_S = 0.03, 2.0
#: How many of the last steps' times say how long one takes.
_TIMES = 20
#: Where the script's last checkpoint is noted, in the task's directory.
_NOTED = "script.json"


def run(spec: Spec, script: ScriptDefinition, reporter: Reporter) -> None:
    """Train, or run a trial."""
    checkpoint = _noted_checkpoint(spec, script, reporter)
    args = [] if checkpoint is None else script.resume_args(checkpoint[0])
    with reporter.alive_throughout(), Processes(spec, script, args) as processes:
        launch = _Launch(spec, script, reporter, processes, checkpoint)
        try:
            if spec.kind == "train":
                assert spec.steps is not None  # `spec.load` has checked it
                launch.train(spec.steps)
            else:
                launch.trial()
        except Unsound as error:
            raise _failure("certain", str(error)) from None


class _Launch:
    """One launch of a script, followed to its end."""

    def __init__(
        self,
        spec: Spec,
        script: ScriptDefinition,
        reporter: Reporter,
        processes: Processes,
        checkpoint: tuple[str, int] | None,
    ) -> None:
        self._spec = spec
        self._script = script
        self._reporter = reporter
        self._processes = processes
        self._checkpoint = checkpoint  # path and step
        self._saved = 0 if checkpoint is None else checkpoint[1]
        self._reports = Reports(processes.report_path, script.label, reporter.note)
        self._began_s = self._heard_s = time.time()
        self._memory_s = 0.0
        self._steps: int | None = script.steps
        self._last: Report | None = None
        self._times: list[float] = []  # seconds a step, of late
        self._beyond_steps_s = 0.0  # of the time before the last report: saving, as far as known
        self._metrics: Metrics | None = None
        self._told_s = 0.0

    @property
    def _step(self) -> int:
        return self._saved if self._last is None else self._last.step

    def train(self, steps: int) -> None:
        """Follow it to its last step, or to a stop."""
        self._steps = steps
        self._metrics = Metrics(self._spec.task_dir)
        is_started = False
        for report in self._follow():
            if not is_started:
                # What it takes to come to the first report is no step's time.
                setup_s = max(0.0, report.at_s - self._began_s)
                self._send({"type": "started", "step": self._capped(report), "setup_s": setup_s})
                is_started = True
            self._tell(report)
        self._end(steps)

    def trial(self) -> None:
        """Time its steps, say how long they take, and go on with them or not."""
        seen = []
        for report in self._follow():
            seen.append(report)
            if self._is_known_well() or self._is_last(report):
                break
        if self._reporter.stop_requested:
            return
        if self._last is None or self._last.step <= self._saved:
            raise self._silent()
        if self._processes.have_ended and not self._is_at_end():
            raise self._too_early()
        if self._steps is None:
            raise _failure(
                "task",
                f"{self._script.label} did not say how long it trains: give the task steps=…, or "
                "have a report say total_steps",
            )
        outcome = self._outcome()
        if self._processes.have_ended or self._is_last(self._last):
            self._send({"type": "trial", "knobs": {}, "outcome": outcome})
            return
        self._send({"type": "trial", "knobs": {}, "outcome": outcome, "step": self._last.step})
        steps = self._reporter.steps_to_go_on_for()
        if steps == 0:
            return
        self._steps, self._heard_s = steps, time.time()
        self._metrics = Metrics(self._spec.task_dir)
        for report in seen:
            self._add_metric(report)
        if self._last.checkpoint is not None:
            self._note_checkpoint(self._last)
        for report in self._follow():
            self._tell(report)
        self._end(steps)

    def _follow(self) -> Iterator[Report]:
        """Reports as they come, until the script has ended; raises why it should not have."""
        while True:
            have_ended = self._processes.have_ended  # before its last reports are read
            for report in self._reports.read():
                self._check(report)
                self._time(report)
                yield report
            failed = self._processes.failed()
            if failed is not None:
                raise self._failed(*failed)
            if have_ended:
                return
            now = time.time()
            if now - self._memory_s >= _MEMORY_EVERY_S:
                self._memory_s = now
                self._processes.look_at_memory()
            if self._reporter.stop_requested:
                if self._metrics is None:
                    return  # a trial has nothing to save
                self._processes.ask_to_stop()
            elif now - self._heard_s > self._script.report_within_s:
                raise self._silent()
            time.sleep(_LOOK_S)

    def _check(self, report: Report) -> None:
        script = self._script
        if report.total_steps is not None:
            if script.steps is not None and report.total_steps > script.steps:
                raise Unsound(
                    f"{script.label}: the task says steps={script.steps}, and the script reports "
                    f"total_steps {report.total_steps}; leave steps= out, or make them agree"
                )
            self._steps = self._steps or report.total_steps
        if self._last is None and self._checkpoint is not None and report.step < self._saved:
            path, step = self._checkpoint
            raise Unsound(
                f"{script.label} was given {' '.join(script.resume_args(path))}, of step {step}, "
                f"and reported step {report.step}: it began anew; have it go on from there, or "
                "say resume=False"
            )
        if self._steps is not None and self._step <= self._steps < report.step:
            self._reporter.note(
                f"{script.label} reported step {report.step} of {self._steps}: what comes after "
                "its last step is not planned for"
            )

    def _time(self, report: Report) -> None:
        """Take note of a report, and of how long its steps took."""
        before, self._last, self._heard_s = self._last, report, time.time()
        if before is None:
            return
        took_s, num_steps = max(0.0, report.at_s - before.at_s), report.step - before.step
        usual_s = num_steps * statistics.median(self._times) if self._times else took_s
        self._beyond_steps_s = took_s if num_steps == 0 else max(0.0, took_s - usual_s)
        if num_steps > 0:
            self._times = [*self._times[-_TIMES + 1 :], took_s / num_steps]

    def _tell(self, report: Report) -> None:
        """Pass on what a report of training says."""
        before_s = self._told_s
        self._add_metric(report)
        if report.checkpoint is not None:
            self._note_checkpoint(report)
        if report.at_s - before_s >= _PROGRESS_EVERY_S or self._is_last(report):
            self._told_s = report.at_s
            step_s = statistics.median(self._times) if self._times else None
            step = self._capped(report)
            loss = report.loss
            self._send({"type": "progress", "step": step, "loss": loss, "step_s": step_s})

    def _end(self, steps: int) -> None:
        """It has ended as it should: at its last step, or because it was asked to stop."""
        if self._metrics is not None:
            self._metrics.close()
        last, label = self._last, self._script.label
        if last is not None and self._is_at_end():
            if last.step < steps:
                self._reporter.note(f"{label} ended at step {last.step} of {steps}, as it says")
            self._send({"type": "finished", "step": steps, "loss": last.loss})
        elif self._reporter.stop_requested:
            if self._saved < self._step and self._script.resume is not None:
                self._reporter.note(
                    f"{label} was stopped at step {self._step} and has reported no checkpoint of "
                    f"it: {self._step - self._saved} steps are trained again"
                )
            self._send({"type": "stopped", "step": self._saved})
        elif last is None:
            raise self._silent()
        else:
            raise self._too_early()

    def _outcome(self) -> dict[str, Any]:
        assert self._last is not None
        first = self._last.at_s - self._began_s
        times = self._times[1:] if len(self._times) > self._spec.warmup_steps else self._times
        num_steps = self._last.step - self._saved
        step_s = statistics.median(times) if times else first / num_steps
        self._processes.look_at_memory()
        outcome: dict[str, Any] = {
            "outcome": "measured",
            "step_s": max(step_s, 1e-6),
            "setup_s": max(0.0, first - num_steps * step_s),
            "peak_memory_bytes": self._last.memory_bytes or self._processes.peak_bytes,
            "timed_steps": max(1, len(times)),
        }
        if len(times) > 1:
            outcome["relative_error"] = _relative_error(times)
        if self._script.steps is None:
            outcome["batches_per_epoch"] = self._steps
        return outcome

    def _is_known_well(self) -> bool:
        """Whether enough of a trial's steps were timed."""
        times, spec = self._times[self._spec.warmup_steps :], self._spec
        if len(times) < spec.timed_steps:
            return False
        is_sure = _relative_error(times) <= _PRECISION
        return is_sure or len(times) >= min(spec.max_timed_steps, _TIMES) or sum(times) >= _TIMED_S

    def _is_last(self, report: Report) -> bool:
        return self._steps is not None and report.step >= self._steps

    def _capped(self, report: Report) -> int:
        return report.step if self._steps is None else min(report.step, self._steps)

    def _add_metric(self, report: Report) -> None:
        assert self._metrics is not None  # it trains
        if report.loss is not None:
            self._metrics.add(report.step, report.loss)
        if report.metrics:
            self._metrics.add_evaluation(report.step, report.metrics)

    def _note_checkpoint(self, report: Report) -> None:
        """The script has saved: it counts once that is noted durably."""
        assert report.checkpoint is not None
        if self._script.resume is None:
            return
        if not Path(report.checkpoint).exists():
            raise Unsound(
                f"{self._script.label}: its report of step {report.step} names checkpoint "
                f"{report.checkpoint}, which is not there; report it once it is written"
            )
        path = self._spec.task_dir / _NOTED
        scratch = path.with_name(f".{_NOTED}.{os.getpid()}")
        scratch.write_text(json.dumps({"checkpoint": report.checkpoint, "step": report.step}))
        durable.sync(scratch)
        scratch.replace(path)
        durable.sync(path.parent)
        self._saved = report.step
        took = {"save_s": self._beyond_steps_s, "blocked_s": self._beyond_steps_s}
        self._send({"type": "checkpoint", "step": report.step, **took})

    def _send(self, message: dict[str, Any]) -> None:
        self._reporter.send(message)

    def _is_at_end(self) -> bool:
        """Whether its last report was of its last step, as the task or that report says."""
        last = self._last
        return last is not None and (self._is_last(last) or last.total_steps == last.step)

    def _too_early(self) -> Unsound:
        return Unsound(
            f"{self._script.label} exited with code 0 after step {self._step} of {self._steps}; "
            f"where it is meant to end there, say steps={self._step}, or total_steps={self._step} "
            "in its last report"
        )

    def _silent(self) -> Exception:
        label, within_s = self._script.label, self._script.report_within_s
        if self._processes.have_ended:
            what = "exited with code 0 and never reported a step"
        elif self._last is None:
            what = f"has not reported a step in {within_s:g} s"
        else:
            what = f"has reported nothing for {within_s:g} s since step {self._last.step}"
        kind = "task" if self._last is None else "error"
        return _failure(
            kind,
            f"{label} {what}; have it call saturn.report(step=…, loss=…), or append lines of JSON "
            f'such as {{"step": 1, "loss": 0.5}} to the path in {REPORT}',
        )

    def _failed(self, rank: int, code: int) -> Exception:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        words = self._processes.last_words(rank)
        said = words.splitlines()[-1].strip() if words else ""
        of = f" (rank {rank})" if self._spec.gpus > 1 else ""
        has_reported = self._last is not None or self._checkpoint is not None
        at = f"after step {self._step}" if has_reported else "before it reported a step"
        text = f"{self._script.label}{of} {how} {at}" + (f": {said}" if said else "")
        # Memory or a disk that ran out is no fault of the script's.
        kind = describe(
            MemoryError() if said.startswith("MemoryError") else RuntimeError(said)
        ).kind
        if kind == "error" and not has_reported:
            kind = "task"
        return _failure(kind, text, words)


def _noted_checkpoint(
    spec: Spec, script: ScriptDefinition, reporter: Reporter
) -> tuple[str, int] | None:
    """Path and step of the script's last checkpoint, where it can go on from there."""
    if script.resume is None:
        return None
    try:
        noted = json.loads((spec.task_dir / _NOTED).read_text())
    except FileNotFoundError:
        return None
    if not Path(noted["checkpoint"]).exists():
        reporter.note(f"{script.label}: {noted['checkpoint']} is gone: it begins anew")
        with contextlib.suppress(FileNotFoundError):
            (spec.task_dir / _NOTED).unlink()
        return None
    return noted["checkpoint"], noted["step"]


def _relative_error(times: list[float]) -> float:
    """The standard error of a mean, as a part of it."""
    mean = statistics.fmean(times)
    return (
        statistics.stdev(times) / len(times) ** 0.5 / mean if len(times) > 1 and mean > 0 else 0.0
    )


def _failure(kind: str, error: str, traceback: str = "") -> Earlier:
    return Earlier(Failure(kind=kind, error=error, traceback=traceback))
