"""Tasks of the benches: AdamW, and more batches than will ever be asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from saturn.tasks.definition import TaskDefinition


def definition(
    name: str, get_model: Callable[[], Any], get_dataloader: Callable[[], Any], **more: Any
) -> TaskDefinition:
    """A task; `more` are fields of `TaskDefinition`. The loss is the model's own by default."""
    fields: dict[str, Any] = {
        "loss_function": None,
        "loss_weight": None,
        "lr": 1e-4,
        "epochs": None,
        "batch_count": 10**6,
        "optimizer_cls": torch.optim.AdamW,
        "kwargs": {},
        "hints": {},
        "seed": 0,
    }
    return TaskDefinition(
        name=name, get_model=get_model, get_dataloader=get_dataloader, **{**fields, **more}
    )
