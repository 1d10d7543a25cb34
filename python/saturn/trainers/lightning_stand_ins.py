"""Stand-ins for a LightningModule's Trainer, its logger, and the index of a batch.

Trainer and index raise when they are read. So a module that needs them fails with a clear message,
and is never silently trained in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from saturn.rank.exceptions import TaskError


class NoTrainer:
    """Stands in for a Trainer: knows the length of the training, and raises for anything else."""

    logger, loggers = None, ()

    def __init__(self, steps: int | None) -> None:
        """`steps` is the number of optimizer steps; None if the loader has no length."""
        if steps is not None:
            self.estimated_stepping_batches = self.max_steps = steps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks any object for such attributes
            raise AttributeError(name)
        raise TaskError(
            f"the LightningModule reads `trainer.{name}` (or a property that does), and Saturn "
            "trains without a Trainer"
        )


def _refuse_index(*_: Any) -> Any:
    raise TaskError(
        "training_step reads `batch_idx`, which Saturn does not count: a batch may be cut over "
        "devices, and training may go on elsewhere; leave it unread"
    )


#: Stands in for an index that must not be read.
NO_INDEX: Any = type(
    "NoIndex",
    (),
    {
        f"__{name}__": _refuse_index
        for name in (
            *("add", "radd", "sub", "rsub", "mul", "rmul", "mod", "floordiv", "truediv", "pow"),
            *("divmod", "eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "index", "float"),
            *("str", "repr", "format", "hash", "neg", "and", "or"),
        )
    },
)()


@dataclass
class Logged:
    """Collects the values of `self.log` in one evaluation."""

    #: Samples of the present batch.
    samples: float = 1.0
    _sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    _metrics: dict[str, Any] = field(default_factory=dict)

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **options: Any) -> None:
        """Like `LightningModule.log`: the mean over batches, weighted by their samples."""
        if _is_metric(value):
            self._metrics[name] = value
            return
        if reduce_fx not in ("mean", torch.mean):
            raise TaskError(
                f"validation_step logs `{name}` with a reduce_fx; Saturn takes means: give "
                "Task.from_lightning(…, evaluate=…) an evaluation of your own"
            )
        weight = float(options.get("batch_size") or self.samples)
        total, counted = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = total + float(value) * weight, counted + weight

    def log_dict(self, dictionary: Mapping[str, Any], *_: Any, **options: Any) -> None:
        """Like `LightningModule.log_dict`."""
        for name, value in dictionary.items():
            self.log(name, value, **options)

    def found(self) -> dict[str, float]:
        """The metrics; raises `TaskError` if there are none."""
        found = {name: total / counted for name, (total, counted) in self._sums.items()}
        for name, metric in self._metrics.items():
            found[name] = float(metric.compute())
            metric.reset()
        if not found:
            raise TaskError("validation_step logs nothing by `self.log`, so nothing is measured")
        return found


def unlogged(name: str, value: Any = None, *_: Any, **__: Any) -> None:
    """Replaces `LightningModule.log` during training: the value is dropped.

    A metric of torchmetrics is reset, as Lightning does at the end of an epoch: a metric that keeps
    all predictions would grow until the training ends.
    """
    if _is_metric(value):
        value.reset()


def unlogged_dict(dictionary: Any, *_: Any, **__: Any) -> None:
    """Replaces `LightningModule.log_dict` during training; it may get a collection of metrics."""
    for name, value in dictionary.items():
        unlogged(name, value)


def _is_metric(value: Any) -> bool:
    """Whether it is a metric of torchmetrics."""
    return hasattr(value, "compute") and hasattr(value, "reset")
