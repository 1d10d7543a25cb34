"""Models, plans and techniques for the tests of `tensor` and `tensor+fsdp`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from saturn.techniques import Knobs, ParallelModel
from saturn.techniques.interface import Objective
from saturn.techniques.tensor import TensorFsdp, TensorParallel
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.utils.data import DataLoader

WIDTH, VOCABULARY, LENGTH = 12, 30, 8


class Block(nn.Module):
    """Attention with a norm of each head, as newer transformers have, and an MLP."""

    def __init__(self, num_heads: int, head_dim: int, *, sizes_from_input: bool = False) -> None:
        super().__init__()
        inner = num_heads * head_dim
        self.num_heads, self.head_dim = num_heads, head_dim
        self.sizes_from_input = sizes_from_input
        self.norm = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, inner)
        self.key = nn.Linear(WIDTH, inner)
        self.value = nn.Linear(WIDTH, inner)
        self.head_norm = nn.LayerNorm(head_dim)
        self.out = nn.Linear(inner, WIDTH)
        self.up = nn.Linear(WIDTH, 24)
        self.down = nn.Linear(24, WIDTH)
        self.dropout = nn.Dropout(0.0)

    def heads(self, values: Tensor) -> Tensor:
        # With `sizes_from_input`, half the features make as many heads of half the size.
        shape = (self.num_heads, -1) if self.sizes_from_input else (-1, self.head_dim)
        return values.unflatten(-1, shape).transpose(1, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        query, key, value = (self.heads(f(normed)) for f in (self.query, self.key, self.value))
        if not self.sizes_from_input:
            query, key = self.head_norm(query), self.head_norm(key)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout.p if self.training else 0.0
        )
        hidden = hidden + self.dropout(self.out(attended.transpose(1, 2).flatten(2)))
        return hidden + self.dropout(self.down(self.up(hidden).relu()))


class Attentive(nn.Module):
    """A small transformer whose input and output embedding are one."""

    def __init__(
        self, *, num_heads: int = 4, dropout: float = 0.0, sizes_from_input: bool = False
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            Block(num_heads, 4, sizes_from_input=sizes_from_input) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        for part in self.modules():
            if isinstance(part, nn.Dropout):
                part.p = dropout

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


#: A plan for it, its shared embedding included.
PLAN = {
    **{f"layers.*.{name}": "colwise" for name in ("query", "key", "value", "up")},
    **{f"layers.*.{name}": "rowwise" for name in ("out", "down")},
    "layers.*.head_norm": "replicated_with_grad_allreduce",
    "embed": "embedding_rowwise",
    "head": "colwise_gather_output",
}
#: The same by objects of torch.
PLAN_OF_OBJECTS = {
    **PLAN,
    "layers.*.up": ColwiseParallel(),
    "layers.*.down": RowwiseParallel(),
}


def tokens() -> DataLoader[Any]:
    """20 sequences, seven a batch: a slice of two ranks has four, three, or none."""
    rows = torch.randint(0, VOCABULARY, (20, LENGTH), generator=torch.Generator().manual_seed(2))
    return DataLoader(rows, batch_size=7, shuffle=True, collate_fn=_pair)


def _pair(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    stacked = torch.stack(rows)
    return stacked, stacked


def tokens_with_labels() -> DataLoader[Any]:
    """The same for models that have their own loss."""
    loader = tokens()
    return DataLoader(loader.dataset, batch_size=7, shuffle=True, collate_fn=_mapping)


def _mapping(rows: list[Tensor]) -> dict[str, Tensor]:
    stacked = torch.stack(rows)
    return {"input_ids": stacked, "labels": stacked}


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def first_layer_frozen() -> Attentive:
    model = Attentive()
    model.layers[0].requires_grad_(False)
    return model


def tiny_llama(*, key_value_heads: int = 2, tied: bool = False) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=key_value_heads,
            head_dim=4,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=tied,
        )
    )


def normed_sequence() -> nn.Sequential:
    """Plain layers in a row, of which FSDP2 makes a unit each; one is a batch norm."""
    return nn.Sequential(
        *(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12), nn.BatchNorm1d(12), nn.Linear(12, 5))
    )


class Told(ParallelModel):
    """Another model, which writes down what rank 0 says of its gradients and parameters."""

    def __init__(
        self, inner: ParallelModel, path: Path, norm: Callable[..., Tensor] | None
    ) -> None:
        self.inner, self.path, self.norm = inner, path, norm
        self.module, self.data_rank = inner.module, inner.data_rank
        self.data_size = inner.data_size

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        loss = self.inner.forward_backward(batch, objective, share)
        norm = self.gradient_norm() if self.norm is None else self.norm(self.module)
        local = {id(p): p.to_local() for p in self.module.parameters() if isinstance(p, DTensor)}
        told = {"norm": float(norm), "bytes": sum(tensor.nbytes for tensor in local.values())}
        if dist.get_rank() == 0:
            with self.path.open("a") as file:
                file.write(json.dumps(told) + "\n")
        return loss


def _path() -> Path:
    import os

    return Path(os.environ["TOLD"])


class TellingTensor(TensorParallel):
    """`tensor`, telling."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        return Told(super().parallelise(module, gang, knobs), _path(), None)


class TellingTensorFsdp(TensorFsdp):
    """`tensor+fsdp`, telling."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        return Told(super().parallelise(module, gang, knobs), _path(), None)


def counted_on_every_rank(module: nn.Module) -> Tensor:
    """A norm that is wrong: the squares of what each rank holds, replicas and all."""
    locals_ = [p.grad.to_local() for p in module.parameters() if isinstance(p.grad, DTensor)]
    squares = torch.stack([gradient.square().sum() for gradient in locals_]).sum()
    dist.all_reduce(squares)
    return squares.sqrt()


class CountingTwice(TensorParallel):
    """`tensor` with that norm."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        return Told(super().parallelise(module, gang, knobs), _path(), counted_on_every_rank)


class Unchecked(TensorParallel):
    """`tensor` without its checks: what they are there for goes unseen."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        parallel: Any = super().parallelise(module, gang, knobs)
        parallel._group.forward_unchecked = parallel._group.gradients_unchecked = False
        return parallel


def whole_norm(model: nn.Module) -> float:
    """The norm of a whole model's gradients, the long way."""
    squares = [
        float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None
    ]
    return math.sqrt(sum(squares))


def tiny_qwen_mixture() -> nn.Module:
    """Four experts in one tensor, and one that all tokens come to."""
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    shared = {"shared_expert_intermediate_size": 16}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**sizes, **heads, **experts, **shared))
