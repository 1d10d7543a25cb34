"""What tasks report on its way to the tuner, and what that says on its way to the run."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from saturn import native
from saturn.errors import RunFailed, RunOver
from saturn.plain import working_directory
from saturn.runs.live import Run
from saturn.stoppers import ASHA, Median, NaN, Progress, Target, TimeLimit
from saturn.stoppers.given import Reports, stoppers_of, with_metrics
from saturn.stoppers.stopper import AHEAD
from saturn.tuning.reports import TaskReports
from saturn.tuning.scope import Scope
from saturn.tuning.tuner import Stopping, Tuner
from saturn.tuning.watch import Watch
from waiting import until


def lines(*points: dict[str, Any]) -> str:
    return "".join(json.dumps(point) + "\n" for point in points)


def test_a_loss_is_averaged_and_seen_ever_more_rarely(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reports = TaskReports("a", path, {"loss"})
    assert list(reports.read()) == []
    path.write_text(lines(*({"step": step, "loss": float(step)} for step in range(1, 201))))
    looks = list(reports.read())
    assert [look.step for look in looks[:60]] == [*range(1, 51), *range(51, 61)]
    assert [look.step for look in looks[-4:]] == [189, 192, 195, 198]
    assert looks[0].values == {"loss": 1.0} and looks[9].values == {"loss": 5.5}
    assert looks[-1].values == {"loss": 193.5}
    # What is no number is seen at once; a torn line is passed over, and half a line waits.
    with path.open("a") as file:
        file.write('{"step": 198, "lo\n' + lines({"step": 199, "loss": None}) + '{"step": 202, ')
    (look,) = reports.read()
    assert look.step == 199 and math.isnan(look.values["loss"])
    with path.open("a") as file:
        file.write('"loss": 1.0}\n')
    assert [look.step for look in reports.read()] == [202]


def test_what_was_seen_is_not_seen_again_though_it_is_trained_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = lines({"step": 1, "loss": 4.0}, {"step": 2, "loss": 2.0})
    path.write_text(first + lines({"step": 2, "evaluation": {"acc": 0.5, "f1": 0.1}}))
    reports = TaskReports("a", path, {"loss", "acc"})
    reports.was_seen(1, ["loss"])
    seen = [(look.step, look.values) for look in reports.read()]
    assert seen == [(2, {"loss": 3.0}), (2, {"acc": 0.5})]
    assert reports.evaluated == {"acc", "f1"}
    again = [{"step": 2, "loss": 2.0}, {"step": 2, "evaluation": {"acc": 0.5}}]
    with path.open("a") as file:
        file.write(lines(*again, {"step": 3, "loss": 6.0}))
    assert [(look.step, look.values) for look in reports.read()] == [(3, {"loss": 4.0})]


class FakeRun(Run):
    """A run that is looked at and told things; tasks are what `stages` says."""

    def __init__(self, run_dir: Path, names: str) -> None:
        super().__init__(run_dir)
        self.stages = dict.fromkeys(names, "running")
        self.after: dict[str, list[str]] = {}
        self.lacking: set[str] = set()
        self.rests: set[str] = set()
        self.paused: set[str] = set()
        #: Tasks that train on though they are to be held, as scripts that could not go on.
        self.trains_on: set[str] = set()
        #: The steps of the tasks that they continue.
        self.first_steps: dict[str, int] = {}
        self.judged: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.has_ended = False
        #: By default none is idle.
        self.devices: int | None = None
        #: Whether tasks that go on can use no device that is idle.
        self.is_unfit = False
        for name in names:
            (run_dir / name).mkdir()
        (run_dir / "journal.db").touch()

    def told(self, run_dir: Path) -> str:
        """What the run's process tells of its status."""
        tasks = [
            {
                "name": name,
                "dir": name,
                "steps": 8,
                "stage": "paused" if name in self.paused else stage,
                "attempt": 1 if stage == "running" else None,
                "after": self.after.get(name, []),
                "lacks_devices": name in self.lacking,
                **({"is_rest": True} if name in self.rests else {}),
                **({"is_held": True} if stage == "held" else {}),
                "start_step": self.first_steps.get(name, 0),
            }
            for name, stage in self.stages.items()
        ]
        busy = sum(stage == "running" for stage in self.stages.values())
        pool = {"devices": self.devices or busy, "busy": busy}
        status = {"is_closed": True, "now_s": 5.0, "tasks": tasks, "pool": pool}
        return json.dumps({**status, "trials": {"open": 0}})

    def _command(self, command: dict[str, Any]) -> None:
        if self.has_ended:
            raise RunOver("it has ended")
        if command["command"] == "note":
            self.notes.append(command["text"])
            return
        goes_on = "waiting" if self.is_unfit else "running"
        stages = {"hold": "held", "stop": "stopped", "go_on": goes_on}
        for one in command["judgements"]:
            self.judged.append(one)
            is_refused = one.get("ruling") == "hold" and one["task"] in self.trains_on
            if "ruling" in one and not is_refused:
                self.stages[one["task"]] = stages[one["ruling"]]

    def report(self, name: str, step: int, loss: float | str | None) -> None:
        with (self.run_dir / name / "metrics.jsonl").open("a") as file:
            file.write(lines({"step": step, "loss": loss}))

    def words(self) -> list[tuple[str, str]]:
        return [(one["task"], one["ruling"]) for one in self.judged if "ruling" in one]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, FakeRun], Watch]:
    def begun(stopper: Any, run: FakeRun) -> Watch:
        monkeypatch.setattr(native, "status", run.told)
        monkeypatch.setattr(native, "is_driven", lambda run_dir: not run.has_ended)
        monkeypatch.setattr(native, "judged", lambda run_dir: json.dumps(run.judged))
        script = Reports(name="a", only_loss=False, best=None, evaluates=False)
        is_tuner = isinstance(stopper, Tuner)
        tuner = stopper if is_tuner else Stopping(with_metrics(stoppers_of(stopper), [script]))
        watch = Watch(tuner, Scope(run))
        watch.begin()
        return watch

    return begun


def test_a_task_after_one_that_diverged_waits_for_a_device(tmp_path: Path) -> None:
    """So tasks that train ahead give theirs up."""
    run = FakeRun(tmp_path, "ab")
    run.after, run.devices = {"b": ["a"]}, 2
    watch = Watch(Stopping([]), Scope(run))
    for stage, is_idle in (("running", True), ("failed", True), ("diverged", False)):
        run.stages = {"a": stage, "b": "waiting"}
        watch._look_at_devices(json.loads(run.told(tmp_path)))
        assert watch._is_idle is is_idle, stage


def test_a_run_that_does_not_answer_for_a_while_keeps_its_stopper(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = FakeRun(tmp_path, "a"), itertools.count()
    take = run._command

    def busy(command: dict[str, Any]) -> None:
        if next(calls) < 3:
            raise RunFailed("the process that drives the run does not answer")
        take(command)

    monkeypatch.setattr(run, "_command", busy)
    monkeypatch.setattr("saturn.tuning.watch._AGAIN_S", 0.01)
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("a", 2, 0.3)
    until(lambda: run.words() == [("a", "hold"), ("a", "go_on")])
    assert not one.has_given_up and not run.notes
    run.has_ended = True
    one.end()


def test_a_task_that_can_not_run_on_this_pool_keeps_no_held_task_waiting(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "ab")
    run.stages["b"] = "waiting"
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("a", 2, 0.3)
    until(lambda: run.stages["a"] == "held")
    run.lacking.add("b")
    until(lambda: run.stages["a"] == "running")
    run.has_ended = True
    one.end()


def test_an_idle_device_trains_a_held_task_ahead_until_another_needs_it(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saturn.tuning.watch._LASTING_S", 0.3)
    run = FakeRun(tmp_path, "abc")
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("a", 2, 0.1)
    until(lambda: run.stages["a"] == "held")
    run.report("b", 2, 0.3)
    until(lambda: run.stages["a"] == "running" and run.stages["b"] == "held")
    run.devices = 3  # one is idle, but no task is further than the held one
    time.sleep(1.0)
    assert run.stages["b"] == "held"
    run.report("c", 2, 0.4)
    until(lambda: run.stages["c"] == "held")
    run.report("a", 4, 0.1)
    # Of one at the second rung none goes on, but the best is to be trained to its end.
    until(lambda: all(stage == "running" for stage in run.stages.values()))
    run.has_ended = True
    one.end()
    told = [each["reason"] for each in run.judged if each.get("ruling") == "go_on"][-2:]
    assert told == [AHEAD, AHEAD]
    # Another process knows that they train ahead, and holds them where no other task trains.
    run.has_ended, run.stages["a"] = False, "done"
    again = watch([ASHA(min_steps=2, eta=2)], run)
    until(lambda: run.stages["b"] == run.stages["c"] == "stopped")
    assert run.words()[-4:-2] == [("b", "hold"), ("c", "hold")]
    run.has_ended = True
    again.end()


def test_a_task_that_no_idle_device_can_take_is_held_again_and_others_waits_count(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saturn.tuning.watch._LASTING_S", 0.3)
    run = FakeRun(tmp_path, "abc")
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("a", 2, 0.1)
    run.report("b", 2, 0.3)
    run.report("c", 2, 0.4)
    until(lambda: run.stages["a"] == "running" and run.stages["b"] == run.stages["c"] == "held")
    run.report("a", 4, 0.1)  # the best of all that are held goes on
    until(lambda: run.words()[-2:] == [("a", "hold"), ("a", "go_on")])
    run.devices, run.is_unfit = 2, True
    until(lambda: run.words()[-2:] == [("b", "go_on"), ("b", "hold")])
    run.is_unfit = False
    time.sleep(1.0)
    assert run.stages["b"] == run.stages["c"] == "held"  # no task is let go on in vain again
    run.has_ended = True
    one.end()
    # Another process knows nothing of that. While it trains `b` ahead, somebody else's task waits.
    run.has_ended = False
    again = watch([ASHA(min_steps=2, eta=2)], run)
    until(lambda: run.stages["b"] == "running")
    run.stages["other"], run.devices = "waiting", 3
    (tmp_path / "other").mkdir()
    until(lambda: run.stages["b"] == "held")
    run.has_ended = True
    again.end()


def test_what_is_said_reaches_the_run_with_the_values_that_it_rests_on(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "abc")
    run.after["c"], run.stages["c"] = ["a"], "waiting"
    one = watch([ASHA(min_steps=2, eta=2), NaN()], run)
    run.report("a", 1, 0.5)
    run.report("a", 2, 0.3)
    until(lambda: run.stages["a"] == "held")
    assert [(each["step"], each["values"]["loss"]) for each in run.judged] == [(1, 0.5), (2, 0.4)]
    run.report("b", 1, None)
    until(lambda: run.stages["b"] == "stopped")
    assert run.judged[2]["values"] == {"loss": "nan"}
    # All that is left is held, or comes after that: the best goes on, here the only one.
    until(lambda: run.stages["a"] == "running")
    assert run.words() == [("a", "hold"), ("b", "stop"), ("a", "go_on")]
    run.has_ended = True
    one.end()
    # Another process sees nothing twice, and knows what the first saw.
    seen = len(run.judged)
    run.has_ended = False
    two = watch([ASHA(min_steps=2, eta=2), NaN()], run)
    run.report("a", 4, 0.2)
    until(lambda: run.stages["a"] == "held" or len(run.judged) > seen + 1)
    two.end()
    assert run.judged[seen]["step"] == 4
    assert [one["task"] for one in run.judged if one["step"] == 1] == ["a", "b"]


def test_what_a_task_reported_before_its_end_is_seen_by_a_later_process(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "a")
    run.report("a", 8, 0.25)
    run.stages["a"] = "done"
    one = watch(ASHA(), run)
    until(lambda: bool(run.judged))
    assert run.judged[0]["values"] == {"loss": 0.25}
    run.has_ended = True
    one.end()


def test_any_stopper_ends_a_task_that_diverged_whatever_it_goes_by(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "ab")
    one = watch(Median(metric="acc"), run)
    for step in range(1, 11):
        run.report("a", step, "inf" if step % 2 else "nan")
        run.report("b", step, "nan" if step < 10 else 0.5)
    until(lambda: run.stages["a"] == "stopped")
    run.has_ended = True
    one.end()
    assert run.words() == [("a", "stop")]
    assert run.judged[0]["reason"] == "it has diverged: its last 10 losses are no finite numbers"


def test_time_ends_all_and_a_run_that_has_ended_is_told_nothing(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "ab")
    one = watch(TimeLimit(seconds=5), run)
    until(lambda: set(run.stages.values()) == {"stopped"})
    assert run.judged[0]["reason"] == "the run's time is over, after 5 s"
    run.has_ended = True
    one.end()
    assert run.notes == []


@pytest.mark.parametrize("stopper", [TimeLimit(seconds=5), Target(value=0.1, stop_all=True)])
def test_the_rest_of_a_script_that_has_trained_goes_on_though_all_is_to_end(
    stopper: Any, tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "abr")
    run.rests, run.after["r"] = {"r"}, ["a"]
    run.stages["a"] = "done"
    run.report("a", 1, 0.1)
    one = watch(stopper, run)
    until(lambda: run.stages["b"] == "stopped")
    run.has_ended = True
    one.end()
    assert run.stages == {"a": "done", "b": "stopped", "r": "running"}


def test_what_a_search_does_in_another_directory_moves_no_other_thread(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suggested script is run up to its training, in its own directory."""
    here, seen = Path.cwd(), list[Path]()
    monkeypatch.chdir(here)  # undone where the test moves all threads

    class Moving(Tuner):
        suggests = True

        def at(self, now_s: float, tasks: Any) -> list[Any]:
            os.chdir(tmp_path)
            seen.append(Path.cwd())
            return []

    with ThreadPoolExecutor() as other:  # not in this thread, which shares its directory
        is_allowed = other.submit(working_directory.of_this_thread_alone).result()
    run = FakeRun(tmp_path, "a")
    one = watch(Moving(), run)
    until(lambda: bool(seen))
    run.has_ended = True
    one.end()
    # Where the system forbids that, as some containers do, all threads share one directory.
    assert seen[0] == tmp_path and Path.cwd() == (here if is_allowed else tmp_path)


def test_a_metric_that_nobody_reports_is_pointed_out_once(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "abr")
    run.rests = {"r"}
    one = watch(ASHA(metric="acc"), run)
    run.stages["r"] = "done"  # the rest of a script trains nothing
    path = tmp_path / "a" / "metrics.jsonl"
    path.write_text(lines({"step": 2, "evaluation": {"eval_loss": 0.5}}))
    until(lambda: bool(run.notes))
    with path.open("a") as file:
        file.write(lines({"step": 4, "evaluation": {"eval_loss": 0.4}}))
    run.stages["b"] = "done"
    until(lambda: len(run.notes) == 2)
    one.end()
    assert run.notes == [
        "its stopper goes by `acc`, which this task does not report: it reports `eval_loss`",
        "its stopper goes by `acc`, which this task does not report: it was never evaluated",
    ]


def test_a_stopper_that_raises_leaves_the_run_to_itself(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    def raises(task: Progress) -> bool:
        if task.step > 1:
            raise KeyError("width")
        return False

    run = FakeRun(tmp_path, "ab")
    run.stages["b"] = "held"
    one = watch(raises, run)
    run.report("a", 1, 0.5)
    run.report("a", 2, 0.5)
    until(lambda: run.stages["b"] == "running")
    one.end()
    assert run.notes == [
        "the stopper fails: it decides nothing any more, and tasks that it held go on: "
        "KeyError: 'width'"
    ]
