"""What a trial says of a step's seconds, by the steps that it timed: without a real clock."""

from __future__ import annotations

import hashlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from saturn.data.slices import Position, Slice
from saturn.rank.core_wait import CoreWait
from saturn.training.agreement import Agreement
from saturn.worker.step_times import StepTimes
from saturn.worker.timing import KNOWN_TO, Limits, StepTimer, Timing


def times_of(steps: Sequence[tuple[float, float]]) -> StepTimes:
    times = StepTimes()
    for seconds, size in steps:
        times.add(seconds, size)
    return times


def test_without_sizes_it_is_the_median() -> None:
    times = times_of([(1.0, 10), (9.0, 99), (1.2, 11)])
    assert times.at(None).step_s == 1.2


def test_one_step_tells_nothing_of_how_sure_it_is() -> None:
    assert times_of([(1.0, 10)]).at(10).relative_error == float("inf")
    assert times_of([]).at(None).relative_error == float("inf")


def test_the_standard_error_is_what_medians_of_such_steps_differ_by() -> None:
    rng = random.Random(5)

    def drawn() -> StepTimes:
        return times_of([(rng.gauss(1.0, 0.1), 8) for _ in range(25)])

    found = [drawn().at(8) for _ in range(400)]
    spread = statistics.stdev(one.step_s for one in found)
    told = statistics.fmean(one.relative_error for one in found)
    assert told == pytest.approx(spread, rel=0.25)


def test_one_slow_step_among_few_widens_the_error_and_among_many_does_not_count() -> None:
    quiet = [(1.0 + 0.001 * (index % 3), 8) for index in range(12)]
    few, many = times_of([*quiet[:3], (7.0, 8)]).at(8), times_of([*quiet, (7.0, 8)]).at(8)
    assert few.relative_error > KNOWN_TO > many.relative_error
    assert few.step_s == pytest.approx(1.0, rel=0.01)
    assert many.step_s == pytest.approx(1.0, rel=0.01)


def test_cost_grows_with_size_as_it_was_seen_to() -> None:
    sizes = [40, 10, 25, 60, 33, 18]
    times = times_of([(0.5 + 0.02 * size, size) for size in sizes])
    assert times.at(100).step_s == pytest.approx(2.5)
    assert times.at(100).relative_error < 1e-9


def test_slow_steps_do_not_move_the_line() -> None:
    rng = random.Random(2)
    sizes = [rng.uniform(10, 100) for _ in range(20)]
    steps = [(0.5 + 0.02 * size, size) for size in sizes]
    steps[3] = (steps[3][0] * 8, steps[3][1])
    steps[11] = (steps[11][0] * 5, steps[11][1])
    assert times_of(steps).at(120).step_s == pytest.approx(2.9, rel=0.01)


def test_what_was_timed_at_one_size_says_little_of_another() -> None:
    times = times_of([(1.0, 50)] * 6)
    assert times.at(50).relative_error == 0
    twice = times.at(100)
    assert 1.0 < twice.step_s < 2.0 and twice.relative_error > 0.1


def test_steps_vary_by_chance_and_by_size_but_not_by_what_stands_out() -> None:
    rng = random.Random(4)
    steady = times_of([(rng.gauss(1.0, 0.05), 50) for _ in range(25)])
    assert steady.variation([50.0] * 9) == pytest.approx(0.05, rel=0.4)
    sizes = [20.0, 40.0, 60.0, 80.0]
    padded = times_of([(0.5 + 0.01 * size, size) for size in sizes] + [(30.0, 50)])
    expected = 0.01 * statistics.pstdev(sizes) / 1.0
    assert padded.variation(sizes) == pytest.approx(expected, rel=0.05)


def test_cost_never_falls_with_size() -> None:
    times = times_of([(1.0, 10), (0.9, 20), (0.8, 30)])
    assert times.at(200).step_s == pytest.approx(0.9)


@dataclass
class FakeWorld:
    """Steps that take what `cost` says, on a clock of their own; ranks share their sums."""

    cost: Callable[[int, int], float]
    """Seconds of step number so and so on a batch of such a size."""
    sizes: Sequence[int]
    different_steps: int | None = None
    fetch_s: float = 0.0
    #: As of a stepper on an accelerator, where it is 1.
    steps_behind: int = 0
    #: Seconds that the host needs to give a step to the device.
    given_s: float = 0.0
    rank: int = 0
    world_size: int = 1
    device: Any = field(default_factory=lambda: torch.device("cpu"))
    now_s: float = 0.0
    trained: int = 0
    #: Numbers of the batches that were trained on.
    order: list[int] = field(default_factory=list)
    fetched: int = 0
    total: Callable[[Sequence[float]], list[float]] = list
    #: Seconds for which step number so and so has no core, beyond its cost.
    kept_s: Callable[[int], float] = lambda number: 0.0
    waited_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    def sum(self, values: Sequence[float]) -> list[float]:
        return self.total(values)

    def stage(self, of_step: Sequence[Slice]) -> Any:
        size = sum(piece.batch.numel() for piece in of_step)
        return SimpleNamespace(size=size, after=of_step[-1].after)

    def step(self, staged: Any, *, stop: bool, save: bool) -> Agreement:
        self.now_s += self.given_s
        # What the device computes, or the host, until somebody asks for the result.
        done_s = self.now_s + self.cost(self.trained, staged.size)
        done_s += self.kept_s(self.trained)
        self.waited_s += self.kept_s(self.trained)
        self.trained += 1
        loss = float(self.trained)
        self.order.append(staged.after.batches)

        def rows() -> list[list[float]]:
            self.now_s = max(self.now_s, done_s)
            return [[loss, 1.0, stop, save, 0.0]]

        if not self.steps_behind:
            rows()
        return Agreement(rows)

    def pieces(self) -> Iterator[list[Slice]]:
        while True:
            size = self.sizes[self.fetched % len(self.sizes)]
            self.fetched += 1
            self.now_s += self.fetch_s
            yield [Slice(torch.zeros(size), 1, 1, Position(batches=self.fetched))]

    def timer(self, limits: Limits) -> StepTimer:
        fake: Any = self
        return StepTimer(*(fake, fake, limits), clock=self.clock, waited_s=lambda: self.waited_s)

    def time(self, limits: Limits) -> Timing:
        return self.timer(limits).time(self.pieces())


LIMITS = Limits(warmup=1, least=3, most=30)


def test_the_steps_follow_on_each_other_and_leave_the_next_ones_ahead() -> None:
    world = FakeWorld(lambda number, size: size * 0.01, sizes=[3, 9, 5, 7], fetch_s=0.01)
    timer = world.timer(LIMITS)
    timing = timer.time(world.pieces())
    taken = 1 + timing.num_timed
    assert world.order == list(range(1, taken + 1))
    assert timer.losses == [float(step) for step in world.order]
    assert timer.position.batches == taken
    ahead = [next(timer.ahead)[0].after.batches for _ in range(100)]
    assert ahead == list(range(taken + 1, taken + 101))


def test_what_was_fetched_ahead_counts_with_its_step() -> None:
    world = FakeWorld(lambda number, size: 0.1, sizes=[8, 16], fetch_s=0.02)
    assert world.time(LIMITS).step.step_s == pytest.approx(0.12)


@pytest.mark.parametrize(("fetch_s", "step_s"), [(0.02, 0.11), (0.3, 0.31)])
def test_on_an_accelerator_fetching_costs_only_what_a_step_does_not_hide(
    fetch_s: float, step_s: float
) -> None:
    world = FakeWorld(
        lambda number, size: 0.1, sizes=[8, 16], fetch_s=fetch_s, steps_behind=1, given_s=0.01
    )
    timer = world.timer(LIMITS)
    timing = timer.time(world.pieces())
    assert timing.step.step_s == pytest.approx(step_s)
    assert timer.staged is not None
    following = [timer.staged.after.batches, next(timer.ahead)[0].after.batches]
    assert following == [world.trained + 1, world.trained + 2]


def test_steps_that_were_kept_from_computing_are_timed_again_and_do_not_count() -> None:
    world = FakeWorld(
        lambda number, size: 0.1, sizes=[8], kept_s=lambda number: 0.3 if number < 9 else 0.0
    )
    timing = world.time(LIMITS)
    assert timing.step.step_s == pytest.approx(0.1)
    assert timing.step.relative_error < KNOWN_TO
    # One step warms up, eight are disturbed, and three are not.
    assert world.trained == 12


def test_if_a_trial_is_disturbed_to_its_end_its_error_says_by_how_much() -> None:
    world = FakeWorld(lambda number, size: 0.1, sizes=[8], kept_s=lambda number: 0.3)
    timing = world.time(LIMITS)
    assert timing.step.step_s == pytest.approx(0.4)
    assert timing.step.relative_error == pytest.approx(0.75)
    assert world.now_s < 8


def test_steps_that_wait_shortly_are_not_disturbed() -> None:
    world = FakeWorld(lambda number, size: 0.1, sizes=[8], kept_s=lambda number: 0.004)
    timing = world.time(LIMITS)
    assert timing.num_timed == 3 and timing.step.relative_error < KNOWN_TO
    assert timing.step.step_s == pytest.approx(0.104)


def test_a_thread_that_is_kept_from_its_core_says_so() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        # On this core alone: since the machine started, a hypervisor may have taken more of one
        # core than of another.
        with closing(CoreWait()) as wait:
            before_s = wait.waited_s()
            with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as beside:
                try:
                    until = time.monotonic() + 20
                    while wait.waited_s() - before_s < 0.05 and time.monotonic() < until:
                        sum(range(100_000))
                finally:
                    beside.kill()
            assert wait.waited_s() - before_s >= 0.05
    finally:
        os.sched_setaffinity(0, cores)


def test_a_processs_own_threads_on_its_core_are_no_wait() -> None:
    def compute() -> None:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            hashlib.sha256(bytes(4_000_000))  # without the interpreter's lock

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with closing(CoreWait()) as wait, Path("/proc/thread-self/schedstat").open() as counter:
            before_s, counted = wait.waited_s(), int(counter.read().split()[1])
            other = threading.Thread(target=compute)
            other.start()
            compute()
            other.join()
            waited_s = wait.waited_s() - before_s
            counter.seek(0)
            counted_s = (int(counter.read().split()[1]) - counted) / 1e9
    finally:
        os.sched_setaffinity(0, cores)
    # The other thread took half of the core, whatever else took of it.
    assert counted_s > 0.1 and waited_s < counted_s - 0.1


def test_time_that_a_hypervisor_takes_from_the_threads_cores_is_waiting(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    others = max(cores) + 1

    def write(own: int, other: int) -> None:
        lines = [f"cpu 9 9 9 9 9 9 9 {own * len(cores) + other} 0 0"]
        lines += [f"cpu{core} 9 9 9 9 9 9 9 {own} 0 0" for core in cores]
        lines += [f"cpu{others} 9 9 9 9 9 9 9 {other} 0 0", "intr 5", "ctxt 7"]
        stat.write_text("\n".join(lines) + "\n")

    stat, missing = tmp_path / "stat", tmp_path / "missing"
    write(100, 0)
    with closing(CoreWait(stat)) as wait, closing(CoreWait(missing)) as without:
        before_s = wait.waited_s() - without.waited_s()
        write(100, 50_000)  # of a core that the thread may not use
        of_others_s = wait.waited_s() - without.waited_s() - before_s
        write(100 + 3 * os.sysconf("SC_CLK_TCK"), 50_000)
        own_s = wait.waited_s() - without.waited_s() - before_s
    # The two counters' times on the run queue are read one after the other.
    assert of_others_s == pytest.approx(0.0, abs=0.5)
    assert own_s == pytest.approx(3.0, abs=0.5)


def test_steady_steps_are_timed_no_longer_than_need_be() -> None:
    world = FakeWorld(lambda number, size: 0.1, sizes=[8])
    timing = world.time(LIMITS)
    assert timing.num_timed == 3 and world.trained == 4
    assert timing.step.step_s == pytest.approx(0.1) and timing.step.relative_error < KNOWN_TO


def test_the_first_steps_extra_cost_is_told_apart() -> None:
    world = FakeWorld(lambda number, size: 5.0 if number == 0 else 0.1, sizes=[8])
    timing = world.time(LIMITS)
    assert timing.step.step_s == pytest.approx(0.1)
    assert timing.warmup_s == pytest.approx(4.9)
    assert world.time(Limits(warmup=0, least=3, most=30)).warmup_s is None


def test_an_outlier_leads_to_more_steps() -> None:
    world = FakeWorld(lambda number, size: 0.4 if number == 2 else 0.05, sizes=[8])
    timing = world.time(LIMITS)
    assert 3 < timing.num_timed < 15
    assert timing.step.step_s == pytest.approx(0.05)


def test_noise_is_timed_until_it_is_known_or_enough_was_taken() -> None:
    rng = random.Random(1)
    noisy = FakeWorld(lambda number, size: 0.01 * rng.lognormvariate(0, 0.08), sizes=[8])
    timing = noisy.time(LIMITS)
    assert 3 < timing.num_timed < 30 and timing.step.relative_error <= KNOWN_TO
    wild = FakeWorld(lambda number, size: 0.01 * rng.lognormvariate(0, 1.0), sizes=[8])
    timing = wild.time(LIMITS)
    assert timing.num_timed == 30 and timing.step.relative_error > KNOWN_TO


def test_slow_steps_end_the_budget() -> None:
    rng = random.Random(1)
    world = FakeWorld(lambda number, size: rng.uniform(0.5, 1.5), sizes=[8])
    assert world.time(LIMITS).num_timed == 3
    faster = FakeWorld(lambda number, size: rng.uniform(0.1, 0.3), sizes=[8])
    assert 3 < faster.time(LIMITS).num_timed < 20


def test_a_fixed_number_of_steps_is_what_it_says() -> None:
    rng = random.Random(1)
    world = FakeWorld(lambda number, size: rng.uniform(0.1, 0.9), sizes=[8, 80])
    assert world.time(Limits(warmup=1, least=3, most=3)).num_timed == 3
    assert world.fetched == world.trained == 4


def test_what_is_told_is_the_mean_over_the_tasks_batches() -> None:
    sizes = [10, 12, 8, 14, 9, *[40, 90, 64, 200, 30, 110, 75, 52]]
    cost = 0.02
    world = FakeWorld(lambda number, size: 0.1 + cost * size, sizes, different_steps=len(sizes))
    timing = world.time(LIMITS)
    assert timing.step.step_s == pytest.approx(0.1 + cost * statistics.fmean(sizes))
    assert world.fetched == len(sizes), "an epoch was looked at, and no more"


def test_looking_at_batches_ends_with_its_time() -> None:
    world = FakeWorld(lambda number, size: 0.01, sizes=[10, 20, 30], fetch_s=0.2)
    timing = world.time(LIMITS)
    assert world.fetched < 4 + 4 + timing.num_timed


def test_a_task_that_is_shorter_than_its_trial_is_timed_too() -> None:
    world = FakeWorld(lambda number, size: 0.01 * size, sizes=[10, 30], different_steps=2)
    assert world.time(LIMITS).step.step_s == pytest.approx(0.2)


def test_ranks_of_a_gang_take_the_same_steps_whatever_their_own_clocks_say() -> None:
    num_ranks = 3
    barrier = threading.Barrier(num_ranks, timeout=30)
    board: list[Sequence[float]] = [()] * num_ranks

    def sum_of(rank: int) -> Callable[[Sequence[float]], list[float]]:
        def total(values: Sequence[float]) -> list[float]:
            board[rank] = list(values)
            barrier.wait()
            # Added in an order of the rank's own, as reductions may.
            ranks = [*range(rank, num_ranks), *range(rank)]
            sums = [0.0] * len(values)
            for one in ranks:
                sums = [a + b for a, b in zip(sums, board[one], strict=True)]
            barrier.wait()
            return sums

        return total

    def run(rank: int) -> None:
        rng = random.Random(rank)
        world = FakeWorld(
            lambda number, size: 0.01 * size * rng.lognormvariate(0, 0.2),
            sizes=[4 + rank, 9, 17 - rank, 30],
            # One rank fetches so slowly that it sees fewer batches than the others.
            fetch_s=0.1 if rank == 1 else 0.0,
            rank=rank,
            world_size=num_ranks,
            total=sum_of(rank),
        )
        found[rank] = (world.time(LIMITS), world.trained)

    found: dict[int, tuple[Timing, int]] = {}
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    timings = [found[rank][0] for rank in range(num_ranks)]
    assert {found[rank][1] for rank in range(num_ranks)} == {1 + timings[0].num_timed}
    assert timings[0].num_timed > 3
    assert timings[0] == timings[1] == timings[2]
