"""`search` and `orchestrate` with the compiled part faked: what is asked, what is answered."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import saturn
from faces import local_class, make_task
from fake_core import CRASHED, MEASURED, FakeCore, report_of
from models import Mlp
from saturn import HParams, native
from saturn.tasks import definition
from saturn.techniques import BUILT_IN
from warm_parent import PYTHON_DIR


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCore:
    fake = FakeCore(report_of)
    monkeypatch.setattr(native, "run", fake)
    monkeypatch.setattr(native, "interrupts", lambda: SimpleNamespace(press=lambda: None))
    monkeypatch.setattr(native, "is_driven", lambda run_dir: False)
    monkeypatch.chdir(tmp_path)
    return fake


def test_a_run_is_asked_for_in_full_and_its_directory_is_private(
    core: FakeCore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saturn.register("local", local_class())
    accumulating = HParams(0.1, epochs=2, gradient_accumulation_steps=4)
    tasks = [
        make_task("a", hparams=HParams(0.1, batch_count=28, gradient_accumulation_steps=3)),
        make_task("b c", hparams=accumulating, gpu_range=[1, 2]),
    ]
    result = saturn.orchestrate(tasks, 50.0, name="first", devices=3, seed=4)
    request = core.request
    run_dir = tmp_path / "saturn_runs" / "first"
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    assert request["run_dir"] == str(run_dir) and request["mode"] == "orchestrate"
    assert request["python"] == sys.executable and request["cwd"] == str(tmp_path)
    assert "" not in request["python_path"] and str(PYTHON_DIR) in request["python_path"]
    assert (request["interval_s"], request["devices"], request["seed"]) == (50.0, 3, 4)
    assert [task["dir"] for task in request["tasks"]] == ["tasks/a", "tasks/_task-1"]
    assert [task["steps"] for task in request["tasks"]] == [10, None]
    assert [task["epochs"] for task in request["tasks"]] == [None, 2]
    assert [task["batches_a_step"] for task in request["tasks"]] == [3, 4]
    assert request["tasks"][1]["gpu_range"] == [1, 2] and request["tasks"][0]["measured"] == []
    of_all = {"level": "managed", "pickle": None}
    assert request["techniques"] == [
        *({"name": name, "import": path, **of_all} for name, path in BUILT_IN.items()),
        {"name": "local", "level": "black_box", "import": None, "pickle": "techniques/local.pkl"},
    ]
    for name in ("tasks/a/task.pkl", "tasks/_task-1/task.pkl", "techniques/local.pkl"):
        assert stat.S_IMODE((run_dir / name).stat().st_mode) == 0o600
    loaded = definition.load(run_dir / "tasks/_task-1/task.pkl")
    assert loaded.name == "b c" and loaded.epochs == 2
    assert result.run_dir == run_dir and result.report_path == run_dir / "report.html"
    assert (result.makespan_s, result.current_practice_s) == (5.0, 9.0)
    assert (result.total_s, result.current_practice_total_s) == (6.0, 9.5)
    assert result.did_all_that_was_planned
    assert [task.name for task in result.tasks] == ["a", "b c"]
    assert result.tasks[0].strategy is not None and result.tasks[0].strategy.step_s == 0.5
    assert capsys.readouterr().err == "a line\n"


def test_search_fills_in_the_strategies_and_orchestrate_does_not_measure_again(
    core: FakeCore,
) -> None:
    tasks = [make_task("a"), make_task("b")]
    saturn.search(tasks, log=False)
    assert core.write is None and core.request["mode"] == "search"
    for task in tasks:
        assert [(s.technique, s.gpus, s.status, s.reason) for s in task.strategies] == [
            ("ddp", 1, "measured", None),
            ("fsdp", 1, "not_applicable", "too small"),
            ("fsdp", 2, "failed", "ValueError: x"),
        ]
        assert task.selected_strategy == task.strategies[0]
    assert tasks[0].strategies[0].peak_memory_bytes == 9
    saturn.orchestrate(tasks, log=False, techniques=["ddp"])
    measured = {"task": "b", "technique": "ddp", "gpus": 1, "knobs": {"k": 1}, **MEASURED}
    assert core.request["tasks"][1]["measured"] == [measured]
    # A task that changed since has to be measured again; a new learning rate is no such change.
    tasks[0].hparams = HParams(9.0, batch_count=3)
    tasks[1].get_model = partial(Mlp, 7)
    saturn.orchestrate(tasks, log=False)
    assert [len(task["measured"]) for task in core.request["tasks"]] == [3, 0]


def test_profiles_of_earlier_runs_are_reused_for_tasks_that_perform_alike(
    core: FakeCore, tmp_path: Path
) -> None:
    first = saturn.search([make_task("a")], log=False)
    trial = {"task": "a", "technique": "ddp", "gpus": 1, "gpu_type": "cpu", **MEASURED}
    trial["profile_key"] = core.request["tasks"][0]["profile_key"]
    by_name = {"task": "another", "technique": "ddp", "gpus": 1, **MEASURED}
    crashed = {"task": "a", "technique": "fsdp", "gpus": 2, **CRASHED}
    file = first.run_dir / "profile.json"
    file.write_text(json.dumps({"trials": [trial, by_name, crashed]}))
    for profile in (first.run_dir, file):
        tasks = [make_task("other name"), make_task("another", get_model=partial(Mlp, 9))]
        saturn.orchestrate(tasks, log=False, profile=profile)
        measured = [task["measured"] for task in core.request["tasks"]]
        assert measured == [
            [{**trial, "task": "other name", "knobs": {}}],
            [{**by_name, "knobs": {}}],
        ]


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        (None, "can't be read"),
        ("", "not JSON"),
        ([{"task": "a", "technique": "ddp", "gpus": 1, **MEASURED, "step_s": -1.0}], "step_s"),
        ([{"task": "a", "technique": "ddp", "gpus": 1, **MEASURED, "speed": 2}], "speed"),
        ([{"task": "a", "technique": "ddp", "gpus": 0, **MEASURED}], r"trials\[0\].gpus"),
    ],
)
def test_a_malformed_profile_is_refused_by_file_and_field(
    core: FakeCore, tmp_path: Path, trials: Any, message: str
) -> None:
    file = tmp_path / "mine.json"
    if trials is not None:
        file.write_text(json.dumps({"trials": trials}) if trials else "")
    with pytest.raises(saturn.InvalidInput, match=message) as raised:
        saturn.orchestrate([make_task("a")], log=False, profile=file)
    assert "mine.json" in str(raised.value)
    assert not (tmp_path / "saturn_runs").exists(), "nothing was written"


def test_a_refused_run_leaves_no_directory(core: FakeCore, tmp_path: Path) -> None:
    def refuse(request: dict[str, Any]) -> dict[str, Any]:
        raise saturn.InvalidInput("`devices` is 9, but this machine has 2 GPUs")

    core.answer = refuse
    with pytest.raises(saturn.InvalidInput):
        saturn.orchestrate([make_task("a")], log=False, name="mine", devices=9)
    assert list((tmp_path / "saturn_runs").iterdir()) == []


def test_failed_tasks_are_raised_once_everything_has_ended(core: FakeCore) -> None:
    def with_failure(request: dict[str, Any]) -> dict[str, Any]:
        report = report_of(request)
        report["tasks"][1] |= {"status": "failed", "error": "task: boom", "traceback": "tb"}
        return report

    core.answer = with_failure
    with pytest.raises(
        saturn.TasksFailed, match="1 of 2 tasks failed\ntask `b`: task: boom"
    ) as caught:
        saturn.orchestrate([make_task("a"), make_task("b")], log=False)
    assert caught.value.exit_code == 1
    assert [task.status for task in caught.value.result.tasks] == ["done", "failed"]
    assert caught.value.result.tasks[1].traceback == "tb"
    # Where the run's output was shown, it has had the error.
    with pytest.raises(saturn.TasksFailed) as caught:
        saturn.orchestrate([make_task("a"), make_task("b")], name="shown")
    where = caught.value.result.run_dir
    assert str(caught.value) == f"1 of 2 tasks failed\n`b`; why: saturn explain {where} b"


def test_the_result_may_be_wanted_although_tasks_failed(core: FakeCore) -> None:
    def with_failure(request: dict[str, Any]) -> dict[str, Any]:
        report = report_of(request)
        report["tasks"][1] |= {"status": "failed", "error": "task: boom", "traceback": "tb"}
        return report

    core.answer = with_failure
    for train in (saturn.orchestrate, saturn.search):
        result = train([make_task("a"), make_task("b")], log=False, raise_on_failure=False)
        assert [task.status for task in result.tasks] == ["done", "failed"]
        assert result.tasks[1].error == "task: boom"


def test_an_interrupt_says_how_to_go_on(core: FakeCore, tmp_path: Path) -> None:
    core.answer = lambda request: report_of(request, status="interrupted")
    with pytest.raises(KeyboardInterrupt) as caught:
        saturn.orchestrate([make_task()], log=False, name="it", runs_dir=tmp_path / "my runs")
    assert isinstance(caught.value, saturn.RunInterrupted) and caught.value.exit_code == 130
    assert caught.value.resume_command == f"saturn resume '{tmp_path / 'my runs' / 'it'}'"


def test_workers_are_told_where_trained_models_go(core: FakeCore, tmp_path: Path) -> None:
    result = saturn.orchestrate([make_task(save_dir="models"), make_task("b")], log=False)
    told = [definition.load(result.run_dir / "tasks" / name / "task.pkl").save_dir for name in "ab"]
    assert told == [tmp_path / "models", None]


def test_two_runs_in_one_second_do_not_share_a_directory(core: FakeCore) -> None:
    runs = {saturn.search([make_task()], log=False).run_dir for _ in range(3)}
    assert len(runs) == 3


def locked(lock: Any) -> Callable[[], Any]:
    def get_model() -> Any:
        with lock:
            return Mlp()

    return get_model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"get_model": locked(threading.Lock())},
            "task `a`: get_model can't be sent to a worker process: its variable `lock` holds a "
            "lock, which can't be pickled; make it inside the function instead",
        ),
        (
            {"get_dataloader": partial(list, (i for i in range(3)))},
            "task `a`: get_dataloader can't be sent to a worker process: its variable "
            "`argument 0` holds a generator",
        ),
        (
            {"hparams": HParams(0.1, 1, depth=(i for i in ()))},
            "task `a`: hparams' `depth` can't be sent",
        ),
        ({"hints": {"lock": threading.Lock()}}, "task `a`: hint `lock` can't be sent"),
    ],
)
def test_what_cannot_be_pickled_is_named(
    core: FakeCore, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(saturn.NotPicklable) as caught:
        saturn.orchestrate([make_task("a", **changes)])
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "saturn_runs").exists()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: saturn.search([]), saturn.InvalidInput, "tasks is empty"),
        (lambda: saturn.search(make_task()), TypeError, "tasks is one Task"),
        (lambda: saturn.search(["a"]), TypeError, "tasks holds a str"),
        (
            lambda: saturn.search([make_task("a"), make_task("b"), make_task("a")]),
            saturn.InvalidInput,
            "tasks 0 and 2 are both called `a`; names must be unique",
        ),
        (lambda: saturn.search([make_task()], ["pp"]), saturn.UnknownTechnique, "`pp`"),
        (lambda: saturn.search([make_task()], devices=0), ValueError, "devices is 0"),
        (lambda: saturn.search([make_task()], devices=1.5), TypeError, "devices is a float"),
        (lambda: saturn.search([make_task()], timed_steps=1), ValueError, "timed_steps is 1"),
        (
            lambda: saturn.search([make_task()], timed_steps=5, max_timed_steps=4),
            ValueError,
            "max_timed_steps is 4; it must be at least 5",
        ),
        (lambda: saturn.orchestrate([make_task()], 0), ValueError, "interval is 0"),
        (
            lambda: saturn.orchestrate([make_task()], "1"),
            TypeError,
            "interval is '1'; it must be a number",
        ),
        (lambda: saturn.orchestrate([make_task()], name="a/b"), ValueError, "run name 'a/b' must"),
    ],
)
def test_runs_that_cannot_be_are_refused_before_anything_is_on_disk(
    core: FakeCore, tmp_path: Path, call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert list((tmp_path).glob("saturn_runs/*")) == [] and core.request == {}


def test_a_run_name_is_used_once(core: FakeCore) -> None:
    done = saturn.search([make_task()], log=False, name="it")
    (done.run_dir / "journal.db").touch()  # as the engine does, which is a stand-in here
    with pytest.raises(saturn.InvalidInput, match=r"run `it` is there already.*saturn resume"):
        saturn.search([make_task()], log=False, name="it")


@pytest.mark.slow
def test_importing_saturn_does_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; import saturn; print('saturn._core' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PYTHON_DIR)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"False\n"
    monkeypatch.setitem(sys.modules, "saturn._core", None)
    monkeypatch.delattr(saturn, "_core", raising=False)
    with pytest.raises(saturn.RunFailed, match="the compiled part of Saturn is not there"):
        native.interrupts()


def test_importing_saturn_does_not_import_torch() -> None:
    script = "import sys, saturn; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PYTHON_DIR)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"False\n"


def test_the_version_is_that_of_the_crates() -> None:
    workspace = (PYTHON_DIR.parent / "Cargo.toml").read_text()
    assert f'[workspace.package]\nversion = "{saturn.__version__}"\n' in workspace


def test_an_uncaught_interrupt_ends_a_script_with_its_code_and_no_traceback() -> None:
    script = (
        "from saturn import RunInterrupted; "
        "raise RunInterrupted('stopped', run_dir='r', resume_command='saturn resume r')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PYTHON_DIR)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_results_are_a_table_with_the_best_first(core: FakeCore) -> None:
    tasks = [
        make_task(name, hparams=HParams(lr=lr, batch_count=4, depth=2))
        for name, lr in (("a", 0.1), ("b", 0.2), ("c", 0.3), ("d", 0.4))
    ]
    tasks[3].parameters = {"status": "x", "deep": True}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        report = report_of(request)
        found = [0.5, 0.75, None, 0.25]
        for task, asked, value in zip(report["tasks"], request["tasks"], found, strict=True):
            metrics = {"acc": value}
            task["parameters"] = asked["parameters"]
            task["goal"] = {"metric": "acc", "mode": "max"}
            task["evaluation"] = {"last": {"step": 10, "metrics": metrics}, "best": None}
        report["tasks"][1]["evaluation"]["best"] = {
            "metric": "acc",
            "step": 5,
            "metrics": {"acc": 0.9},
        }
        return report

    core.answer = answer
    result = saturn.orchestrate(tasks, log=False)
    rows = result.rows()
    assert [(row["task"], row["acc"]) for row in rows] == [
        ("b", 0.9),
        ("a", 0.5),
        ("d", 0.25),
        ("c", None),
    ]
    assert rows[1] == {
        "task": "a",
        "status": "done",
        "acc": 0.5,
        "steps": 10,
        "technique": "ddp",
        "gpus": 1,
        "train_s": 5.0,
        "attempts": 1,
        "lr": 0.1,
        "depth": 2,
    }
    assert rows[2]["parameter_status"] == "x" and rows[2]["deep"] is True
    lines = result.csv().splitlines()
    assert lines[0].startswith("task,status,acc,steps,technique,gpus,train_s,attempts,lr,depth,")
    assert lines[1] == "b,done,0.9,10,ddp,1,5.0,1,0.2,2,,"
    result.report_path.touch()
    printed = str(result).splitlines()
    assert printed[0].split()[:4] == ["task", "status", "acc", "steps"]
    assert printed[1] == "b     done    0.9   10     ddp        1     5        1         0.2  2"
    assert printed[-1] == f"report: {result.report_path}"
    frame = result.dataframe()
    assert list(frame["task"]) == ["b", "a", "d", "c"] and frame["lr"][0] == 0.2
    with pytest.raises(TypeError, match=r"parameters holds 'f': <.*; it must hold numbers, texts"):
        tasks[0].parameters = {"f": print}


def test_a_table_needs_pandas_only_as_a_dataframe(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = saturn.orchestrate([make_task("a")], log=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(saturn.InvalidInput, match="a dataframe needs the package pandas: pip inst"):
        result.dataframe()
    assert result.rows()[0]["loss"] == 0.25


def test_a_stopper_is_kept_with_the_run_and_a_wrong_one_is_refused_before_it(
    core: FakeCore, tmp_path: Path
) -> None:
    from saturn.stoppers import ASHA
    from saturn.tuning import keeping

    for stopper, says in (
        ("ahsa", "there is no stopper `ahsa`"),
        (ASHA(metric="acc"), "task `a` nev"),
    ):
        with pytest.raises(saturn.InvalidInput, match=says):
            saturn.orchestrate([make_task("a")], stopper=stopper, log=False)
    assert not (tmp_path / "saturn_runs").exists()
    task = make_task("a", evaluate=lambda model: {"acc": 1.0}, best=("acc", "max"))
    result = saturn.orchestrate([task], stopper="asha", log=False)
    kept = keeping.read(result.run_dir)
    assert kept is not None and kept.metrics == {"acc"}
    assert core.request["tasks"][0]["goal"] == {"metric": "acc", "mode": "max"}
    assert core.request["max_switches"] == 0
    (result.run_dir / keeping.FILE).write_bytes(b"torn")
    with pytest.raises(saturn.InvalidInput, match=r"tuner\.pkl, can't be loaded here: "):
        keeping.read(result.run_dir)
