"""What a LightningModule finds in place of its Trainer, its logger and the number of a batch.

The Trainer and the number raise when they are read: a module that needs them is told so, and is not
trained in another way in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from saturn.rank.exceptions import TaskError


class NoTrainer:
    """In a Trainer's place: knows how long the training is, and says what it doesn't know."""

    logger, loggers = None, ()

    def __init__(self, steps: int | None) -> None:
        """`steps`: of the optimizer, in all; None where the loader has no length."""
        if steps is not None:
            self.estimated_stepping_batches = self.max_steps = steps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks of any object
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


#: In the place of a number that is never read.
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
    """What `self.log` gives in one evaluation."""

    #: Samples of the batch at work.
    samples: float = 1.0
    _sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    _metrics: dict[str, Any] = field(default_factory=dict)

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **options: Any) -> None:
        """As `LightningModule.log`: the mean over batches, weighted by their samples."""
        if hasattr(value, "compute") and hasattr(value, "reset"):  # of torchmetrics
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

    def log_dict(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        """As `LightningModule.log_dict`."""
        for name, value in values.items():
            self.log(name, value, **options)

    def found(self) -> dict[str, float]:
        """The metrics; raises a task error where there are none."""
        found = {name: total / counted for name, (total, counted) in self._sums.items()}
        for name, metric in self._metrics.items():
            found[name] = float(metric.compute())
            metric.reset()
        if not found:
            raise TaskError("validation_step logs nothing by `self.log`, so nothing is measured")
        return found


def unlogged(*_: Any, **__: Any) -> None:
    """In place of `LightningModule.log` while it trains."""
