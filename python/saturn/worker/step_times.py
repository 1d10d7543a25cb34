"""Estimate from a few timed steps how long a task's step takes, and how sure that is.

Steps differ by chance, and also by the size of their batches (texts padded to their longest). So
seconds are modelled as a line, seconds = base + slope * size. The estimate is the line's value at
the mean size of the task's batches, because all steps together take that much each. The line is
robust: a few steps may take any time without moving it.

* The slope is the median over all pairs of steps (Theil 1950). Its interval is that of Kendall's
  tau (Sen, "Estimates of the regression coefficient based on Kendall's tau", J. Am. Stat. Assoc.
  63, 1968).
* The level is the median of the residuals. Its standard error is a distribution-free one from order
  statistics (Price & Bonett, "Estimating the variance of the sample median", J. Stat. Comput.
  Simul. 68, 2001). An outlier among few steps widens the error, which leads to more steps. Among
  many steps an outlier no longer matters.

Steps that were kept from computing (`rank.core_wait`) count only if there are too few other steps.
The estimate's error then contains the part of the time for which they waited, since nobody knows
whether training will wait as long.

The module only computes: it does not measure, wait or read a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist, fmean, median, pstdev

#: A step's seconds count as known when their relative standard error is at most this.
KNOWN_TO = 0.03
#: After this many seconds of timed steps, only the required least number of steps is still timed.
ENOUGH_S = 2.0
#: The same where steps waited for a core. Most waits are short: an inspection, a task's launch.
ENOUGH_DISTURBED_S = 6.0
#: A step is disturbed if it waited for a core for more than this part of its time.
_DISTURBED = 0.05


@dataclass(frozen=True)
class Estimate:
    """A step's seconds at some batch size."""

    step_s: float
    #: Standard error of `step_s`, relative to `step_s`; infinite if it is unknown.
    relative_error: float


@dataclass
class StepTimes:
    """Timed steps: their seconds, and the sizes of their batches."""

    seconds: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    #: The seconds of each step in which a rank was ready to compute and had no core.
    waited_s: list[float] = field(default_factory=list)

    def add(self, seconds: float, size: float, waited_s: float = 0.0) -> None:
        """Add a timed step."""
        self.seconds.append(seconds)
        self.sizes.append(size)
        self.waited_s.append(waited_s)

    @property
    def total_s(self) -> float:
        """The seconds of all steps together."""
        return math.fsum(self.seconds)

    def trusted(self, least: int) -> StepTimes:
        """The steps that waited for no core or only shortly, if there are `least`; else all."""
        steps = zip(self.seconds, self.sizes, self.waited_s, strict=True)
        calm = [step for step in steps if step[2] <= _DISTURBED * step[0]]
        return StepTimes(*map(list, zip(*calm, strict=True))) if len(calm) >= least else self

    @property
    def waited(self) -> float:
        """The part of the steps' time for which ranks waited for a core, from 0 to 1."""
        total_s = self.total_s
        share = math.fsum(self.waited_s) / total_s if total_s > 0 else 0.0
        return min(share, 1.0) if share > _DISTURBED else 0.0

    def at(self, size: float | None) -> Estimate:
        """Estimate a step on batches of `size`; with None, a step on the sizes that were timed.

        The error contains the part of the time for which the steps waited for a core.
        """
        if not self.seconds:
            return Estimate(math.nan, math.inf)
        middle = fmean(self.sizes)
        away = 0.0 if size is None else size - middle
        slope, slope_error = (0.0, 0.0) if size is None else self._slope()
        levels = [
            seconds - slope * (one - middle)
            for seconds, one in zip(self.seconds, self.sizes, strict=True)
        ]
        step_s = median(levels) + slope * away
        if not step_s > 0:  # `size` is far below the few sizes that were timed
            return Estimate(median(self.seconds), math.inf)
        error_s = math.hypot(_median_error(levels), slope_error * away)
        return Estimate(step_s, math.hypot(error_s / step_s, self.waited))

    def variation(self, sizes: Sequence[float]) -> float:
        """Standard deviation of steps on batches of these sizes, relative to their mean.

        Single slow steps don't count.
        """
        usual_s = self.at(fmean(sizes)).step_s
        slope, _ = self._slope()
        left = [
            seconds - slope * size for seconds, size in zip(self.seconds, self.sizes, strict=True)
        ]
        middle = median(left)
        # For Normal values, 1.4826 times the median distance from the median is that deviation.
        by_chance_s = 1.4826 * median(abs(one - middle) for one in left)
        return math.hypot(by_chance_s, slope * pstdev(sizes)) / usual_s

    def _slope(self) -> tuple[float, float]:
        """(seconds for each unit of size, their standard error)."""
        steps = list(zip(self.sizes, self.seconds, strict=True))
        size = median(self.sizes)
        proportional = median(self.seconds) / size if size > 0 else 0.0
        slopes = sorted(
            (later_s - sooner_s) / (later - sooner)
            for (sooner, sooner_s), (later, later_s) in combinations(steps, 2)
            if later != sooner
        )
        if not slopes:
            # All steps have one size, so the slope is unknown. It lies between 0 and cost in
            # proportion to size; take the middle, and the deviation of a uniform distribution.
            return proportional / 2, proportional / math.sqrt(12)
        number = len(steps)
        spread = math.sqrt(number * (number - 1) * (2 * number + 5) / 18)
        low = max(math.floor((len(slopes) - spread) / 2), 0)
        high = min(math.ceil((len(slopes) + spread) / 2), len(slopes)) - 1
        # Cost grows with size, and no faster than with its square, as attention's does.
        slope = min(max(median(slopes), 0.0), 2 * proportional)
        return slope, (slopes[max(high, low)] - slopes[low]) / 2


def _median_error(values: Sequence[float]) -> float:
    """Standard error of the median of the values' distribution; infinite for a single value."""
    number = len(values)
    if number < 2:
        return math.inf
    ordered = sorted(values)
    rank = max(1, round((number + 1) / 2 - math.sqrt(number)))
    outside = 2 * math.fsum(math.comb(number, below) * 0.5**number for below in range(rank))
    widths = 2 * NormalDist().inv_cdf(1 - outside / 2)
    return (ordered[number - rank] - ordered[rank - 1]) / widths
