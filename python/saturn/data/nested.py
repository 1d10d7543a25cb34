"""Batches as nested data: count their samples, take a slice, copy them to a device.

Tensors, numpy arrays, tuples, named tuples, lists and mappings are understood; a list without
tensors counts as a list of samples. Any other value passes through unchanged if it needn't be cut,
and is an error if it must be cut.
"""

from __future__ import annotations

import copy
import math
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from saturn.rank.exceptions import TaskError

#: The types that tokens may have.
_WHOLE = (torch.int64, torch.int32)


class CutError(TaskError):
    """A batch can't be cut; the message says why."""


def num_samples(batch: Any) -> int | None:
    """Samples in a batch: the first dimension of its first array; None if it has no array."""
    return _first_size(batch)


def num_elements(batch: Any) -> int:
    """The number of elements in a batch's arrays: the batch's size among batches of its kind."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return math.prod(int(size) for size in shape)
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        return sum(num_elements(inner) for inner in batch)
    return 0


def num_tokens(batch: Any) -> int | None:
    """Tokens in a batch, padding included; None if the batch has no tokens.

    Tokens are the elements of `input_ids`, or of the first array if that is a table of integers.
    """
    first = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if first is None:
        first = next((array for _, array in arrays(batch)), None)
    if not isinstance(first, torch.Tensor) or first.ndim != 2 or first.dtype not in _WHOLE:
        return None
    return first.numel()


def take(batch: Any, start: int, stop: int) -> Any:
    """Samples `start` to `stop` of a batch, with every array cut alike.

    Raises `CutError` if the batch holds something that can't be cut.
    """
    size = num_samples(batch)
    if size is None:
        raise CutError(
            f"get_dataloader's batches are {_kind(batch)} without any tensor, so Saturn can't "
            "tell how to cut them over devices"
        )
    return _take(batch, start, stop, size)


def arrays(batch: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every array in a batch, with its path as a name: `.1`, `.labels`, `.0.mask`."""
    if getattr(batch, "shape", None) is not None:
        yield name, batch
    elif isinstance(batch, Mapping):
        for key, inner in batch.items():
            yield from arrays(inner, f"{name}.{key}")
    elif isinstance(batch, tuple | list):
        for number, inner in enumerate(batch):
            yield from arrays(inner, f"{name}.{number}")


def replaced(batch: Any, name: str, array: Any) -> Any:
    """The batch with the array called `name` (see `arrays`) replaced by `array`."""
    if not name:
        return array
    key, _, rest = name.removeprefix(".").partition(".")
    rest = rest and f".{rest}"
    if isinstance(batch, Mapping):
        return {k: replaced(v, rest, array) if str(k) == key else v for k, v in batch.items()}
    parts = [replaced(v, rest, array) if str(n) == key else v for n, v in enumerate(batch)]
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def with_floats(batch: Any, dtype: torch.dtype) -> Any:
    """The batch with all its floating-point tensors in `dtype`."""

    def cast(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_float else value

    return mapped(batch, cast)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor on `device`; the batch itself if nothing has to move."""
    if device.type == "cpu":
        return batch
    return mapped(batch, lambda value: _move(value, device))


def copied(batch: Any) -> Any:
    """The batch with a copy of each array, in containers of the same types.

    Objects of other types are copied by their `clone`; without that they stay as they are.
    """
    if isinstance(batch, torch.Tensor):
        return batch.detach().clone().requires_grad_(batch.requires_grad)
    if callable(clone := getattr(batch, "clone", None)):
        return clone()
    if isinstance(batch, dict | UserDict):
        copies = copy.copy(batch)
        for key, inner in batch.items():
            copies[key] = copied(inner)
        return copies
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(copied, batch))
    if type(batch) in (tuple, list):
        return type(batch)(map(copied, batch))
    if getattr(batch, "shape", None) is not None and callable(getattr(batch, "copy", None)):
        return batch.copy()  # an array of numpy
    return batch


def _move(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    move = getattr(value, "to", None)
    return move(device) if callable(move) else value


def _take(value: Any, start: int, stop: int, size: int) -> Any:
    def cut(leaf: Any) -> Any:
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape) > 0:
            if shape[0] != size:
                raise CutError(
                    f"get_dataloader's batches hold arrays of {size} and of {shape[0]} samples; "
                    "to cut a batch over devices, every array needs the samples first"
                )
            return leaf[start:stop]
        if isinstance(leaf, list) and len(leaf) == size:
            return leaf[start:stop]
        if shape is not None or leaf is None or isinstance(leaf, bool | int | float | str):
            return leaf
        raise CutError(
            f"get_dataloader's batches hold {_kind(leaf)}, which Saturn can't cut over devices; "
            "use tensors, tuples, lists and mappings, or a map-style dataset"
        )

    return mapped(value, cut)


def _first_size(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else None
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for inner in value:
            if (size := _first_size(inner)) is not None:
                return size
    return None


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """The batch with `function` applied to its leaves: arrays, plain values, objects."""
    if isinstance(value, Mapping):
        return {key: mapped(inner, function) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(inner, function) for inner in value))
    if isinstance(value, tuple):
        return tuple(mapped(inner, function) for inner in value)
    if isinstance(value, list) and _first_size(value) is not None:
        return [mapped(inner, function) for inner in value]
    return function(value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
