"""Random generators that a task's model or loss holds itself, seeded like torch's own.

Otherwise they would begin anew after each stop, and ranks would draw alike for other samples.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from saturn.data import drawing
from saturn.tasks.definition import TaskDefinition


class OwnGenerators:
    """The generators in the attributes of a model's parts, and in the task's loss."""

    def __init__(self, definition: TaskDefinition, module: nn.Module) -> None:
        of_loss = drawing.generators_in((definition.loss_function, definition.training_step))
        self._found: list[Any] = [*of_loss, *drawing.generators_of(module)]

    def seed(self, seed: int) -> None:
        """Seed them all alike."""
        for generator in self._found:
            drawing.seed_generator(generator, seed)
