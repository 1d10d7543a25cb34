"""Run a script's part after its training: `python -m saturn.trainers.rest TASK SCRIPT ARGS…`.

The script runs once more, from its beginning. Its call of `train()` loads the trained weights into
its trainer's model, and returns as after a training. So the script evaluates and saves as it would
have. This is a task of its own after the training: a script that trains by itself, with one step.

What `train()` leaves in the trainer besides weights is read from the task's files: the state with
its log history and best metric, and the metrics of the training. The history has each step and each
evaluation, whatever `logging_steps` says. The model's configuration has the tokenizer's special
tokens.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn.checkpoint import best, manifest
from saturn.checkpoint.black_box_state import read_into
from saturn.checkpoint.place import checkpoints_of
from saturn.errors import InvalidInput
from saturn.plain.measures import number, numbers
from saturn.scripts.command import LAUNCHER_VARIABLES, RUN_DIR
from saturn.scripts.reporting import report
from saturn.tasks import directories
from saturn.trainers import progress
from saturn.trainers.script import training_by
from saturn.trainers.source import align_special_tokens


class Trained:
    """Replaces a trainer's `train` by a task's result."""

    def __init__(self, run_dir: Path, task: str) -> None:
        """`task` is the training task's name."""
        self._task_dir = _task_dir(run_dir, task)
        self._has_returned = False

    def train(self, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        """Load the trained weights; returns the training's output."""
        from transformers.trainer_utils import TrainOutput

        if self._has_returned:
            raise InvalidInput(
                "the script calls train() a second time, and Saturn has trained what the first one "
                "would have; train each in a script of its own"
            )
        self._has_returned = True
        checkpoints_dir = checkpoints_of(self._task_dir)
        newest = manifest.newest_valid(checkpoints_dir)
        if newest is None:
            raise InvalidInput(f"there is no checkpoint in {self._task_dir}: nothing was trained")
        _, content = weights = newest
        if trainer.args.load_best_model_at_end:
            kept = best.directory_of(checkpoints_dir)
            weights = manifest.newest_valid(kept) or newest
        if trainer.model_init is not None:
            trainer.model = trainer.call_model_init()
            trainer.model_wrapped = trainer.model
        align_special_tokens(trainer)
        trainer._move_model_to_device(trainer.model, trainer.args.device)
        read_into(*weights, trainer.model)
        history = _History.read(self._task_dir)
        step: int = content["step"]
        epoch_batches = len(trainer.get_train_dataloader())
        steps = progress.length(trainer.args, epoch_batches)
        progress.begin(trainer, steps=steps, epoch_batches=epoch_batches, done=step)
        state = trainer.state
        listener = content.get("listener") or {}
        state.best_metric = number(listener.get("best_metric"))
        state.best_global_step = listener.get("best_global_step")
        state.log_history = history.logs
        metrics = _metrics(trainer, history, step)
        state.log_history.append({**metrics, "step": step})
        return TrainOutput(step, metrics["train_loss"], dict(metrics))


@dataclass(frozen=True)
class _History:
    """What a task's `metrics.jsonl` says of its training."""

    #: The loss of each step; if a step was trained again, its last loss.
    losses: dict[int, float]
    #: The metrics of each evaluation, by step.
    evaluations: dict[int, dict[str, float]]
    #: Seconds from the first line to the last.
    seconds: float

    @classmethod
    def read(cls, task_dir: Path) -> _History:
        """Read the file; without it there was no step."""
        try:
            lines = (task_dir / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            lines = []
        losses: dict[int, float] = {}
        evaluations: dict[int, dict[str, float]] = {}
        times = []
        for line in lines:
            try:
                entry = json.loads(line)
                step = int(entry["step"])
            except (ValueError, KeyError, TypeError):
                continue  # half a line, left by a crash
            times.append(float(entry.get("t", 0.0)))
            if (loss := number(entry.get("loss"))) is not None:
                losses[step] = loss
            if isinstance(found := entry.get("evaluation"), dict):
                values = numbers(found)
                evaluations[step] = {
                    name: value for name, value in values.items() if value is not None
                }
        seconds = max(times) - min(times) if times else 0.0
        return cls(dict(sorted(losses.items())), evaluations, seconds)

    @property
    def logs(self) -> list[dict[str, Any]]:
        """A log history as a trainer's: losses and evaluations, in the order of steps."""
        of_steps = [(step, 0, {"loss": loss}) for step, loss in self.losses.items()]
        of_evaluations = [(step, 1, found) for step, found in self.evaluations.items()]
        everything = sorted([*of_steps, *of_evaluations], key=lambda one: one[:2])
        return [{**values, "step": step} for step, _, values in everything]


def _metrics(trainer: Any, history: _History, step: int) -> dict[str, float]:
    """The training's metrics, under the trainer's names; Saturn doesn't count `total_flos`."""
    args = trainer.args
    losses = history.losses.values()
    samples = step * args.per_device_train_batch_size * args.gradient_accumulation_steps
    seconds = max(history.seconds, 1e-9)
    return {
        "train_runtime": round(history.seconds, 4),
        "train_samples_per_second": round(samples / seconds, 3),
        "train_steps_per_second": round(step / seconds, 3),
        "total_flos": 0.0,
        "train_loss": statistics.fmean(losses) if losses else 0.0,
        "epoch": trainer.state.epoch,
    }


def main() -> None:
    """Run the script's rest; the program's arguments name the task and the script."""
    task, script, *args = sys.argv[1:]
    trained = Trained(Path(os.environ[RUN_DIR]), task)
    for name in LAUNCHER_VARIABLES:  # a single process, like a script started by hand
        os.environ.pop(name, None)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).parent))
    with training_by(lambda trainer, *args, **kwargs: trained.train(trainer, *args, **kwargs)):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise
    report(1, total_steps=1)


def _task_dir(run_dir: Path, task: str) -> Path:
    if (found := directories.of_task(run_dir, task)) is not None:
        return found
    raise InvalidInput(f"{run_dir} has no task `{task}`")


if __name__ == "__main__":
    main()
