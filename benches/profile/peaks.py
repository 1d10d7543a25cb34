"""Peak bytes of one training step of transformers models, counted on fake CUDA tensors.

`PYTHONPATH=tests python -m fake_gpu --devices 1 -- python benches/profile/peaks.py FILE` writes the
table `peaks-counted.csv`. The fake GPU has torch take the paths of CUDA, autocast's among them.
Nothing is computed: torch's `FakeTensorMode` runs each operation on shapes alone, and torch's
`MemTracker` adds up the storages that are alive. So a model of seven billion parameters takes
seconds on any machine. What the table does not hold: CUDA's context, workspaces of kernels, and
what the allocator holds beyond what is in use.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.initialization import no_init_weights

#: Each model's configuration, the class that builds it, and its sizes as (batch, tokens).
MODELS: dict[str, Any] = json.loads(Path(__file__).with_name("peaks-models.json").read_text())


def main(path: Path) -> None:
    """Counts every row and writes the table."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["model", "precision", "checkpointing", "batch", "seq", "params", "peak_bytes"]
        )
        for name, model in MODELS.items():
            for batch, seq in model["sizes"]:
                for precision in ("fp32", "bf16"):
                    for checkpointing in (False, True):
                        row = [name, precision, checkpointing, batch, seq]
                        table.writerow(row + peak(name, precision, checkpointing, batch, seq))
                        file.flush()


def peak(name: str, precision: str, checkpointing: bool, batch: int, seq: int) -> list[int]:
    """Parameters, and the peak of a second step with AdamW's state there, before its own step."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        model = build(name).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = torch.optim.AdamW(model.parameters())
        batch_of = inputs(name, batch, seq)
        step(model, precision, batch_of)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            step(model, precision, batch_of)
        snapshot = tracker.get_tracker_snapshot("peak")
    (found,) = [of for device, of in snapshot.items() if device.type == "cuda"]
    num_params = sum(parameter.numel() for parameter in model.parameters())
    return [num_params, int(found["Total"])]


def build(name: str) -> Any:
    """The model; nothing fills its weights, since they have no numbers."""
    config = transformers.AutoConfig.for_model(**MODELS[name]["config"], use_cache=False)
    kind = getattr(transformers, MODELS[name]["class"])
    with no_init_weights():
        model = kind.from_config(config, attn_implementation="sdpa")
    model.tie_weights()
    return model


def inputs(name: str, batch: int, seq: int) -> dict[str, torch.Tensor]:
    """A batch as the model's forward takes it, with labels."""
    if name.startswith("vit"):
        images, labels = torch.zeros(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
        return {"pixel_values": images, "labels": labels}
    tokens = torch.zeros(batch, seq, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def step(model: Callable[..., Any], precision: str, batch: dict[str, torch.Tensor]) -> None:
    """Forward and backward."""
    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    with sdpa_kernel(fused):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(**batch).loss
        loss.backward()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
