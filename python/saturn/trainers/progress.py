"""How far a trainer is: what its `state` says at a step, on every rank as in `train`.

A loss may depend on it, for example one that is annealed. The state is also what callbacks get.
They may hear of a step late, so whoever calls the trainer's code sets the state first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def length(args: Any, epoch_batches: int) -> int:
    """The number of steps of a training with these arguments; `epoch_batches` is not 0."""
    if int(args.max_steps) > 0:
        return int(args.max_steps)
    an_epoch = math.ceil(epoch_batches / int(args.gradient_accumulation_steps))
    return math.ceil(float(args.num_train_epochs) * an_epoch)


def begin(trainer: Any, *, steps: int, epoch_batches: int, done: int = 0) -> None:
    """Give the trainer a fresh state, as `train` does, after `done` of `steps` steps.

    `epoch_batches` is the length of its loader.
    """
    from transformers import TrainerState

    args = trainer.args
    an_epoch = math.ceil(epoch_batches / int(args.gradient_accumulation_steps))
    state = TrainerState(max_steps=steps, num_train_epochs=math.ceil(steps / an_epoch))
    state.log_history = []
    state.train_batch_size = args.per_device_train_batch_size
    fill: Callable[..., None] = state.compute_steps
    fill(args, steps)
    trainer.state = state
    move(trainer, done, epoch_batches=epoch_batches)


def move(trainer: Any, done: int, *, epoch_batches: int) -> None:
    """Say that `done` steps are finished."""
    a_step = int(trainer.args.gradient_accumulation_steps)
    epochs, within = divmod(done, math.ceil(epoch_batches / a_step))
    state = trainer.state
    # By batches, as the trainer counts: an epoch's last step may take fewer of them.
    state.global_step, state.epoch = done, epochs + within * a_step / epoch_batches
