"""A task whose own functions raise takes no other task of its group along, though it came first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from faces import LOSS, make_task
from saturn import HParams, Task
from torch.utils.data import DataLoader, IterableDataset

SCRIPT = """
import sys, saturn
if float(sys.argv[1]) > 1:
    sys.exit("the rate is too large")
for step in range(1, 5):
    saturn.report(step, 1 / step, total_steps=4)
"""


class Endless(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """A dataset without a length, whose epochs can't be counted."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(12, generator=generator), torch.tensor(0)


def endless_loader() -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    return DataLoader(Endless(), batch_size=4)


def no_schedule(optimizer: torch.optim.Optimizer) -> Any:
    raise RuntimeError("no such schedule")


def finite_loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss = LOSS(output, labels)
    if not torch.isfinite(loss):
        raise ValueError("the loss is not finite")
    return loss


def test_it_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)

    def pair(name: str, bad: HParams, **options: Any) -> list[Task]:
        good = HParams(lr=0.1, batch_count=4)
        each = ((f"{name}-bad", bad), (f"{name}-good", good))
        return [make_task(task, hparams=hparams, **options) for task, hparams in each]

    scripts = [("script-bad", "10"), ("script-good", "0.1")]
    tasks = [
        *pair("schedule", HParams(lr=0.1, batch_count=4, lr_scheduler=no_schedule)),
        *pair("loss", HParams(lr=1e30, batch_count=4), loss_function=finite_loss),
        *pair("length", HParams(lr=0.1, epochs=2), get_dataloader=endless_loader),
        *(Task.script("train.py", [rate], name=name) for name, rate in scripts),
    ]
    result = saturn.orchestrate(tasks, devices=1, name="pairs", raise_on_failure=False)
    found = {task.name: (task.status, task.steps) for task in result.tasks}
    good = {task.name: ("done", 4) for task in tasks if task.name.endswith("-good")}
    assert {name: end for name, end in found.items() if name in good} == good
    errors = {task.name: str(task.error) for task in result.tasks if task.status == "failed"}
    assert "no such schedule" in errors.pop("schedule-bad")
    assert "the loss is not finite" in errors.pop("loss-bad")
    assert "has no length" in errors.pop("length-bad")
    assert "the rate is too large" in errors.pop("script-bad")
    assert not errors
