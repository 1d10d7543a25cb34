"""`Task(save_dir=…)`: a copy of the last checkpoint, made by whoever ends the training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import black_boxes
import pytest
from harness import Runtime
from models import definition
from saturn.checkpoint import manifest
from techniques_of_tests import spec_of

PLAIN = spec_of(black_boxes.Plain, "black_box")


def train(run: Runtime, save_dir: Path, technique: Any, steps: int) -> list[str]:
    """Train in one attempt; returns the notes."""
    run.write_task(definition(save_dir=save_dir))
    ranks = 1 if technique is PLAIN else 2
    result = run.run("mlp", technique, ranks=ranks, gpus=2, steps=steps)
    assert result.codes == [0] * ranks, result.logs
    assert result.one("finished")["step"] == steps
    return [note["text"] for note in result.of("note")]


def copies(save_dir: Path) -> list[str]:
    return sorted(path.name for path in (save_dir / "mlp").iterdir())


@pytest.mark.parametrize("technique", ["fsdp", PLAIN], ids=["managed", "black box"])
def test_the_last_checkpoint_is_copied_once(run: Runtime, tmp_path: Path, technique: Any) -> None:
    models = tmp_path / "models"
    # What a killed attempt of this run had begun makes way.
    begun = models / "mlp" / f".step-00000004-{run.run_dir.name}"
    begun.mkdir(parents=True)
    (begun / "half").touch()
    for _ in range(2):  # the second finds all steps done: its `finished` was not heard before
        assert train(run, models, technique, 4) == []
    assert copies(models) == ["step-00000004"]
    copied = manifest.newest_valid(models / "mlp")
    assert copied is not None and copied[1]["step"] == 4
    # Another training with a checkpoint of that name: both stay.
    shutil.rmtree(run.task_dir("mlp") / "checkpoints")
    assert train(run, models, technique, 4) == []
    assert copies(models) == ["step-00000004", "step-00000004.2"]


def test_a_stopped_task_is_not_copied(run: Runtime, tmp_path: Path) -> None:
    run.write_task(definition(save_dir=tmp_path / "models"))
    gang = run.launch("mlp", "ddp", steps=10**6)
    gang.wait_for("progress")
    gang.stop()
    assert gang.wait().of("stopped")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("technique", ["ddp", PLAIN], ids=["managed", "black box"])
def test_where_no_copy_can_be_made_the_person_is_told(
    run: Runtime, tmp_path: Path, technique: Any
) -> None:
    (tmp_path / "models").write_text("a file")
    (note,) = train(run, tmp_path / "models", technique, 3)
    assert f"can't be copied to {tmp_path / 'models'}" in note and "Not a directory" in note
    assert str(run.task_dir("mlp") / "checkpoints" / "step-00000003") in note
