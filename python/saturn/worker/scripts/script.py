"""Run a script: to train, or for a few steps of a trial.

This process is the script's launcher and its only connection to the runtime. It reads the script's
reports, times its steps, asks it to stop, and notes where its last checkpoint lies. The script
saves by itself: a checkpoint counts once the script has reported its path.

A trial starts the script as training does. If the runtime agrees, the same launch goes on as the
training of the task. Otherwise the script is killed, and its files stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from saturn.rank.failure import Earlier, Failure, describe
from saturn.scripts.command import REPORT, ScriptDefinition
from saturn.worker.event_file import EventFile
from saturn.worker.metrics import Metrics
from saturn.worker.report import Reporter
from saturn.worker.scripts.checkpoint import ScriptCheckpoint, forget, last_of
from saturn.worker.scripts.processes import Processes
from saturn.worker.scripts.reports import Report, Reports, Unsound
from saturn.worker.scripts.times import ReportedTimes
from saturn.worker.spec import Spec

#: Seconds between two readings of a script's reports.
_LOOK_S = 0.02
#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: Least seconds between two reports of metrics to the runtime, whose journal keeps each.
_EVALUATED_EVERY_S = 10.0
#: Seconds between two readings of the processes' memory.
_MEMORY_EVERY_S = 0.5


def run(spec: Spec, script: ScriptDefinition, reporter: Reporter) -> None:
    """Train, or run a trial; the spec says which."""
    checkpoint = _checkpoint(spec, script, reporter)
    args = [] if checkpoint is None else script.resume_args(checkpoint.path)
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
    """One launch of a script, from its start to its end."""

    def __init__(
        self,
        spec: Spec,
        script: ScriptDefinition,
        reporter: Reporter,
        processes: Processes,
        checkpoint: ScriptCheckpoint | None,
    ) -> None:
        self._spec = spec
        self._script = script
        self._reporter = reporter
        self._processes = processes
        self._checkpoint = checkpoint  # the checkpoint from which the script goes on
        self._saved = 0 if checkpoint is None else checkpoint.step
        self._reports = Reports(
            processes.report_path, script.label, reporter.note, should_have_loss=script.trains
        )
        self._began_s = self._heard_s = time.time()
        self._memory_s = 0.0
        self._steps: int | None = script.steps
        self._last: Report | None = None
        self._loss: float | None = None  # the last reported loss
        self._times = ReportedTimes()
        self._metrics: Metrics | None = None
        self._told_s = 0.0
        #: The last report's metrics, until the runtime is told; and when it was told last.
        self._evaluation: dict[str, Any] | None = None
        self._evaluated_s = 0.0

    @property
    def _step(self) -> int:
        return self._saved if self._last is None else self._last.step

    def train(self, steps: int) -> None:
        """Follow the script to its last step, or to a stop."""
        self._steps = steps
        self._metrics = self._fresh_metrics(self._saved)
        # An earlier launch that failed after the last step's checkpoint, as in an evaluation, has
        # left no step to report.
        is_started = self._saved >= steps
        if is_started:
            self._send({"type": "started", "step": self._saved, "setup_s": 0.0})
        for report in self._follow():
            if not is_started:
                # The time to the first report is set-up, not the time of a step.
                setup_s = max(0.0, report.at_s - self._began_s)
                self._send({"type": "started", "step": self._capped(report), "setup_s": setup_s})
                is_started = True
            self._tell(report)
        self._tell_evaluation()
        self._end(steps)

    def trial(self) -> None:
        """Time the script's steps, report them, and go on to train if the runtime says so."""
        seen = []
        for report in self._follow():
            seen.append(report)
            if self._times.is_known_well(self._spec) or self._is_last(report):
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
        self._metrics = self._fresh_metrics(0)
        for report in seen:
            self._add_metric(report)
        saved = [report for report in seen if report.checkpoint is not None]
        if saved:
            self._note_checkpoint(saved[-1])
        for report in self._follow():
            self._tell(report)
        self._tell_evaluation()
        self._end(steps)

    def _follow(self) -> Iterator[Report]:
        """Yield reports until the script has ended; raises if it fails or falls silent."""
        while True:
            have_ended = self._processes.have_ended  # asked first, so that no report is missed
            for report in self._reports.read():
                self._check(report)
                self._take(report)
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
            given = " ".join(script.resume_args(self._checkpoint.path))
            raise Unsound(
                f"{script.label} was given {given}, of step {self._saved}, and reported step "
                f"{report.step}: the script began at its first step; have it load what it "
                "is given, or say resume=False"
            )
        if self._steps is not None and self._step <= self._steps < report.step:
            self._reporter.note(
                f"{script.label} reported step {report.step} of {self._steps}: what comes after "
                "its last step is not planned for"
            )

    def _take(self, report: Report) -> None:
        """Note a report as the last one."""
        self._last, self._heard_s = report, time.time()
        self._loss = self._loss if report.loss is None else report.loss
        self._times.add(report)

    def _tell(self, report: Report) -> None:
        """Pass a report of training on to the metrics and the runtime."""
        before_s = self._told_s
        self._add_metric(report)
        if report.checkpoint is not None:
            self._note_checkpoint(report)
        if report.at_s - before_s >= _PROGRESS_EVERY_S or self._is_last(report):
            self._told_s = report.at_s
            about = {"loss": self._loss, "step_s": self._times.step_s}
            self._send({"type": "progress", "step": self._capped(report), **about})

    def _end(self, steps: int) -> None:
        """Report a good end: the script is at its last step, or was asked to stop."""
        if self._metrics is not None:
            self._metrics.close()
        last, label = self._last, self._script.label
        if last is not None and self._is_at_end():
            if last.step < steps and self._script.trains:
                self._reporter.note(
                    f"{label} ended at step {last.step} of {steps}, and says that this is its last"
                )
            # Steps that it did not train would make its steps look quick.
            self._send({"type": "finished", "step": self._capped(last), "loss": self._loss})
        elif self._reporter.stop_requested:
            if self._saved < self._step and self._script.resume is not None:
                self._reporter.note(
                    f"{label} was stopped at step {self._step} and has reported no checkpoint of "
                    f"that step: {self._step - self._saved} steps are trained again"
                )
            self._send({"type": "stopped", "step": self._saved})
        elif last is None and self._saved >= steps:
            self._send({"type": "finished", "step": steps, "loss": None})
        elif last is None:
            raise self._silent()
        else:
            raise self._too_early()

    def _outcome(self) -> dict[str, Any]:
        assert self._last is not None
        taken_s = self._last.at_s - self._began_s
        num_steps = self._last.step - self._saved
        self._processes.look_at_memory()
        outcome: dict[str, Any] = {
            "outcome": "measured",
            "peak_memory_bytes": self._last.memory_bytes or self._processes.peak_bytes,
            **self._times.measured(self._spec, num_steps=num_steps, taken_s=taken_s),
        }
        if self._script.steps is None:
            outcome["batches_per_epoch"] = self._steps
        return outcome

    def _is_last(self, report: Report) -> bool:
        return self._steps is not None and report.step >= self._steps

    def _capped(self, report: Report) -> int:
        return report.step if self._steps is None else min(report.step, self._steps)

    def _fresh_metrics(self, step: int) -> Metrics:
        spec = self._spec
        events = EventFile(spec.task_dir, spec.attempt, self._reporter.note)
        events.begin(step, spec.strategy_text, spec.gpus)
        return Metrics(spec.task_dir, events)

    def _add_metric(self, report: Report) -> None:
        assert self._metrics is not None  # only training adds metrics
        if report.loss is not None:
            self._metrics.add(report.step, report.loss, {"memory_bytes": report.memory_bytes})
        if report.metrics:
            self._metrics.add_evaluation(report.step, report.metrics)
            self._evaluation = {"step": self._capped(report), "metrics": dict(report.metrics)}
            if time.time() - self._evaluated_s >= _EVALUATED_EVERY_S:
                self._tell_evaluation()

    def _tell_evaluation(self) -> None:
        """Tell the runtime the last report's metrics, by which the task may be judged."""
        if self._evaluation is not None:
            self._send({"type": "evaluated", **self._evaluation, "evaluation_s": None})
            self._evaluation, self._evaluated_s = None, time.time()

    def _note_checkpoint(self, report: Report) -> None:
        """Note the checkpoint of a report; it counts once the note is durable."""
        assert report.checkpoint is not None
        if self._script.resume is None:
            return
        # The script's own directory: another than this process's, for a sweep file elsewhere.
        path = self._script.cwd / report.checkpoint
        checkpoint = ScriptCheckpoint(str(path), report.step)
        if not checkpoint.is_there:
            raise Unsound(
                f"{self._script.label}: its report of step {report.step} names checkpoint "
                f"{report.checkpoint}, which is not there; report it once it is written"
            )
        checkpoint.keep(self._spec.task_dir)
        self._saved = report.step
        took_s = self._times.beyond_steps_s
        took = {"save_s": took_s, "blocked_s": took_s}
        self._send({"type": "checkpoint", "step": report.step, "loss": self._loss, **took})

    def _send(self, message: dict[str, Any]) -> None:
        self._reporter.send(message)

    def _is_at_end(self) -> bool:
        """Whether the last report was of the last step, by the task or by the report itself."""
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
        kind = "task" if self._last is None and self._checkpoint is None else "error"
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
        # Memory or a disk that ran out is not the script's fault.
        kind = describe(
            MemoryError() if said.startswith("MemoryError") else RuntimeError(said),
            device_kind=self._spec.device_kind,
        ).kind
        if kind == "error" and not has_reported:
            kind = "task"
        return _failure(kind, text, words)


def _checkpoint(
    spec: Spec, script: ScriptDefinition, reporter: Reporter
) -> ScriptCheckpoint | None:
    """The checkpoint from which the script goes on; None if there is none or it can't resume."""
    last = None if script.resume is None else last_of(spec.task_dir)
    if last is not None and not last.is_there:
        reporter.note(f"{script.label}: {last.path} is gone: the script begins at its first step")
        forget(spec.task_dir)
        return None
    return last


def _failure(kind: str, error: str, traceback: str = "") -> Earlier:
    return Earlier(Failure(kind=kind, error=error, traceback=traceback))
