"""Waiting for some tasks of a run that goes on: what people are told, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import saturn
from saturn import Run, Task, verbs
from saturn.errors import InvalidInput, Refused, RunFailed, RunOver, TasksFailed, WaitingEnded
from saturn.runs import in_pool, waiting
from saturn.runs.status import Status
from saturn.tuning.pool import Pool

IDLE: dict[str, Any] = {
    "step": 0,
    "loss": None,
    "evaluation": None,
    "best": None,
    "goal": None,
    "error": None,
}
IDLE |= {"technique": None, "gpus": None, "attempts": 0, "added_s": 10.0, "started_s": None}
IDLE |= {"train_s": None, "ended_s": None, "expected_end_s": None}


def standing(name: str, stage: str = "waiting", **more: Any) -> dict[str, Any]:
    """Where a task stands."""
    return {**IDLE, "name": name, "stage": stage, **more}


def ended(name: str, stage: str = "done", **more: Any) -> dict[str, Any]:
    """Where a task stands that has trained."""
    trained = {"step": 8, "loss": 0.5, "started_s": 20.0, "ended_s": 30.0, "train_s": 10.0}
    way = {"technique": "ddp", "gpus": 2, "knobs": {"k": 1}, "attempts": 1}
    return standing(name, stage, **{**trained, **way, **more})


class Looks(Run):
    """A run whose statuses are given: a list of tasks, or why there is no status."""

    def __init__(self, *looks: list[dict[str, Any]] | str) -> None:
        super().__init__(Path("it"))
        self.looks: Iterator[list[dict[str, Any]] | str] = iter(looks)
        self.is_driven = True

    @property
    def is_over(self) -> bool:
        return not self.is_driven

    def status(self) -> Status:
        look = next(self.looks)
        self.is_driven = not isinstance(look, str)
        if look == "no answer":
            raise RunFailed("a guest can't ask")
        if look == "refused":
            raise InvalidInput("that is not for guests")
        if isinstance(look, str):
            return Status({"status": look, "now_s": 25.0, "tasks": [standing("a"), standing("b")]})
        return Status({"status": "unfinished", "now_s": 25.0, "tasks": look})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two looks."""
    monkeypatch.setattr(waiting, "_FIRST_POLL_S", 0.0)
    monkeypatch.setattr(waiting, "_MOST_POLL_S", 0.0)


def test_people_are_told_which_tasks_have_ended_and_when_the_others_will() -> None:
    other = standing("other's", "running")
    run = Looks(
        [standing("a", "running", expected_end_s=85.0), standing("b"), other],
        [standing("a", "running", expected_end_s=85.0), standing("b"), other],
        [ended("a"), standing("b", "running", expected_end_s=176.0), other],
        [ended("a"), ended("b", "failed", error="no luck"), other],
    )
    run._raises = False
    lines: list[str] = []
    result = run.wait_for(["a", "b"], tell=lines.append)
    assert lines == [
        "0 of 2 tasks have ended, 1 train; the end is not known yet",
        "a: done, 8 steps, loss 0.5",
        "1 of 2 tasks have ended, 1 train; about 2 min 31 s left",
        "b: failed: no luck",
    ]
    assert [(task.name, task.status) for task in result.tasks] == [("a", "done"), ("b", "failed")]
    strategy = result.tasks[0].strategy
    assert strategy is not None
    assert (strategy.technique, strategy.gpus, strategy.knobs) == ("ddp", 2, {"k": 1})
    assert result.total_s == 20.0 and result.planned_makespan_s is None


def test_a_task_that_failed_raises_at_the_end() -> None:
    run = Looks([ended("a"), ended("b", "failed", error="no luck")])
    with pytest.raises(TasksFailed, match="1 of 2 tasks failed\ntask `b`: no luck") as failed:
        run.wait_for(["a", "b"])
    assert [task.name for task in failed.value.result.tasks] == ["a", "b"]


@pytest.mark.parametrize("gone", ["no answer", "died", "interrupted"])
def test_the_wait_goes_on_while_no_process_drives_the_run(gone: str) -> None:
    run = Looks([standing("a", "running")], gone, gone, [ended("a")])
    lines: list[str] = []
    assert run.wait_for("a", tell=lines.append).tasks[0].status == "done"
    assert lines[1:] == [
        "no process drives the run, or it does not answer; waiting until it goes on",
        "a process drives the run again",
        "a: done, 8 steps, loss 0.5",
    ]


def test_a_refusal_is_an_error_while_the_run_is_driven() -> None:
    run = Looks([standing("a")], "refused")
    run.__class__ = type("Driven", (Looks,), {"is_over": False})
    with pytest.raises(InvalidInput, match="not for guests"):
        run.wait_for("a")


def test_an_unknown_task_and_too_long_a_wait_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the run it has no task `b`"):
        Looks([standing("a")]).wait_for(["a", "b"])
    with pytest.raises(TimeoutError, match="1 of 1 tasks have not ended after 0 s; they go on"):
        Looks([standing("a")]).wait_for("a", timeout=0)


def test_ctrl_c_ends_the_waiting_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    lines: list[str] = []
    with pytest.raises(WaitingEnded) as left:
        waiting.wait_or_leave(
            Looks([standing("a")]),
            {"a": "a"},
            status_command="saturn status pool",
            cancel_command=None,
            tell=lines.append,
        )
    assert left.value.exit_code == 130
    assert lines == [
        "0 of 1 tasks have ended, 0 train; the end is not known yet",
        "no longer waiting, and the tasks go on: saturn status pool",
    ]


class Submitted:
    """Stands in for the pool: keeps what is submitted, whose tasks end at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Run] = Pool) -> None:
        self.taken = ["train-old", "train-2-old"]
        #: Names that are taken, which the status doesn't show.
        self.refused: list[str] = []
        self.tasks: list[Task] = []
        self.options: dict[str, Any] = {}
        self.pool = kind(Path("pools/one"))
        monkeypatch.setattr(in_pool, "connect", lambda: self.pool)
        monkeypatch.setattr(kind, "submit", self.submit)
        monkeypatch.setattr(kind, "status", self.status)
        monkeypatch.setattr("sys.argv", ["/home/lena/train.py"])

    def submit(self, tasks: list[Task], **options: Any) -> None:
        for task in tasks:
            if task.name in (*self.taken, *self.refused):
                raise Refused("there is such a task", "name_taken")
        self.tasks, self.options = tasks, options
        self.pool._directories |= {task.name: f"tasks/{task.name}" for task in tasks}

    def status(self) -> Status:
        tasks = [*(ended(name) for name in self.taken), *(ended(one.name) for one in self.tasks)]
        return Status({"status": "unfinished", "now_s": 25.0, "tasks": tasks})


def two() -> list[Task]:
    """Two tasks, of which one comes after the other."""
    hparams = saturn.HParams(lr=0.1, batch_count=1)
    one = Task(dict, dict, None, hparams, name="one")
    return [one, Task(dict, dict, None, hparams, name="other", after=["one"])]


def test_orchestrate_uses_the_pool_and_the_program_sees_its_own_names(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = Submitted(monkeypatch)
    tasks = two()
    result = saturn.orchestrate(tasks, pool="auto", devices=2, max_switches=0)
    assert [task.name for task in there.tasks] == ["train-3-one", "train-3-other"]
    assert [list(task.after) for task in there.tasks] == [[], ["train-3-one"]]
    assert [task.name for task in tasks] == ["one", "other"] and list(tasks[1].after) == ["one"]
    assert [(task.name, task.status) for task in result.tasks] == [
        ("one", "done"),
        ("other", "done"),
    ]
    said = capfd.readouterr().err
    assert "not used, since the pool has its own: devices, max_switches" in said
    assert "submitted 2 tasks, train-3-…, to the pool pools/one" in said


def test_a_given_name_must_be_free_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Submitted(monkeypatch)
    tasks = two()
    saturn.orchestrate(tasks, pool="auto", name="mine", log=False)
    assert [task.name for task in there.tasks] == ["mine-one", "mine-other"]
    strategy = tasks[0].selected_strategy
    assert strategy is not None and strategy.gpus == 2, "as after a run of one's own"
    there.taken = ["mine-one"]
    with pytest.raises(Refused) as refused:
        saturn.orchestrate(two(), pool="auto", name="mine", log=False)
    assert refused.value.code == "name_taken"


def test_the_next_name_is_tried_if_a_sweep_without_tasks_has_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = Submitted(monkeypatch)
    there.refused = ["train-3-one", "train-4-one"]
    saturn.orchestrate(two(), pool="auto", log=False)
    assert [task.name for task in there.tasks] == ["train-5-one", "train-5-other"]


def test_a_stopper_goes_to_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Submitted(monkeypatch)
    saturn.orchestrate(two(), pool="auto", stopper="asha", log=False)
    assert there.options == {"stopper": "asha", "name": "train-3"}


def sweep_file(directory: Path, more: str = "") -> Path:
    """A sweep of two scripts."""
    (directory / "train.py").touch()
    file = directory / "lrs.toml"
    file.write_text(f'script = "train.py"\n[grid]\nlr = [0.1, 0.2]\n{more}')
    return file


START = dict.fromkeys(("run_name", "devices", "device_memory", "runs_dir"))


def test_the_tasks_of_a_sweep_file_have_its_name_in_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Submitted(monkeypatch)
    file = sweep_file(tmp_path, '[run]\npool = "auto"\n')
    start = {**START, "cluster": {}, "wait": False, "json": False}
    assert verbs.run_sweep({"file": str(file), "list": False, "start": start}) == 0
    assert [task.name for task in there.tasks] == ["lrs-lr=0.1", "lrs-lr=0.2"]
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "lr=0.1",
        "lr=0.2",
    ]


@pytest.mark.parametrize("rest", ["done", "failed"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_submission_waits_for_the_rests_of_scripts_too(
    rest: str,
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks = iter(["waiting", rest])

    def submit(run: Run, tasks: list[Task], **_: Any) -> None:
        names = [*(task.name for task in tasks), f"{tasks[0].name}-rest"]
        run._directories |= {name: f"tasks/{name}" for name in names}

    def status(run: Run) -> Status:
        names = list(run._directories)
        error = "it can't save" if rest == "failed" else None
        tasks = [*map(ended, names[:-1]), ended(names[-1], next(looks), is_rest=True, error=error)]
        return Status({"status": "unfinished", "now_s": 25.0, "tasks": tasks})

    monkeypatch.setattr(Run, "submit", submit)
    monkeypatch.setattr(Run, "status", status)
    asked = {"file": str(sweep_file(tmp_path)), "run_dir": str(tmp_path), "run": "it", "name": "x"}
    asked |= {"priority": None, "due": None, "preview": False, "wait": True, "json": as_json}
    monkeypatch.setattr("sys.argv", ["verbs", "submit", json.dumps(asked)])
    assert verbs.main() == (1 if rest == "failed" else 0)
    told = capsys.readouterr()
    assert "x-lr=0.1-rest: " + rest in told.err
    if as_json:
        tasks = json.loads(told.out)["tasks"]
        assert [task["status"] for task in tasks] == ["done", "done", rest]
    else:
        assert [line.split()[1] for line in told.out.splitlines()] == ["x-lr=0.1", "x-lr=0.2"]


def test_without_a_pool_the_run_is_ones_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def connect() -> Run:
        raise RunOver("there is no pool")

    monkeypatch.setattr(in_pool, "connect", connect)
    began: list[dict[str, Any]] = []

    def start(*_: Any, **options: Any) -> Run:
        began.append(options)
        return Looks()

    monkeypatch.setattr("saturn.runs.run.start", start)
    monkeypatch.setattr(Looks, "wait", lambda _: "the result")
    assert saturn.orchestrate(two(), pool="auto", devices=1) == "the result"  # type: ignore[comparison-overlap]
    assert began == [{"devices": 1}]
    assert "no process drives a pool (saturn serve)" in capfd.readouterr().err
    with pytest.raises(InvalidInput, match="pool is 'mine'; it must be 'auto' or None"):
        saturn.orchestrate(two(), pool="mine")
