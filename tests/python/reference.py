"""Training by hand in plain torch: what every plan must reproduce.

Of Saturn it uses only the documented seeds (`saturn.data.seeds`): which number an epoch is
shuffled with, and which one a step's forward draws from. Loop, optimizer and batches are torch's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from saturn.data.seeds import batch_seed, epoch_seed
from saturn.tasks.definition import TaskDefinition
from torch.utils.data import DataLoader

#: What autocast rounds to.
ROUNDED = {"bf16": torch.bfloat16, "fp16": torch.float16, "bf16-params": torch.bfloat16}
#: What a loss is multiplied by under fp16, as long as no gradient overflows.
FIRST_SCALE = 4096.0


def batches(loader: DataLoader[Any], seed: int) -> Iterator[Any]:
    """Every global batch, epoch after epoch."""
    epoch = 0
    while True:
        torch.manual_seed(epoch_seed(seed, epoch))
        for indices in list(loader.batch_sampler):
            yield loader.collate_fn([loader.dataset[index] for index in indices])
        epoch += 1


def train(
    definition: TaskDefinition,
    steps: int,
    *,
    loss_of: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
) -> tuple[dict[int, float], torch.nn.Module]:
    """(loss by step number from 1, trained model) of one device, never interrupted."""

    def plain(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        assert definition.loss_function is not None
        return definition.loss_function(model(batch[0]), batch[1])

    torch.manual_seed(definition.seed)
    model = definition.get_model()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (definition.optimizer_cls or torch.optim.AdamW)(parameters, lr=definition.lr)
    scheduler = definition.lr_scheduler(optimizer) if definition.lr_scheduler else None
    torch.manual_seed(definition.seed)
    stream = batches(definition.get_dataloader(), definition.seed)
    losses, number, scale = {}, 0, FIRST_SCALE if definition.precision == "fp16" else 1.0
    for step in range(steps):
        together = definition.gradient_accumulation_steps
        left = (definition.batch_count or number) - number
        group = [next(stream) for _ in range(min(together, left) if left > 0 else together)]
        counts = [float((definition.loss_weight or num_samples)(batch)) for batch in group]
        buffers = copy.deepcopy(dict(model.named_buffers()))
        while True:
            total = 0.0
            for offset, (batch, count) in enumerate(zip(group, counts, strict=True)):
                torch.manual_seed(batch_seed(definition.seed, number + offset, 0))
                rounded = ROUNDED.get(definition.precision)
                with torch.autocast("cpu", rounded, enabled=rounded is not None):
                    loss = (loss_of or plain)(model, batch)
                (loss * (count / sum(counts) * scale)).backward()
                # Of a batch in which nothing counts, the mean is no number.
                total += loss.item() * count if count else 0.0
            if scale == 1.0 or all(bool(p.grad.isfinite().all()) for p in parameters):
                break
            optimizer.zero_grad()
            scale /= 2
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        number += len(group)
        losses[step + 1] = total / sum(counts)
        if scale != 1.0:
            for parameter in parameters:
                parameter.grad /= scale
        if definition.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, definition.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
    return losses, model


def num_samples(batch: Any) -> int:
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    return len(parts[0])
