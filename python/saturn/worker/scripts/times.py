"""How long a script's steps take, by the times of its reports."""

from __future__ import annotations

import statistics

from saturn.worker.scripts.reports import Report
from saturn.worker.spec import Spec
from saturn.worker.step_times import ENOUGH_S, KNOWN_TO

#: How many of the last steps' times say how long one takes.
_TIMES = 20


class ReportedTimes:
    """The times of a launch's steps, of late."""

    def __init__(self) -> None:
        """None so far."""
        self._last: Report | None = None
        self._each_s: list[float] = []
        #: Of the time before the last report what its steps didn't take: saving, as far as known.
        self.beyond_steps_s = 0.0

    def add(self, report: Report) -> None:
        """Take note of a report, the next after the last one."""
        before, self._last = self._last, report
        if before is None:
            return
        took_s, num_steps = max(0.0, report.at_s - before.at_s), report.step - before.step
        usual_s = num_steps * (self.step_s or took_s)
        self.beyond_steps_s = took_s if num_steps == 0 else max(0.0, took_s - usual_s)
        if num_steps > 0:
            self._each_s = [*self._each_s[-_TIMES + 1 :], took_s / num_steps]

    @property
    def step_s(self) -> float | None:
        """What a step takes, seconds; None where two reports are not there yet."""
        return statistics.median(self._each_s) if self._each_s else None

    def is_known_well(self, spec: Spec) -> bool:
        """Whether enough of a trial's steps were timed."""
        each_s = self._each_s[spec.warmup_steps :]
        if len(each_s) < spec.timed_steps:
            return False
        is_sure = _relative_error(each_s) <= KNOWN_TO
        most = min(spec.max_timed_steps, _TIMES)
        return is_sure or len(each_s) >= most or sum(each_s) >= ENOUGH_S

    def measured(self, spec: Spec, *, num_steps: int, taken_s: float) -> dict[str, float | int]:
        """A trial's numbers, after so many steps, which with the start took `taken_s`."""
        each_s = self._each_s[spec.warmup_steps :] or self._each_s
        step_s = statistics.median(each_s) if each_s else taken_s / num_steps
        found: dict[str, float | int] = {
            "step_s": max(step_s, 1e-6),
            "setup_s": max(0.0, taken_s - num_steps * step_s),
            "timed_steps": max(1, len(each_s)),
        }
        if len(each_s) > 1:
            found["relative_error"] = _relative_error(each_s)
        return found


def _relative_error(each_s: list[float]) -> float:
    """The standard error of a mean, as a part of it."""
    mean = statistics.fmean(each_s)
    if len(each_s) < 2 or mean <= 0:
        return 0.0
    return float(statistics.stdev(each_s) / len(each_s) ** 0.5 / mean)
