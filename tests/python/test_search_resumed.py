"""A search of a whole program, stopped and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from saturn import HParams, Task, native
from saturn.stoppers import ASHA
from waiting import until
from warm_parent import PYTHON_DIR

SATURN = Path(sys.executable).with_name("saturn")


def get_model() -> torch.nn.Module:
    return torch.nn.Linear(4, 1)


def get_dataloader() -> torch.utils.data.DataLoader[Any]:
    data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.arange(64))
    return torch.utils.data.DataLoader(data, batch_size=8)


def slow_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    time.sleep(0.05)
    return -outputs.mean()  # each step moves the bias by the learning rate


def score(model: torch.nn.Module) -> dict[str, float]:
    return {"score": float(model.bias.sum())}  # type: ignore[union-attr, operator]


@pytest.mark.slow
@pytest.mark.timeout(290)
def test_a_search_is_stopped_resumed_and_ends_with_the_best(tmp_path: Path) -> None:
    """Four tasks of 60 steps on one device: two go on from step 6, one of them from 30."""
    tasks = [
        Task(
            *(get_model, get_dataloader, slow_loss),
            HParams(lr=lr, batch_count=60, optimizer_cls=torch.optim.SGD),
            name=f"lr{lr}",
            evaluate=score,
            evaluate_every=6,
            best=("score", "max"),
        )
        for lr in (2, 3, 4, 5)  # they perform alike: one is measured
    ]
    run = saturn.start(
        tasks,
        stopper=ASHA(min_steps=6, eta=2),
        devices=1,
        techniques=["ddp"],
        runs_dir=tmp_path,
        name="it",
        log=False,
    )
    until(lambda: run.status()["counts"]["held"] > 0 or run.is_over)
    run.stop()
    with pytest.raises(saturn.RunInterrupted):
        run.wait()
    command = [SATURN, "resume", str(run.run_dir)]
    environment = {"PYTHONPATH": f"{PYTHON_DIR}:{Path(__file__).parent}"}
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = saturn.attach(run.run_dir).wait()
    (best, *others) = result.rows()
    assert (best["task"], best["status"], best["lr"]) == ("lr5", "done", 5)
    assert best["score"] == pytest.approx(300, abs=1)
    assert {row["status"] for row in others} == {"stopped"}
    for outcome in result.tasks:
        steps = [int(path.name[5:]) for path in run.run_dir.glob(f"tasks/{outcome.name}/ch*/st*")]
        assert max(steps) == outcome.steps, "it ended at a checkpoint"
        assert (outcome.steps == 60) == (outcome.name == "lr5")
    seen = [(one["task"], one["step"]) for one in json.loads(native.judged(run.run_dir))]
    with_values = [
        (one["task"], one["step"])
        for one in json.loads(native.judged(run.run_dir))
        if one["values"]
    ]
    assert len(with_values) == len(set(with_values)) and len(seen) > len(with_values)
    table = subprocess.run(
        [SATURN, "report", str(run.run_dir), "--csv"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    assert table[0].startswith("task,status,score,steps,") and table[1].startswith("lr5,done,")
