"""Trainers on GPUs, which are fake: made on the host, their losses are computed on the device."""

from __future__ import annotations

from pathlib import Path

import closeness
import pytest
import trainer_models
from harness import Runtime
from saturn import Task

pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
def test_on_gpus_its_losses_are_the_trainers(
    gpu_run: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = trainer_models.causal(label_smoothing_factor=0.1)
    task = Task.from_trainer(make)
    gpu_run.write_task(task.definition())
    for technique, ranks, steps in (("ddp", 1, 2), ("fsdp", 2, 4)):
        result = gpu_run.run(task.name, technique, ranks=ranks, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = trainer_models.run(make)
    found = gpu_run.losses(task.name)
    assert closeness.ulps(found, {step: expected[step] for step in found}) < closeness.ACROSS
