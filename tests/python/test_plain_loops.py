"""What Saturn trains is what a loop in plain torch trains, written as a user writes it.

The loops know nothing of Saturn (see `plain_loops`). One chain of moves a case: each technique goes
on from the last one's checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import in_process
import plain_loops
import pytest
import torch
from harness import Runtime
from models import WIDTH, dataset, definition
from saturn.data import seeds
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from stateful_models import Layered, in_order
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, IterableDataset, Sampler

MOVES = [("ddp", 1), ("ddp", 2), ("fsdp", 2), ("pipeline", 2), ("ddp", 3)]
STEPS = 3


def batch_normed() -> nn.Module:
    return Layered(nn.BatchNorm1d(WIDTH))


def instance_normed() -> nn.Module:
    """A norm of three channels, each of four numbers of a sample."""
    norm = nn.InstanceNorm1d(3, affine=True)
    return Layered(nn.Sequential(nn.Unflatten(1, (3, WIDTH // 3)), norm, nn.Flatten()))


def frozen() -> nn.Module:
    model = Layered()
    model.layers[0].requires_grad_(False)
    return model


class Tied(nn.Module):
    """Tokens in and out by one matrix."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.embed = nn.Embedding(20, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return self.head(hidden)


def padded() -> DataLoader[Any]:
    """Rows of 2 to 9 tokens; the labels of what pads them count nothing."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(1, 20, (30, 9), generator=generator)

    def collate(numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = rows[numbers].clone()
        labels = tokens.roll(-1, 1)
        for row, number in enumerate(numbers):
            tokens[row, 2 + number % 8 :] = 0
            labels[row, 2 + number % 8 :] = -100
        return tokens, labels

    return DataLoader(range(30), 7, collate_fn=collate)  # type: ignore[arg-type]


def of_tokens(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())


class ByEpoch(Sampler[int]):
    """An order of one's own, from a seed of one's own."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(40 + self.epoch)
        return iter(torch.randperm(len(dataset()), generator=generator).tolist())

    def __len__(self) -> int:
        return len(dataset())


def in_own_order() -> DataLoader[Any]:
    """The last batch of each epoch has four samples, the others eight."""
    return DataLoader(dataset(), 8, sampler=ByEpoch())


class Stream(IterableDataset[Any]):
    """In another order each epoch, if it is told of epochs."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(70 + self.epoch)
        for index in torch.randperm(len(dataset()), generator=generator).tolist():
            yield dataset()[index]


def streamed() -> DataLoader[Any]:
    return DataLoader(Stream(), 8)


CYCLE = partial(OneCycleLR, max_lr=0.1, total_steps=20)
#: What the task says, what the loop says, and the techniques that train it.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, int]]]] = {
    "AdamW in an order of one's own": (
        {"optimizer_cls": AdamW, "lr": 0.01, "get_dataloader": in_own_order},
        {"optimizer": partial(AdamW, lr=0.01)},
        [*MOVES, ("offload", 1)],
    ),
    "accumulating, clipped, by a schedule": (
        {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "lr_scheduler": CYCLE},
        {"accumulate": 2, "max_grad_norm": 0.5, "schedule": CYCLE},
        MOVES,
    ),
    "batch norm": ({"get_model": batch_normed}, {}, [("ddp", 2), ("fsdp", 3)]),
    "instance norm": ({"get_model": instance_normed}, {}, [("ddp", 2), ("fsdp", 3)]),
    "a frozen layer": ({"get_model": frozen}, {}, MOVES[:4]),
    "tied weights and padded rows": (
        {"get_model": Tied, "get_dataloader": padded, "loss_function": of_tokens},
        {},
        MOVES,
    ),
    "a stream": ({"get_dataloader": streamed}, {}, [*MOVES[:3], ("ddp", 1)]),
    "tensor": (
        {"hints": {"tensor_plan": {"layers.*.0": "colwise_gather_output"}}},
        {},
        [("tensor", 2), ("ddp", 2)],
    ),
}


def task_of(**changes: Any) -> TaskDefinition:
    fields: dict[str, Any] = {"get_model": Layered, "get_dataloader": in_order, "lr": 0.1}
    fields |= {"optimizer_cls": partial(SGD, momentum=0.9), "batch_count": 400}
    return definition("task", **{**fields, **changes})


def loss_by(loss_function: Callable[..., torch.Tensor]) -> Any:
    return lambda model, batch: loss_function(model(batch[0]), batch[1])


@pytest.mark.slow(quick=["accumulating, clipped, by a schedule", "batch norm"])
@pytest.mark.parametrize("case", CASES)
def test_through_moves_it_is_the_loop_of_a_user(case: str, run: Runtime) -> None:
    changes, own, moves = CASES[case]
    task = task_of(**changes)
    run.write_task(task)
    for number, (technique, size) in enumerate(moves, start=1):
        result = run.run("task", technique, ranks=size, steps=STEPS * number)
        assert result.codes == [0] * size, result.logs
    batches = plain_loops.epochs_of(task.get_dataloader())
    loss_of = loss_by(task.loss_function or nn.functional.cross_entropy)
    expected = plain_loops.train(
        task.get_model(), batches, STEPS * len(moves), loss_of=loss_of, **own
    )
    assert run.losses("task") == pytest.approx(expected, rel=1e-5)


def test_on_one_slot_it_is_the_loop_of_a_user_to_the_last_bit(tmp_path: Path) -> None:
    task = task_of()
    losses, weights = in_process.train(task, Ddp(), tmp_path, steps=12)
    model = task.get_model()
    assert losses == plain_loops.train(model, plain_loops.epochs_of(in_order()), 12)
    for name, weight in model.state_dict().items():
        assert torch.equal(weights[name], weight), name


def test_it_is_the_loop_that_accelerate_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = pytest.importorskip("accelerate")
    # The process's, in which a Trainer of another test may have left its precision.
    for state in (accelerate.state.AcceleratorState, accelerate.state.GradientState):
        monkeypatch.setattr(state, "_shared_state", {})
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    loader = partial(in_order, 11)  # four batches an epoch: accelerate ends a step with its epoch
    fields = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "get_dataloader": loader}
    task = task_of(**fields)
    found, _ = in_process.train(task, Ddp(), tmp_path, steps=6)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = task.get_model()
    model, optimizer, batches = accelerator.prepare(
        model, SGD(model.parameters(), lr=0.1, momentum=0.9), loader()
    )
    losses: list[float] = []
    for _ in range(3):
        for inputs, labels in batches:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    expected = {step: sum(losses[2 * step - 2 : 2 * step]) / 2 for step in found}
    assert found == pytest.approx(expected, rel=1e-5)


def test_its_seeds_are_the_documented_ones() -> None:
    seed = plain_loops.documented_seed
    assert seeds.epoch_seed(3, 2) == seed(3, "epoch", 2)
    assert seeds.sample_seed(3, 2, 17) == seed(3, "sample", 2, 17)
    assert seeds.collate_seed(3, 2, 16) == seed(3, "collate", 2, 16)
    assert seeds.batch_seed(3, 8, 1) == seed(3, "batch", 8, 1)
    assert seed(3, "epoch", 2) == 2932455484817114596


def shuffled() -> DataLoader[Any]:
    return DataLoader(dataset(), 8, shuffle=True)


def dropping() -> nn.Module:
    return Layered(nn.Dropout(0.3))


def test_shuffling_and_dropout_draw_by_the_documented_seeds(tmp_path: Path) -> None:
    task = task_of(get_model=dropping, get_dataloader=shuffled)
    found, _ = in_process.train(task, Ddp(), tmp_path, steps=14)

    def batches() -> Iterator[Any]:
        for epoch in range(3):
            torch.manual_seed(plain_loops.documented_seed(task.seed, "epoch", epoch))
            yield from [
                [torch.stack(c) for c in zip(*(dataset()[i] for i in indices), strict=True)]
                for indices in shuffled().batch_sampler
            ]

    steps = iter(range(14))

    def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
        torch.manual_seed(plain_loops.documented_seed(task.seed, "batch", next(steps), 0))
        return plain_loops.cross_entropy(model, batch)

    assert found == plain_loops.train(task.get_model(), batches(), 14, loss_of=loss_of)
