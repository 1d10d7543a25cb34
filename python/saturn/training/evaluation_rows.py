"""What an evaluation keeps of each batch, and how that becomes metrics over all rows.

Tensors are joined along their first dimension, numbers become a tensor with one for each batch,
whatever else there is a list. Batches that were padded to different lengths are padded once more,
at the end of each row, to the longest: with -100, the label that stands for none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from saturn.data import nested
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function
from saturn.tasks.evaluation import EVAL_LOSS, Evaluation
from saturn.training.slicing import IGNORED


@dataclass(frozen=True)
class Row:
    """What one batch gave."""

    number: int  # of the batch, in the loader's order
    loss: Any  # a scalar tensor where it was computed, then a number; None where it counts nothing
    weight: float  # of the loss
    kept: Any  # for the metrics, in host memory

    def read(self) -> Row:
        """The same with a number for its loss; waits for the device."""
        return self if self.loss is None else replace(self, loss=float(self.loss))


def target_of(batch: Any) -> Any:
    """The labels of a batch; of a mapping all of it."""
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    return batch[1] if is_pair else batch


def kept_by_default(outputs: Any, target: Any) -> tuple[Any, Any]:
    """Outputs, or their logits, and what the loss function gets beside them."""
    named = outputs if isinstance(outputs, Mapping) else vars(outputs) if _has(outputs) else {}
    return named.get("logits", outputs), target


def on_host(kept: Any) -> Any:
    """Copies in host memory of what is kept of a batch."""

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.detach().to("cpu", copy=True)
        # Of what an earlier stage of a pipeline has, a shape alone is here: reading it says so.
        copy.reshape(-1)[:1].tolist()
        return copy

    return nested.mapped(kept, copied)


def metrics_of(evaluate: Evaluation, rows: Sequence[Row]) -> dict[str, float]:
    """The metrics of all rows, which are in the loader's order; raises `TaskError`."""
    metrics: dict[str, float] = {}
    if evaluate.loss:
        total = sum(row.weight for row in rows)
        if not total > 0:
            raise TaskError(f"loss_weight of all batches together is {total:g}")
        metrics[EVAL_LOSS] = sum(row.loss * row.weight for row in rows if row.weight) / total
    if evaluate.metrics is not None:
        with task_function("metrics"):
            found = evaluate.metrics(*joined([row.kept for row in rows]))
        metrics |= checked_metrics(found, "metrics")
    return metrics


def joined(kept: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of `metrics`: what `keep` gave for each batch, over all of them."""
    first = kept[0]
    if isinstance(first, tuple) and not hasattr(first, "_fields"):
        return tuple(_joined([each[place] for each in kept]) for place in range(len(first)))
    return (_joined(kept),)


def checked_metrics(found: Any, source: str) -> dict[str, float]:
    """Metrics as numbers by their names; `TaskError` where `found` holds anything else."""
    if not isinstance(found, Mapping):
        raise TaskError(
            f"{source} returned a {type(found).__name__}; it must return a mapping of names to "
            "numbers"
        )
    metrics: dict[str, float] = {}
    for name, value in found.items():
        if not isinstance(name, str):
            raise TaskError(f"{source} returned the name {name!r}; it must be a string")
        metrics[name] = _number(name, value, source)
    return metrics


def _number(name: str, value: Any, source: str) -> float:
    shape = getattr(value, "shape", None)
    if shape is not None and math.prod(shape) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__ if shape is None else f"{type(value).__name__} of {shape}"
        raise TaskError(f"{source} returned a {kind} as `{name}`; it must be a number")
    return value


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, torch.Tensor):
        return _joined_tensors(values)
    if isinstance(first, bool | int | float):
        return torch.tensor(values)
    if isinstance(first, Mapping):
        return {key: _joined([each[key] for each in values]) for key in first}
    if isinstance(first, tuple):
        parts = [_joined([each[place] for each in values]) for place in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return list(values)


def _joined_tensors(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if tensors[0].dim() == 0:
        return torch.stack([*tensors])
    longest = [max(sizes) for sizes in zip(*(each.shape[1:] for each in tensors), strict=True)]
    return torch.cat([_padded(each, longest) for each in tensors])


def _padded(tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    if list(tensor.shape[1:]) == list(sizes):
        return tensor
    whole = tensor.new_full((tensor.shape[0], *sizes), IGNORED)
    own = (slice(None), *(slice(size) for size in tensor.shape[1:]))
    whole[own] = tensor
    return whole


def _has(outputs: Any) -> bool:
    return hasattr(outputs, "__dict__") and not isinstance(outputs, torch.Tensor)
