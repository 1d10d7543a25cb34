"""How often a task is saved: what is given holds; else what costs least."""

from __future__ import annotations

import random

import pytest
from saturn.worker.intervals import Interval


def lost_share(every_s: float, cost_s: float, failure_every_s: float) -> float:
    """The share of time that saving takes, and training again after failures."""
    return cost_s / every_s + every_s / 2 / failure_every_s


def test_what_is_given_holds_whatever_saving_costs() -> None:
    interval = Interval(7.0, 1e6)
    interval.saved(100.0)
    assert interval.seconds == 7.0


@pytest.mark.parametrize("seed", range(20))
def test_no_other_interval_within_the_bounds_loses_less_time(seed: int) -> None:
    rng = random.Random(seed)
    cost_s, failure_every_s = 10 ** rng.uniform(-3, 2), 10 ** rng.uniform(3, 7)
    interval = Interval(None, failure_every_s)
    interval.saved(cost_s)
    chosen = lost_share(interval.seconds, cost_s, failure_every_s)
    others = [10 * 60 ** (step / 200) for step in range(201)]  # from 10 to 600 seconds
    least = min(lost_share(every_s, cost_s, failure_every_s) for every_s in others)
    assert chosen <= least * (1 + 1e-9)


def test_the_first_save_shows_what_one_costs_and_later_ones_correct_it() -> None:
    interval = Interval(None, 86_400.0)
    assert interval.seconds == 30.0
    interval.saved(0.5)
    assert interval.seconds == pytest.approx(293.9, abs=0.1)
    interval.saved(0.02)
    assert interval.seconds == pytest.approx(58.8, abs=0.1)
    interval.saved(0.0)
    assert interval.seconds == 10.0
    interval.saved(1e3)
    assert interval.seconds == 600.0
