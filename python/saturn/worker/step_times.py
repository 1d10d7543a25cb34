"""What a task's step takes, by a few of its steps: how long, and how sure that is.

Steps differ by chance, and where batches differ in size (texts padded to their longest) by that
too. So seconds are a line over size, seconds = base + slope * size, and what is asked is its value
at the mean size of the task's batches: all its steps together take that much each. The line is
robust: single steps may take any time without moving it.

* The slope is the median over all pairs of steps (Theil 1950), its interval that of Kendall's tau
  (Sen, "Estimates of the regression coefficient based on Kendall's tau", J. Am. Stat. Assoc. 63,
  1968).
* The level is the median of what the slope leaves, its standard error a distribution-free one from
  order statistics (Price & Bonett, "Estimating the variance of the sample median", J. Stat. Comput.
  Simul. 68, 2001). A step that stands out among few widens it, and so leads to more steps; among
  many it no longer counts.

Nothing here measures, waits or knows a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist, fmean, median, pstdev

#: A step's seconds are known when their standard error is no more than this part of them.
KNOWN_TO = 0.03
#: Seconds of timed steps after which none is timed beyond the least number of them.
ENOUGH_S = 2.0


@dataclass(frozen=True)
class Estimate:
    """A step's seconds at some size."""

    step_s: float
    #: Standard error of `step_s`, as a part of it; infinite where it can't be told.
    relative_error: float


@dataclass
class StepTimes:
    """Seconds of timed steps, and the sizes of their batches."""

    seconds: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def add(self, seconds: float, size: float) -> None:
        """Take in one more step."""
        self.seconds.append(seconds)
        self.sizes.append(size)

    @property
    def total_s(self) -> float:
        """Seconds of all of them together."""
        return math.fsum(self.seconds)

    def at(self, size: float | None) -> Estimate:
        """What a step on batches of `size` takes; None: of what was timed, whatever its sizes."""
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
        if not step_s > 0:  # far below all that was timed, on few steps
            return Estimate(median(self.seconds), math.inf)
        return Estimate(step_s, math.hypot(_median_error(levels), slope_error * away) / step_s)

    def variation(self, sizes: Sequence[float]) -> float:
        """Standard deviation of steps on batches of such sizes, as a part of their mean.

        Single slow steps are no part of it.
        """
        usual_s = self.at(fmean(sizes)).step_s
        slope, _ = self._slope()
        left = [
            seconds - slope * size for seconds, size in zip(self.seconds, self.sizes, strict=True)
        ]
        middle = median(left)
        # Of Normal values, 1.4826 times the median distance from the median is that deviation.
        by_chance_s = 1.4826 * median(abs(one - middle) for one in left)
        return math.hypot(by_chance_s, slope * pstdev(sizes)) / usual_s

    def _slope(self) -> tuple[float, float]:
        """Seconds for each unit of size, and their standard error."""
        steps = list(zip(self.sizes, self.seconds, strict=True))
        size = median(self.sizes)
        proportional = median(self.seconds) / size if size > 0 else 0.0
        slopes = sorted(
            (later_s - sooner_s) / (later - sooner)
            for (sooner, sooner_s), (later, later_s) in combinations(steps, 2)
            if later != sooner
        )
        if not slopes:
            # All are of one size. Cost grows with size somewhere between not at all and in
            # proportion: the middle of that, and the standard deviation of a number from it.
            return proportional / 2, proportional / math.sqrt(12)
        number = len(steps)
        spread = math.sqrt(number * (number - 1) * (2 * number + 5) / 18)
        low = max(math.floor((len(slopes) - spread) / 2), 0)
        high = min(math.ceil((len(slopes) + spread) / 2), len(slopes)) - 1
        # Cost grows with size, and no faster than its square, as attention's does.
        slope = min(max(median(slopes), 0.0), 2 * proportional)
        return slope, (slopes[max(high, low)] - slopes[low]) / 2


def _median_error(values: Sequence[float]) -> float:
    """Standard error of the median of what `values` were drawn from; infinite for one of them."""
    number = len(values)
    if number < 2:
        return math.inf
    ordered = sorted(values)
    rank = max(1, round((number + 1) / 2 - math.sqrt(number)))
    outside = 2 * math.fsum(math.comb(number, below) * 0.5**number for below in range(rank))
    widths = 2 * NormalDist().inv_cdf(1 - outside / 2)
    return (ordered[number - rank] - ordered[rank - 1]) / widths
