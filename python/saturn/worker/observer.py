"""Report an attempt's training on rank 0: messages to the runtime, and files of metrics.

The training loop calls an `Observer` after each step, evaluation and save. The observer only reads
what it is given, and changes nothing of the training. Files that can't be written don't stop
training: the observer says so once, and keeps the losses until they can be written.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from saturn.checkpoint.background_save import Save
from saturn.rank.memory import held_bytes
from saturn.training.agreement import StepFacts
from saturn.training.step_loss import Listener
from saturn.worker.event_file import EventFile
from saturn.worker.laps import Laps
from saturn.worker.metrics import Metrics
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec

#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: Least seconds between two readings of the memory in use.
_WEIGHED_EVERY_S = 1.0
#: Number of recent steps whose time is averaged.
_RECENT_STEPS = 32


class Observer:
    """Follows one attempt, on rank 0."""

    def __init__(self, spec: Spec, reporter: Reporter, listener: Listener | None) -> None:
        self._spec = spec
        self._reporter = reporter
        self._listener = listener
        self._events = EventFile(spec.task_dir, spec.attempt, reporter.note)
        self._metrics = Metrics(spec.task_dir, self._events)
        self._weighed_s = -math.inf
        self._recent_s: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._first = True
        self._told = 0.0
        self._warned = False
        self._told_metrics = False

    def started(self, step: int, laps: Laps) -> None:
        self._events.begin(step, self._spec.strategy_text, self._spec.gpus)
        if self._listener is not None:
            self._listener.began(step)
        self._reporter.send(
            {"type": "started", "step": step, "setup_s": laps.total_s, "parts": laps.parts}
        )

    def took(self, losses: list[float]) -> None:
        """Report the task's first steps, which were taken in a trial, with these losses."""
        self._events.begin(0, self._spec.strategy_text, self._spec.gpus)
        if self._listener is not None:
            self._listener.began(0)
        for step, loss in enumerate(losses, start=1):
            self.stepped(step, loss, None)
        self._first = False

    @property
    def is_over(self) -> bool:
        """Whether the listener wants the training to end."""
        return self._listener is not None and self._listener.is_over

    def state(self, is_over: bool) -> dict[str, Any] | None:
        """The listener's state, for a checkpoint's manifest; None if there is no listener."""
        if self._listener is None:
            return None
        return {"is_over": is_over, **self._listener.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give the listener a state that `state` returned."""
        if self._listener is not None:
            self._listener.restore(state)

    def stepped(
        self,
        step: int,
        loss: float,
        step_s: float | None,
        *,
        facts: StepFacts | None = None,
        gradient_norm: float | None = None,
    ) -> None:
        more = {"gradient_norm": gradient_norm, **self._memory()}
        if facts is not None:
            more["lr"] = facts.lr
            # The first step of an attempt warms up: its speed says little.
            if step_s and not self._first:
                more["samples_per_s"] = _rounded(facts.samples / step_s)
                if facts.tokens is not None:
                    more["tokens_per_s"] = _rounded(facts.tokens / step_s)
        self._metrics.add(step, loss, more)
        if self._listener is not None:
            self._listener.stepped(step, loss)
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

    def _memory(self) -> dict[str, float | None]:
        """The memory in use now; empty if it was read within the last second."""
        now = time.monotonic()
        if now - self._weighed_s < _WEIGHED_EVERY_S:
            return {}
        self._weighed_s = now
        return {"memory_bytes": held_bytes(self._spec.device_kind)}

    def evaluated(
        self, message: dict[str, Any] | None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Send `message` to the runtime; `metrics` are those of an evaluation that just ended."""
        if message is None:
            return
        if metrics is not None:
            self._metrics.add_evaluation(message["step"], metrics)
            if self._listener is not None:
                self._listener.evaluated(message["step"], metrics)
        self._reporter.send(message)

    def saved(self, save: Save, loss: float | None) -> None:
        failure = save.failure
        if failure is None:
            self._reporter.send(
                {
                    "type": "checkpoint",
                    "step": save.step,
                    "save_s": save.save_s,
                    "blocked_s": save.blocked_s,
                    "loss": loss,
                }
            )
        elif failure.kind != "peer_lost":  # "peer_lost" is an echo: the lost rank is the news
            self._reporter.note(
                f"the checkpoint after step {save.step} could not be written ({failure.kind}): "
                f"{failure.error}; the one before it stays, and training waits for the next"
            )

    def ended(self, message: dict[str, object]) -> None:
        self._metrics.close()
        if self._listener is not None:
            self._listener.ended()
        self._reporter.send(message)


def _rounded(value: float) -> float:
    """The value rounded to four digits, because speeds are not known more exactly."""
    return float(f"{value:.4g}")
