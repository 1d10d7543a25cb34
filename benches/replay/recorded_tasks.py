"""The tasks of the recorded runs: models, data and losses, most of them from `examples/sweep.py`.

Steps of `slow_loss` wait instead of computing, so that such a task's steps take the same time
whatever else the machine does.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import sweep  # noqa: E402
from saturn import HParams, Task  # noqa: E402


def vit(lr: float, steps: int, name: str = "", batch_size: int = 16, **more: Any) -> Task:
    """An image classifier of the demo."""
    return Task(
        sweep.image_classifier,
        partial(sweep.digit_batches, batch_size),
        sweep.classification_loss,
        HParams(lr=lr, batch_count=steps, layers=3),
        name=name or f"vit-b{batch_size}-lr{lr:g}",
        **more,
    )


def gpt2(lr: float, steps: int, name: str = "", **more: Any) -> Task:
    """A language model of the demo."""
    return Task(
        sweep.language_model,
        partial(sweep.corpus, 2),
        None,
        HParams(lr=lr, batch_count=steps, layers=2),
        name=name or f"gpt2-lr{lr:g}",
        **more,
    )


def small_model(width: int) -> Any:
    """Two layers."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )


def small_data() -> Any:
    """Random rows, as in the README."""
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(10, (512,)))
    return torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)


def perceptron(name: str, width: int, lr: float, epochs: int) -> Task:
    """A task of the README's."""
    from torch.nn.functional import cross_entropy

    return Task(
        small_model,
        small_data,
        cross_entropy,
        HParams(lr=lr, epochs=epochs, width=width),
        name=name,
    )


def slow_loss(step_s: float, outputs: Any, labels: Any) -> Any:
    """A step that takes as long beside any neighbour."""
    from torch.nn.functional import cross_entropy

    time.sleep(step_s)
    return cross_entropy(outputs, labels)


def slow(name: str, steps: int, step_s: float = 0.05, **more: Any) -> Task:
    """A task whose steps wait."""
    width = 32 + round(step_s * 1000)  # tasks of another pace are measured for themselves
    return Task(
        small_model,
        small_data,
        partial(slow_loss, step_s),
        HParams(lr=0.01, batch_count=steps, width=width),
        name=name,
        **more,
    )


def held_out_digits() -> Any:
    """The digits that no task trains on."""
    from torch.utils.data import DataLoader

    return DataLoader(sweep.digits(train=False), batch_size=32)


def accuracy(outputs: Any, labels: Any) -> dict[str, Any]:
    """The share of digits that are told right."""
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs
    return {"accuracy": (logits.argmax(-1) == labels).float().mean()}


def trainer(lr: float) -> Any:
    """A small GPT-2 with a Trainer of transformers."""
    import torch
    from transformers import Trainer, TrainingArguments

    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 256, (256, 64), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        "out",
        learning_rate=lr,
        max_steps=250,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    return Trainer(sweep.language_model(2), arguments, train_dataset=data)


def cursed_loss(last: int, outputs: Any, labels: Any) -> Any:
    """As `slow_loss`, but raises after `last` steps of a process."""
    cursed_loss.calls = getattr(cursed_loss, "calls", 0) + 1  # type: ignore[attr-defined]
    if cursed_loss.calls > last:  # type: ignore[attr-defined]
        raise ValueError(f"batch {last} is cursed")
    return slow_loss(0.05, outputs, labels)
