"""Copy a trained task's last checkpoint to `save_dir`, and publish its model.

`Task(save_dir=…)` says where the copy goes; a trainer may push its model to a hub. A model of
transformers is also written beside the copy, for `from_pretrained`. An attempt may end twice, if
the runtime did not hear its last message, so a copy that is already there is left alone. Nothing is
ever overwritten.
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

    If the task wants its best checkpoint kept and has one, that one is copied instead.

    Errors are reported to the user and fail nothing: the task is trained.
    """
    checkpoint, step = _chosen(spec, definition, step)
    name = manifest.step_dir_name(step)
    # The run's name marks an incomplete copy, so that a later attempt finds and removes it.
    scratch = save_dir / spec.task_dir.name / f".{name}-{spec.run_dir.name}"
    try:
        target = _copy(checkpoint, scratch, name)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        # `copytree` collects one error for each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        reporter.note(
            f"the trained model can't be copied to {save_dir}: {reason}; it is in {checkpoint}"
        )
        return
    directory = target.with_name(f"{target.name}-huggingface")
    lift()  # training is over: what is built from here on may lie in all of the host's memory
    try:
        if "transformers" in sys.modules and not directory.exists():
            _write_huggingface(definition, target, directory)
    except Exception as error:
        reporter.note(
            f"the trained model can't be written for Hugging Face: {type(error).__name__}: "
            f"{error}; its checkpoint is in {target}"
        )


def publish(spec: Spec, definition: TaskDefinition, step: int, reporter: Reporter) -> None:
    """Let the task publish its model after `step` steps, or its best if it wants the best.

    Errors are reported to the user and fail nothing: the task is trained.
    """
    checkpoint, step = _chosen(spec, definition, step)
    content = manifest.read(checkpoint)
    assert content is not None  # the checkpoint was written, or verified, just now
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
    assert content is not None  # the manifest was copied with the checkpoint
    module = huggingface.trained_model(definition, checkpoint, content)
    if huggingface.can_be_written(module):
        huggingface.write(module, directory)


def _copy(checkpoint: Directory, scratch: Path, name: str) -> Path:
    target = scratch.with_name(name)
    number = 1
    while target.exists():
        # The manifest has a digest of every file, so equal manifests mean equal checkpoints.
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
