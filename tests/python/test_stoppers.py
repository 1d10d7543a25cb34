"""What stoppers say of tasks, from what these report alone: no run."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from saturn.errors import InvalidInput
from saturn.stoppers import (
    ASHA,
    GO_ON,
    HOLD,
    STOP,
    Median,
    NaN,
    Plateau,
    Progress,
    Ruling,
    Stopper,
    Target,
    TimeLimit,
)
from saturn.stoppers.given import Reports, stoppers_of, with_metrics
from saturn.tuning.tuner import Stopping


def made(stopper: Any, metric: str = "loss", mode: str = "min") -> Stopping:
    (one,) = stoppers_of(stopper)
    task = Reports(name="a", only_loss=metric == "loss", best=(metric, mode), evaluates=True)
    return Stopping(with_metrics([one], [task]))


class Search:
    """Tasks that train as they are told, and a tuner that holds and ends them."""

    def __init__(self, tuner: Stopping, steps: int, names: Iterable[str]) -> None:
        self.tuner = tuner
        self.tasks = {name: Progress(name) for name in names}
        for task in self.tasks.values():
            task.steps, task.stage = steps, "training"
        self.said: list[Ruling] = []

    def report(self, name: str, step: int, value: float, metric: str = "loss") -> list[Ruling]:
        task = self.tasks[name]
        task.add(step, {metric: value})
        said = list(self.tuner.looked(task, self.tasks))
        self.take(said)
        return said

    def take(self, said: Iterable[Ruling]) -> None:
        for one in said:
            self.said.append(one)
            stages = {GO_ON: "training", HOLD: "held", STOP: "ended"}
            self.tasks[one.task].stage = stages[one.ruling]
            if one.ruling == STOP:
                self.tasks[one.task].end = "stopped"

    def train(self, values: Mapping[str, float], rng: random.Random, at_once: int) -> None:
        """Train `at_once` of the tasks at a time, in any order, until only held ones are left."""
        while True:
            ready = [name for name, task in self.tasks.items() if task.stage == "training"]
            if not ready:
                before = len(self.said)
                self.take(self.tuner.at_rest(self.tasks))
                if len(self.said) == before:
                    return
                continue
            task = self.tasks[rng.choice(ready[:at_once])]
            self.report(task.name, task.step + 1, values[task.name] + 1 / (task.step + 1))
            if task.step == task.steps and task.stage == "training":
                task.stage, task.end = "ended", "done"

    def ends(self) -> dict[str, tuple[str | None, int]]:
        return {name: (task.end, task.step) for name, task in self.tasks.items()}


def words(said: Iterable[Ruling]) -> list[tuple[str, str]]:
    return [(one.task, one.ruling) for one in said]


def test_one_in_eta_goes_on_from_each_rung() -> None:
    """27 tasks, η = 3: 9 go on from the first rung, 3 from the second, and one ends the training.

    Whichever order they come in, the best is the one; tasks that went on too early, before better
    ones had come, are few.
    """
    for seed in range(5):
        rng = random.Random(seed)
        values = {f"t{index}": index / 27 for index in range(27)}
        search = Search(made(ASHA(min_steps=1)), 27, values)
        search.train(values, rng, at_once=rng.choice([1, 4, 27]))
        ends = search.ends()
        assert ends["t0"] == ("done", 27)
        reached = [sum(step >= rung for _, step in ends.values()) for rung in (1, 3, 9, 27)]
        assert reached[0] == 27
        assert 9 <= reached[1] <= 15
        assert 3 <= reached[2] <= 8
        assert {end for end, _ in ends.values()} == {"done", "stopped"}


def test_a_task_that_is_held_goes_on_when_others_turn_out_worse() -> None:
    search = Search(made(ASHA(min_steps=2, eta=2)), 8, "abcd")
    assert words(search.report("a", 1, 0.9)) == []
    assert words(search.report("a", 2, 0.5)) == [("a", HOLD)]
    assert words(search.report("b", 2, 0.7)) == [("a", GO_ON), ("b", HOLD)]
    assert words(search.report("c", 2, 0.6)) == [("c", HOLD)]  # one of three goes on: a has
    said = search.report("d", 2, 0.9)
    assert words(said) == [("c", GO_ON), ("d", HOLD)]
    assert said[0].reason == "place 2 of 4 at step 2 is good enough"
    assert said[1].reason == "place 4 of 4 at step 2: only the best 2 go on"
    # The next rung: of one task none goes on, of two the better.
    assert words(search.report("a", 4, 0.3)) == [("a", HOLD)]
    assert words(search.report("c", 4, 0.2)) == []


def test_of_the_held_tasks_the_best_trains_ahead_where_another_is_further() -> None:
    search = Search(made(ASHA(min_steps=2, eta=2)), 16, "abcde")

    def asked(about: str) -> list[tuple[str, str]]:
        said = list(getattr(search.tuner, about)(search.tasks))
        search.take(said)
        for one in said:
            search.tasks[one.task].train_ahead(one.ruling == GO_ON)
        return words(said)

    for name, value in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True):
        search.report(name, 2, value)
    assert search.tasks["a"].stage == search.tasks["b"].stage == "training"
    assert asked("idle") == []  # none is further than those that are held
    search.report("a", 4, 0.1)
    search.take([Ruling("a", GO_ON, "it is the best, and nothing else is left to train")])
    assert asked("idle") == [("c", GO_ON)]
    assert asked("idle") == [("d", GO_ON)]
    assert asked("idle") == []
    assert asked("crowded") == [("d", HOLD)]  # the worse of the two
    # It is judged at its next rung as any other task.
    assert words(search.report("c", 4, 0.5)) == [("c", HOLD)]
    search.tasks["c"].train_ahead(False)
    assert asked("idle") == [("d", GO_ON)]  # `c` is at the rung of `a` now
    assert asked("idle") == []


def test_what_trains_ahead_is_held_where_no_other_task_is_left() -> None:
    search = Search(made(ASHA(min_steps=2, eta=2)), 8, "ab")
    search.report("a", 2, 0.1)
    search.report("b", 2, 0.2)
    search.tasks["b"].stage = "training"
    search.tasks["b"].train_ahead(True)
    assert words(search.tuner.at(1.0, search.tasks)) == []
    search.tasks["a"].stage, search.tasks["a"].end = "ended", "done"
    said = list(search.tuner.at(1.0, search.tasks))
    assert words(said) == [("b", HOLD)]
    search.take(said)
    assert words(search.tuner.at_rest(search.tasks)) == [("b", STOP)]


def test_the_best_is_trained_to_its_end_where_the_rungs_leave_nobody() -> None:
    search = Search(made(ASHA(min_steps=1)), 27, "ab")
    search.train({"a": 0.2, "b": 0.1}, random.Random(0), at_once=2)
    assert search.ends() == {"a": ("stopped", 1), "b": ("done", 27)}


@pytest.mark.parametrize("value", [0.5, math.nan, 0.05])
def test_a_held_task_goes_on_if_all_that_were_trained_to_their_ends_were_worse(
    value: float,
) -> None:
    """A short task comes to its end before the stopper has seen its values."""
    search = Search(made(ASHA(min_steps=1)), 9, "abc")
    assert words(search.report("a", 1, 0.1)) == [("a", HOLD)]
    assert words(search.report("b", 1, 0.2)) == [("b", HOLD)]
    quick = search.tasks["c"]
    quick.stage, quick.end = "ended", "done"
    quick.add(9, {"loss": value})
    said = list(search.tuner.at_rest(search.tasks))
    if value < 0.1:
        assert words(said) == [("a", STOP), ("b", STOP)]
        return
    assert words(said) == [("a", GO_ON)]
    assert said[0].reason == "at step 1 it is better than every task that was trained to its end"
    a = search.tasks["a"]
    a.stage, a.end = "ended", "done"
    assert words(search.tuner.at_rest(search.tasks)) == [("b", STOP)]


def test_what_is_no_number_is_last_and_sparse_values_count_at_the_rung_that_they_pass() -> None:
    search = Search(made(ASHA(min_steps=1, eta=2)), 8, "abcd")
    assert words(search.report("a", 1, math.nan)) == [("a", HOLD)]
    # Past two rungs at once: it is measured at both, and held at the higher.
    said = search.report("b", 3, 0.5)
    assert words(said) == [("b", HOLD)]
    assert "step 2" in said[0].reason
    assert words(search.report("c", 1, 0.6)) == [("c", HOLD)]
    assert words(search.report("d", 1, 0.9)) == [("c", GO_ON), ("d", HOLD)]


def test_lengths_are_compared_at_the_same_share_of_the_training() -> None:
    asha = ASHA(metric="loss")
    short, long, unknown = Progress("short"), Progress("long"), Progress("unknown")
    short.steps, long.steps = 54, 2700
    assert asha.rungs(short) == [2, 6, 18]
    assert asha.rungs(long) == [100, 300, 900]
    assert asha.rungs(unknown) == []


@pytest.mark.parametrize("stopper", [ASHA(), ASHA(min_steps=10), Median(min_steps=10)])
def test_steps_of_a_task_that_is_continued_are_no_steps_to_judge_by(stopper: Stopper) -> None:
    """Four tasks go on from step 100 with other learning rates, and the last is the best."""
    search = Search(made(stopper), 370, "abcd")
    for name in search.tasks:
        search.tasks[name].first_step = 100
        assert search.report(name, 101, 0.5) == []
    assert ASHA(min_steps=10).rungs(search.tasks["a"]) == [110, 130, 190]
    assert ASHA().rungs(search.tasks["a"]) == [110, 130, 190]
    for name, value in zip("abcd", (0.4, 0.3, 0.2, 0.1), strict=True):
        search.report(name, 110, value)
    assert search.tasks["d"].stage == "training"
    assert search.tasks["a"].stage != "training" or isinstance(stopper, Median)


def test_worse_than_the_median_of_others_ends() -> None:
    search = Search(made(Median(min_steps=2), "acc", "max"), 10, "abcd")
    for step in (1, 2, 3):
        for name, value in (("a", 0.9), ("b", 0.8), ("c", 0.7)):
            assert search.report(name, step, value, "acc") == []
    assert search.report("d", 1, 0.1, "acc") == []  # too early to tell
    said = search.report("d", 2, 0.1, "acc")
    assert words(said) == [("d", STOP)]
    assert said[0].reason == "its best acc is worse than the median of others, 0.8 at step 2"


def test_a_plateau_ends() -> None:
    search = Search(made(Plateau(steps=3, min_delta=0.01)), 20, "a")
    for step, value in ((1, 0.5), (2, 0.4), (3, 0.395), (4, 0.399)):
        assert search.report("a", step, value) == []
    said = search.report("a", 5, 0.391)
    assert [(one.ruling, one.reason) for one in said] == [
        (STOP, "its loss has not got better since step 2")
    ]


def test_a_target_ends_one_task_or_all() -> None:
    search = Search(made(Target(value=0.5), "acc", "max"), 20, "ab")
    assert search.report("a", 1, 0.4, "acc") == []
    assert words(search.report("a", 2, 0.5, "acc")) == [("a", STOP)]
    search = Search(made(Target(value=0.5, stop_all=True)), 20, "ab")
    assert words(search.report("a", 2, 0.1)) == [("a", STOP), ("b", STOP)]


def test_no_number_ends_and_so_does_the_time() -> None:
    search = Search(made(NaN()), 20, "ab")
    assert search.report("a", 1, 1e9) == []
    assert words(search.report("a", 2, math.nan)) == [("a", STOP)]
    search = Search(made(TimeLimit(seconds=10)), 20, "ab")
    assert list(search.tuner.at(9.9, search.tasks)) == []
    assert words(search.tuner.at(10.0, search.tasks)) == [("a", STOP), ("b", STOP)]


def test_a_function_says_so_with_its_reason_or_its_name() -> None:
    def diverges(task: Progress) -> bool:
        return task.values("loss")[-1][1] > 10

    search = Search(made(diverges), 20, "a")
    assert search.report("a", 1, 3.0) == []
    (said,) = search.report("a", 2, 11.0)
    assert (said.ruling, said.reason) == (STOP, "diverges says so")
    search = Search(made(lambda task: "enough" if task.step > 1 else None), 20, "a")
    assert search.report("a", 1, 3.0) == []
    assert search.report("a", 2, 3.0)[0].reason == "enough"


def test_of_several_stoppers_the_strictest_counts() -> None:
    task = Reports(name="a", only_loss=True, best=None, evaluates=False)
    given = stoppers_of([ASHA(min_steps=1), NaN()])
    search = Search(Stopping(with_metrics(given, [task])), 9, "ab")
    assert words(search.report("a", 1, math.nan)) == [("a", STOP)]
    assert words(search.report("b", 1, 0.5)) == [("b", HOLD)]


def test_a_metric_is_the_one_that_tasks_call_the_best_by() -> None:
    loss = Reports(name="plain", only_loss=True, best=None, evaluates=False)
    acc = Reports(name="acc", only_loss=False, best=("acc", "max"), evaluates=True)
    unsaid = Reports(name="unsaid", only_loss=False, best=None, evaluates=True)
    f1 = Reports(name="f1", only_loss=False, best=("f1", "max"), evaluates=True)

    def goal(stopper: Stopper, *tasks: Reports) -> tuple[str | None, str | None]:
        (one,) = with_metrics([stopper], tasks)
        return one.metric, one.mode

    assert goal(ASHA(), loss) == ("loss", "min")
    assert goal(ASHA(), acc, acc) == ("acc", "max")
    assert goal(ASHA(metric="acc"), acc, unsaid) == ("acc", "max")
    assert goal(ASHA(metric="loss"), acc) == ("loss", "min")
    for tasks, words_ in (
        ((unsaid,), "task `unsaid` does not say which of its metrics counts"),
        ((acc, f1), r"the tasks have several \(`acc`, `f1`\)"),
        ((acc, loss), "`acc`, which task `plain` never reports, since it evaluates nothing"),
    ):
        with pytest.raises(InvalidInput, match=words_):
            goal(ASHA(), *tasks)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ahsa", "there is no stopper `ahsa`; .*`asha`"),
        ({"kind": "asha", "etta": 4}, "the stopper `asha` has no `etta`; .*`eta`"),
        ({"kind": "asha", "eta": 1}, "the stopper `asha`: eta of ASHA is 1; it must be at least 2"),
        ({"kind": "plateau"}, '`plateau` needs `steps`: { kind = "plateau", steps = … }'),
        ({"kind": "target"}, "the stopper `target` needs `value`"),
        ([], "stopper is an empty list"),
    ],
)
def test_what_is_no_stopper_is_refused_in_words(given: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        stoppers_of(given)


def test_a_class_or_a_number_is_no_stopper() -> None:
    with pytest.raises(TypeError, match=r"stopper is the class ASHA; it must be ASHA\(…\)"):
        stoppers_of(ASHA)
    with pytest.raises(TypeError, match=r"stopper is a int; it must be one of saturn\.stoppers"):
        stoppers_of(3)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'value'"):
        Target()
    with pytest.raises(ValueError, match='mode of ASHA is \'up\'; it must be "min" or "max"'):
        ASHA(mode="up")
