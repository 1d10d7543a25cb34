"""A trainer's callbacks, called on one rank as the trainer would call them.

Callbacks get the events in `HEARD`, with a filled `TrainerState`. Their requests are treated so: a
stop ends the training, as in `train()`. An extra checkpoint or evaluation is ignored, with one
note. The end of an epoch can't be honoured, and fails the task. Saturn shows progress itself, so
callbacks that print are left out.

For the callbacks, each attempt is a training of its own, which begins at the step where the last
one ended. The best metric and the state of stateful callbacks are carried over.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from saturn.plain.measures import number, plain
from saturn.rank.exceptions import TaskError
from saturn.trainers import progress
from saturn.trainers.refusals import is_of, users_owner_of
from saturn.training.step_loss import OwnEnd

#: The events that callbacks get.
HEARD = (
    *("on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end"),
    *("on_log", "on_evaluate", "on_epoch_end", "on_train_end"),
)
#: Events of evaluations. A callback that gets any other event may end training at any step.
_OF_EVALUATIONS = ("on_init_end", "on_evaluate", "on_train_end")
#: Packages whose own callbacks only watch, except for the one that may end training.
_WATCHING = ("transformers", "trl", "peft", "accelerate")
#: How many learning rates are kept on ranks where nobody takes them.
_MOST_RATES = 10_000


class Callbacks:
    """The callbacks of one trainer, from the beginning of an attempt to its end."""

    def __init__(
        self, trainer: Any, *, steps: int, rates: deque[float], note: Callable[[str], None]
    ) -> None:
        """`rates` gets the learning rate of each step before `stepped` is called for it."""
        from transformers import DefaultFlowCallback, PrinterCallback, ProgressCallback

        self._trainer, self._steps = trainer, steps
        self._rates, self._note = rates, note
        self._handler = trainer.callback_handler
        kept = [
            callback
            for callback in self._handler.callbacks
            if not isinstance(callback, PrinterCallback | ProgressCallback)
        ]
        self._handler.callbacks = kept
        #: Decides when the trainer logs; when it evaluates and saves is Saturn's decision.
        self._flow = next((one for one in kept if isinstance(one, DefaultFlowCallback)), None)
        #: (loss, learning rate) of each step that was not logged yet.
        self._losses: list[tuple[float, float]] = []
        #: Whether the epoch has ended, but an evaluation comes before callbacks hear of the end.
        self._epoch_ends = False
        #: The step at which callbacks last heard of an epoch's end.
        self._epoch_ended_at = 0
        #: The finished steps that callbacks know of; more may be running.
        self._done = 0
        self._works = True
        self._has_noted: set[str] = set()
        self._restored: Mapping[str, Any] = {}

    @property
    def is_over(self) -> bool:
        """Whether a callback has ended the training."""
        return self._works and bool(self._trainer.control.should_training_stop)

    def state(self) -> dict[str, Any]:
        """The best metric, and the state of stateful callbacks."""
        state = self._trainer.state
        best = state.best_metric
        return {
            "best_by": self._best_by,
            # Infinite before the first value that is a number: no value at all is something else.
            "best_metric": None if best is None else plain(float(best)),
            "best_global_step": state.best_global_step,
            "callbacks": {name: self._plain(name, own) for name, own in self._stateful()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Keep a state that `state` returned; callbacks get it when training begins."""
        self._restored = state

    def began(self, step: int) -> None:
        """Training begins after `step` finished steps."""
        self._call(lambda: self._begin(step))

    def stepped(self, step: int, loss: float) -> None:
        """Step `step` is done."""
        self._call(lambda: self._step(step, loss))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """The model was evaluated after `step` steps."""
        self._call(lambda: self._evaluated(step, dict(metrics)))

    def ended(self) -> None:
        """This attempt takes no more steps."""
        self._call(self._end)

    def _call(self, tell: Callable[[], None]) -> None:
        if not self._works:
            return
        try:
            # A loss that was computed meanwhile has moved the state on.
            progress.move(self._trainer, self._done, epoch_batches=self._epoch_batches)
            tell()
        except TaskError:
            raise
        # Such as a service that can't be reached: a watcher's error must not end training.
        except Exception as error:
            self._works = False
            self._note(
                f"the trainer's callbacks are not called any more: {type(error).__name__}: {error}"
            )

    def _begin(self, step: int) -> None:
        trainer, self._done = self._trainer, step
        progress.begin(trainer, steps=self._steps, epoch_batches=self._epoch_batches, done=step)
        if self._restored:
            self._take_over(self._restored)
        self._fire("on_train_begin")

    def _take_over(self, before: Mapping[str, Any]) -> None:
        from transformers import EarlyStoppingCallback

        state = self._trainer.state
        # A task that continues another may judge by another metric; then nothing is compared with
        # the best of before. Earlier versions did not save by which metric that was.
        is_judged_alike = before.get("best_by", self._best_by) == self._best_by
        if is_judged_alike:
            state.best_metric = number(before["best_metric"])
            state.best_global_step = before["best_global_step"]
        for name, callback in self._stateful():
            if isinstance(callback, EarlyStoppingCallback) and not is_judged_alike:
                continue  # it counts how often the best was not beaten
            for attribute, value in (before["callbacks"].get(name) or {}).items():
                setattr(callback, attribute, value)

    def _step(self, step: int, loss: float) -> None:
        state = self._trainer.state
        rate = self._rates.popleft() if self._rates else math.nan
        self._end_epoch(state.global_step)
        if (step - 1) % self._an_epoch == 0:
            self._fire("on_epoch_begin")
        self._fire("on_step_begin")
        self._done = step
        progress.move(self._trainer, step, epoch_batches=self._epoch_batches)
        self._losses.append((loss, rate))
        is_evaluated = self._fire_with_flow("on_step_end")
        self._log_if_due(step)
        self._epoch_ends = step % self._an_epoch == 0 or step == self._steps or self.is_over
        if not is_evaluated:
            self._end_epoch(step)
        self._answer(step)

    def _end_epoch(self, step: int) -> None:
        if self._epoch_ends:
            self._epoch_ends, self._epoch_ended_at = False, step
            self._fire_with_flow("on_epoch_end")
            self._log_if_due(step)

    def _end(self) -> None:
        self._end_epoch(self._trainer.state.global_step)
        self._fire("on_train_end")

    def _log_if_due(self, step: int) -> None:
        if self._trainer.control.should_log and self._losses:
            losses = [loss for loss, _ in self._losses]
            rate = self._losses[-1][1]
            self._losses.clear()
            self._log(step, {"loss": sum(losses) / len(losses), "learning_rate": rate})

    def _evaluated(self, step: int, metrics: dict[str, float]) -> None:
        trainer, state = self._trainer, self._trainer.state
        self._log(step, dict(metrics))
        trainer.control = self._handler.on_evaluate(trainer.args, state, trainer.control, metrics)
        # As in the trainer, this comes after the callbacks have compared with the earlier best.
        if self._judges(metrics):
            judge: Callable[..., Any] = trainer._determine_best_metric
            judge(metrics, trial=None)
        # The end of training also ends the epoch.
        self._epoch_ends |= self.is_over and self._epoch_ended_at != step
        self._end_epoch(step)
        self._answer(step)

    def _judges(self, metrics: Mapping[str, float]) -> bool:
        """Whether the trainer's `metric_for_best_model` is among the metrics.

        It is not if the task has another evaluation in place of the trainer's.
        """
        name = self._trainer.args.metric_for_best_model
        return name is not None and f"eval_{name.removeprefix('eval_')}" in metrics

    def _log(self, step: int, logs: dict[str, float]) -> None:
        trainer, state = self._trainer, self._trainer.state
        if _logs_itself(trainer):
            # It adds to the log history, and calls the callbacks, by `Trainer.log`.
            trainer.log(logs)
            return
        logs["epoch"] = state.epoch
        state.log_history.append({**logs, "step": step})
        trainer.control = self._handler.on_log(trainer.args, state, trainer.control, logs)

    def _answer(self, step: int) -> None:
        """Treat the callbacks' requests other than a stop."""
        control = self._trainer.control
        if control.should_epoch_stop:
            raise TaskError(
                f"a callback of the trainer asks for the end of the epoch at step {step} "
                "(should_epoch_stop); Saturn trains whole epochs: it may end the training "
                "(should_training_stop), or leave that out"
            )
        if control.should_save and "save" not in self._has_noted:
            self._has_noted.add("save")
            self._note(
                f"a callback of the trainer asks for a checkpoint at step {step}; Saturn saves at "
                "its own times (checkpoint_every)"
            )
        if control.should_evaluate and "evaluate" not in self._has_noted:
            self._has_noted.add("evaluate")
            self._note(
                f"a callback of the trainer asks for an evaluation at step {step}; the task is "
                "evaluated as often as `eval_strategy` says"
            )
        control.should_save = control.should_evaluate = False

    def _fire_with_flow(self, event: str) -> bool:
        """Fire an event, ignoring the default flow's requests to evaluate, save or stop.

        Those are Saturn's decisions. Returns whether the flow would evaluate next.
        """
        is_evaluated = False
        trainer, control = self._trainer, self._trainer.control
        if self._flow is not None:
            asked = control.should_evaluate, control.should_save, control.should_training_stop
            control.should_evaluate = False
            getattr(self._flow, event)(trainer.args, trainer.state, control)
            is_evaluated = control.should_evaluate
            control.should_evaluate, control.should_save, control.should_training_stop = asked
        self._fire(event)
        return is_evaluated

    def _fire(self, event: str) -> None:
        """Call all callbacks except the default flow, which is called separately."""
        trainer, handler = self._trainer, self._handler
        everyone = handler.callbacks
        handler.callbacks = [each for each in everyone if each is not self._flow]
        try:
            trainer.control = getattr(handler, event)(trainer.args, trainer.state, trainer.control)
        finally:
            handler.callbacks = everyone

    def _stateful(self) -> Iterator[tuple[str, Any]]:
        """Callbacks that export a state, each with a unique name."""
        from transformers.trainer_callback import ExportableState

        for place, callback in enumerate(self._handler.callbacks):
            if isinstance(callback, ExportableState):
                yield f"{type(callback).__name__} {place}", callback

    def _plain(self, name: str, callback: Any) -> Any:
        """The state of a stateful callback; None if it can't be kept."""
        try:
            return json.loads(json.dumps(callback.state().get("attributes", {})))
        except Exception as error:
            if name not in self._has_noted:
                self._has_noted.add(name)
                self._note(
                    f"the state of the callback {name.split()[0]} can't be kept: "
                    f"{type(error).__name__}: {error}; it begins anew wherever the task goes on"
                )
            return None

    @property
    def _best_by(self) -> list[Any] | None:
        """The metric that `best_metric` is a value of, and whether more is better."""
        args = self._trainer.args
        if (metric := args.metric_for_best_model) is None:
            return None
        return [metric.removeprefix("eval_"), bool(args.greater_is_better)]

    @property
    def _an_epoch(self) -> int:
        a_step = int(self._trainer.args.gradient_accumulation_steps)
        return math.ceil(self._epoch_batches / a_step)

    @property
    def _epoch_batches(self) -> int:
        return len(self._handler.train_dataloader)


def own_end_of(trainer: Any, callbacks: Iterable[Any]) -> OwnEnd | None:
    """How a trainer's callbacks may end training before its last step; None if none does."""
    from transformers import EarlyStoppingCallback

    told: set[str] = set()
    for callback in callbacks:
        if isinstance(callback, EarlyStoppingCallback) or _is_strange(callback):
            told.update(_events_of(callback))
    if _logs_itself(trainer):
        told.add("on_log")  # it may do all that a callback of its own may do
    if not told.intersection(HEARD):
        return None
    strategy = getattr(trainer.args.eval_strategy, "value", trainer.args.eval_strategy)
    return OwnEnd(
        at_steps=bool(told.intersection(HEARD).difference(_OF_EVALUATIONS)),
        # An epoch that ends early is still evaluated.
        evaluates=strategy == "epoch",
    )


def notes_on(trainer: Any) -> Iterator[str]:
    """Notes for the user on a trainer's own callbacks."""
    strange = [each for each in trainer.callback_handler.callbacks if _is_strange(each)]
    if strange:
        yield (
            "its callbacks may watch the training, on one rank, and end it, and change nothing "
            f"else: {', '.join(type(callback).__name__ for callback in strange)}"
        )
    for callback in strange:
        if unheard := sorted(_events_of(callback).difference(HEARD)):
            yield f"{type(callback).__name__} is not told of {', '.join(unheard)}"


def _logs_itself(trainer: Any) -> bool:
    """Whether the trainer's class overrides `log`.

    TRL's overrides add the metrics of each batch, which Saturn drops (`TrainerSource`).
    """
    return users_owner_of(type(trainer), "log") is not None


def _is_strange(callback: Any) -> bool:
    return not any(is_of(type(callback), package) for package in _WATCHING)


def _events_of(callback: Any) -> set[str]:
    """Events for which a callback has its own method; of transformers' own only `on_evaluate`."""
    from transformers import TrainerCallback

    events = [name for name in vars(TrainerCallback) if name.startswith("on_")]
    found = set()
    for name in events:
        owner = next(each for each in type(callback).__mro__ if name in vars(each))
        if not is_of(owner, "transformers") or (
            name == "on_evaluate" and owner is not TrainerCallback
        ):
            found.add(name)
    return found


def follow_rates(optimizer: torch.optim.Optimizer) -> deque[float]:
    """Collect the learning rate of each step of `optimizer`, when the step is taken."""
    rates: deque[float] = deque(maxlen=_MOST_RATES)

    def keep(of: torch.optim.Optimizer, *_: Any) -> None:
        rates.append(float(of.param_groups[0]["lr"]))

    optimizer.register_step_pre_hook(keep)
    return rates
