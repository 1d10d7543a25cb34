"""A task: one model to train, as its user describes it."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saturn.definition import TaskDefinition
from saturn.strategy import Strategy

_numbers = itertools.count(1)


class HParams:
    """Hyper-parameters of a task: how long it trains, and with what optimizer.

    `optimizer_cls` is called with the trainable parameters and `lr=`; it is a class, or a
    `functools.partial` of one, and AdamW by default. Exactly one of `epochs` and `batch_count`
    (optimizer steps, each on one global batch) says how long. All other keywords go to
    `get_model`.
    """

    def __init__(
        self,
        lr: float,
        epochs: int | None = None,
        batch_count: int | None = None,
        optimizer_cls: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check and keep them; raises `TypeError` or `ValueError`."""
        if isinstance(lr, bool) or not isinstance(lr, int | float):
            raise TypeError(f"lr is a {type(lr).__name__}; it must be a number")
        if not (math.isfinite(lr) and lr > 0):
            raise ValueError(f"lr is {lr}; it must be a positive number")
        if (epochs is None) == (batch_count is None):
            given = "neither is" if epochs is None else "both are"
            raise ValueError(
                f"{given} given of epochs and batch_count; HParams needs exactly one of them"
            )
        _check_count("epochs", epochs)
        _check_count("batch_count", batch_count)
        if optimizer_cls is not None and not callable(optimizer_cls):
            raise TypeError(
                f"optimizer_cls is a {type(optimizer_cls).__name__}; it must be an optimizer's "
                "class, such as torch.optim.SGD"
            )
        self.lr = float(lr)
        self.epochs = epochs
        self.batch_count = batch_count
        self.kwargs = kwargs
        self._optimizer_cls = optimizer_cls

    @property
    def optimizer_cls(self) -> Callable[..., Any]:
        """The optimizer's class."""
        if self._optimizer_cls is None:
            import torch

            return torch.optim.AdamW
        return self._optimizer_cls

    def __repr__(self) -> str:
        """Show what was given."""
        length = f"epochs={self.epochs}" if self.epochs else f"batch_count={self.batch_count}"
        rest = "".join(f", {key}={value!r}" for key, value in self.kwargs.items())
        return f"HParams(lr={self.lr:g}, {length}{rest})"


class Task:
    """One model to train: model, data, loss, hyper-parameters.

    Args:
        get_model: returns the `torch.nn.Module`; called with the extra keywords of `hparams`, or
            with one mapping that holds them.
        get_dataloader: returns a `DataLoader`, or an iterable of batches, whose batch size is the
            global batch. A batch is an (inputs, labels) pair, or a mapping.
        loss_function: `loss_function(outputs, labels)` → the scalar mean loss; for batches that
            are mappings `loss_function(outputs, batch)`, or None for the model's own
            `outputs.loss`.
        hparams: see `HParams`.
        gpu_range: device counts that the plan may choose; all by default.
        name: unique among the tasks planned together; `task-<n>` by default.
        hints: what techniques may know about the model, such as `is_transformer`.
        save_dir: where a copy of the last checkpoint goes when training is done, as
            `<save_dir>/<task>/step-<n>/`.
        seed: decides model weights, order of data, and every other random number.
        loss_weight: `loss_weight(batch)` → what a slice of a batch counts in the loss (its tokens,
            say), where that is not its number of samples.

    After `search`, `strategies` holds what was found; after `orchestrate`, `selected_strategy` is
    the one that trained last.
    """

    def __init__(
        self,
        get_model: Callable[..., Any],
        get_dataloader: Callable[..., Any],
        loss_function: Callable[..., Any] | None,
        hparams: HParams,
        gpu_range: Iterable[int] | int | None = None,
        name: str | None = None,
        hints: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        *,
        seed: int = 0,
        loss_weight: Callable[..., Any] | None = None,
    ) -> None:
        """Check and keep it; raises `TypeError` or `ValueError`."""
        _check_callable("get_model", get_model, "a function that returns the torch.nn.Module")
        _check_callable("get_dataloader", get_dataloader, "a function that returns the DataLoader")
        if loss_function is not None:
            _check_callable("loss_function", loss_function, "a function of (outputs, labels)")
        if loss_weight is not None:
            _check_callable("loss_weight", loss_weight, "a function of a batch")
        if not isinstance(hparams, HParams):
            raise TypeError(
                f"hparams is a {type(hparams).__name__}; it must be saturn.HParams(lr=…, …)"
            )
        if name is None:
            name = f"task-{next(_numbers)}"
        elif not isinstance(name, str) or not name:
            raise ValueError(f"name is {name!r}; it must be a non-empty string")
        if hints is not None and not isinstance(hints, Mapping):
            raise TypeError(f"hints is a {type(hints).__name__}; it must be a mapping")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to 2**63 - 1")
        self.get_model = get_model
        self.get_dataloader = get_dataloader
        self.loss_function = loss_function
        self.hparams = hparams
        self.gpu_range = _gpu_counts(gpu_range)
        self.name = name
        self.hints = dict(hints or {})
        self.save_dir = None if save_dir is None else Path(save_dir)
        self.seed = seed
        self.loss_weight = loss_weight
        self.strategies: list[Strategy] = []
        self.selected_strategy: Strategy | None = None
        #: Profile key under which `strategies` was measured: they hold while it stays the same.
        self._measured_as: str | None = None

    def definition(self) -> TaskDefinition:
        """What travels to the workers."""
        return TaskDefinition(
            name=self.name,
            get_model=self.get_model,
            get_dataloader=self.get_dataloader,
            loss_function=self.loss_function,
            loss_weight=self.loss_weight,
            lr=self.hparams.lr,
            epochs=self.hparams.epochs,
            batch_count=self.hparams.batch_count,
            optimizer_cls=self.hparams._optimizer_cls,
            kwargs=self.hparams.kwargs,
            hints=self.hints,
            seed=self.seed,
            save_dir=None if self.save_dir is None else self.save_dir.absolute(),
        )

    def __repr__(self) -> str:
        """Name it."""
        return f"Task({self.name!r}, {self.hparams!r})"


def _check_count(field: str, value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a whole number")
    if value < 1:
        raise ValueError(f"{field} is {value}; it must be at least 1")


def _check_callable(field: str, value: object, wanted: str) -> None:
    if not callable(value):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be {wanted}")


def _gpu_counts(gpu_range: Iterable[int] | int | None) -> list[int] | None:
    if gpu_range is None:
        return None
    counts = [gpu_range] if isinstance(gpu_range, int) else list(gpu_range)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"gpu_range holds {count!r}; it must hold device counts, whole numbers from 1"
            )
    if not counts:
        raise ValueError("gpu_range is empty; give the device counts that are allowed, or None")
    return sorted(set(counts))
