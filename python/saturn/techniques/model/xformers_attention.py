"""xFormers' memory-efficient attention as a back end of transformers, which lacks it.

It computes the same as transformers' `sdpa`, with the same masks. Features that the kernel lacks
(soft caps, position biases, sinks) raise an error, and are never ignored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

#: The name under which it is registered with transformers.
NAME = "xformers"
#: Keywords that change what attention computes, and that the kernel can't handle.
_UNKNOWN_TO_IT = ("softcap", "position_bias", "s_aux", "cache")
#: The kernel reads a bias in blocks of this many numbers, so each row must begin at a multiple.
_ALIGNED = 8


def register() -> None:
    """Register the back end with transformers, if it isn't registered yet."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    known = AttentionInterface()  # type: ignore[no-untyped-call]
    if NAME not in known.valid_keys():
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, sdpa_mask)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` (batch, heads, queries, width) to `key` and `value`.

    `attention_mask` broadcasts to (batch, heads, queries, keys): true where a key is seen, or a
    bias to add. None means causal if `module` is causal. Returns (batch, queries, heads, width).
    """
    from xformers.ops import (  # type: ignore[import-not-found, unused-ignore]
        LowerTriangularMask,
        memory_efficient_attention,
    )

    for name in _UNKNOWN_TO_IT:
        if others.get(name) is not None:
            raise ValueError(f"xformers attention does not support `{name}`")
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    bias: Any = None
    if attention_mask is not None:
        bias = _bias(attention_mask, query, key)
    elif query.shape[2] > 1:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        bias = LowerTriangularMask() if causal else None
    outputs: Tensor = memory_efficient_attention(
        *(each.transpose(1, 2) for each in (query, key, value)),
        attn_bias=bias,
        p=dropout,
        scale=scaling,
    )
    return outputs, None


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    batch, heads, num_queries, _ = query.shape
    num_keys = key.shape[2]
    padded = -(-num_keys // _ALIGNED) * _ALIGNED
    bias = query.new_zeros(batch, heads, num_queries, padded)[..., :num_keys]
    if mask.dtype == torch.bool:
        # Not minus infinity: a padding query, which sees no key, would become NaN.
        return bias.masked_fill_(~mask, torch.finfo(query.dtype).min)
    return bias.copy_(mask.expand_as(bias))
