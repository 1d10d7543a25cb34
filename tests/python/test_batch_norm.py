"""Batch norm sees the whole global batch: as in one process, on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from in_process import gang_of_one
from models import WIDTH, Calls, definition, shuffled_loader
from saturn.checkpoint import manifest
from saturn.training.batch_norm import GlobalBatchNorm
from torch import nn
from torch.utils.data import DataLoader

MOVES = [("ddp", 1, 2), ("ddp", 3, 4), ("fsdp", 2, 6), ("fsdp", 3, 8), ("ddp", 2, 10)]


class Normed(nn.Module):
    """Convolutions and batch norms of several kinds, one of them after the samples are flat."""

    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4, momentum=momentum))
        self.second = nn.Sequential(
            nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4, affine=False, track_running_stats=False)
        )
        self.head = nn.Sequential(nn.Linear(4 * (WIDTH - 4), 8), nn.BatchNorm1d(8))
        self.frozen = nn.BatchNorm1d(8)
        self.frozen.eval().requires_grad_(False)
        self.out = nn.Linear(8, 5)

    def train(self, mode: bool = True) -> Normed:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(inputs.unsqueeze(1) * 3 + 20))
        hidden = torch.relu(self.second(hidden))
        return self.out(self.frozen(torch.relu(self.head(hidden.flatten(1)))))


@pytest.mark.parametrize("affine", [True, False])
def test_alone_a_rank_has_the_outputs_and_gradients_of_torch(tmp_path: Path, affine: bool) -> None:
    def computed(shares: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        norm = nn.BatchNorm1d(4, affine=affine)
        model = nn.Sequential(nn.Linear(6, 4), norm, nn.Linear(4, 2))
        inputs = torch.randn(5, 6, requires_grad=True)
        if shares:
            GlobalBatchNorm(model, data_size=2, world_size=2, note=print)
        outputs = model(inputs)
        outputs.square().sum().backward()
        gradients = {name: value.grad for name, value in model.named_parameters()}
        return {"outputs": outputs, "inputs": inputs.grad, **gradients, **norm.state_dict()}

    with gang_of_one(tmp_path) as gang:
        gang.open()
        assert closeness.ulps(computed(True), computed(False)) < closeness.ACROSS


def test_ranks_that_share_a_batch_leave_its_statistics_to_torch() -> None:
    norm, inputs = nn.BatchNorm1d(4), torch.randn(5, 4)
    expected = nn.BatchNorm1d(4)(inputs)
    GlobalBatchNorm(norm, data_size=1, world_size=2, note=print)
    assert torch.equal(norm(inputs), expected)


def pairs(batch_size: int) -> DataLoader[Any]:
    return DataLoader(shuffled_loader().dataset, batch_size=batch_size, shuffle=True)


def state(run: Runtime, model: nn.Module) -> dict[str, torch.Tensor]:
    """The model's state in the newest checkpoint, buffers included."""
    from torch.distributed.checkpoint import FileSystemReader, load

    newest = manifest.newest_valid(run.task_dir("mlp") / "checkpoints")
    assert newest is not None
    found = {"model": {name: torch.zeros_like(t) for name, t in model.state_dict().items()}}
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        load(found, storage_reader=FileSystemReader(newest[0]), no_dist=True)
    return found["model"]


def chain(run: Runtime, task: Any, moves: list[tuple[str, int, int]]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


@pytest.mark.slow(quick=["accumulating"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="uneven-slices"),
        pytest.param({"get_dataloader": partial(pairs, 2)}, id="empty-slices"),
        pytest.param(
            {"gradient_accumulation_steps": 2, "batch_count": 20, "max_grad_norm": 0.5},
            id="accumulating",
        ),
        pytest.param({"get_model": partial(Normed, momentum=None)}, id="cumulative"),
    ],
)
def test_losses_weights_and_running_statistics_are_those_of_one_process(
    run: Runtime, changes: dict[str, Any]
) -> None:
    # SGD: Adam divides by the gradients of biases that batch norm makes zero but for rounding.
    momentum = partial(torch.optim.SGD, momentum=0.9)
    fields = {"get_model": Normed, "optimizer_cls": momentum, "lr": 0.02}
    task = definition(**{**fields, **changes})
    expected, model = reference.train(task, 10)
    assert closeness.ulps(chain(run, task, MOVES), expected) < closeness.ACROSS
    assert closeness.ulps(state(run, model), model.state_dict()) < closeness.ACROSS


def take_statistics_of_slices() -> None:
    from saturn.training.batch_norm import GlobalBatchNorm

    GlobalBatchNorm.__init__ = lambda self, *_, **__: None  # type: ignore[method-assign]


def count_stand_ins() -> None:
    from saturn.training.batch_norm import GlobalBatchNorm

    GlobalBatchNorm.counts = property(lambda self: True, lambda self, value: None)  # type: ignore


@pytest.mark.parametrize(
    ("sabotage", "batch_size"), [(take_statistics_of_slices, 8), (count_stand_ins, 2)]
)
def test_known_bad_variants_are_seen(
    run: Runtime, sabotage: Callable[[], None], batch_size: int
) -> None:
    loader = partial(pairs, batch_size)
    fields = {"optimizer_cls": torch.optim.SGD, "lr": 0.02, "get_dataloader": loader}
    fields["get_model"] = Normed
    expected, _ = reference.train(definition(**fields), 5)
    losses = chain(run, definition(**fields, hints={"by": Calls(sabotage)}), [("ddp", 3, 5)])
    assert closeness.ulps(losses, expected) > 10 * closeness.ACROSS


def test_one_value_in_all_is_refused_as_torch_does(run: Runtime) -> None:
    def flat() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 5), nn.BatchNorm1d(5))

    run.write_task(definition(get_model=flat, get_dataloader=partial(pairs, 1)))
    failed = run.run("mlp", "ddp", ranks=2, steps=1).of("failed")
    assert failed and "more than 1 value per channel" in failed[0]["error"]


class OwnForward(nn.BatchNorm1d):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs)


def test_a_batch_norm_with_a_forward_of_its_own_is_told_of(run: Runtime) -> None:
    run.write_task(definition(get_model=lambda: nn.Sequential(nn.Linear(WIDTH, 5), OwnForward(5))))
    assert run.run("mlp", "ddp", ranks=1, steps=1).of("note") == []
    result = run.run("mlp", "fsdp", ranks=2, steps=2)
    assert "OwnForward is a batch norm with a forward of its own" in result.one("note")["text"]


def test_bf16_inputs_are_normalised_in_float32(run: Runtime) -> None:
    fields = {"get_model": Normed, "optimizer_cls": torch.optim.SGD, "lr": 0.02}
    task = definition(precision="bf16", **fields)
    expected, _ = reference.train(task, 4)
    losses = chain(run, task, [("ddp", 2, 2), ("fsdp", 3, 4)])
    assert closeness.ulps(losses, expected, of=torch.bfloat16) < 1.0
