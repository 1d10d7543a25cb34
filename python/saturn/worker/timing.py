"""Time a trial's steps until a step's time is known, or until enough time has been spent.

The steps are the task's own, in order, so that training can go on from the last of them.

On an accelerator, training launches a step before the previous step is done. A trial waits for each
step instead, because only so a step's own seconds are known. Training stages the next step
meanwhile; a trial stages it in the same place.

The ranks take each step together, and must agree on which step is the last. After every step, one
sum tells all ranks the step's size and rank 0's seconds. Every rank draws the same conclusion from
the same numbers.

On a CPU slot a step can be kept from computing by something else on its core. Such steps are timed
again, for a few seconds, and count only if no others could be timed.

If batches differ in size, the trial fetches more batches than it trains on. It then reports the
mean time of the task's steps, not the time of the few timed steps.

The module leaves the statistics to `step_times`, and the step itself to `training.stepper`.
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
from saturn.worker.step_times import (
    ENOUGH_DISTURBED_S,
    ENOUGH_S,
    KNOWN_TO,
    Estimate,
    StepTimes,
)

#: How many steps' batches are fetched to learn their sizes, and for how many seconds, at most.
_LOOKED_AT_STEPS = 64
_LOOK_S = 0.5
#: The most elements in batches that are fetched before their steps.
_HELD_NUMBERS = 8e6


@dataclass(frozen=True)
class Limits:
    """How many steps a trial takes, and when it stops early."""

    #: Steps that are not timed, because a launch's first steps pay for kernels and compilation.
    warmup: int
    #: Timed steps, at least and at most. If both are equal, the plain median is reported.
    least: int
    most: int
    #: If even the fastest timed step took longer than this, timing ends: the knobs are too slow to
    #: matter.
    enough_s: float = math.inf


@dataclass(frozen=True)
class Timing:
    """What the timed steps showed."""

    #: The mean time of the task's steps.
    step: Estimate
    num_timed: int
    #: Seconds that the first steps take beyond later steps; None without warm-up steps.
    warmup_s: float | None
    #: Standard deviation of the task's steps, relative to `step`; None if sizes were not read,
    #: because the number of timed steps was fixed or the steps were too slow.
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
        waited_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`alive` is called before each step; `clock` gives seconds.

        `waited_s` gives the seconds for which this rank has waited for a core so far.
        """
        self._stepper = stepper
        self._gang = gang
        self._limits = limits
        self._alive = alive
        self._clock = clock
        self._waited_s = waited_s
        self._warmup, self._timed = StepTimes(), StepTimes()
        #: The data of the steps to come, in order.
        self.ahead: Iterator[list[Slice]] = iter(())
        #: The staged data of the next step, and its size; None if that step comes from `ahead`.
        self._staged: tuple[Staged, float] | None = None
        #: Seconds of each fetch that `_look` made before its step.
        self._fetched_s: deque[float] = deque()
        #: The loss of each step taken, and the position after the last.
        self.losses: list[float] = []
        self.position = Position()

    def time(self, pieces: Iterator[list[Slice]]) -> Timing:
        """Take and time steps on `pieces`, whose first item may have been fetched before."""
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
            (trusted := timed.trusted(limits.least)).at(mean_size).relative_error > KNOWN_TO
            and len(timed.seconds) < limits.most
            and timed.total_s < (ENOUGH_DISTURBED_S if trusted.waited else ENOUGH_S)
            and not self._is_too_slow()
        ):
            self._step(timed)
        return Timing(
            trusted.at(mean_size),
            len(timed.seconds),
            self._warmup_s(trusted),
            None if sizes is None else trusted.variation(sizes),
        )

    def _is_too_slow(self) -> bool:
        return min(self._timed.seconds) > self._limits.enough_s

    @property
    def staged(self) -> Staged | None:
        """The staged data that precedes `ahead`; None if there is none."""
        return None if self._staged is None else self._staged[0]

    def _stage(self) -> tuple[Staged, float]:
        of_step = next(self.ahead)
        return self._stepper.stage(of_step), size_of(of_step)

    def _step(self, into: StepTimes) -> None:
        """Take one step; its time includes a fetch of batches, its own or the next step's."""
        self._alive()
        waited_before_s = self._waited_s()
        began = self._clock()
        staged, own_size = self._staged or self._stage()
        agreement = self._stepper.step(staged, stop=False, save=False)
        self._staged = self._stage() if self._stepper.steps_behind else None
        given_s = self._clock() - began
        result = agreement.result()
        if self._gang.device.type != "cpu":
            torch.accelerator.synchronize(self._gang.device)
        fetched_s = self._fetched_s.popleft() if self._fetched_s else 0.0
        # An accelerator computes while the host fetches, so the longer of both counts. On a CPU
        # slot host and device are one, and all work is done by now.
        seconds = max(self._clock() - began, given_s + fetched_s)
        # Only rank 0's seconds are summed, so that all ranks get exactly those seconds.
        own_s = seconds if self._gang.rank == 0 else 0.0
        # A rank that waits for a core makes all ranks wait, so the sum is the most that it cost.
        own_waited_s = max(0.0, self._waited_s() - waited_before_s)
        agreed_s, size, waited_s = self._gang.sum([own_s, own_size, own_waited_s])
        into.add(agreed_s, size, min(waited_s, agreed_s))
        self.losses.append(result.loss)
        self.position = staged.after

    def _look(self) -> list[float]:
        """Sizes of the task's steps: all different steps, or as many as can be fetched soon."""
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
        # Faster ranks have fetched more; only steps that all ranks fetched have a whole sum.
        unseen = [math.nan] * (_LOOKED_AT_STEPS - len(own))
        sizes += takewhile(math.isfinite, self._gang.sum([*own, *unseen]))
        # Steps that repeat earlier ones are left out.
        return sizes[:most]

    def _warmup_s(self, timed: StepTimes) -> float | None:
        if not self._warmup.seconds:
            return None
        usual_s = sum(timed.at(size).step_s for size in self._warmup.sizes)
        return max(0.0, self._warmup.total_s - usual_s)


def size_of(of_step: Sequence[Slice]) -> float:
    """A rank's part of a step's size: the number of elements in its batches."""
    return float(sum(nested.num_elements(piece.batch) for piece in of_step))
