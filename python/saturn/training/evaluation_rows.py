"""Keep each evaluated batch's results as a row, and turn all rows into metrics.

Tensors are joined along their first dimension. Numbers become a tensor with one number for each
batch, and all other values a list. Batches that were padded to different lengths are padded to the
longest, at the end of each row, with -100: the label that losses ignore.
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
    """The results of one batch."""

    number: int  # the batch's number in the loader's order
    loss: Any  # a scalar tensor, after `read` a number; None if the batch has no loss or weight
    weight: float  # how much the loss counts
    kept: Any  # the data for the metrics, in host memory

    def read(self) -> Row:
        """The row with its loss as a number; waits for the device."""
        return self if self.loss is None else replace(self, loss=float(self.loss))


def target_of(batch: Any) -> Any:
    """The labels of a batch that is a pair; for a mapping, the whole batch."""
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    return batch[1] if is_pair else batch


def kept_by_default(outputs: Any, target: Any) -> tuple[Any, Any]:
    """The outputs' logits, or all outputs if they have none; and the target."""
    named = outputs if isinstance(outputs, Mapping) else vars(outputs) if _has(outputs) else {}
    return named.get("logits", outputs), target


def on_host(kept: Any) -> Any:
    """Copy the kept values into host memory."""

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.detach().to("cpu", copy=True)
        # Outputs of an earlier pipeline stage have only a shape here; reading them raises.
        copy.reshape(-1)[:1].tolist()
        return copy

    return nested.mapped(kept, copied)


def metrics_of(evaluate: Evaluation, rows: Sequence[Row]) -> dict[str, float]:
    """The metrics of all rows, which are in the loader's order. Raises `TaskError`."""
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
    """The arguments of `metrics`: the results of `keep`, joined over all batches."""
    first = kept[0]
    if isinstance(first, tuple) and not hasattr(first, "_fields"):
        return tuple(_joined([each[place] for each in kept]) for place in range(len(first)))
    return (_joined(kept),)


def checked_metrics(found: Any, source: str) -> dict[str, float]:
    """Metrics as numbers by name; raises `TaskError` if `found` holds anything else."""
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
