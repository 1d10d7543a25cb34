"""The task object that the functions of a black-box technique get.

The task counts the batches that a function takes from the iterator, so Saturn knows how far
training is. `save` stores that position beside the state. A stop request ends the iterator early:
a function that trains in a loop over the iterator leaves the loop, saves and returns.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from torch import nn

from saturn.checkpoint import manifest
from saturn.checkpoint.black_box_state import (
    commit_pending,
    drop_pending,
    has_pending,
    read_into,
    read_whole,
    write_pending,
)
from saturn.checkpoint.place import Directory
from saturn.data import seeds
from saturn.data.slices import Data, Position
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.strategy import Strategy
from saturn.training.accumulation import Accumulation
from saturn.training.stepper import build_data, build_model

#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: How many request times are kept: more than any trial has steps.
_TIMES = 256


class BlackBoxTask:
    """One task in one process, starting from its last checkpoint.

    `strategy` is the strategy that the task trains under. `limit` is how many batches all iterators
    give together (see also `train_until`). With `each_iterator_an_epoch`, which `search` gets,
    each iterator gives one epoch instead, or `limit` batches if the loader has no length.
    """

    def __init__(
        self,
        definition: TaskDefinition,
        checkpoints_dir: Directory,
        about: Mapping[str, Any],
        *,
        strategy: Strategy,
        limit: int = 0,
        each_iterator_an_epoch: bool = False,
        stop_requested: Callable[[], bool],
        report: Callable[[dict[str, Any]], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` gives the time of a request for a batch; it may wait for the batch before."""
        self._now = now
        self.name = definition.name
        self.loss_function = self._watched(definition.loss_function)
        self.loss_weight = definition.loss_weight
        self.training_step = self._watched(definition.training_step)
        self.hints = dict(definition.hints)
        self.hparams = _hparams(definition)
        self.selected_strategy = strategy
        self._definition = definition
        self._checkpoints_dir = checkpoints_dir
        self._about = dict(about)
        self._limit = limit
        self._each_iterator_an_epoch = each_iterator_an_epoch
        self._stop_requested = stop_requested
        self._report = report
        self._data: Data | None = None
        drop_pending(checkpoints_dir)  # left by a function that crashed: nobody knows its content
        self._saved = manifest.newest_valid(checkpoints_dir)
        found = None if self._saved is None else self._saved[1]
        self._position = Position() if found is None else Position.of(found)
        #: Batches that were already done when this object was made.
        self.start: int = self._position.batches
        self.given = 0  # batches that the iterators have given
        self.iterated = False  # whether `get_iterator` was used at all
        # When each of the latest batches was requested.
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._told = 0.0
        self._loss: torch.Tensor | None = None

    @property
    def accumulation(self) -> Accumulation:
        """How the task's batches make steps."""
        definition = self._definition
        # If each batch is a step, the loader isn't needed for the answer, so it isn't built.
        is_needed = definition.gradient_accumulation_steps > 1
        return Accumulation(definition, self.batches_per_epoch if is_needed else None)

    def train_until(self, step: int) -> int:
        """End the iterators after `step`'s last batch; returns how many batches they give."""
        self._limit = max(0, self.accumulation.batches(step) - self.start)
        return self._limit

    @property
    def loss(self) -> float | None:
        """What `loss_function` last returned; None if nobody called it, or it gave no scalar."""
        return None if self._loss is None else float(self._loss)

    def get_model(self, fresh: bool = False) -> nn.Module:
        """The task's model, with the last saved state unless `fresh`."""
        module = build_model(self._definition)
        if not fresh and self._saved is not None:
            read_into(*self._saved, module)
        return module

    def get_iterator(self) -> Iterator[Any]:
        """Batches from the task's position on, to the last to train or to a stop request.

        With gradient accumulation, only the task's last step may end before it is whole.

        While `search` runs, the iterator ends after one epoch. If the loader has no length, it
        ends after ten times as many batches as a trial has steps.

        The random generators are seeded before every batch, so dropout is the same after a resume.
        """
        self.iterated = True
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        slices = self._loader_data().slices(self._position)
        end = self._limit
        if self._each_iterator_an_epoch:
            end = self.given + (self.batches_per_epoch or self._limit)
        while True:
            self.times.append(self._now())
            if self.given >= end or (self._stop_requested() and self._between_steps()):
                return
            piece = next(slices)
            number = self._position.batches
            seeds.seed_batch(seeds.batch_seed(self._definition.seed, number, 0), device)
            self.given += 1
            self._position = piece.after
            self._tell()
            yield piece.batch

    def get_fresh_iterator(self) -> Iterator[Any]:
        """One pass over the data from the start, in the first epoch's order; it isn't counted."""
        for piece in self._loader_data().slices(Position()):
            if piece.after.epoch > 0 and piece.after.batch > 0:
                return  # a stream shows its end only by the first batch of the next pass
            yield piece.batch
            if piece.after.epoch > 0:
                return

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one pass over the loader; None if the loader has no length."""
        return self._loader_data().batches_per_epoch

    def internal_dl(self) -> Any:
        """The task's own loader, unchanged."""
        return self._loader_data().loader

    def has_ckpt(self) -> bool:
        """Whether there is a saved state."""
        return self._saved is not None

    def saved(self) -> Any:
        """The last saved state, whole; None if there is none, or a managed technique saved it."""
        if self._saved is None or self._saved[1]["format"] != "torch":
            return None
        return read_whole(self._saved[0])

    def save(self, state_dict: Mapping[str, Any]) -> None:
        """Save the model's state, at the position of the iterator.

        A mapping with a `model` entry may hold more, such as the optimizer's state; `saved()`
        returns the whole mapping. If a function doesn't take its batches from `get_iterator`,
        nobody sees how far it is, so its saves count only once it has returned.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"save got a {type(state_dict).__name__}; it takes a state dict, or a mapping with "
                "the model's under `model`"
            )
        began = time.monotonic()
        write_pending(state_dict, self._checkpoints_dir)
        if self.iterated:
            self._commit(self._position, began)

    def returned(self) -> None:
        """Commit a pending save; the caller calls this once the function has returned."""
        if not self.iterated and has_pending(self._checkpoints_dir):
            self._commit(self._after_limit(), time.monotonic())

    def _commit(self, position: Position, began: float) -> None:
        step = self.accumulation.steps(position.batches)
        directory = commit_pending(
            self._checkpoints_dir, {"step": step, **asdict(position), **self._about}
        )
        self._saved = (directory, manifest.read(directory) or {})
        save_s = time.monotonic() - began
        times = {"save_s": save_s, "blocked_s": save_s}
        self._report({"type": "checkpoint", "step": step, "loss": self.loss, **times})

    def _between_steps(self) -> bool:
        """Whether all steps so far have all their batches: half a step can't be saved."""
        accumulation, batches = self.accumulation, self._position.batches
        is_whole = accumulation.batches(accumulation.steps(batches)) == batches
        return is_whole or accumulation.is_past_end(batches)

    def _watched(self, loss_function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Wrap the task's loss function, so that its last value is known to progress reports."""

        def note(loss: Any) -> Any:
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._loss = loss.detach()
            return loss

        if isinstance(loss_function, nn.Module):
            loss_function.register_forward_hook(lambda module, inputs, loss: note(loss))
            return loss_function
        if loss_function is None:
            return None
        return functools.wraps(loss_function)(
            lambda *args, **kwargs: note(loss_function(*args, **kwargs))
        )

    def _after_limit(self) -> Position:
        """The position after all batches, computed from their number alone."""
        per_epoch, start = self.batches_per_epoch, self._position
        batches = start.batches + self._limit
        if per_epoch is None:
            return replace(start, batches=batches)
        epoch, batch = divmod(start.epoch * per_epoch + start.batch + self._limit, per_epoch)
        return Position(epoch, batch, start.samples, batches)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle for processes that a function starts; they can't reach the runtime."""
        state = {**self.__dict__, "_definition": self._definition.dumps(), "_data": None}
        state.update(_report=_unheard, _stop_requested=_never, _now=time.monotonic)
        state.update(loss_function=None, loss_weight=None, training_step=None, hparams=None)
        state["_loss"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the task in a process that a function started."""
        self.__dict__.update(state)
        self._definition = cloudpickle.loads(state["_definition"])
        self.loss_function = self._watched(self._definition.loss_function)
        self.loss_weight = self._definition.loss_weight
        self.training_step = self._watched(self._definition.training_step)
        self.hparams = _hparams(self._definition)

    def _loader_data(self) -> Data:
        if self._data is None:
            self._data = build_data(
                self._definition,
                torch.device("cpu"),
                lambda text: self._report({"type": "note", "text": text}),
            )
        return self._data

    def _tell(self) -> None:
        now = time.monotonic()
        # A request for a batch means that the batch before it is done.
        done = self.given - 1
        if done > 0 and now - self._told >= _PROGRESS_EVERY_S:
            self._told = now
            batch_s = (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)
            self._report(
                {
                    "type": "progress",
                    "step": self.accumulation.steps(self.start + done),
                    "loss": self.loss,
                    "step_s": batch_s * self.accumulation.a_step or None,
                }
            )


def _hparams(definition: TaskDefinition) -> SimpleNamespace:
    return SimpleNamespace(
        lr=definition.lr,
        epochs=definition.epochs,
        batch_count=definition.batch_count,
        optimizer_cls=definition.optimizer_cls or torch.optim.AdamW,
        gradient_accumulation_steps=definition.gradient_accumulation_steps,
        max_grad_norm=definition.max_grad_norm,
        precision=definition.precision,
        lr_scheduler=definition.lr_scheduler,
        parameter_groups=[dict(group) for group in definition.parameter_groups],
        epoch_batches=definition.epoch_batches,
        deterministic=definition.deterministic,
        tf32=definition.tf32,
        kwargs=dict(definition.kwargs),
    )


def _never() -> bool:
    return False


def _unheard(message: dict[str, Any]) -> None:
    """Drop a message: the runtime hears a function's main process only."""
