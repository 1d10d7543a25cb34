"""What a task begins with besides a fresh model: given weights, or the state of an earlier task.

`start_from` gives only the first weights: see `checkpoint.starting`. `continue_from` gives
everything that the last checkpoint of another task holds. That checkpoint is put among the new
task's checkpoints before anything is launched, so the first attempt resumes from it as after any
stop. It consists of hard links, so the earlier run may be removed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput
from saturn.runs.result import RunResult
from saturn.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from saturn.checkpoint.starting import StartingWeights
    from saturn.tasks.task import Task


@dataclass(frozen=True)
class Continued:
    """A task of another run, at its last checkpoint."""

    run_dir: Path
    task: str
    checkpoint: Path
    #: How many steps it had trained.
    step: int
    #: Its best checkpoint, with its step, if both tasks keep the best by the same metric.
    best: tuple[Path, int] | None
    #: The last evaluation in its checkpoint's manifest.
    last_evaluation: Mapping[str, Any] | None


def checked_start(start_from: object) -> StartingWeights | None:
    """The weights at a path. Raises `TypeError`, or `InvalidInput` if there are none."""
    if start_from is None:
        return None
    if not isinstance(start_from, str | os.PathLike):
        raise TypeError(
            f"start_from is a {type(start_from).__name__}; it must be the path of a file that "
            "torch.save or safetensors wrote, or of a checkpoint"
        )
    # Imported here: it imports torch, which `import saturn` must not wait for.
    from saturn.checkpoint.starting import StartingWeights

    weights = StartingWeights.at(Path(start_from))
    weights.layout()  # reads no tensors, and raises for weights that can't be read
    return weights


def checked_continue(continue_from: object) -> tuple[Path, str] | None:
    """(the run's directory, the task's name). Raises `TypeError`."""
    if continue_from is None:
        return None
    wrong = TypeError(
        f"continue_from is {continue_from!r}; it must be a run and the name of one of its tasks, "
        'such as ("saturn_runs/my-run", "a")'
    )
    if not isinstance(continue_from, tuple | list) or len(continue_from) != 2:
        raise wrong
    run, name = continue_from
    if not isinstance(run, str | os.PathLike | RunResult) or not isinstance(name, str):
        raise wrong
    return (run.run_dir if isinstance(run, RunResult) else Path(run)).absolute(), name


def continued(task: Task, steps: int | None) -> Continued | None:
    """The checkpoint from which a task continues; None if it starts from the beginning.

    `steps` is the task's length, if it is known yet. Raises `InvalidInput` if there is no
    checkpoint, or if this task can't continue from it.
    """
    if task.continue_from is None:
        return None
    from saturn.checkpoint import best, manifest, place
    from saturn.runs import exporting

    run_dir, name = task.continue_from
    task_dir, before = exporting.find(run_dir, name)
    label = f"task `{task.name}` can't continue `{name}` of {run_dir}"
    directory = place.checkpoints_of(task_dir)
    newest = manifest.newest_valid(directory)
    if newest is None:
        raise InvalidInput(f"{label}: there is no checkpoint in {directory}")
    checkpoint, content = newest
    if not isinstance(checkpoint, Path):
        raise InvalidInput(f"{label}: its checkpoints are in an object store")
    if (reason := _why_not(before, task.definition(), content, steps)) is not None:
        raise InvalidInput(f"{label}: {reason}")
    kept = None
    if before.best is not None and before.best == task.evaluation.best:
        kept = manifest.newest_valid(best.directory_of(directory))
    of_best = (kept[0], kept[1]["step"]) if kept and isinstance(kept[0], Path) else None
    last = (content.get("evaluation") or {}).get("last")
    return Continued(run_dir, name, checkpoint, content["step"], of_best, last)


def put(found: Continued, task_dir: Path) -> None:
    """Put the checkpoint into a fresh task's directory. Raises `InvalidInput` or `OSError`.

    `InvalidInput` if the checkpoint is gone, since a task that still trains removes older ones.
    """
    from saturn.checkpoint import best, manifest, place

    directory = place.checkpoints_of(task_dir)
    if not isinstance(directory, Path):
        raise InvalidInput(
            "continue_from is for runs that keep their checkpoints in the run directory; this one "
            "has an object store (storage)"
        )
    try:
        more: dict[str, Any] = {"continued": {"run": str(found.run_dir), "task": found.task}}
        if found.best is None:
            # A best by another metric is none of this task's.
            more["evaluation"] = {"last": found.last_evaluation, "best": None}
        manifest.link(found.checkpoint, directory, found.step, more)
    except FileNotFoundError:
        raise InvalidInput(
            f"the checkpoint {found.checkpoint} is gone: its task still trains; continue it when "
            "that has ended"
        ) from None
    if found.best is not None:
        where = best.directory_of(directory)
        assert isinstance(where, Path)
        manifest.link(*(found.best[0], where, found.best[1]))


def _why_not(
    before: TaskDefinition, task: Any, content: dict[str, Any], steps: int | None
) -> str | None:
    """Why training would not continue as the same, as far as can be seen; None if it may."""
    if task.seed != before.seed:
        return (
            f"that trained with seed={before.seed}, which decides the order of the data, and this "
            f"task has seed={task.seed}; give it seed={before.seed}"
        )
    accumulates = (before.gradient_accumulation_steps, task.gradient_accumulation_steps)
    if accumulates[0] != accumulates[1]:
        return "that made a step of {} batches, and this task has {}".format(*accumulates)
    if (reason := _short_step(content, task.epoch_batches, accumulates[0])) is not None:
        return reason
    if len(before.parameter_groups) != len(task.parameter_groups):
        return (
            f"that had {len(before.parameter_groups)} parameter_groups, and this task has "
            f"{len(task.parameter_groups)}"
        )
    optimizers = (_name(before.optimizer_cls), _name(task.optimizer_cls))
    if optimizers[0] != optimizers[1]:
        return "that kept the state of {}, and this task's optimizer is {}".format(*optimizers)
    if (before.lr_scheduler is None) != (task.lr_scheduler is None):
        return "one of the two has an lr_scheduler, and the other has none"
    if (content.get("listener") or {}).get("is_over"):
        return "a callback of its trainer ended the training"
    done, passes = content["step"], content["epoch"]
    if steps is not None and steps <= done:
        return (
            f"that has trained {done} steps, and this task is to train {steps} in all, those "
            "included; give a larger number"
        )
    if task.epochs is not None and task.epochs <= passes:
        return (
            f"that has trained {passes} epochs, and this task is to train {task.epochs} in all, "
            "those included; give a larger number"
        )
    return None


def _short_step(content: Mapping[str, Any], epoch_batches: int | None, a_step: int) -> str | None:
    """Why a longer task can't continue this checkpoint: the checkpoint's last step was cut short.

    None if all its steps took as many batches as they would in a longer task.
    """
    from saturn.training.accumulation import whole_steps

    step, batches = content["step"], content["batches"]
    expected = whole_steps(step, a_step, epoch_batches)
    if batches == expected:
        return None
    return (
        f"its {step} steps took {batches} batches, and so many steps of a longer task take "
        f"{expected}: the last of them was cut short where the task ended"
    )


def _name(optimizer: Any) -> str:
    """The name of an optimizer's class; None means AdamW."""
    made = optimizer.func if isinstance(optimizer, functools.partial) else optimizer
    return "AdamW" if made is None else str(getattr(made, "__qualname__", made))
