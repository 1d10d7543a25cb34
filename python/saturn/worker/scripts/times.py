"""How long a script's steps take, computed from the times of its reports.

A report may come after several steps; its time is then divided by their number.
"""

from __future__ import annotations

import statistics

from saturn.worker.scripts.reports import Report
from saturn.worker.spec import Spec
from saturn.worker.step_times import ENOUGH_S, KNOWN_TO

#: How many of the latest step times are kept.
_TIMES = 20


class ReportedTimes:
    """The times of a launch's latest steps."""

    def __init__(self) -> None:
        """Begin without any times."""
        self._last: Report | None = None
        self._each_s: list[float] = []
        #: Time before the last report that its steps don't explain: it probably went into saving.
        self.beyond_steps_s = 0.0

    def add(self, report: Report) -> None:
        """Add the next report."""
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
        """Median seconds of a step; None until two reports have come."""
        return statistics.median(self._each_s) if self._each_s else None

    def is_known_well(self, spec: Spec) -> bool:
        """Whether enough steps of a trial were timed."""
        each_s = self._each_s[spec.warmup_steps :]
        if len(each_s) < spec.timed_steps:
            return False
        is_sure = _relative_error(each_s) <= KNOWN_TO
        most = min(spec.max_timed_steps, _TIMES)
        return is_sure or len(each_s) >= most or sum(each_s) >= ENOUGH_S

    def measured(self, spec: Spec, *, num_steps: int, taken_s: float) -> dict[str, float | int]:
        """A trial's numbers after `num_steps` steps, which took `taken_s` including the start."""
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
    """The standard error of the mean, relative to the mean."""
    mean = statistics.fmean(each_s)
    if len(each_s) < 2 or mean <= 0:
        return 0.0
    return float(statistics.stdev(each_s) / len(each_s) ** 0.5 / mean)
