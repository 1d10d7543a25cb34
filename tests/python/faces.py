"""Good tasks and techniques for the tests of the public face, to be made bad one way each."""

from __future__ import annotations

from typing import Any

import torch
from models import Mlp, shuffled_loader
from saturn import HParams, Task
from saturn.core.executors.Technique import BaseTechnique

LOSS = torch.nn.functional.cross_entropy


def make_task(name: str | None = "a", **changes: Any) -> Task:
    arguments: dict[str, Any] = {
        "get_model": Mlp,
        "get_dataloader": shuffled_loader,
        "loss_function": LOSS,
        "hparams": HParams(lr=0.1, batch_count=10),
        "name": name,
        **changes,
    }
    return Task(**arguments)


def local_class() -> type[Any]:
    class Local(BaseTechnique):
        def execute(task, gpus, task_id, batch_count):  # type: ignore[no-untyped-def] # noqa: N805
            pass

    return Local
