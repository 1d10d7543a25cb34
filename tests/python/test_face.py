"""The public face: tasks, the library, and what a run is asked and answers (runtime faked)."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import black_boxes
import pytest
import saturn
import techniques_of_tests as techniques
import torch
from harness import PYTHON_DIR
from models import Mlp, shuffled_loader
from saturn import HParams, Task, definition, library, native
from saturn.names import is_path_safe, slug
from saturn.preload import preload_entries
from saturn.profile_key import profile_key
from saturn.strategy import unwrap_parameters, wrap_parameters

LOSS = torch.nn.functional.cross_entropy


def make_task(name: str | None = "a", **changes: Any) -> Task:
    arguments: dict[str, Any] = {
        "get_model": Mlp,
        "get_dataloader": shuffled_loader,
        "loss_function": LOSS,
        "hparams": HParams(lr=0.1, batch_count=10),
        "name": name,
        **changes,
    }
    return Task(**arguments)


# Tasks.


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HParams(lr=0.1), ValueError, "neither is given of epochs and batch_count"),
        (lambda: HParams(0.1, 1, 2), ValueError, "both are given of epochs and batch_count"),
        (lambda: HParams(-1, epochs=1), ValueError, "lr is -1; it must be a positive number"),
        (lambda: HParams(float("nan"), epochs=1), ValueError, "lr is nan"),
        (lambda: HParams("1e-3", epochs=1), TypeError, "lr is a str; it must be a number"),
        (lambda: HParams(0.1, epochs=0), ValueError, "epochs is 0; it must be at least 1"),
        (lambda: HParams(0.1, batch_count=1.5), TypeError, "batch_count is a float"),
        (lambda: HParams(0.1, epochs=True), TypeError, "epochs is a bool"),
        (lambda: HParams(0.1, 1, optimizer_cls="adam"), TypeError, "such as torch.optim.SGD"),
        (lambda: make_task(get_model=Mlp()(torch.ones(1, 12))), TypeError, "get_model is a Tensor"),
        (lambda: make_task(get_dataloader=[1]), TypeError, "get_dataloader is a list"),
        (lambda: make_task(loss_function="mse"), TypeError, "loss_function is a str"),
        (lambda: make_task(loss_weight=1.0), TypeError, "loss_weight is a float"),
        (lambda: make_task(hparams={"lr": 1}), TypeError, "it must be saturn.HParams(lr=…, …)"),
        (lambda: make_task(name=""), ValueError, "name is ''; it must be a non-empty string"),
        (lambda: make_task(gpu_range=[]), ValueError, "gpu_range is empty"),
        (lambda: make_task(gpu_range=[1, 0]), ValueError, "gpu_range holds 0"),
        (lambda: make_task(gpu_range=[1.5]), ValueError, "gpu_range holds 1.5"),
        (lambda: make_task(hints=["is_transformer"]), TypeError, "hints is a list"),
        (lambda: make_task(seed=-1), ValueError, "seed is -1"),
        (lambda: make_task(seed="x"), ValueError, "seed is 'x'"),
    ],
)
def test_bad_arguments_are_refused_with_what_would_be_right(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


def test_a_task_keeps_what_it_was_given() -> None:
    task = make_task(gpu_range=range(4, 0, -2), hparams=HParams(0.1, 3, width=5), save_dir="out")
    assert task.gpu_range == [2, 4] and task.hparams.kwargs == {"width": 5}
    assert task.hparams.optimizer_cls is torch.optim.AdamW and task.save_dir == Path("out")
    assert task.strategies == [] and task.selected_strategy is None
    assert make_task(gpu_range=3).gpu_range == [3]
    assert repr(task) == "Task('a', HParams(lr=0.1, epochs=3, width=5))"
    names = {make_task(None).name for _ in range(5)}
    assert len(names) == 5 and all(name.startswith("task-") for name in names)


@pytest.mark.parametrize(
    ("function", "kwargs", "expected"),
    [
        (lambda: "none", {}, "none"),
        (lambda kwargs: kwargs, {"a": 1}, {"a": 1}),
        (lambda kwargs: kwargs, {}, {}),
        (lambda a, b=2: (a, b), {"a": 1}, (1, 2)),
        (lambda **all: all, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (dict, {"a": 1}, {"a": 1}),
    ],
)
def test_get_model_is_called_as_it_wants_to_be(
    function: Any, kwargs: dict[str, Any], expected: Any
) -> None:
    assert definition.call_get_model(function, kwargs) == expected


@pytest.mark.parametrize(
    "parameters", [{"a": 1}, {}, {"parameters": 3}, [1, 2], "text", 7, {"parameters": 1, "b": 2}]
)
def test_parameters_survive_as_knobs(parameters: Any) -> None:
    knobs = wrap_parameters(parameters)
    assert all(isinstance(key, str) for key in knobs)
    assert unwrap_parameters(json.loads(json.dumps(knobs))) == parameters


def test_names_are_mapped_as_the_runtime_maps_them() -> None:
    assert [slug(name, 3) for name in ("gpt2-lr1e-5", "_x", "a b", "é", "", "a" * 129)] == [
        "gpt2-lr1e-5",
        *["_task-3"] * 5,
    ]
    assert is_path_safe("A.b_c=d+e-f") and not is_path_safe("-a") and not is_path_safe("a\n")


# The library.


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Saturn home of the test's own, and a library without memory of other tests."""
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(library, "_registered", {})
    yield tmp_path / "home"


def local_class() -> type[Any]:
    class Local(saturn.core.executors.Technique.BaseTechnique):  # type: ignore[name-defined,misc]
        def execute(task, gpus, task_id, batch_count):  # type: ignore[no-untyped-def] # noqa: N805
            pass

    return Local


def test_importable_classes_are_remembered_by_path_alone(home: Path) -> None:
    saturn.register("mine", black_boxes.Plain)
    content = json.loads((home / "library.json").read_text())
    assert content == {"version": 1, "techniques": {"mine": "black_boxes:Plain"}}
    library._registered.clear()  # as in another process
    assert saturn.retrieve("mine") is black_boxes.Plain
    assert [entry.level for entry in library.select(None)] == ["managed", "managed", "black_box"]
    saturn.deregister("mine")
    assert library.known() == ["ddp", "fsdp"]


def test_local_classes_live_in_the_process_and_travel_by_pickle(home: Path) -> None:
    saturn.register("local", local_class())
    assert not (home / "library.json").exists()
    (entry,) = library.select(["local"])
    assert entry.import_path is None and entry.technique is saturn.retrieve("local")
    # A class without a path takes the place of one with.
    saturn.register("local", black_boxes.Plain)
    saturn.register("local", local_class())
    assert json.loads((home / "library.json").read_text())["techniques"] == {}


def test_what_cannot_be_imported_here_is_left_out_with_a_word(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    techniques = {"gone": "no_such_module:Technique"}
    (home / "library.json").write_text(json.dumps({"version": 1, "techniques": techniques}))
    assert [entry.name for entry in library.select(None)] == ["ddp", "fsdp"]
    assert "saturn.deregister('gone') forgets it" in capsys.readouterr().err
    with pytest.raises(saturn.InvalidInput, match="can't be imported here"):
        library.select(["gone"])


class NoExecute(black_boxes.BaseTechnique):
    pass


class WrongArguments(black_boxes.BaseTechnique):
    def execute(task, gpus):  # type: ignore[no-untyped-def,override] # noqa: N805
        pass


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: saturn.register("ddp", black_boxes.Plain), ValueError, "built-in technique"),
        (lambda: saturn.register("a b", black_boxes.Plain), ValueError, "must be letters, digits"),
        (
            lambda: saturn.register("x", Mlp),
            TypeError,
            "Mlp is no technique; it must be a subclass",
        ),
        (lambda: saturn.register("x", black_boxes.Plain()), TypeError, "Plain is no technique"),
        (
            lambda: saturn.register("x", NoExecute),
            TypeError,
            "NoExecute has no execute(task, gpus,",
        ),
        (
            lambda: saturn.register("x", WrongArguments),
            TypeError,
            "WrongArguments.execute(task, gpus) must accept (task, gpus, task_id, batch_count)",
        ),
        (lambda: saturn.deregister("fsdp"), ValueError, "always there"),
        (
            lambda: saturn.deregister("x"),
            saturn.UnknownTechnique,
            "no technique is called `x`; the library holds `ddp`, `fsdp`",
        ),
        (lambda: saturn.retrieve("x"), saturn.UnknownTechnique, "the library holds `ddp`, `fsdp`"),
        (lambda: library.select("ddp"), TypeError, "such as ['ddp']"),
        (lambda: library.select([]), saturn.InvalidInput, "techniques is empty"),
        (lambda: library.select(["ddp", "pp"]), saturn.UnknownTechnique, "`pp`"),
    ],
)
def test_the_library_refuses(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "techniques": {}}'])
def test_a_spoilt_library_file_is_named(home: Path, content: str) -> None:
    home.mkdir()
    (home / "library.json").write_text(content)
    with pytest.raises(saturn.InvalidInput, match=r"library\.json"):
        library.known()


def test_managed_techniques_can_be_registered() -> None:
    saturn.register("many", techniques.ManyKnobs)
    (entry,) = library.select(["many"])
    assert (entry.level, entry.import_path) == ("managed", "techniques_of_tests:ManyKnobs")


# Profile keys and preloading.


def test_only_what_decides_performance_is_in_the_profile_key() -> None:
    one = make_task("one", hparams=HParams(0.1, batch_count=5), seed=1)
    same = make_task("two", hparams=HParams(0.2, epochs=7), seed=2)
    assert profile_key(one) == profile_key(same)
    others = [
        make_task(get_model=partial(Mlp, 4)),
        make_task(get_dataloader=lambda: shuffled_loader()),
        make_task(loss_function=torch.nn.MSELoss()),
        make_task(hparams=HParams(0.1, batch_count=5, depth=9)),
        make_task(hparams=HParams(0.1, batch_count=5, optimizer_cls=torch.optim.SGD)),
        make_task(hints={"is_transformer": True}),
        make_task(gpu_range=[1]),
    ]
    keys = {profile_key(task) for task in (one, *others)}
    assert len(keys) == 1 + len(others)


KEY_SCRIPT = """
import torch
from saturn import HParams, Task
from saturn.profile_key import profile_key

class Model(torch.nn.Linear):
    pass

task = Task(lambda: Model(2, 2), lambda: [], torch.nn.MSELoss(), HParams(0.1, 1))
print(profile_key(task))
"""


def test_profile_keys_are_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KEY_SCRIPT)
    keys = {
        subprocess.run(
            [sys.executable, tmp_path / "script.py"],
            env={"PYTHONPATH": str(PYTHON_DIR), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1


def imports_inside() -> Any:
    from sklearn.datasets import load_digits

    return load_digits


def test_installed_modules_of_the_functions_are_preloaded() -> None:
    import numpy as np

    task = make_task(get_model=lambda: np.zeros(1))
    entries = preload_entries([task.definition().dumps()], [imports_inside])
    assert entries == ["numpy", "sklearn.datasets", "sklearn.datasets:load_digits"]


# Runs.


class FakeCore:
    """Stands in for the compiled part: notes the request, answers with a report."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.answer = answer
        self.request: dict[str, Any] = {}

    def __call__(self, request: str, write: Any, *, is_terminal: bool) -> str:
        self.request = json.loads(request)
        self.write = write
        if write is not None:
            write("a line\n")
        return json.dumps(self.answer(self.request))


MEASURED = {"outcome": "measured", "step_s": 0.5, "setup_s": 1.0, "peak_memory_bytes": 9}
MEASURED = {**MEASURED, "timed_steps": 3, "batches_per_epoch": 6}
REFUSED = {"outcome": "not_applicable", "reason": "too small"}
CRASHED = {"outcome": "failed", "error": "ValueError: x", "traceback": "…"}


def report_of(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report in which every task was measured under ddp and trained."""
    tasks = [
        {
            "name": task["name"],
            "status": "done",
            "final_loss": 0.25,
            "step": 10,
            "technique": "ddp",
            "gpus": 1,
            "knobs": {"k": 1},
            "start_s": 1.0,
            "end_s": 6.0,
            "attempts": 1,
            "error": None,
            "traceback": "",
            "dir": task["dir"],
        }
        for task in request["tasks"]
    ]
    everyone = list(range(len(tasks)))
    trial = {"task": 0, "speaks_for": everyone, "gpus": 1, "knobs": {}, "reused": False}
    return {
        "version": 1,
        "status": "complete",
        "tasks": tasks,
        "trials": [
            {**trial, "technique": "ddp", "knobs": {"k": 1}, "result": MEASURED},
            {**trial, "technique": "fsdp", "result": REFUSED},
            {**trial, "technique": "fsdp", "gpus": 2, "result": CRASHED},
            {**trial, "technique": "ddp", "gpus": 2, "result": None},
        ],
        "totals": {
            "makespan_s": 5.0,
            "planned_makespan_s": 4.5,
            "lower_bound_s": 4.0,
            "current_practice_s": 9.0,
        },
        **changes,
    }


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCore:
    fake = FakeCore(report_of)
    monkeypatch.setattr(native, "run", fake)
    monkeypatch.chdir(tmp_path)
    return fake


def test_a_run_is_asked_for_in_full_and_its_directory_is_private(
    core: FakeCore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saturn.register("local", local_class())
    tasks = [make_task("a"), make_task("b c", hparams=HParams(0.1, epochs=2), gpu_range=[1, 2])]
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
    assert request["tasks"][1]["gpu_range"] == [1, 2] and request["tasks"][0]["measured"] == []
    assert request["techniques"] == [
        {"name": "ddp", "level": "managed", "import": "saturn.techniques.ddp:Ddp", "pickle": None},
        {
            "name": "fsdp",
            "level": "managed",
            "import": "saturn.techniques.fsdp:Fsdp",
            "pickle": None,
        },
        {"name": "local", "level": "black_box", "import": None, "pickle": "techniques/local.pkl"},
    ]
    for name in ("tasks/a/task.pkl", "tasks/_task-1/task.pkl", "techniques/local.pkl"):
        assert stat.S_IMODE((run_dir / name).stat().st_mode) == 0o600
    loaded = definition.load(run_dir / "tasks/_task-1/task.pkl")
    assert loaded.name == "b c" and loaded.epochs == 2
    assert json.loads((run_dir / "request.json").read_text()) == request
    assert result.run_dir == run_dir and result.report_path == run_dir / "report.html"
    assert (result.makespan_s, result.current_practice_s) == (5.0, 9.0)
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
    core: FakeCore,
) -> None:
    first = saturn.search([make_task("a")], log=False)
    (first.run_dir / "report.json").write_text(json.dumps(report_of(core.request)))
    tasks = [make_task("other name"), make_task("another", get_model=partial(Mlp, 9))]
    saturn.orchestrate(tasks, log=False, profile=first.run_dir)
    assert [len(task["measured"]) for task in core.request["tasks"]] == [3, 0]
    assert core.request["tasks"][0]["measured"][0]["task"] == "other name"
    with pytest.raises(saturn.InvalidInput, match="give the directory of a run that has ended"):
        saturn.orchestrate(tasks, log=False, profile="nowhere")


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


def test_an_interrupt_says_how_to_go_on(core: FakeCore, tmp_path: Path) -> None:
    core.answer = lambda request: report_of(request, status="interrupted")
    with pytest.raises(KeyboardInterrupt) as caught:
        saturn.orchestrate([make_task()], log=False, name="it", runs_dir=tmp_path / "my runs")
    assert isinstance(caught.value, saturn.RunInterrupted) and caught.value.exit_code == 130
    assert caught.value.resume_command == f"saturn resume '{tmp_path / 'my runs' / 'it'}'"


def test_trained_models_are_copied_where_the_task_says(core: FakeCore, tmp_path: Path) -> None:
    def with_checkpoints(request: dict[str, Any]) -> dict[str, Any]:
        for name in ("step-00000009", "step-00000010"):
            directory = Path(request["run_dir"]) / "tasks/a/checkpoints" / name
            directory.mkdir(parents=True)
            (directory / "file").write_text(name)
        return report_of(request)

    core.answer = with_checkpoints
    for _ in range(2):
        saturn.orchestrate([make_task(save_dir=tmp_path / "models")], log=False)
    found = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "models").rglob("file"))
    assert found == ["models/a/step-00000010.2/file", "models/a/step-00000010/file"]


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
            {"hparams": HParams(0.1, 1, log=(i for i in ()))},
            "task `a`: hparams' `log` can't be sent",
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
        (lambda: saturn.orchestrate([make_task()], 0), ValueError, "interval is 0"),
        (lambda: saturn.orchestrate([make_task()], "1"), TypeError, "interval is a str"),
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
    saturn.search([make_task()], log=False, name="it")
    with pytest.raises(saturn.InvalidInput, match=r"run `it` is there already.*saturn resume"):
        saturn.search([make_task()], log=False, name="it")


def test_workers_and_face_do_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; import saturn, saturn.worker.rank; print('saturn._core' in sys.modules)"
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
        native.run("{}", None, is_terminal=False)


def test_importing_saturn_does_not_import_torch() -> None:
    script = "import sys, saturn; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PYTHON_DIR)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"False\n"
