"""A trainer's callbacks, told on one rank what the trainer would tell them of its training.

They observe: `on_train_begin`, `on_epoch_begin` and `on_epoch_end`, `on_step_begin` and
`on_step_end`, `on_log` (as often as the trainer's arguments say, and after each evaluation),
`on_evaluate` and `on_train_end`, with a filled `TrainerState`. What they ask for in return (to
stop, to save, to evaluate) is not for them to say here; that somebody asked to stop is told once.
Saturn shows progress itself, so what prints is left out.

An attempt is a training of its own to them, which begins at the step where the last one ended.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

#: Learning rates that are kept, where nobody asks for them: on ranks that tell nobody.
_MOST_RATES = 10_000


class Callbacks:
    """The callbacks of one trainer, from the beginning of an attempt to its end."""

    def __init__(
        self, trainer: Any, *, steps: int, rates: deque[float], note: Callable[[str], None]
    ) -> None:
        """`rates` gets the learning rate of each step before the step is told."""
        from transformers import PrinterCallback, ProgressCallback

        self._trainer, self._steps = trainer, steps
        self._rates, self._note = rates, note
        self._handler = trainer.callback_handler
        kept = [
            callback
            for callback in self._handler.callbacks
            if not isinstance(callback, PrinterCallback | ProgressCallback)
        ]
        self._handler.callbacks = kept
        self._losses: list[float] = []
        self._works = True
        self._has_asked = False

    def began(self, step: int) -> None:
        """Training begins after so many steps."""
        self._call(lambda: self._begin(step))

    def stepped(self, step: int, loss: float) -> None:
        """A step is done."""
        self._call(lambda: self._step(step, loss))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """The model was evaluated after so many steps."""
        self._call(lambda: self._evaluated(step, dict(metrics)))

    def ended(self) -> None:
        """No more steps come in this attempt."""
        self._call(lambda: self._fire("on_train_end"))

    def _call(self, tell: Callable[[], None]) -> None:
        if not self._works:
            return
        try:
            tell()
        # A service that can't be reached, say: what only watches must not end a training.
        except Exception as error:
            self._works = False
            self._note(
                f"the trainer's callbacks are not called any more: {type(error).__name__}: {error}"
            )

    def _begin(self, step: int) -> None:
        from transformers import TrainerState

        trainer = self._trainer
        state = TrainerState(
            global_step=step, max_steps=self._steps, num_train_epochs=self._epochs(self._steps)
        )
        state.log_history = []
        state.train_batch_size = trainer.args.per_device_train_batch_size
        fill: Callable[..., None] = state.compute_steps
        fill(trainer.args, self._steps)
        state.epoch = step / self._an_epoch
        trainer.state = state
        self._fire("on_train_begin")

    def _step(self, step: int, loss: float) -> None:
        trainer, state = self._trainer, self._trainer.state
        rate = self._rates.popleft() if self._rates else math.nan
        if (step - 1) % self._an_epoch == 0:
            self._fire("on_epoch_begin")
        self._fire("on_step_begin")
        state.global_step, state.epoch = step, step / self._an_epoch
        self._losses.append(loss)
        self._fire("on_step_end")
        if trainer.control.should_log:
            logs = {"loss": sum(self._losses) / len(self._losses), "learning_rate": rate}
            self._losses.clear()
            self._log(step, logs)
        if step % self._an_epoch == 0:
            self._fire("on_epoch_end")
        self._note_who_asks(step)

    def _evaluated(self, step: int, metrics: dict[str, float]) -> None:
        trainer, state = self._trainer, self._trainer.state
        self._log(step, dict(metrics))
        trainer.control = self._handler.on_evaluate(trainer.args, state, trainer.control, metrics)
        # As the trainer does, after its callbacks have compared with the best before.
        judge: Callable[..., Any] = trainer._determine_best_metric
        judge(metrics, trial=None)
        self._note_who_asks(step)

    def _log(self, step: int, logs: dict[str, float]) -> None:
        trainer, state = self._trainer, self._trainer.state
        logs["epoch"] = state.epoch
        state.log_history.append({**logs, "step": step})
        trainer.control = self._handler.on_log(trainer.args, state, trainer.control, logs)

    def _note_who_asks(self, step: int) -> None:
        stops = self._trainer.control.should_training_stop
        if stops and step < self._steps and not self._has_asked:
            self._has_asked = True
            self._note("a callback of the trainer asks to stop; the task trains all its steps")

    def _fire(self, event: str) -> None:
        trainer = self._trainer
        trainer.control = getattr(self._handler, event)(
            trainer.args, trainer.state, trainer.control
        )

    @property
    def _an_epoch(self) -> int:
        a_step = int(self._trainer.args.gradient_accumulation_steps)
        return math.ceil(len(self._handler.train_dataloader) / a_step)

    def _epochs(self, steps: int) -> int:
        return math.ceil(steps / self._an_epoch)


def follow_rates(optimizer: torch.optim.Optimizer) -> deque[float]:
    """The learning rate of each step of `optimizer`, put in as the step is taken."""
    rates: deque[float] = deque(maxlen=_MOST_RATES)

    def keep(of: torch.optim.Optimizer, *_: Any) -> None:
        rates.append(float(of.param_groups[0]["lr"]))

    optimizer.register_step_pre_hook(keep)
    return rates
