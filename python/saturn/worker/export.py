"""What becomes of a trained task's last checkpoint: copied, and published, as its user wants.

`Task(save_dir=…)` says where a copy goes; a trainer may push its model to a hub.
Beside it goes what `from_pretrained` reads, where the model is one of transformers. An attempt may
end twice, where its last words were not heard, so a copy that is there already is left alone.
Nothing is ever overwritten.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from saturn.checkpoint import best, huggingface, manifest
from saturn.checkpoint.black_box_state import read_into
from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.rank.device_memory import lift
from saturn.tasks.definition import TaskDefinition
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec


def export(
    spec: Spec, definition: TaskDefinition, save_dir: Path, step: int, reporter: Reporter
) -> None:
    """Copy the checkpoint after `step` steps to `save_dir/<task>/step-<step>/`.

    Or the best, where the task says so and has one.

    What goes wrong is told to the person watching, and fails nothing: the task is trained.
    """
    checkpoint, step = _chosen(spec, definition, step)
    name = manifest.step_dir_name(step)
    # The run's name marks a copy that isn't whole yet, so that a later attempt finds and drops it.
    scratch = save_dir / spec.task_dir.name / f".{name}-{spec.run_dir.name}"
    try:
        target = _copy(checkpoint, scratch, name)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        # `copytree` collects what befell each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        reporter.note(
            f"the trained model can't be copied to {save_dir}: {reason}; it is in {checkpoint}"
        )
        return
    directory = target.with_name(f"{target.name}-huggingface")
    lift()  # training is over: what is built from here on lies in host memory
    try:
        if "transformers" in sys.modules and not directory.exists():
            _write_huggingface(definition, target, directory)
    except Exception as error:
        reporter.note(
            f"the trained model can't be written for Hugging Face: {type(error).__name__}: "
            f"{error}; its checkpoint is in {target}"
        )


def publish(spec: Spec, definition: TaskDefinition, step: int, reporter: Reporter) -> None:
    """Have the task publish its model after `step` steps, or its best, where it says so.

    What goes wrong is told to the person watching, and fails nothing: the task is trained.
    """
    checkpoint, step = _chosen(spec, definition, step)
    content = manifest.read(checkpoint)
    assert content is not None  # it was written, or verified, just now
    lift()
    try:
        where = definition.step_loss.publish(partial(read_into, checkpoint, content), step)
    except Exception as error:
        reporter.note(
            f"the trained model can't be published: {type(error).__name__}: {error}; its "
            f"checkpoint is {checkpoint}"
        )
    else:
        reporter.note(f"the model after step {step} is published: {where}")


def _chosen(spec: Spec, definition: TaskDefinition, step: int) -> tuple[Directory, int]:
    """The checkpoint that is the task's result, and its step."""
    if definition.saves_best:
        kept = manifest.newest_valid(best.directory_of(spec.checkpoints_dir))
        if kept is not None:
            return kept[0], kept[1]["step"]
    return manifest.of_step(spec.checkpoints_dir, step), step


def _write_huggingface(definition: TaskDefinition, checkpoint: Path, directory: Path) -> None:
    content = manifest.read(checkpoint)
    assert content is not None  # it was copied with the rest
    module = huggingface.trained_model(definition, checkpoint, content)
    if huggingface.can_be_written(module):
        huggingface.write(module, directory)


def _copy(checkpoint: Directory, scratch: Path, name: str) -> Path:
    target = scratch.with_name(name)
    number = 1
    while target.exists():
        # The manifest has the digest of every file: where it is the same, so is all the rest.
        if _manifest(target) == _manifest(checkpoint):
            return target
        number += 1
        target = scratch.with_name(f"{name}.{number}")

    shutil.rmtree(scratch, ignore_errors=True)
    if isinstance(checkpoint, Folder):
        checkpoint.download(scratch)
    else:
        shutil.copytree(checkpoint, scratch)
    return scratch.rename(target)


def _manifest(checkpoint: Directory) -> bytes | None:
    path = checkpoint / manifest.NAME
    return path.read_bytes() if path.exists() else None
