"""Models that skip layers or experts: devices with slices of one batch take different paths."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import NUM_CLASSES, WIDTH, Mlp, dataset, definition
from saturn.data.slices import Data
from saturn.training.slice_check import check
from saturn.training.slicing import Slicing
from saturn.training.stepper import build_model
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class LayerDrop(Mlp):
    """As wav2vec 2.0: each layer is skipped with a probability."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for layer in self.layers:
            if not self.training or torch.rand([]) > 0.3:
                hidden = hidden + torch.tanh(layer(hidden))
        return self.head(self.norm(hidden))


class DropByPython(LayerDrop):
    """The same, by Python's random numbers."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for layer in self.layers:
            if not self.training or random.random() > 0.3:
                hidden = hidden + torch.tanh(layer(hidden))
        return self.head(self.norm(hidden))


class Experts(nn.Module):
    """Two experts in each block; a sample's first number decides which of them it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for block in self.blocks:
            hidden = block(hidden, inputs[:, 0] > 0)
        return self.head(hidden)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, hidden: torch.Tensor, is_first: torch.Tensor) -> torch.Tensor:
        changed = torch.zeros_like(hidden)
        for expert, takes in zip(self.experts, (is_first, ~is_first), strict=True):
            if takes.any():  # an expert without samples is not called
                changed = changed.index_put((takes,), torch.tanh(expert(hidden[takes])))
        return hidden + changed


def found(model: Any) -> Slicing:
    task = definition(get_model=model)
    data = Data(task.get_dataloader, seed=task.seed)
    return check(task, lambda: build_model(task), data, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("model", "layers", "parts"),
    [(Mlp, False, False), (LayerDrop, True, True), (DropByPython, True, True)],
)
def test_layers_that_are_skipped_at_random_are_seen(model: Any, layers: bool, parts: bool) -> None:
    slicing = found(model)
    assert slicing.reason is None
    assert (slicing.skips_layers, slicing.skips_parts) == (layers, parts)


def test_experts_that_some_samples_skip_are_seen() -> None:
    slicing = found(Experts)
    assert (slicing.skips_layers, slicing.skips_parts) == (False, True)


def test_devices_never_gather_different_layers_for_each_other(run: Runtime) -> None:
    run.write_task(definition(get_model=LayerDrop))
    refused = run.run("mlp", "fsdp", ranks=2, steps=2).of("failed")[0]
    assert refused["kind"] == "not_applicable"
    assert "would gather different layers for each other" in refused["error"]
    trial = run.run("mlp", "ddp", kind="trial", ranks=2).one("trial")
    assert trial["outcome"]["outcome"] == "measured"
    assert trial["knobs"] == {"find_unused_parameters": True}


def one_expert_later() -> DataLoader[Any]:
    """Batches of 4 samples, in order: in the first of three both experts are taken."""
    inputs, targets = dataset()[:12]
    inputs[:, 0] = torch.where(torch.arange(12) % 2 * (torch.arange(12) < 4) == 1, -1.0, 1.0)
    return DataLoader(TensorDataset(inputs, targets), batch_size=4)


@pytest.mark.parametrize(
    ("technique", "knobs"), [("fsdp", {}), ("ddp", {"find_unused_parameters": True})]
)
def test_experts_train_as_on_one_device(
    run: Runtime, technique: str, knobs: dict[str, Any]
) -> None:
    # In some batches nobody takes the second expert, and the optimizer must then leave it alone.
    optimizer = partial(torch.optim.AdamW, weight_decay=0.1, eps=1e-3)
    task = definition(
        get_model=Experts, get_dataloader=one_expert_later, optimizer_cls=optimizer, lr=0.1
    )
    run.write_task(task)
    result = run.run("mlp", technique, ranks=2, steps=6, knobs=knobs)
    assert result.codes == [0, 0], result.logs
    expected, _ = reference.train(task, 6)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


class SometimesMore(Mlp):
    """With a further part, for samples that begin with a number above 0."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        takes = inputs[:, 0] > 0
        if takes.any():
            inputs = inputs.index_put((takes,), self.more(inputs[takes]))
        return super().forward(inputs)


def late_loader() -> DataLoader[Any]:
    """Batches of 8 samples, in order; the last 4 of 16 need no further part."""
    inputs, targets = dataset()[:16]
    inputs[:, 0] = torch.where(torch.arange(16) < 12, 1.0, -1.0)
    return DataLoader(TensorDataset(inputs, targets), batch_size=8)


def second_expert_later() -> DataLoader[Any]:
    """Batches of 4 samples, in order: only in the second of two some take the second expert."""
    inputs, targets = dataset()[:8]
    inputs[:, 0] = torch.where(torch.arange(8) == 5, -1.0, 1.0)
    return DataLoader(TensorDataset(inputs, targets), batch_size=4)


@pytest.mark.parametrize(
    ("technique", "get_model", "loader", "word"),
    [
        ("ddp", SometimesMore, late_loader, "find_unused_parameters"),
        ("fsdp", Experts, second_expert_later, "use the same parameters"),
    ],
)
def test_parts_that_a_later_step_skips_on_some_ranks_are_waited_for_no_longer(
    run: Runtime, technique: str, get_model: Any, loader: Any, word: str
) -> None:
    task = definition(get_model=get_model, get_dataloader=loader)
    run.write_task(task)
    failed = run.run("mlp", technique, ranks=2, steps=4).of("failed")
    errors = [each["error"] for each in failed if each["kind"] == "error"]
    assert errors, failed
    assert word in errors[0] and "last checkpoint" in errors[0]
    found = json.loads((run.task_dir("mlp") / "build" / "slices.json").read_text())
    assert (found["skips_layers"], found["skips_parts"]) == (False, True)
    again = run.run("mlp", technique, ranks=2, steps=4)
    assert again.codes == [0, 0], again.logs
    noted = any("find_unused_parameters" in note["text"] for note in again.of("note"))
    assert noted == (technique == "ddp")
    expected, _ = reference.train(task, 4)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


class TimeFirst(Dataset[Any]):
    """Samples of 35 steps; `collate` puts the steps first, as torch's recurrent layers do."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(35, WIDTH, generator=generator), torch.randn(35, 1, generator=generator)

    @staticmethod
    def collate(samples: list[Any]) -> Any:
        inputs, targets = zip(*samples, strict=True)
        return torch.stack(inputs, 1), torch.stack(targets, 1)


class Classes(TimeFirst):
    """The same samples with a class for each step, which are a batch's labels."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0], (torch.arange(35) + index) % NUM_CLASSES


def mean_over_steps(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())


def num_labels(batch: Any) -> float:
    return float(batch[1].numel())


def time_first_loader() -> DataLoader[Any]:
    return DataLoader(Classes(), 4, collate_fn=TimeFirst.collate)


def test_no_pipeline_cuts_batches_that_have_time_first(run: Runtime) -> None:
    task = definition(
        get_dataloader=time_first_loader, loss_function=mean_over_steps, loss_weight=num_labels
    )
    run.write_task(task)
    refused = run.run("mlp", "pipeline", ranks=2, steps=1).of("failed")
    assert {each["kind"] for each in refused} <= {"not_applicable", "peer_lost"}, refused
    assert any("do not have their samples first" in each["error"] for each in refused)
    sliced = run.run("mlp", "ddp", ranks=2, steps=1)  # samples are collated by themselves
    assert sliced.codes == [0, 0], sliced.logs


@pytest.mark.parametrize(("batches", "may_cut"), [("time", False), ("rows", True)])
def test_the_rows_of_a_single_sample_are_compared(batches: str, may_cut: bool) -> None:
    """Samples of 35 steps, or ready-made batches of 35 rows: only the loss tells them apart."""
    task = definition(
        get_model=(lambda: OverTime()) if batches == "time" else Mlp,
        get_dataloader=lambda: DataLoader(Classes(), 1, collate_fn=TimeFirst.collate),
        loss_function=mean_over_steps,
    )
    data = Data(task.get_dataloader, seed=task.seed)
    slicing = check(task, lambda: build_model(task), data, device=torch.device("cpu"))
    assert (slicing.kind, slicing.samples_first) == ("samples", may_cut)


class OverTime(Mlp):
    """Each step sees the sum of the steps before it."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.cumsum(0))


def test_a_sum_over_batches_that_have_time_first_is_never_cut() -> None:
    task = definition(
        get_model=lambda: nn.Linear(WIDTH, 1),
        get_dataloader=lambda: DataLoader(TimeFirst(), 4, collate_fn=TimeFirst.collate),
        loss_function=nn.MSELoss(reduction="sum"),
    )
    data = Data(task.get_dataloader, seed=task.seed)
    slicing = check(task, lambda: build_model(task), data, device=torch.device("cpu"))
    assert slicing.kind == "whole" and slicing.reason is not None
