"""What cases of pairs train: a small model, its data, and the loop that a user would write.

The loop knows nothing of Saturn but its documented seeds (`plain_loops.documented_seed`). It is the
outside reference of managed tasks, and what the tests' script and black box run themselves.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from pairs import Case
from plain_loops import documented_seed, epochs_of, seed_all, seeded_batches
from stateful_models import Centred, Counting
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

WIDTH, CLASSES, BATCH, SAMPLES, SEED = 12, 5, 8, 44, 3
STEPS, EVERY = 8, 3
#: With a loss that is NaN, or a sample that raises, in the fifth batch.
BAD = 4 * BATCH + 3
PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: What a loss is multiplied by under fp16, and the least that is tried.
FIRST_SCALE = 4096.0


class Network(nn.Module):
    """Residual layers; what else there is, the case says."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(11)
        drop = 0.2 if case.has("dropout") else 0.0
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(drop)) for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, CLASSES, bias=not case.has("tied"))
        self.embed = nn.Embedding(CLASSES, WIDTH) if case.has("tied") else nn.Identity()
        if case.has("tied"):
            self.head.weight = self.embed.weight
        parts = {"batch norm": partial(nn.BatchNorm1d, WIDTH), "counter": Counting}
        if case.has("trainer"):
            parts["counter"] = CountingSteps
        parts["running mean"] = Centred
        self.part = nn.Sequential(*(make() for name, make in parts.items() if case.has(name)))
        if case.has("frozen"):
            self.layers[0].requires_grad_(False)
            self.layers[2][0].bias.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        if isinstance(self.embed, nn.Embedding):
            # What is not a number stays so.
            words = inputs[:, :4].nan_to_num().abs().mul(3).long().clamp(max=CLASSES - 1)
            hidden = self.embed(words).mean(1) + inputs
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.head(self.part(hidden))


class CountingSteps(Counting):
    """Counts in training alone: `Trainer.train()` does not put back what its evaluations change."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.batches += int(self.training)
        return inputs / (self.batches + 1) ** 0.1


class WithLoss(nn.Module):
    """The same as transformers' Trainer wants a model."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.network = Network(case)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def with_adapters(case: Case, model: nn.Module) -> nn.Module:
    """The model, under adapters that begin at random where the case has some."""
    if not case.has("lora"):
        return model
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(12)
    targets = r".*layers\.\d\.0"
    return get_peft_model(model, LoraConfig(r=2, target_modules=targets, init_lora_weights=False))


def get_model(case: Case) -> nn.Module:
    return with_adapters(case, Network(case))


class Rows(Dataset[Any]):
    """Numbers and their classes; one row is bad where the case says so."""

    def __init__(self, case: Case | None) -> None:
        generator = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
        self.raises = case is not None and case.has("exception")
        if case is not None and case.has("nan"):
            self.inputs[BAD] = math.nan

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.raises and index == BAD:
            raise ValueError("row 35 is bad")
        return self.inputs[index], index % CLASSES

    def __len__(self) -> int:
        return SAMPLES


class Stream(IterableDataset[Any]):
    """The same rows, as they come."""

    def __init__(self, case: Case) -> None:
        self.rows = Rows(case)

    def __iter__(self) -> Iterator[Any]:
        return (self.rows[index] for index in range(SAMPLES))


def noisy(samples: list[Any]) -> Any:
    """A collate function that draws."""
    inputs = torch.stack([inputs for inputs, _ in samples])
    labels = torch.tensor([label for _, label in samples])
    return inputs + 0.1 * torch.randn(inputs.shape), labels


def get_dataloader(case: Case) -> DataLoader[Any]:
    options: dict[str, Any] = {"drop_last": not case.has("short last batch")}
    if case.has("stream"):
        return DataLoader(Stream(case), BATCH, **options)
    if case.has("drawing collator"):
        options["collate_fn"] = noisy
    return DataLoader(Rows(case), BATCH, shuffle=case.has("shuffled"), **options)


def get_eval_dataloader() -> DataLoader[Any]:
    return DataLoader(Rows(None), 16)  # of 16, 16 and 12


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    return {"accuracy": (outputs.argmax(-1) == labels).double().mean()}


def lr_of(case: Case) -> float:
    return 1e4 if case.has("explosion") else 0.05


def optimizer_of(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def fading(step: int) -> float:
    return 1.0 / (1 + 0.3 * step)


def schedule_of(case: Case) -> Callable[[Any], Any] | None:
    if case.has("one cycle"):
        return partial(OneCycleLR, max_lr=2 * lr_of(case), total_steps=STEPS)
    return partial(LambdaLR, lr_lambda=fading) if case.has("by lambda") else None


def accumulate_of(case: Case) -> int:
    return 2 if case.has("accumulated") else 1


def norm_of(case: Case) -> float | None:
    return 0.5 if case.has("clipped") else None


def batches_of(case: Case) -> Iterator[Any]:
    """A task's batches, under the documented seeds."""
    loader = get_dataloader(case)
    if case.has("drawing collator"):
        yield from seeded_batches(loader, SEED)
    if case.has("shuffled"):
        epoch = 0
        while True:
            seed_all(documented_seed(SEED, "epoch", epoch))
            yield from (
                loader.collate_fn([loader.dataset[i] for i in indices])  # type: ignore[misc]
                for indices in list(loader.batch_sampler)  # type: ignore[arg-type]
            )
            epoch += 1
    yield from epochs_of(loader)


class SlicedDropout(nn.Module):
    """Drops as data-parallel ranks do: each by its own stream, on its slice of the batch."""

    def __init__(self, p: float, streams: list[torch.Tensor]) -> None:
        super().__init__()
        self.p, self.streams = p, streams

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.p:
            return inputs
        parts = []
        for rank, stream in enumerate(self.streams):
            size, ranks = len(inputs), len(self.streams)
            torch.set_rng_state(stream)
            part = inputs[size * rank // ranks : size * (rank + 1) // ranks]
            parts.append(nn.functional.dropout(part, self.p))
            self.streams[rank] = torch.get_rng_state()
        return torch.cat(parts)


class Loop:
    """A training loop in plain torch, which can be left and gone on with."""

    def __init__(self, case: Case, batches: Iterator[Any] | None = None) -> None:
        self.case = case
        self.model = get_model(case)
        self.streams: list[torch.Tensor] = []
        for module in list(self.model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(module, name, SlicedDropout(child.p, self.streams))
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(self.parameters, lr_of(case))
        schedule = schedule_of(case)
        self.scheduler = schedule(self.optimizer) if schedule is not None else None
        self.batches = batches_of(case) if batches is None else batches
        self.number, self.steps, self.scale = 0, 0, FIRST_SCALE

    def step(self, ranks: int = 1) -> float:
        """One optimizer step, with dropout as `ranks` data-parallel ranks draw it."""
        self.model.train()
        group = [next(self.batches) for _ in range(accumulate_of(self.case))]
        while True:
            state = copy.deepcopy(dict(self.model.named_buffers()))
            loss = self._backward(group, ranks)
            finite = all(bool(p.grad.isfinite().all()) for p in self.parameters)
            if not self.case.has("fp16") or finite or self.scale <= 1.0:
                break
            self.optimizer.zero_grad()
            self.scale /= 2
            for name, buffer in self.model.named_buffers():
                buffer.copy_(state[name])
        is_taken = finite or not self.case.has("fp16")
        if is_taken:
            self._update()
        else:
            self.scale = FIRST_SCALE  # such a step is left out
        self.optimizer.zero_grad()
        if self.scheduler is not None and is_taken:
            self.scheduler.step()
        self.number += len(group)
        self.steps += 1
        return loss

    def evaluate(self) -> dict[str, float]:
        """The task's evaluation of the model as it is."""
        self.model.eval()
        losses, right, total = 0.0, 0, 0
        # An evaluation changes no buffer, nor does one of its batches for the next.
        buffers = copy.deepcopy(dict(self.model.named_buffers()))
        with torch.no_grad():
            for inputs, labels in get_eval_dataloader():
                loss, outputs = self._loss(inputs, labels)
                losses += loss.item() * len(labels)
                right += int((outputs.argmax(-1) == labels).sum())
                total += len(labels)
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(buffers[name])
        return {"eval_loss": losses / total, "accuracy": right / total}

    def state(self) -> dict[str, Any]:
        scheduler = None if self.scheduler is None else self.scheduler.state_dict()
        counts = {"number": self.number, "steps": self.steps, "scale": self.scale}
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**states, "scheduler": scheduler, **counts}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.number, self.steps, self.scale = (state[key] for key in ("number", "steps", "scale"))

    def _loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, Any]:
        rounded = PRECISION.get(self.case["precision"])
        with torch.autocast("cpu", rounded, enabled=rounded is not None):
            outputs = self.model(inputs)
            return nn.functional.cross_entropy(outputs, labels), outputs

    def _backward(self, group: list[Any], ranks: int) -> float:
        total = 0.0
        samples = sum(len(labels) for _, labels in group)
        for offset, (inputs, labels) in enumerate(group):
            for rank in range(ranks):
                seed_all(documented_seed(SEED, "batch", self.number + offset, rank))
                self.streams[rank : rank + 1] = [torch.get_rng_state()]
            del self.streams[ranks:]
            loss, _ = self._loss(inputs, labels)
            scale = self.scale if self.case.has("fp16") else 1.0
            (loss * (len(labels) / samples * scale)).backward()
            total += loss.item() * len(labels)
        return total / samples

    def _update(self) -> None:
        if self.case.has("fp16"):
            for parameter in self.parameters:
                parameter.grad /= self.scale  # type: ignore[operator]
        if (norm := norm_of(self.case)) is not None:
            nn.utils.clip_grad_norm_(self.parameters, norm)
        self.optimizer.step()
