"""One task built under one technique, and one step of its training.

Training and trials both step through this, so a trial measures exactly what training does: fetch,
forward, backward, optimizer, and the agreement of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from saturn.definition import TaskDefinition, call_get_model
from saturn.techniques.interface import Knobs, Technique
from saturn.worker import nested, seeds
from saturn.worker.data import Data, Position, Slice
from saturn.worker.failure import TaskError, task_function
from saturn.worker.gang import Gang
from saturn.worker.objective import TaskObjective


@dataclass(frozen=True)
class StepResult:
    """What the ranks agree on after a step: the same on every rank."""

    loss: float  # mean over the global batch
    stop: bool  # some rank was asked to stop
    save: bool  # rank 0 wants a checkpoint


class Stepper:
    """A task's model, optimizer and data as one rank holds them."""

    def __init__(
        self,
        definition: TaskDefinition,
        technique: Technique,
        gang: Gang,
        knobs: Knobs,
        *,
        module: nn.Module | None = None,
        note: Callable[[str], None],
        alive: Callable[[], None],
    ) -> None:
        """Build all of it; `note` tells the person something, `alive` that this goes on."""
        self._definition = definition
        self._gang = gang
        self._objective = TaskObjective(definition.loss_function, definition.loss_weight)
        module = build_model(definition) if module is None else module
        alive()
        self.parallel = technique.parallelise(module, gang, knobs)
        self.optimizer = build_optimizer(definition, self.parallel.module)
        alive()
        self.data = build_data(definition, gang.device, note, alive)

    def slices(self, start: Position) -> Generator[Slice, None, None]:
        """This rank's slices from `start` on."""
        return self.data.slices(
            start, data_rank=self.parallel.data_rank, data_size=self.parallel.data_size
        )

    def step(self, number: int, piece: Slice, *, stop: bool, save: bool) -> StepResult:
        """Train on `piece` as step `number` (the first is 0); every rank calls it."""
        device = self._gang.device
        batch = nested.to_device(piece.batch, device)
        weight, total = self._weights(number, piece, batch)
        seeds.seed_step(
            seeds.step_seed(self._definition.seed, number, self.parallel.data_rank), device
        )
        loss = self.parallel.forward_backward(batch, self._objective, weight / total)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        # A slice that several ranks share is counted by the one that reports its loss. Loss and
        # flags travel together: one collective a step.
        counted = weight if loss is not None else 0.0
        value = float(loss) * counted if loss is not None and counted else 0.0
        weighted, counted, stops, saves = self._gang.sum([value, counted, stop, save])
        return StepResult(loss=weighted / counted, stop=stops > 0, save=saves > 0)

    def _weights(self, number: int, piece: Slice, batch: Any) -> tuple[float, float]:
        """What this slice counts, and what the global batch counts."""
        if self._definition.loss_weight is None:
            return float(piece.num_samples), float(piece.num_global)
        weight = self._objective.weight(batch) if piece.num_samples else 0.0
        if self.parallel.data_size == 1:
            total = weight
        else:
            # Ranks that share a slice weigh it once each.
            ranks_a_slice = self._gang.world_size / self.parallel.data_size
            total = self._gang.sum([weight])[0] / ranks_a_slice
        if not total > 0:
            raise TaskError(
                f"loss_weight of the batch of step {number} is {total:g}; it must be positive "
                "for a whole batch (for example the number of its tokens)"
            )
        return weight, total


def build_model(definition: TaskDefinition) -> nn.Module:
    """The task's model, with the same weights on every rank and in every attempt."""
    seeds.seed_all(definition.seed)
    with task_function("get_model"):
        module = call_get_model(definition.get_model, definition.kwargs)
    if not isinstance(module, nn.Module):
        raise TaskError(
            f"get_model returned a {type(module).__name__}; it must return a torch.nn.Module"
        )
    if not module.training:  # as pretrained models come; parts set to eval on purpose stay so
        module.train()
    return module


def build_optimizer(definition: TaskDefinition, module: nn.Module) -> torch.optim.Optimizer:
    """The task's optimizer over the trainable parameters of `module`."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise TaskError("get_model returned a model without trainable parameters")
    optimizer_cls = definition.optimizer_cls or torch.optim.AdamW
    with task_function("optimizer_cls"):
        optimizer = optimizer_cls(parameters, lr=definition.lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TaskError(
            f"optimizer_cls returned a {type(optimizer).__name__}; it must be a class (or a "
            "functools.partial of one) that makes a torch.optim.Optimizer from (parameters, lr=…)"
        )
    return optimizer


def build_data(
    definition: TaskDefinition,
    device: torch.device,
    note: Callable[[str], None],
    alive: Callable[[], None],
) -> Data:
    """The task's data; raises where `epochs` can't become steps."""
    data = Data(
        definition.get_dataloader,
        seed=definition.seed,
        pin_memory=device.type == "cuda",
        note=note,
        alive=alive,
    )
    if definition.epochs is not None and data.batches_per_epoch is None:
        raise TaskError(
            "get_dataloader's loader has no length, so `epochs` can't be counted in steps; say "
            "HParams(batch_count=…) instead"
        )
    return data
