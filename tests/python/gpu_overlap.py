"""Milliseconds of a pass of `offload` beside those of its parts, as JSON; in `make gpu-check`.

    python tests/python/gpu_overlap.py [--small]

The parts are its copies in both directions, and its computation, each by itself. Where copies run
beside the computation, the pass takes less than all parts together.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memory_models
import torch
from gpu_lines import milliseconds
from saturn.rank.gang import Gang
from saturn.techniques import Knobs, Technique
from saturn.techniques.ddp import Ddp
from saturn.techniques.offload.technique import Offload
from torch import Tensor, nn

#: Layers, rows of a batch with which a GPU computes about as long as its bus copies, and passes.
LAYERS, ROWS, PASSES = 100, 2048, 10
FEW_LAYERS, FEW_ROWS, FEW_PASSES = 4, 8, 1


Sizes = tuple[int, int, int]


class Loss:
    """What a technique that runs the whole model asks of a task."""

    def loss_of(self, model: Callable[..., Any], batch: Any) -> Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(model(inputs), labels)


def pass_ms(technique: Technique, knobs: Knobs, sizes: Sizes, directory: Path) -> float:
    """Milliseconds of a forward and a backward."""
    layers, rows, passes = sizes
    device = torch.device("cuda", 0)
    gang = Gang(rank=0, world_size=1, device=device, rendezvous=directory / "rendezvous")
    model = memory_models.Deep(layers)
    parallel = technique.parallelise(model, gang, knobs)
    labels = torch.zeros(rows, dtype=torch.long, device=device)
    batch = torch.randn(rows, memory_models.WIDTH, device=device), labels
    objective: Any = Loss()

    def once() -> None:
        parallel.forward_backward(batch, objective, 1.0)
        model.zero_grad()  # as each step does

    return milliseconds(once, calls=passes)


def copies_ms(layers: int) -> tuple[float, float]:
    """Milliseconds of a pass's copies to the device (twice all layers), and back (once)."""
    size = memory_models.WIDTH, memory_models.WIDTH
    here, there = torch.ones(size).pin_memory(), torch.ones(size, device="cuda")

    def bring() -> None:
        for _ in range(2 * layers):
            there.copy_(here, non_blocking=True)

    def take_back() -> None:
        for _ in range(layers):
            here.copy_(there, non_blocking=True)

    return milliseconds(bring), milliseconds(take_back)


def main() -> None:
    is_small = "--small" in sys.argv
    sizes = (FEW_LAYERS, FEW_ROWS, FEW_PASSES) if is_small else (LAYERS, ROWS, PASSES)
    with tempfile.TemporaryDirectory(prefix="saturn-overlap-") as directory:
        place = Path(directory)
        offload_ms = pass_ms(Offload(), {}, sizes, place)
        # `offload` runs the layers' forward again in the backward, as recomputation does.
        computing_ms = pass_ms(Ddp(), {"activation_checkpointing": True}, sizes, place)
    bringing_ms, taking_back_ms = copies_ms(sizes[0])
    found = {
        "layers": sizes[0],
        "rows": sizes[1],
        "offload_ms": offload_ms,
        "computing_ms": computing_ms,
        "bringing_ms": bringing_ms,
        "taking_back_ms": taking_back_ms,
        "of_the_sum": offload_ms / (computing_ms + bringing_ms + taking_back_ms),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
