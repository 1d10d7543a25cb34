"""Copy a trained task's last checkpoint to where its user wants it (`Task(save_dir=…)`).

An attempt may end twice, where its last words were not heard, so a copy that is there already is
left alone. Nothing is ever overwritten.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from saturn.worker import manifest
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec


def export(spec: Spec, save_dir: Path, step: int, reporter: Reporter) -> None:
    """Copy the checkpoint after `step` steps to `save_dir/<task>/`, under its own name.

    What goes wrong is told to the person watching, and fails nothing: the task is trained.
    """
    checkpoint = spec.checkpoints_dir / manifest.step_dir_name(step)
    # The run's name marks a copy that isn't whole yet, so that a later attempt finds and drops it.
    scratch = save_dir / spec.task_dir.name / f".{checkpoint.name}-{spec.run_dir.name}"
    try:
        _copy(checkpoint, scratch, reporter.alive)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        # `copytree` collects what befell each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        reporter.note(
            f"the trained model can't be copied to {save_dir}: {reason}; it is in {checkpoint}"
        )


def _copy(checkpoint: Path, scratch: Path, alive: Callable[[], None]) -> None:
    target = scratch.with_name(checkpoint.name)
    number = 1
    while target.exists():
        # The manifest has the digest of every file: where it is the same, so is all the rest.
        if _manifest(target) == _manifest(checkpoint):
            return
        number += 1
        target = scratch.with_name(f"{checkpoint.name}.{number}")

    def copy(source: str, destination: str) -> None:
        shutil.copy2(source, destination)
        alive()

    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(checkpoint, scratch, copy_function=copy)
    scratch.rename(target)


def _manifest(checkpoint: Path) -> bytes | None:
    path = checkpoint / manifest.NAME
    return path.read_bytes() if path.exists() else None
