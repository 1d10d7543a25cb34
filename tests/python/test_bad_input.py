"""Bad input end to end: one clear message each, through the compiled part, with an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import saturn._core  # noqa: F401  (these tests are about it: without a build they fail)
from warm_parent import PYTHON_DIR

#: What every script begins with. `task` makes a good task; its keywords make it bad.
HEAD = """
import sys, threading, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import saturn
from saturn import HParams, Task, orchestrate, search

def load_model():
    return nn.Linear(4, 2)

def load_dataloader():
    return DataLoader(TensorDataset(torch.randn(16, 4), torch.zeros(16).long()), batch_size=4)

def task(name, **changes):
    arguments = dict(
        get_model=load_model, get_dataloader=load_dataloader,
        loss_function=nn.functional.cross_entropy, hparams=HParams(lr=0.1, batch_count=3),
    )
    return Task(name=name, **{**arguments, **changes})

"""


def run_script(directory: Path, call: str) -> subprocess.CompletedProcess[str]:
    (directory / "script.py").write_text(HEAD + call)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIR),
            "SATURN_HOME": str(directory / "home"),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


#: What is refused before anything starts: what is called, and what must be said.
REFUSED = [
    (
        'task("margins", loss_function=nn.Linear(2, 1))',
        "ValueError: loss_function has parameters to train (`weight`), and Saturn trains and saves "
        "those of the model; have get_model return a module that holds them, and compute this loss "
        "in its forward or by training_step",
    ),
    (
        'task("brackets", loss_function=nn.CrossEntropyLoss)',
        "TypeError: loss_function is the class CrossEntropyLoss; it must be a function of "
        "(outputs, labels), such as CrossEntropyLoss()",
    ),
    (
        'orchestrate([task("good"), task("locked", get_model=with_lock)])',
        "NotPicklable: task `locked`: get_model can't be sent to a worker process: its variable "
        "`lock` holds a lock, which can't be pickled; make it inside the function instead",
    ),
    (
        'search([task("a")], techniques=["ddp", "zero3"])',
        "UnknownTechnique: no technique is called `zero3`; the library holds `ddp`, `fsdp`, "
        "`tensor`, `tensor+fsdp`, `offload`, `pipeline`, `pipeline+fsdp`, `pipeline+tensor`, "
        "`pipeline+tensor+fsdp`",
    ),
    (
        'orchestrate([task("a")], devices=0)',
        "InvalidInput: devices is 0; it must be at least 1",
    ),
    (
        'orchestrate([task("a"), task("b"), task("a")])',
        "InvalidInput: tasks 0 and 2 are both called `a`; names must be unique within a run",
    ),
    (
        "HParams(lr=0.1, epochs=2, batch_count=50)",
        "ValueError: HParams needs exactly one of epochs, steps and batch_count; "
        "given are epochs and batch_count",
    ),
    (
        "HParams(lr=0.1)",
        "ValueError: HParams needs exactly one of epochs, steps and batch_count; none is given",
    ),
    (
        "HParams(lr=float('inf'), epochs=1)",
        "ValueError: lr is inf; it must be a positive number",
    ),
    (
        'task("a", gpu_range=[0, 2])',
        "ValueError: gpu_range holds 0; it must hold device counts, whole numbers from 1",
    ),
    (
        'task("a", get_model=nn.Linear(2, 2).weight)',
        "TypeError: get_model is a Parameter; it must be a function that returns the "
        "torch.nn.Module",
    ),
    ("orchestrate([])", "InvalidInput: tasks is empty; there is nothing to do"),
    (
        'orchestrate([task("a")], interval=-1)',
        "InvalidInput: interval is -1; it must be a positive number of seconds",
    ),
    (
        'saturn.register("mine", nn.Linear)',
        "TypeError: Linear is no technique; it must be a subclass of "
        "saturn.core.executors.Technique.BaseTechnique or of saturn.techniques.Technique",
    ),
]

EACH = """
lock = threading.Lock()
def with_lock():
    with lock:
        return load_model()

for number, call in enumerate(CALLS):
    try:
        eval(call)
    except (saturn.SaturnError, ValueError, TypeError) as error:
        print(type(error).__name__ + ": " + str(error))
        assert getattr(error, "exit_code", 2) == 2
"""


def test_refused_before_anything_starts(tmp_path: Path) -> None:
    done = run_script(tmp_path, EACH.replace("CALLS", repr([call for call, _ in REFUSED])))
    assert done.stdout.strip().splitlines() == [expected for _, expected in REFUSED]
    assert done.stderr == "" and done.returncode == 0
    assert not (tmp_path / "saturn_runs").exists()


#: Name of the bad task → what makes it bad, and what must be said of it.
def test_device_counts_that_no_node_has_are_refused_where_nothing_more_is_to_come(
    tmp_path: Path,
) -> None:
    call = 'orchestrate([task("a"), task("b", gpu_range=64)], devices=1)'
    done = run_script(tmp_path, EACH.replace("CALLS", repr([call])))
    assert done.stdout.strip() == (
        "InvalidInput: task `b`: its `gpu_range` is 64, but the nodes of this pool allow only 1"
    )
    assert list((tmp_path / "saturn_runs").iterdir()) == []


BAD_TASKS = {
    "raising-loader": (
        "get_dataloader=raising_loader",
        "get_dataloader raised FileNotFoundError: /data/train.bin",
    ),
    "vector-loss": (
        "loss_function=vector_loss",
        "loss_function returned a tensor of shape (4,), not a scalar; it must return the mean loss "
        "over what it was given (reduction=`mean`, or .mean())",
    ),
    "no-length": (
        "get_dataloader=lambda: iter(list(load_dataloader())), hparams=HParams(0.1, epochs=1)",
        "get_dataloader's loader has no length, so `epochs` can't be counted in steps; say "
        "HParams(steps=…) instead",
    ),
    "no-module": (
        "get_model=dict",
        "get_model returned a dict; it must return a torch.nn.Module",
    ),
    "wrong-width": (
        "get_model=lambda: nn.Linear(3, 2)",
        "mat1 and mat2 shapes cannot be multiplied",
    ),
}

CALL = """
def raising_loader():
    raise FileNotFoundError("/data/train.bin")

def vector_loss(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="none")

try:
    orchestrate([task("good"), TASKS], techniques=["ddp"], devices=1)
except saturn.TasksFailed as error:
    print(type(error).__name__ + ": " + str(error))
    sys.exit(error.exit_code)
"""


def test_bad_tasks_are_told_of_and_the_good_one_trains(tmp_path: Path) -> None:
    tasks = ", ".join(f'task("{name}", {change})' for name, (change, _) in BAD_TASKS.items())
    done = run_script(tmp_path, CALL.replace("TASKS", tasks))
    first, second = done.stdout.strip().splitlines()
    assert first == "TasksFailed: 5 of 6 tasks failed", done.stdout + done.stderr
    assert done.returncode == 1
    assert set(second.split("; why: ")[0].replace("`", "").split(", ")) == set(BAD_TASKS)
    assert "; why: saturn explain " in second and second.endswith(" TASK")
    for name, (_, expected) in BAD_TASKS.items():
        said = [line for line in done.stderr.splitlines() if f" {name} " in line]
        assert any(expected in line for line in said), f"{name}: {said}"
    assert "Traceback (most recent call last)" in done.stderr  # the loader's own
    assert "done     good" in done.stderr
