"""A submitted task's modules, where the run has others of the same names."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
import pytest
import saturn
import torch
from live_gangs import Result
from saturn.errors import InvalidInput
from saturn.runs import exporting, run_directory
from saturn.tasks import directories as directories_of_tasks
from saturn.tasks.importing import set_aside_others
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.trainers.rest import Trained
from warm_parent import worker_env

#: The name of two modules: one has the run's technique, the other has the task's functions.
NAME = "models_of_two"
OF_RUN = """
from saturn.techniques.ddp import Ddp

class Mine(Ddp):
    pass
"""
OF_TASK = """
import torch

def model():
    return torch.nn.Linear(4, 2)

def loader():
    data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8).long())
    return torch.utils.data.DataLoader(data, batch_size=4)
"""
MINE = {"name": "mine", "level": "managed", "import": f"{NAME}:Mine", "pickle": None}


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Two directories, each with a module `NAME`; nothing imported from them stays."""
    before = sys.path[:]
    for name, text in (("run", OF_RUN), ("task", OF_TASK)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{NAME}.py").write_text(text)
    yield {name: str(tmp_path / name) for name in ("run", "task")}
    sys.path[:] = before
    sys.modules.pop(NAME, None)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("of_rank", "word"),
    [
        (lambda run: run.run("task", MINE, steps=2), "finished"),
        (lambda run: run.inspect("task", [MINE], gpus=[1]), "inspected"),
    ],
    ids=["training", "inspection"],
)
def test_a_technique_comes_from_the_run_and_the_functions_from_the_task(
    directories: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_rank: Callable[[harness.Runtime], Result],
    word: str,
) -> None:
    sys.path.insert(0, directories["task"])
    found = importlib.import_module(NAME)
    loss: Any = torch.nn.functional.cross_entropy
    hparams = saturn.HParams(lr=0.1, batch_count=2)
    task = saturn.Task(found.model, found.loader, loss, hparams, name="task")
    path = os.pathsep.join([directories["run"], worker_env()["PYTHONPATH"]])
    monkeypatch.setattr(harness, "worker_env", lambda gpus: {**worker_env(), "PYTHONPATH": path})
    (tmp_path / "it").mkdir()
    with harness.runtime(tmp_path / "it", None) as run:
        run.write_task(task.definition())
        (run.task_dir("task") / SUBMITTED).write_bytes(Surroundings.here().dumps())
        result = of_rank(run)
    assert result.codes == [0], result.logs
    told = result.one(word)
    if word == "inspected":
        assert [one["technique"] for one in told["inspection"]["verdicts"]] == ["mine"]


def test_only_modules_that_are_found_elsewhere_are_set_aside(directories: dict[str, str]) -> None:
    sys.path.insert(0, directories["run"])
    of_run = importlib.import_module(NAME)
    here = Surroundings.here()
    here.import_from()
    set_aside_others()
    assert sys.modules[NAME] is of_run
    replace(here, python_path=(directories["task"],)).import_from()
    before = {name for name in sys.modules if name != NAME}
    set_aside_others()
    assert {name for name in sys.modules if name != NAME} == before
    assert importlib.import_module(NAME).model().in_features == 4


def test_a_task_is_found_though_another_can_not_be_loaded(
    directories: dict[str, str], tmp_path: Path
) -> None:
    sys.path.insert(0, directories["task"])
    theirs = importlib.import_module(NAME)
    loss: Any = torch.nn.functional.cross_entropy
    hparams = saturn.HParams(lr=0.1, batch_count=2)

    def task(name: str, model: Any) -> saturn.Task:
        return saturn.Task(model, list, loss, hparams, name=name)

    # No directory can be called by these names, and the first task's module is not here later.
    tasks = [task("their/task", theirs.model), task("my/task", dict), task("plain", dict)]
    pickles = [each.definition().dumps() for each in tasks]
    run_dir = tmp_path / "it"
    run_dir.mkdir()
    (run_dir / "journal.db").touch()
    refused = run_directory.write_tasks(run_dir, tasks[1:2], pickles[1:2])
    places = run_directory.write_tasks(run_dir, tasks, pickles)
    assert (refused, places) == (
        ["tasks/_task-0"],
        ["tasks/_task-1", "tasks/_task-2", "tasks/plain"],
    )
    (run_dir / places[1] / "attempts").mkdir()  # the run took this one
    sys.path.remove(directories["task"])
    del sys.modules[NAME]
    assert Trained(run_dir, "my/task")._task_dir == run_dir / places[1]
    found, definition = exporting.find(run_dir, "my/task")
    assert (found, definition.name) == (run_dir / places[1], "my/task")
    assert exporting.find(run_dir, "plain")[0] == run_dir / "tasks/plain"
    with pytest.raises(InvalidInput, match="has no task `task`"):
        Trained(run_dir, "task")
    for name in (refused[0], *places[:2]):  # as an earlier version left them
        (run_dir / name / directories_of_tasks.NAME).unlink()
    with pytest.raises(ModuleNotFoundError):
        exporting.find(run_dir, "my/task")
    assert exporting.find(run_dir, "plain")[0] == run_dir / "tasks/plain"


def test_a_process_of_another_python_has_packages_of_its_own() -> None:
    """After `saturn resume --python`, a rank leaves out the packages of the earlier Python."""
    here = Surroundings.here()
    places = ("/work", "/old/lib/python312.zip", "/old/lib/python3.12", "/old/lib/my-python3.12")
    packages = ("/old/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages")
    there = replace(here, python_path=(*places, *packages))
    assert there.places == [*places, *packages]
    for other in (replace(there, environment="/old"), replace(there, python="3.9")):
        assert other.places == ["/work", "/old/lib/my-python3.12"]
