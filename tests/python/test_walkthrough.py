"""The walk-through that Saturn's users know, unchanged, as a script and end to end.

The script has no `__main__` guard, defines everything in `__main__`, and really trains inside its
own executor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import saturn._core  # noqa: F401  (these tests are about it: without a build they fail)
from warm_parent import PYTHON_DIR

WALK_THROUGH = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from saturn import HParams

torch.manual_seed(0)
features = torch.randn(96, 6)
labels = (features.sum(1) > 0).long()

def load_model():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))

def load_dataloader():
    return DataLoader(TensorDataset(features, labels), batch_size=16, shuffle=True)

def loss_function(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels)

hyperparameters = HParams(lr=0.05, epochs=5, optimizer_cls=torch.optim.Adam)

from saturn import Task
t1 = Task(load_model, load_dataloader, loss_function, hyperparameters)
t2 = Task(load_model, load_dataloader, loss_function, HParams(lr=0.02, batch_count=20))
t3 = Task(lambda: load_model(), load_dataloader, nn.CrossEntropyLoss(), HParams(lr=0.1, epochs=3))
t4 = Task(load_model, load_dataloader, loss_function, HParams(lr=0.05, epochs=4), gpu_range=[1])

from saturn.library import register
from saturn.core.executors.Technique import BaseTechnique
class MyExecutor(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):
        model = task.get_model()
        optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
        batches = task.get_iterator()
        for _ in range(batch_count):
            inputs, labels = next(batches)
            loss = task.loss_function(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        task.save(model.state_dict())

    def search(task, gpus, task_id):
        if len(gpus) > 1:
            return None, None
        return {"tuned_for": len(gpus)}

register("my_parallelism", MyExecutor)

from saturn.trial_runner.PerformanceEvaluator import search
from saturn import orchestrate
search([t1, t2, t3, t4])
result = orchestrate([t1, t2, t3, t4])
"""

AND_THEN = """
import json, sys
trained = [t1, t2, t3, t4]
ways = lambda task: sorted({(s.technique, s.gpus, s.status) for s in task.strategies})
print(json.dumps({
    "ways": [ways(task) for task in trained],
    "selected": [task.selected_strategy.technique for task in trained],
    "tasks": [[t.name, t.status, t.steps, t.final_loss] for t in result.tasks],
    "run_dir": str(result.run_dir),
    "makespan_s": result.makespan_s,
    "lower_bound_s": result.lower_bound_s,
    "planned_makespan_s": result.planned_makespan_s,
}))
"""

ONLY_MINE = """
tasks = [Task(load_model, load_dataloader, loss_function, HParams(lr=0.05, epochs=5), name="mine")]
result = orchestrate(tasks, techniques=["my_parallelism"], log=False)
"""

LOADS = """
import sys, torch
from pathlib import Path
model = load_model()
newest = sorted(Path(sys.argv[1]).glob("tasks/mine/checkpoints/step-*"))[-1]
model.load_state_dict(torch.load(newest / "state.pt"))
right = (model(features).argmax(1) == labels).float().mean().item()
print(newest.name, right)
"""


def run_script(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = directory / "script.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIR),
            "SATURN_HOME": str(directory / "home"),
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_walk_through_runs_unchanged(tmp_path: Path) -> None:
    assert_trains(tmp_path, WALK_THROUGH + AND_THEN, [30, 20, 18, 24])


@pytest.mark.timeout(240)
def test_the_walk_through_runs_with_two_of_its_tasks(tmp_path: Path) -> None:
    two = (WALK_THROUGH + AND_THEN).replace("[t1, t2, t3, t4]", "[t1, t4]")
    assert_trains(tmp_path, two, [30, 24])


def assert_trains(tmp_path: Path, script: str, steps: list[int]) -> None:
    """Run the script, whose last task is `t4`; its tasks train so many steps."""
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for ways in found["ways"]:
        assert ["ddp", 1, "measured"] in ways and ["my_parallelism", 1, "measured"] in ways
    # gpu_range keeps the last task off more than one device.
    assert all(gpus == 1 for _, gpus, _ in found["ways"][-1])
    assert ["my_parallelism", 2, "not_applicable"] in found["ways"][0]
    assert [task[1:3] for task in found["tasks"]] == [["done", each] for each in steps]
    assert all(task[3] is not None and task[3] < 0.5 for task in found["tasks"])
    assert set(found["selected"]) <= {"ddp", "fsdp", "my_parallelism"}
    assert found["lower_bound_s"] <= found["planned_makespan_s"] * (1 + 1e-9)
    assert found["makespan_s"] > 0
    run_dir = Path(found["run_dir"])
    for name in ("journal.db", "report.html", "report.json", "profile.json"):
        assert (run_dir / name).stat().st_size > 0
    assert "plan" in done.stderr and str(run_dir) in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_training_really_happens_inside_the_users_executor(tmp_path: Path) -> None:
    head = (
        WALK_THROUGH.partition("from saturn.trial_runner")[0] + "from saturn import orchestrate\n"
    )
    done = run_script(tmp_path, head + ONLY_MINE + "print(result.run_dir)\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    model_part = WALK_THROUGH.partition("hyperparameters =")[0]
    loaded = run_script(tmp_path, model_part + LOADS, done.stdout.strip())
    assert loaded.returncode == 0, loaded.stderr
    name, right = loaded.stdout.split()
    assert name == "step-00000030" and float(right) > 0.9
