"""Copy a trained task's last checkpoint to where its user wants it (`Task(save_dir=…)`)."""

from __future__ import annotations

import shutil
from pathlib import Path


def export_checkpoint(task_dir: Path, save_dir: Path) -> Path | None:
    """Copy the newest checkpoint of `task_dir` to `save_dir/<task>/`, overwriting nothing.

    Returns the copy's directory, or None where the task saved no checkpoint.
    """
    checkpoints = sorted((task_dir / "checkpoints").glob("step-*"))
    if not checkpoints:
        return None
    target = save_dir / task_dir.name / checkpoints[-1].name
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(f"{checkpoints[-1].name}.{number}")
    scratch = target.with_name(f".{target.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(checkpoints[-1], scratch)
    return scratch.rename(target)
