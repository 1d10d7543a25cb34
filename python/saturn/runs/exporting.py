"""`export`: write a trained model of a run as a directory that Hugging Face's libraries read.

The run is only read, and may be in progress. `saturn.checkpoint.huggingface` writes the directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from saturn.errors import InvalidInput
from saturn.runs import run_directory
from saturn.runs.result import RunResult
from saturn.scripts.command import ScriptDefinition
from saturn.tasks import definition as definitions
from saturn.tasks import directories
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.importing import imports_of


def export(
    run: str | os.PathLike[str] | RunResult,
    task: str,
    directory: str | os.PathLike[str],
    *,
    which: str = "last",
) -> Path:
    """Write a task's model, from its last or its best checkpoint, for `from_pretrained`.

    The directory gets `config.json` and safetensors. For a model that PEFT wraps, it gets the
    adapters, for `PeftModel.from_pretrained`.

    The task may be done or stopped, or may still train. Its `get_model` is called, so the modules
    that it imports must be installed. Tokenizers are not a task's, and are not written.

    Args:
        run: the run's directory, or the result of `orchestrate`.
        task: the task's name.
        directory: the directory to write, which must not exist yet.
        which: "last", or "best" for the checkpoint that the task's `best` asks for.

    Returns:
        `directory`.

    Raises:
        ValueError: `which` is neither "last" nor "best".
        InvalidInput: there is no such run, task or checkpoint, the model is none of transformers,
            or `directory` exists.
    """
    if which not in ("last", "best"):
        raise ValueError(f"which is {which!r}; it must be `last` or `best`")
    run_dir = run.run_dir if isinstance(run, RunResult) else Path(run)
    target = Path(directory).absolute()
    if target.exists():
        raise InvalidInput(f"{target} is there already; choose a directory that is not")
    task_dir, definition = find(run_dir, task)
    # Imported here: these import torch, which `import saturn` must not wait for.
    from saturn.checkpoint import best, huggingface, manifest, place
    from saturn.data import seeds

    directory_of_these = place.checkpoints_of(task_dir)
    if which == "best":
        if definition.best is None:
            raise InvalidInput(
                f"task `{task}` was made without best=, so it has no best checkpoint"
            )
        directory_of_these = best.directory_of(directory_of_these)
    newest = manifest.newest_valid(directory_of_these)
    if newest is None:
        raise InvalidInput(f"task `{task}` has no checkpoint in {directory_of_these}")
    # Building draws random numbers, and the caller's streams must not move.
    with seeds.forked(), imports_of(task_dir):
        module, checkpoint = huggingface.newest_model(definition, directory_of_these, newest)
    if not huggingface.can_be_written(module):
        raise InvalidInput(
            f"task `{task}` trains a {type(module).__name__}, which is no PreTrainedModel of "
            f"transformers and no PeftModel; its checkpoint is {checkpoint}, and docs/reference.md "
            "has the three lines that load it in plain torch"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    huggingface.write(module, target)
    return target


def find(run_dir: Path, task: str) -> tuple[Path, TaskDefinition]:
    """(a task's directory in a run, its definition). Raises `InvalidInput`."""
    pickles = sorted(run_dir.glob("tasks/*/task.pkl"))
    if not pickles or not run_directory.has_begun(run_dir):
        raise InvalidInput(f"{run_dir} is no run directory: it holds no tasks")
    if (task_dir := directories.of_task(run_dir, task)) is not None:
        with imports_of(task_dir):
            definition = definitions.load(task_dir / "task.pkl")
        if isinstance(definition, ScriptDefinition):
            raise InvalidInput(
                f"task `{task}` is the script {definition.path}, which saves its model itself"
            )
        return task_dir, definition
    # Other tasks may import what is not here any more, so they are named by their directories.
    known = ", ".join(f"`{path.parent.name}`" for path in pickles)
    raise InvalidInput(f"{run_dir} has no task `{task}`; it has {known}")
