"""A steered sweep of a pool: its tuner sees and decides about the tasks of that sweep alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faces import make_task
from fake_pool import Failing, FakePool, ends_bad
from saturn.errors import InvalidInput, NotPicklable, Refused
from saturn.runs import request
from saturn.runs.live import Run
from saturn.runs.run import attach
from saturn.stoppers import ASHA, Progress
from saturn.stoppers.rules import Function
from saturn.tasks.surroundings import SUBMITTED
from saturn.tuning import steer, steered, supervise
from saturn.tuning.pool import Pool
from saturn.tuning.steered import About, SteeredSweep
from saturn.tuning.tuner import Stopping, Tuner


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePool:
    return FakePool(tmp_path, monkeypatch)


def test_a_stopper_decides_about_its_own_sweep_alone(pool: FakePool) -> None:
    pool.stages = {"mine-a": "running", "mine-b": "done", "theirs": "running"}
    for name in pool.stages:
        pool.report(name, 5.0)
    sweep = pool.sweep("mine", ends_bad(), ["mine-a", "mine-b"])
    steer.main(pool.run_dir, "mine")
    # It ends although another task trains.
    assert pool.judged() == [("mine-a", "stop")]
    assert (sweep.directory / "over").exists() and pool.stages["theirs"] == "running"


def test_a_cancelled_sweep_ends_with_its_tasks(pool: FakePool) -> None:
    pool.stages = {"mine-a": "running", "mine-b": "done", "theirs": "running"}
    sweep = pool.sweep("mine", ends_bad(), ["mine-a", "mine-b"])
    (sweep.directory / "cancel").touch()
    steer.main(pool.run_dir, "mine")
    assert pool.stages == {"mine-a": "cancelled", "mine-b": "done", "theirs": "running"}
    assert (sweep.directory / "over").exists()


def test_held_tasks_go_on_if_their_tuner_can_not_be_loaded(pool: FakePool) -> None:
    pool.stages = {"mine-a": "held", "theirs": "held"}
    sweep = pool.sweep("mine", ends_bad(), ["mine-a"])
    (sweep.directory / "tuner.pkl").write_bytes(b"torn")
    raised: list[BaseException] = []

    def steers() -> None:
        try:
            steer.main(pool.run_dir, "mine")
        except InvalidInput as error:
            raised.append(error)

    goes_on_until_it_is_cancelled(pool, sweep, steers, [("mine-a", "go_on")])
    assert "can't be loaded" in str(raised[0])
    assert "the tuner of the sweep `mine` can't be loaded" in pool.told[0]["text"]


def goes_on_until_it_is_cancelled(
    pool: FakePool,
    sweep: SteeredSweep,
    steers: Callable[[], None],
    judged: list[tuple[str, str]],
) -> None:
    """Without its tuner a sweep's tasks go on, and its name still cancels them."""
    process = threading.Thread(target=steers, daemon=True)
    process.start()
    deadline = time.monotonic() + 100
    while pool.judged() != judged:
        assert time.monotonic() < deadline, pool.told
        time.sleep(0.01)
    assert process.is_alive() and not (sweep.directory / "over").exists()
    Pool(pool.run_dir).cancel("mine")
    process.join(timeout=100)
    assert not process.is_alive() and (sweep.directory / "over").exists()
    mine = {stage for name, stage in pool.stages.items() if sweep.has(name)}
    assert mine == {"cancelled"}


def accuracy(model: Any) -> dict[str, float]:
    return {"accuracy": 1.0}


def fails(task: Progress) -> bool:
    raise ValueError("no such column")


def test_a_stopper_that_raises_decides_no_more_and_is_named(pool: FakePool) -> None:
    pool.stages = {"mine-a": "running", "mine-b": "held"}
    pool.report("mine-a", 1.0)
    failing = Stopping([Function(function=fails, metric="loss", mode="min")])
    sweep = pool.sweep("mine", failing, ["mine-a", "mine-b"])
    steers = partial(steer.main, pool.run_dir, "mine")
    goes_on_until_it_is_cancelled(pool, sweep, steers, [("mine-b", "go_on")])
    assert "the stopper of the sweep `mine` fails" in pool.told[0]["text"]
    assert sweep.has_given_up


def test_the_held_tasks_of_a_search_that_raises_go_on(pool: FakePool) -> None:
    """Nobody else would ever let them go on, and a pool isn't stopped for one search."""
    pool.stages = {"mine-trial-0": "running", "mine-trial-1": "held", "theirs": "held"}
    sweep = pool.sweep("mine", Failing(), None)
    steers = partial(steer.main, pool.run_dir, "mine")
    goes_on_until_it_is_cancelled(pool, sweep, steers, [("mine-trial-1", "go_on")])
    assert "it suggests no more tasks" in pool.told[0]["text"]


def test_a_sweep_whose_tasks_never_came_is_over(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steer, "_NEVER_CAME_S", 0.0)
    sweep = pool.sweep("mine", ends_bad(), ["mine-a"])
    steer.main(pool.run_dir, "mine")
    assert (sweep.directory / "over").exists() and not pool.told


def test_the_process_of_a_sweep_that_was_refused_ends(pool: FakePool) -> None:
    sweep = pool.sweep("mine", ends_bad(), ["mine-a"])
    process = threading.Thread(target=steer.main, args=(pool.run_dir, "mine"), daemon=True)
    process.start()
    assert pool.was_asked.wait(100)
    steered.withdraw(sweep.directory)
    process.join(timeout=100)
    assert not process.is_alive() and not pool.told
    assert not list((pool.run_dir / "steered").iterdir())


def test_a_searchs_tasks_are_known_by_their_names_and_its_time_counts_from_its_submission(
    pool: FakePool,
) -> None:
    sweep = pool.sweep("mine", Tuner(), None)
    names = ["mine-trial-0", "mine-trial-12", "mine-trial-x", "mine-trial-1-trial-0", "trial-0"]
    assert [sweep.has(name) for name in names] == [True, True, False, False, False]
    assert sweep.clock_s(pool.status()) == 30.0
    assert not sweep.is_complete(pool.status()) and sweep.takes_suggestions
    pool.is_closed = True
    assert not sweep.is_complete(pool.status()) and not sweep.takes_suggestions
    sweep.close()
    assert sweep.is_complete(pool.status()) and not pool.told


def test_what_is_refused_leaves_no_sweep_behind(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    goals = []

    def refuse(run: Run, *_: Any, **__: Any) -> None:
        goals.append(run._goal)
        raise Refused("no", "bad")

    task, stopper = make_task("mine-a"), ASHA(metric="loss")
    served = Pool(pool.run_dir)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_send", refuse)
        with pytest.raises(Refused):
            served.submit(task, stopper=stopper, name="mine")
    with pytest.raises(TypeError):
        served.submit(task, stopper=stopper, name="mine", priority="high")  # type: ignore[arg-type]
    assert not list((pool.run_dir / "steered").iterdir()) and goals == [{}]
    pool.sweep("mine", ends_bad(), ["mine-a"])
    with pytest.raises(Refused, match="the pool has a sweep `mine` already") as refused:
        served.submit(task, stopper=stopper, name="mine")
    assert refused.value.code == "name_taken" and not pool.told
    assert (pool.run_dir / "steered/mine" / SUBMITTED).exists()


def test_a_program_submits_tasks_with_a_stopper_and_cancels_them_by_their_name(
    pool: FakePool,
) -> None:
    served = attach(pool.run_dir)
    assert isinstance(served, Pool)
    tasks = [make_task(name, evaluate=accuracy, evaluate_every=5) for name in ("a", "b")]
    served.submit(tasks, stopper=ASHA(metric="accuracy", mode="max"), name="mine", priority=3)
    (submitted,) = pool.told
    described = [
        (one["name"], one["goal"], one["wishes"]["priority"]) for one in submitted["tasks"]
    ]
    goal = {"metric": "accuracy", "mode": "max"}
    assert described == [("a", goal, 3), ("b", goal, 3)]
    assert SteeredSweep(pool.run_dir, "mine").about == About(["a", "b"], 50.0)
    # Tasks without a stopper get no goal of another sweep's.
    served.submit(make_task("plain"))
    assert "goal" not in pool.told[-1]["tasks"][0]
    served.cancel("plain")
    assert pool.told[-1] == {"version": 1, "command": "cancel", "task": "plain"}
    served.cancel("mine")
    sweep = SteeredSweep(pool.run_dir, "mine")
    assert sweep.is_cancelled and len(pool.told) == 3
    sweep.mark_over()
    served.cancel("mine")
    assert pool.told[-1]["task"] == "mine", "the run refuses it: it has no such task"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"stopper": ASHA(metric="loss")}, "tasks with a stopper need a name"),
        ({"name": "mine"}, "there is no stopper"),
        ({"stopper": ASHA(metric="loss"), "name": "../mine"}, "would be called '../mine'"),
        ({"stopper": []}, "tasks with a stopper need a name"),
        ({"stopper": [], "name": "mine"}, "stopper is an empty list"),
    ],
)
def test_a_stopper_needs_a_name_and_a_name_a_stopper(
    pool: FakePool, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        Pool(pool.run_dir).submit(make_task("a"), **asked)
    assert not list((pool.run_dir / "steered").iterdir()) and not pool.told


def test_names_are_given_once(pool: FakePool) -> None:
    served = Pool(pool.run_dir)
    pool.sweep("lr", ends_bad(), ["a"])
    pool.sweep("drawn", Tuner(), None)
    pool.stages = {"theirs": "running", "later-trial-3": "running"}
    asha = ASHA(metric="loss")
    for submit, taken in (
        (lambda: served.submit(make_task("lr")), "sweep `lr`"),
        (lambda: served.submit(make_task("drawn-trial-7")), "search `drawn`"),
        (lambda: served.submit(make_task("b"), stopper=asha, name="theirs"), "task `theirs`"),
        (lambda: served._submit_search("later", Tuner(), priority=None), "task `later-trial-3`"),
        (lambda: served._submit_search("theirs", Tuner(), priority=None), "task `theirs`"),
    ):
        with pytest.raises(Refused, match=taken) as refused:
            submit()
        assert refused.value.code == "name_taken"
    assert not pool.told
    served.submit(make_task("lr-trial-7"))  # the tasks of `lr` have names of their own
    assert len(pool.told) == 1


def test_a_sweep_that_can_not_be_written_keeps_no_name(pool: FakePool) -> None:
    lock = threading.Lock()  # can't be pickled
    for _ in range(2):
        with pytest.raises(NotPicklable):
            Pool(pool.run_dir).submit(make_task("a"), stopper=lambda _: lock.locked(), name="mine")
    assert not list((pool.run_dir / "steered").iterdir()) and not pool.told


def test_a_closed_pool_takes_no_search(pool: FakePool) -> None:
    pool.is_closed = True
    with pytest.raises(InvalidInput, match="the pool is closed"):
        Pool(pool.run_dir)._submit_search("mine", Tuner(), priority=None)


class Hanging(Tuner):
    """A tuner that never comes back."""

    def at(self, now_s: float, tasks: Any) -> Any:
        threading.Event().wait()


def test_a_sweep_whose_stopper_hangs_is_cancelled_all_the_same(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steer, "_TO_END_S", 0.1)
    pool.stages = {"mine-a": "running", "theirs": "running"}
    sweep = pool.sweep("mine", Hanging(), ["mine-a"])
    process = threading.Thread(target=steer.main, args=(pool.run_dir, "mine"), daemon=True)
    process.start()
    assert pool.was_asked.wait(100)
    Pool(pool.run_dir).cancel("mine")
    process.join(timeout=100)
    assert not process.is_alive() and (sweep.directory / "over").exists()
    assert pool.stages == {"mine-a": "cancelled", "theirs": "running"}


def test_a_process_that_can_not_be_started_is_tried_again_and_no_other_waits_for_it(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    class Started:
        def poll(self) -> None:
            return None

    def start(run_dir: Path, name: str) -> Any:
        started.append(name)
        if started.count(name) == 1 and name == "first":
            raise FileNotFoundError("it was refused meanwhile")
        return Started()

    looks = iter([False, False, False, True])
    monkeypatch.setattr(supervise, "_start", start)
    monkeypatch.setattr(supervise, "_LOOK_S", 0.0)
    for name in ("first", "second"):
        pool.sweep(name, ends_bad(), ["a"])
    supervise._keep(pool.run_dir, lambda: True, lambda: next(looks))
    assert started == ["first", "second", "first"]


@pytest.mark.parametrize("options", [{}, {"stopper": "asha", "name": "mine"}])
def test_a_script_with_a_rest_is_submitted_with_it(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    task = make_task("a")
    task._rest = lambda of: make_task(f"{of.name}-rest")
    submitted: list[str] = []

    def packed(run: Run, tasks: Any) -> Any:
        found = request.checked_tasks(tasks)
        submitted.extend(one.name for one in found)
        raise Refused("that is enough", "busy")

    monkeypatch.setattr(Run, "_packed_here", packed)
    with pytest.raises(Refused, match="that is enough"):
        Pool(pool.run_dir).submit(task, **options)
    assert submitted == ["a", "a-rest"]
