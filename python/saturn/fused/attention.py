"""Attention in a packed call: each member's rows by themselves, with its own shapes and masks.

Models of transformers look their attention up in a table, by the name of a back end. While a packed
call computes, the table's function for that name takes the rows of all members apart first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from saturn.fused.packed import PackedCall, PerMember


@contextmanager
def own_attention(name: str) -> Iterator[None]:
    """Within this context, the attention `name` of transformers computes for each member apart."""
    functions = attention_functions()
    local = functions._local_mapping
    before = dict(local)
    functions[name] = _attention(functions[name])
    try:
        yield
    finally:
        local.clear()
        local.update(before)


def attention_functions() -> Any:
    """Transformers' table of the functions that compute attention."""
    return sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS


def _attention(compute: Callable[..., Any]) -> Callable[..., Any]:
    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        call = PackedCall.now()
        if call is None:
            outputs: tuple[Tensor, None] = compute(module, query, key, value, mask, **kwargs)
            return outputs
        each = zip(*(_of_members(call, heads) for heads in (query, key, value)), strict=True)
        made = []
        for number, heads in enumerate(each):
            its_mask = _for_member(call, mask, number)
            others = {name: _for_member(call, value, number) for name, value in kwargs.items()}
            with call.apart(number):
                made.append(compute(module, *heads, its_mask, **others)[0])
        return call.pack(made), None

    return attention


def _of_members(call: PackedCall, heads: Tensor) -> list[Tensor]:
    """(1, heads, all rows, width) → each member's (samples, heads, rows, width), as alone."""
    return [
        its.view(len(its), *shape, its.shape[-1]).transpose(0, 1)
        for its, shape in zip(torch.split(heads[0], call.sizes, 1), call.shapes, strict=True)
    ]


def _for_member(call: PackedCall, value: Any, number: int) -> Any:
    if isinstance(value, PerMember):
        return value.values[number]
    if isinstance(value, Tensor) and value.shape[:2] == (1, sum(call.sizes)):
        return call.unpack(value)[number]
    return value
