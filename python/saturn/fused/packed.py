"""The rows of several members as one batch of one sequence: `(1, all rows, width)`.

Nothing is padded. A row's products with frozen weights don't depend on other rows, so each member's
numbers are those that it has alone, to the last bit. Whatever depends on more than one row gets the
member's own batch, with the shape that it has alone: see `parts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from saturn.fused.refusal import CannotFuse, Reason

if TYPE_CHECKING:
    from saturn.fused.parts import Part
    from saturn.fused.stream import Stream

#: Layers compute a batch of fewer rows by itself: products of one to three rows take other kernels,
#: which round differently.
LEAST_ROWS = 4


class PerMember:
    """A layer's argument of which each member has its own; only attention can take it."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def __bool__(self) -> bool:
        raise TypeError("each member has its own value")


class PackedCall:
    """One call of a layer for the rows of several members."""

    #: The call at work. Only one thread computes at a time, or torch's own threads for it.
    _now: PackedCall | None = None

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        parts: Sequence[Mapping[str, Part]],
        streams: Sequence[Stream],
    ) -> None:
        """`shapes` are (samples, rows of a sample) of each member's batch."""
        self.shapes = shapes
        self.parts = parts  # of each member, by name
        self.streams = streams
        self.sizes = [math.prod(shape) for shape in shapes]

    @classmethod
    def now(cls) -> PackedCall | None:
        """The call within which this code computes."""
        return PackedCall._now

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within this context, the parts of a layer compute for all members."""
        PackedCall._now = self
        try:
            yield
        finally:
            PackedCall._now = None

    @contextmanager
    def apart(self, number: int) -> Iterator[None]:
        """Within this context, a part computes for member `number` alone, and draws as it does."""
        PackedCall._now = None
        try:
            with self.streams[number]:
                yield
        finally:
            PackedCall._now = self

    @contextmanager
    def again(self, states: Sequence[Any]) -> Iterator[None]:
        """As `at_work`, with streams that go from `states`, and then stand where they stood."""
        after = [stream.state for stream in self.streams]
        for stream, state in zip(self.streams, states, strict=True):
            stream.go_to(state)
        try:
            with self.at_work():
                yield
        finally:
            for stream, state in zip(self.streams, after, strict=True):
                stream.go_to(state)

    def pack(self, values: Sequence[Tensor]) -> Tensor:
        """Each member's rows, in one tensor."""
        return torch.cat(
            [
                value.expand(shape[0], *value.shape[1:]).reshape(1, -1, *value.shape[2:])
                for value, shape in zip(values, self.shapes, strict=True)
            ],
            1,
        )

    def unpack(self, packed: Tensor) -> list[Tensor]:
        """Each member's rows, in the shape of its own batch."""
        if packed.shape[:2] == (1, sum(self.sizes)):
            return [
                rows.view(*shape, *rows.shape[2:])
                for rows, shape in zip(torch.split(packed, self.sizes, 1), self.shapes, strict=True)
            ]
        if packed.dim() == 2 and len(packed) == sum(self.sizes):
            return list(torch.split(packed, self.sizes))
        raise CannotFuse(
            Reason.LAYERS, f"a layer makes a tensor of shape {tuple(packed.shape)} of all rows"
        )

    def packed_like(self, packed: Tensor, values: Sequence[Tensor]) -> Tensor:
        """`values`, made of what `unpack` returned for `packed`, in one tensor again."""
        if packed.shape[0] != 1 or packed.dim() == 2:
            return torch.cat(list(values))
        return self.pack(values)

    def arguments(self, name: str, values: Sequence[Any]) -> Any:
        """What the layer gets for an argument of which each member has given a value."""
        first = values[0]
        if isinstance(first, tuple | list) and all(isinstance(v, type(first)) for v in values):
            return type(first)(self.arguments(name, each) for each in zip(*values, strict=True))
        if any(isinstance(value, Tensor) for value in values):
            are_rows = name != "attention_mask" and all(
                isinstance(value, Tensor)
                and value.dim() in (2, 3)
                and value.shape[0] in (1, shape[0])
                and value.shape[1] == shape[1]
                for value, shape in zip(values, self.shapes, strict=True)
            )
            return self.pack(values) if are_rows else PerMember(values)
        if any(value is not first and value != first for value in values):
            raise CannotFuse(
                Reason.ARGUMENTS, f"a layer's argument `{name}` differs: {first}, {values[-1]}"
            )
        return first


def results(call: PackedCall, outputs: Any) -> list[Any]:
    """Each member's part of a layer's outputs."""
    if isinstance(outputs, Tensor):
        return call.unpack(outputs)
    if isinstance(outputs, tuple | list):
        parts = [results(call, each) for each in outputs]
        return [type(outputs)(mine) for mine in zip(*parts, strict=True)]
    if outputs is None:
        return [None] * len(call.shapes)
    raise CannotFuse(Reason.LAYERS, f"a layer returns a {type(outputs).__name__}")
