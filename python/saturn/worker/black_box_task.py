"""The task object that a black-box technique's functions get.

It counts the batches that the function takes from its iterator, so Saturn knows how far training
is; `save` keeps that position with the state. A stop request simply ends the iterator early, so a
function that trains in a loop over it falls out of the loop, saves and returns.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from torch import nn

from saturn.definition import TaskDefinition
from saturn.strategy import Strategy
from saturn.worker import manifest, seeds
from saturn.worker.black_box_state import (
    commit_pending,
    drop_pending,
    has_pending,
    read_into,
    read_whole,
    write_pending,
)
from saturn.worker.data import Data, Position
from saturn.worker.stepper import build_data, build_model

#: Least seconds between two progress reports.
_PROGRESS_EVERY_S = 0.25
#: How many times of late are kept: more than any trial has steps.
_TIMES = 256


class BlackBoxTask:
    """One task, in one process, from where its last save stands.

    `strategy` is what runs it; `limit` is how many batches its iterators give at most, together.
    With `each_iterator_an_epoch`, as `search` gets it, each gives one epoch instead, or `limit`
    batches where the loader has no length.
    """

    def __init__(
        self,
        definition: TaskDefinition,
        checkpoints_dir: Path,
        about: Mapping[str, Any],
        *,
        strategy: Strategy,
        limit: int,
        each_iterator_an_epoch: bool = False,
        stop_requested: Callable[[], bool],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.name = definition.name
        self.loss_function = self._watched(definition.loss_function)
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
        drop_pending(checkpoints_dir)  # of a function that crashed: nobody knows what it holds
        self._saved = manifest.newest_valid(checkpoints_dir)
        found = None if self._saved is None else self._saved[1]
        self.start_step: int = 0 if found is None else found["step"]
        self._position = (
            Position()
            if found is None
            else Position(found["epoch"], found["batch"], found["samples"])
        )
        self.given = 0  # batches that the iterator has given
        self.iterated = False  # whether `get_iterator` was used at all
        # When each batch was asked for, of late.
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._told = 0.0
        self._loss: torch.Tensor | None = None

    @property
    def loss(self) -> float | None:
        """What `loss_function` last returned; None where it wasn't called, or gave no scalar."""
        return None if self._loss is None else float(self._loss)

    def get_model(self, fresh: bool = False) -> nn.Module:
        """The task's model, with the last saved state unless `fresh`."""
        module = build_model(self._definition)
        if not fresh and self._saved is not None:
            read_into(*self._saved, module)
        return module

    def get_iterator(self) -> Iterator[Any]:
        """Batches from where training stands; ends with the last to train, or on a stop request.

        While `search` runs it ends after one epoch, or, where the loader has no length, after ten
        times as many batches as a trial has steps.

        Every batch is preceded by seeding, so that dropout is the same after a resume.
        """
        self.iterated = True
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        slices = self._loader_data().slices(self._position)
        end = self._limit
        if self._each_iterator_an_epoch:
            end = self.given + (self.batches_per_epoch or self._limit)
        while True:
            self.times.append(time.monotonic())
            if self.given >= end or self._stop_requested():
                return
            piece = next(slices)
            step = self.start_step + self.given
            seeds.seed_step(seeds.step_seed(self._definition.seed, step, 0), device)
            self.given += 1
            self._position = piece.after
            self._tell()
            yield piece.batch

    def get_fresh_iterator(self) -> Iterator[Any]:
        """One pass over the data from its beginning, in the order of the first epoch; uncounted."""
        for piece in self._loader_data().slices(Position()):
            if piece.after.epoch > 0 and piece.after.batch > 0:
                return  # a stream's next pass has begun: only reading on showed it
            yield piece.batch
            if piece.after.epoch > 0:
                return

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one pass over the loader; None where it has no length."""
        return self._loader_data().batches_per_epoch

    def internal_dl(self) -> Any:
        """The task's own loader, untouched."""
        return self._loader_data().loader

    def has_ckpt(self) -> bool:
        """Whether there is a saved state."""
        return self._saved is not None

    def saved(self) -> Any:
        """What was last saved, whole; None where nothing was, or a managed technique saved it."""
        if self._saved is None or self._saved[1]["format"] != "torch":
            return None
        return read_whole(self._saved[0], torch.device("cpu"))

    def save(self, state_dict: Mapping[str, Any]) -> None:
        """Save the model's state, at the position where the iterator stands.

        A mapping with a `model` entry may hold more, such as the optimizer's state: `saved()`
        gives it back. A function that doesn't take its batches from `get_iterator` can't be seen
        to advance: what it saves counts once it has returned.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"save got a {type(state_dict).__name__}; it takes a state dict, or a mapping with "
                "the model's under `model`"
            )
        began = time.monotonic()
        write_pending(state_dict, self._checkpoints_dir)
        if self.iterated:
            self._commit(self.given, self._position, began)

    def returned(self) -> None:
        """To be called when the function has returned: what is still pending counts now."""
        if not self.iterated and has_pending(self._checkpoints_dir):
            self._commit(self._limit, self._after_limit(), time.monotonic())

    def _commit(self, done: int, position: Position, began: float) -> None:
        step = self.start_step + done
        directory = commit_pending(
            self._checkpoints_dir,
            {
                "step": step,
                "samples": position.samples,
                "epoch": position.epoch,
                "batch": position.batch,
                **self._about,
            },
        )
        self._saved = (directory, manifest.read(directory) or {})
        save_s = time.monotonic() - began
        self._report({"type": "checkpoint", "step": step, "save_s": save_s, "blocked_s": save_s})

    def _watched(self, loss_function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """The task's loss function, its last value noted for progress reports."""

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
        """Where the data stands after all batches, by their number alone."""
        per_epoch, start = self.batches_per_epoch, self._position
        if per_epoch is None:
            return start
        epoch, batch = divmod(start.epoch * per_epoch + start.batch + self._limit, per_epoch)
        return Position(epoch, batch, start.samples)

    def __getstate__(self) -> dict[str, Any]:
        """For processes that a function starts itself: all but the lines to the runtime."""
        state = {**self.__dict__, "_definition": self._definition.dumps(), "_data": None}
        state.update(_report=_unheard, _stop_requested=_never, loss_function=None, hparams=None)
        state["_loss"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up the task in such a process."""
        self.__dict__.update(state)
        self._definition = cloudpickle.loads(state["_definition"])
        self.loss_function = self._watched(self._definition.loss_function)
        self.hparams = _hparams(self._definition)

    def _loader_data(self) -> Data:
        if self._data is None:
            self._data = build_data(
                self._definition,
                torch.device("cpu"),
                lambda text: self._report({"type": "note", "text": text}),
                lambda: self._report({"type": "alive"}),
            )
        return self._data

    def _tell(self) -> None:
        now = time.monotonic()
        # A batch that is asked for means that the one before it is done.
        done = self.given - 1
        if done > 0 and now - self._told >= _PROGRESS_EVERY_S:
            self._told = now
            step_s = (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)
            self._report(
                {
                    "type": "progress",
                    "step": self.start_step + done,
                    "loss": self.loss,
                    "step_s": step_s or None,
                }
            )


def _hparams(definition: TaskDefinition) -> SimpleNamespace:
    return SimpleNamespace(
        lr=definition.lr,
        epochs=definition.epochs,
        batch_count=definition.batch_count,
        optimizer_cls=definition.optimizer_cls or torch.optim.AdamW,
        kwargs=dict(definition.kwargs),
    )


def _never() -> bool:
    return False


def _unheard(message: dict[str, Any]) -> None:
    """Swallows what a function's own processes would tell: only its main one is heard."""
