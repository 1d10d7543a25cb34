"""Run a script's part after its training: `python -m saturn.trainers.rest TASK SCRIPT ARGS…`.

The script runs once more, from its beginning. Its call of `train()` loads the trained weights into
its trainer's model, and returns as after a training. So the script evaluates and saves as it would
have. This is a task of its own after the training: a script that trains by itself, with one step.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any

from saturn.checkpoint import best, manifest
from saturn.checkpoint.black_box_state import read_into
from saturn.checkpoint.place import checkpoints_of
from saturn.errors import InvalidInput
from saturn.plain.measures import number
from saturn.scripts.command import LAUNCHER_VARIABLES, RUN_DIR
from saturn.scripts.reporting import report
from saturn.tasks import directories
from saturn.trainers.script import training_by


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
        trainer._move_model_to_device(trainer.model, trainer.args.device)
        read_into(*weights, trainer.model)
        losses = _losses(self._task_dir)
        loss = statistics.fmean(losses.values()) if losses else 0.0
        state = trainer.state
        state.global_step = state.max_steps = content["step"]
        state.epoch = float(content["epoch"])
        state.log_history = [{"step": step, "loss": one} for step, one in losses.items()]
        return TrainOutput(content["step"], loss, {"train_loss": loss, "epoch": state.epoch})


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


def _losses(task_dir: Path) -> dict[int, float]:
    """Losses by step; if a step was trained again, its last loss."""
    try:
        lines = (task_dir / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # half a line, left by a crash
        loss = number(entry.get("loss"))
        if loss is not None and "step" in entry:
            found[int(entry["step"])] = loss
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main()
