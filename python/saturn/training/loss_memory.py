"""Notice losses that keep something from call to call.

A loss may count its calls to anneal a term, or keep a running mean of the outputs. No checkpoint
has that, and each device and each micro-batch has calls of its own. So the training would depend on
stops and on the number of devices, without a word. If the next loss depends on what was kept, the
task fails with the name of it. Otherwise, as with numbers for a log, the user is told.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saturn.data.held import objects_in
from saturn.data.seeds import RandomState
from saturn.rank.exceptions import TaskError
from saturn.training.loss_parameters import globals_of, is_of_torch

#: Calls of a loss that are watched, from the first one on.
_WATCHED = 3
#: How much two results of the same loss may differ by rounding.
_TOLERANCE = 1e-6


class LossMemory:
    """Watches the first calls of one task's loss."""

    def __init__(
        self, function: Callable[..., Any], device: torch.device, note: Callable[[str], None]
    ) -> None:
        self._function, self._device, self._note = function, device, note
        self._left = _WATCHED

    def watched(self, call: Callable[[], Any]) -> Any:
        """The result of `call`, which calls the loss; raises `TaskError` if it depends on calls."""
        if self._left == 0 or not torch.is_grad_enabled():
            return call()
        self._left -= 1
        kept = _Kept(self._function)
        drawing = RandomState.now(self._device)
        loss = call()
        name = kept.changed()
        if name is None or not isinstance(loss, Tensor) or loss.numel() != 1:
            return loss
        self._left = 0
        now = _Kept(self._function)
        again = loss
        with contextlib.suppress(Exception), torch.no_grad(), drawing.again():
            again = call()  # it may need gradients, and then nothing is known
        now.put_back()
        if not _is_same(float(loss.detach()), float(again.detach())):
            raise TaskError(
                f"the loss of the same outputs is another at the next call, since loss_function "
                f"keeps {name} from call to call. No checkpoint has that, and each device counts "
                "for itself. Have get_model return a module that holds it as a buffer, and compute "
                "this loss in its forward or by training_step"
            )
        self._note(
            f"loss_function keeps {name} from call to call; it begins anew after each stop, and on "
            "each device (the loss does not depend on it now)"
        )
        return loss


def _is_same(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return True
    return one == other or abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


class _Kept:
    """The tensors and numbers that a loss and its objects hold, at one moment."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._held: list[tuple[str, Any, dict[str, Any]]] = []
        for value in objects_in((function,), is_end=is_of_torch, and_of=globals_of):
            kind = type(value).__name__
            if isinstance(value, nn.Module):
                for path, part in value.named_modules():
                    self._add(kind, vars(part), f"{path}." if path else "")
                    self._add(kind, part._buffers, f"{path}." if path else "")
            elif isinstance(value, dict):
                self._add("a dict", value)
            elif not isinstance(value, Tensor):
                self._add(kind, getattr(value, "__dict__", {}))
                for cell in _cells(value):
                    self._add("a function", cell)

    def changed(self) -> str | None:
        """The first thing that has changed since, in words; None if nothing has."""
        for words, holder, before in self._held:
            for key, value in before.items():
                if not value.is_same(holder.get(key)):
                    prefix, _, kind = words.partition(" of ")
                    return f"`{prefix}{key}` of {kind}"
        return None

    def put_back(self) -> None:
        """Restore all values."""
        for _, holder, before in self._held:
            for key, value in before.items():
                holder[key] = value.restored()

    def _add(self, kind: str, holder: Any, prefix: str = "") -> None:
        held = {
            key: _Value(value)
            for key, value in holder.items()
            if isinstance(value, bool | int | float)
            or (isinstance(value, Tensor) and not value.requires_grad)
        }
        if held:
            self._held.append((f"{prefix} of {kind}", holder, held))


class _Value:
    """A number or a tensor at one moment."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._copy = value.detach().clone() if isinstance(value, Tensor) else None
        self._version = value._version if isinstance(value, Tensor) else 0

    def is_same(self, now: Any) -> bool:
        before = self._copy
        if before is None:
            return type(now) is not type(self._value) or now == self._value or now != now
        if not isinstance(now, Tensor) or (now is self._value and now._version == self._version):
            return True  # reading the values would wait for the device
        same_kind = now.shape == before.shape and now.dtype == before.dtype
        return same_kind and torch.equal(now.detach().to(before.device), before)

    def restored(self) -> Any:
        """The value, in the same tensor if it is one."""
        value, copy = self._value, self._copy
        # A tensor that nothing has changed may be in the graph of the loss: it is left alone.
        if copy is not None and value._version != self._version and value.shape == copy.shape:
            with torch.no_grad():
                value.copy_(copy)
        return value


def _cells(value: Any) -> Iterator[_Cell]:
    code, closure = getattr(value, "__code__", None), getattr(value, "__closure__", None)
    if code is not None and closure:
        yield from map(_Cell, code.co_freevars, closure)


class _Cell(Mapping[str, Any]):
    """A variable of an enclosing function, as a mapping with one name."""

    def __init__(self, name: str, cell: Any) -> None:
        self._name, self._cell = name, cell

    def __getitem__(self, key: str) -> Any:
        if key != self._name:
            raise KeyError(key)
        try:
            return self._cell.cell_contents
        except ValueError:  # nothing was assigned yet
            return None

    def __setitem__(self, key: str, value: Any) -> None:
        self._cell.cell_contents = value

    def __iter__(self) -> Iterator[str]:
        return iter([self._name])

    def __len__(self) -> int:
        return 1
