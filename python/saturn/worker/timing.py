"""Time a trial's steps until what a step takes is known, or enough time was spent on that.

The steps are the task's own, one after the other, so that it can go on from the last of them.

On an accelerator, where training gives a step to the device before the one before is done, a trial
waits for each: that is how a step's own seconds are known. What training does meanwhile, to stage
the next step, a trial does in the same place.

The ranks take each step together, and must agree on which is the last: after every step one sum
tells all of them its size and rank 0's seconds, and each draws the same conclusion from the same
numbers.

Where batches differ in size, more of the task's batches are looked at than are trained on: what is
reported is what the task's steps take in the mean, not what the few timed ones took.

Not here: the statistics (`step_times`), and what a step is (`training.stepper`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

import torch

from saturn.data import nested
from saturn.data.slices import Position, Slice
from saturn.rank.gang import Gang
from saturn.training.stepper import Staged, Stepper
from saturn.worker.step_times import ENOUGH_S, KNOWN_TO, Estimate, StepTimes

#: Batches that are looked at for their size: at most so many steps' worth, for about so long.
_LOOKED_AT_STEPS = 64
_LOOK_S = 0.5
#: Numbers in batches that may be held ahead of their steps.
_HELD_NUMBERS = 8e6


@dataclass(frozen=True)
class Limits:
    """How many steps a trial takes."""

    #: First steps of a launch, which pay for kernels and compilation.
    warmup: int
    #: Timed steps, at least and at most. Where both are the same, their plain median is reported.
    least: int
    most: int
    #: Seconds a step from which on nobody wants to know more: where the fastest timed step took
    #: longer, timing ends.
    enough_s: float = math.inf


@dataclass(frozen=True)
class Timing:
    """What a trial's steps told."""

    #: What the task's steps take in the mean.
    step: Estimate
    num_timed: int
    #: Seconds that a launch's first steps take beyond what later ones do; None without warm-up.
    warmup_s: float | None
    #: Standard deviation of the task's steps from one another, as a part of `step`; None where only
    #: so many steps were to be timed.
    variation: float | None


class StepTimer:
    """One rank's part in timing the steps of a trial."""

    def __init__(
        self,
        stepper: Stepper,
        gang: Gang,
        limits: Limits,
        *,
        alive: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alive` is called before each step; `clock` gives seconds."""
        self._stepper = stepper
        self._gang = gang
        self._limits = limits
        self._alive = alive
        self._clock = clock
        self._warmup, self._timed = StepTimes(), StepTimes()
        #: What is still to be trained on, in order.
        self.ahead: Iterator[list[Slice]] = iter(())
        #: What the next step trains on, and its size; None where that is the next of `ahead`.
        self._staged: tuple[Staged, float] | None = None
        #: Seconds that it took to fetch the next of `ahead`, where that was done already.
        self._fetched_s: deque[float] = deque()
        #: The loss of each step that was taken, and where the data stands after the last.
        self.losses: list[float] = []
        self.position = Position()

    def time(self, pieces: Iterator[list[Slice]]) -> Timing:
        """Take steps on the next of `pieces`. The first may have been fetched before."""
        limits, timed = self._limits, self._timed
        self.ahead = pieces
        for _ in range(limits.warmup):
            self._step(self._warmup)
        for _ in range(limits.least):
            self._step(timed)
            if self._is_too_slow():
                break
        looks = limits.most > limits.least and not self._is_too_slow()
        sizes = self._look() if looks else None
        mean_size = None if sizes is None else fmean(sizes)
        while (
            timed.at(mean_size).relative_error > KNOWN_TO
            and len(timed.seconds) < limits.most
            and timed.total_s < ENOUGH_S
            and not self._is_too_slow()
        ):
            self._step(timed)
        return Timing(
            timed.at(mean_size),
            len(timed.seconds),
            self._warmup_s(),
            None if sizes is None else timed.variation(sizes),
        )

    def _is_too_slow(self) -> bool:
        return min(self._timed.seconds) > self._limits.enough_s

    @property
    def staged(self) -> Staged | None:
        """What comes before `ahead`, where it has been staged already."""
        return None if self._staged is None else self._staged[0]

    def _stage(self) -> tuple[Staged, float]:
        of_step = next(self.ahead)
        return self._stepper.stage(of_step), size_of(of_step)

    def _step(self, into: StepTimes) -> None:
        """One step; to fetch batches, its own or those of the next, is part of it."""
        self._alive()
        began = self._clock()
        staged, own_size = self._staged or self._stage()
        agreement = self._stepper.step(staged, stop=False, save=False)
        self._staged = self._stage() if self._stepper.steps_behind else None
        given_s = self._clock() - began
        result = agreement.result()
        if self._gang.device.type != "cpu":
            torch.accelerator.synchronize(self._gang.device)
        fetched_s = self._fetched_s.popleft() if self._fetched_s else 0.0
        # The device computes while the host fetches: on a CPU slot, where they are one, all of it
        # has been done by now.
        seconds = max(self._clock() - began, given_s + fetched_s)
        # One rank's seconds count, so that the sum is those seconds to the last bit.
        own_s = seconds if self._gang.rank == 0 else 0.0
        agreed_s, size = self._gang.sum([own_s, own_size])
        into.add(agreed_s, size)
        self.losses.append(result.loss)
        self.position = staged.after

    def _look(self) -> list[float]:
        """Sizes of the task's steps: of all that differ, or as many as can be fetched soon."""
        sizes = [*self._warmup.sizes, *self._timed.sizes]
        different = self._stepper.different_steps
        most = _LOOKED_AT_STEPS if different is None else min(_LOOKED_AT_STEPS, different)
        until = self._clock() + _LOOK_S
        held: list[list[Slice]] = []
        staged = [] if self._staged is None else [self._staged[1]]
        for _ in range(most - len(sizes) - len(staged)):
            if self._clock() >= until or sum(map(size_of, held)) >= _HELD_NUMBERS:
                break
            self._alive()
            began = self._clock()
            held.append(next(self.ahead))
            self._fetched_s.append(self._clock() - began)
        self.ahead = itertools.chain(held, self.ahead)
        own = [*staged, *map(size_of, held)]
        # Ranks that fetch faster have seen more; only what all have seen has a sum.
        unseen = [math.nan] * (_LOOKED_AT_STEPS - len(own))
        sizes += takewhile(math.isfinite, self._gang.sum([*own, *unseen]))
        # What comes again counts once.
        return sizes[:most]

    def _warmup_s(self) -> float | None:
        if not self._warmup.seconds:
            return None
        usual_s = sum(self._timed.at(size).step_s for size in self._warmup.sizes)
        return max(0.0, self._warmup.total_s - usual_s)


def size_of(of_step: Sequence[Slice]) -> float:
    """What a rank's part of a step weighs: the numbers in its batches."""
    return float(sum(nested.num_elements(piece.batch) for piece in of_step))
