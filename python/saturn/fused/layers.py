"""The layers of one member's model, where it meets the other members of its group.

Within a pass, a layer's forward waits for the members that come to the same layer in the same
mode, and one packed call computes for all. Outside of passes, as in an evaluation, and for a member
that comes alone, the layer's own forward runs as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from saturn.fused.attention import own_attention
from saturn.fused.base import Kind, meeting_layers
from saturn.fused.packed import LEAST_ROWS, PackedCall, results
from saturn.fused.parts import Part, parts_of, patch
from saturn.fused.refusal import CannotFuse, Reason
from saturn.fused.turns import Member, Visit
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.model.recompute import checkpoint_layers, refuse_caches, without_cache

#: The argument that holds a layer's rows, where it is given by keyword.
_HIDDEN = "hidden_states"


class Handed:
    """The rows that a packed call has handed out, so that the next layer needn't pack them."""

    def __init__(self) -> None:
        self._each: Sequence[Tensor] = ()
        self._packed: Tensor | None = None

    def hand_out(self, packed: Tensor, each: Sequence[Tensor]) -> None:
        """Remember whose rows `packed` holds."""
        self._packed, self._each = packed, each

    def packed(self, call: PackedCall, each: Sequence[Tensor]) -> Tensor:
        """The rows of all members in one tensor; the tensor they come from, if they have one."""
        if self._packed is None or list(map(id, each)) != list(map(id, self._each)):
            return call.pack(each)
        return self._packed

    def forget(self) -> None:
        """Let go of the tensors."""
        self._each, self._packed = (), None


@dataclass(frozen=True)
class _Layer:
    """A layer of one member's model."""

    name: str
    parts: Mapping[str, Part]
    #: The layer's own forward, whose parts compute for all members within a packed call.
    compute: Callable[..., Any]
    #: The layer's forward for a member that comes alone.
    alone: Callable[..., Any]
    #: Whether the backward pass computes it again.
    recomputes: bool


@dataclass(frozen=True)
class _Given:
    """What a member calls a layer with."""

    layer: _Layer
    rows: Tensor
    args: tuple[Any, ...]  # beside the rows
    kwargs: Mapping[str, Any]


class Layers:
    """The layers of a member's model; `model` must be as the task builds it."""

    def __init__(self, model: Any, member: Member, handed: Handed, kind: Kind) -> None:
        #: Whether the member computes a pass. Only then do its layers wait for other members.
        self.is_passing = False
        self._member = member
        self._handed = handed
        self._attention = kind.attention
        without_cache(model)  # a cache of keys would hold the rows of all members
        layers = meeting_layers(model)
        own = {name: layer.forward for name, layer in layers.items()}
        recomputed = {id(layer) for layer in repeated_layers(model) if kind.recomputes}
        if kind.recomputes:
            for module in model.modules():
                if getattr(module, "gradient_checkpointing", False) is True:
                    module.gradient_checkpointing = False  # else it would be recomputed twice
            checkpoint_layers(model, member.stream.device)
        for name, layer in layers.items():
            alone = layer.forward
            layer.forward = own[name]
            parts = parts_of(layer)
            patch(parts)
            here = _Layer(name, parts, layer.forward, alone, id(layer) in recomputed)
            layer.forward = self._meeting(here)

    def _meeting(self, layer: _Layer) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not args and _HIDDEN in kwargs:
                args = (kwargs.pop(_HIDDEN),)
            rows = args[0] if args else None
            if not self.is_passing or not isinstance(rows, Tensor) or rows.dim() != 3:
                return layer.alone(*args, **kwargs)
            refuse_caches([*args, *kwargs.values()])
            if rows.shape[0] * rows.shape[1] < LEAST_ROWS:
                return layer.alone(*args, **kwargs)
            point = (layer.name, *_mode(rows))
            return self._member.meet(point, _Given(layer, rows, args[1:], kwargs), self._compute)

        return forward

    def _compute(self, visits: Sequence[Visit]) -> list[Any]:
        """Compute a layer for all members that wait at it."""
        given: list[_Given] = [visit.given for visit in visits]
        first = given[0]
        if len(given) == 1:
            with visits[0].member.stream:
                return [first.layer.alone(first.rows, *first.args, **first.kwargs)]
        call = PackedCall(
            [tuple(each.rows.shape[:2]) for each in given],
            [each.layer.parts for each in given],
            [visit.member.stream for visit in visits],
        )
        rows = self._handed.packed(call, [each.rows for each in given])
        args, kwargs = _arguments(call, given)
        if first.layer.recomputes:
            outputs = self._checkpointed(call, first.layer.compute, rows, args, kwargs)
        else:
            with self._at_work(call):
                outputs = first.layer.compute(rows, *args, **kwargs)
        made = results(call, outputs)
        if isinstance(outputs, Tensor):
            self._handed.hand_out(outputs, made)
        elif isinstance(outputs[0], Tensor):
            self._handed.hand_out(outputs[0], [each[0] for each in made])
        return made

    @contextmanager
    def _at_work(self, call: PackedCall, states: Sequence[Any] | None = None) -> Iterator[None]:
        computing = call.at_work() if states is None else call.again(states)
        with own_attention(self._attention), computing:
            yield

    def _checkpointed(
        self,
        call: PackedCall,
        compute: Callable[..., Any],
        rows: Tensor,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        states = [stream.state for stream in call.streams]

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return self._at_work(call), self._at_work(call, states)

        return checkpoint(
            *(compute, rows, *args),
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=contexts,
            **kwargs,
        )


def _arguments(call: PackedCall, given: Sequence[_Given]) -> tuple[list[Any], dict[str, Any]]:
    """What a layer gets beside the rows, for all members."""
    forms = {(len(each.args), *sorted(each.kwargs)) for each in given}
    if len(forms) > 1:
        raise CannotFuse(
            Reason.ARGUMENTS, f"`{given[0].layer.name}` is called with different arguments"
        )
    args = [
        call.arguments(f"number {place + 2}", values)
        for place, values in enumerate(zip(*(each.args for each in given), strict=True))
    ]
    names = given[0].kwargs
    return args, {
        name: call.arguments(name, [each.kwargs[name] for each in given]) for name in names
    }


def _mode(rows: Tensor) -> tuple[Any, ...]:
    """The modes of torch in which members must agree to compute together."""
    kind = rows.device.type
    is_cast = torch.is_autocast_enabled(kind)
    cast = torch.get_autocast_dtype(kind) if is_cast else None
    return rows.dtype, torch.is_grad_enabled(), cast
