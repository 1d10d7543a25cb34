"""Each technique as one would write it for one model in plain torch, without Saturn.

A class a technique: made on every rank of an open process group with a fresh model on its device,
its `step` trains on one global batch, of which it takes its own part, and returns the loss of that
part (a stage of a pipeline that has none: None). Nobody reads it there: that would wait for the
device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


class OneDevice:
    """No parallelism."""

    def __init__(self, model: nn.Module) -> None:
        self.rank, self.ranks = 0, 1
        self.device = next(model.parameters()).device
        self.run = self.spread(model)
        self.optimizer = torch.optim.AdamW(self.parameters(model), lr=1e-3)

    def spread(self, model: nn.Module) -> nn.Module:
        return model

    def parameters(self, model: nn.Module) -> Any:
        return model.parameters()

    def step(self, tokens: Tensor) -> Tensor | None:
        own = tokens.chunk(self.ranks)[self.rank].to(self.device, non_blocking=True)
        loss = self.run(input_ids=own, labels=own).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class OnParts(OneDevice):
    """Each rank trains on its part of the batch."""

    def spread(self, model: nn.Module) -> nn.Module:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        return model


class Ddp(OnParts):
    """DistributedDataParallel."""

    def spread(self, model: nn.Module) -> nn.Module:
        super().spread(model)
        return DistributedDataParallel(
            model, gradient_as_bucket_view=True, forward_sync_buffers=False
        )


class Fsdp(OnParts):
    """FSDP2, layer by layer."""

    def spread(self, model: Any) -> nn.Module:
        super().spread(model)
        return _shard(model, init_device_mesh(self.device.type, (self.ranks,)))


class TensorParallel(OneDevice):
    """Attention, MLP and embeddings split; the whole batch on every rank."""

    def spread(self, model: Any) -> nn.Module:
        return _split(model, init_device_mesh(self.device.type, (dist.get_world_size(),)))


class TensorFsdp(OneDevice):
    """Groups of two ranks as above, and FSDP2 over them, each with its part of the batch."""

    def spread(self, model: Any) -> nn.Module:
        shape = (dist.get_world_size() // 2, 2)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("data", "tensor"))
        self.rank, self.ranks = mesh["data"].get_local_rank(), mesh["data"].size()
        return _shard(_split(model, mesh["tensor"]), mesh["data"])


def _split(model: Any, mesh: DeviceMesh) -> nn.Module:
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    columns = (*columns, "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    for layer in model.model.layers:
        plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
        plan.update({name: RowwiseParallel() for name in rows})
        parallelize_module(layer, mesh, plan)
    embeddings = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    return parallelize_module(model, mesh, embeddings)


def _shard(model: Any, mesh: DeviceMesh) -> nn.Module:
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class _Stage(nn.Module):
    """Half of the layers, with the embedding or with the head."""

    def __init__(self, model: Any, rank: int, ranks: int) -> None:
        super().__init__()
        layers = model.model.layers
        bounds = [round(number * len(layers) / ranks) for number in (rank, rank + 1)]
        self.layers = layers[bounds[0] : bounds[1]]
        self.rotary = model.model.rotary_emb
        self.embed = model.model.embed_tokens if rank == 0 else None
        self.norm = model.model.norm if rank == ranks - 1 else None
        self.head = model.lm_head if rank == ranks - 1 else None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.embed is not None:
            hidden = self.embed(hidden)
        places = self.rotary(hidden, torch.arange(hidden.shape[1], device=hidden.device)[None])
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, position_embeddings=places)
        return hidden if self.head is None else self.head(self.norm(hidden))


class Pipeline(OneDevice):
    """Two stages of `torch.distributed.pipelining`."""

    def __init__(self, model: nn.Module, *, schedule: str, micro_batches: int) -> None:
        self._schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule]
        self._micro_batches = micro_batches
        super().__init__(model)

    def spread(self, model: nn.Module) -> nn.Module:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self.is_last = rank == ranks - 1
        self.stage = _Stage(model, rank, ranks)
        stage = PipelineStage(self.stage, rank, ranks, self.device)
        self.schedule = self._schedule(stage, self._micro_batches, loss_fn=_next_token)
        return self.stage

    def parameters(self, model: nn.Module) -> Any:
        return self.stage.parameters()

    def step(self, tokens: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        tokens = tokens.to(self.device, non_blocking=True)
        if self.stage.embed is not None:
            self.schedule.step(tokens)
        else:
            self.schedule.step(target=tokens, losses=losses)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).detach().mean() if losses else None


def _next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
