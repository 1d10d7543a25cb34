"""The files of docs/frameworks.md train as tasks: on one slot, on two, and after a stop."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import closeness
import pytest
import saturn
from harness import Runtime
from saturn import Task
from test_pages import blocks

FILES = Path(__file__).parents[2] / "examples" / "frameworks"
TECHNIQUE = {"name": "script", "level": "black_box", "import": "saturn.worker.scripts.script:run"}
STEPS = 24


@pytest.mark.slow
@pytest.mark.parametrize("script", ["accelerate_loop", "torchrun_ddp"])
def test_a_script_on_one_slot_and_on_two(script: str, run: Runtime, tmp_path: Path) -> None:
    curves = []
    for name, gpus in (("one", 1), ("two", 2)):
        args = ("--steps", STEPS, "--output_dir", tmp_path / name)
        task = Task.script(FILES / f"{script}.py", args, name=name, gpu_range=[1, 2])
        run.write_task(task.definition())
        if gpus == 2:  # stopped on the way, on both ranks, and taken up on one
            gang = run.launch(name, TECHNIQUE, steps=STEPS, gpus=2)
            gang.wait_for("progress", step=2)
            gang.stop()
            stopped = gang.wait()
            assert stopped.codes == [0], stopped.logs
            assert stopped.of("stopped") or stopped.of("finished")
        if gpus == 1 or stopped.of("stopped"):
            result = run.run(name, TECHNIQUE, steps=STEPS, gpus=1)
            assert result.one("finished")["step"] == STEPS, result.logs
        curves.append(run.losses(name))
    assert sorted(curves[0]) == list(range(1, STEPS + 1))
    assert curves[0][STEPS] < curves[0][1] / 1.5
    assert closeness.ulps(curves[1], curves[0]) < closeness.ACROSS


#: Runs a script as `__main__`, and says how many threads are left at its end.
COUNTING_THREADS = """
import os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
def test_the_script_for_torchrun_ends_its_threads(tmp_path: Path) -> None:
    """Python would abort, now and then, where one of gloo's still works at its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    of_both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    of_both |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COUNTING_THREADS, FILES / "torchrun_ddp.py"]
    ranks = [
        subprocess.Popen(
            [*command, "--steps", "3", "--output_dir", tmp_path],
            env={**os.environ, **of_both, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=100)[0] for rank in ranks] == ["1\n", "1\n"]


def test_the_pages_sweep_of_lightning_modules_makes_tasks() -> None:
    (program,) = [b.text for b in blocks() if "class Classifier(pl." in b.text]
    assert "orchestrate([" in program
    names = dict[str, Any]()
    exec(program.replace("\norchestrate([", "\ntasks = ([", 1), names)
    assert [task.name for task in names["tasks"]] == ["lr0.001", "lr0.01"]
    assert all(task.evaluation.evaluate is not None for task in names["tasks"])


@pytest.mark.slow
def test_the_sweep_of_lightning_modules_trains(tmp_path: Path) -> None:
    tasks = runpy.run_path(str(FILES / "lightning_sweep.py"))["tasks"]
    result = saturn.orchestrate(tasks, runs_dir=tmp_path, name="run")
    assert all(row["status"] == "done" and row["val_loss"] < 1.3 for row in result.rows())


def test_the_sweep_of_lightning_modules_is_four_tasks() -> None:
    tasks = runpy.run_path(str(FILES / "lightning_sweep.py"))["tasks"]
    assert [task.name for task in tasks] == [
        *("width32-lr0.001", "width32-lr0.01", "width128-lr0.001", "width128-lr0.01")
    ]
    assert all(task.evaluation.best == ("val_loss", "min") for task in tasks)
