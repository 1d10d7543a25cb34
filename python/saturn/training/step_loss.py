"""The loss of a step as a task's own object computes it, with the model in its hands.

Where a task has a `StepLoss`, the loss of a step is the *sum* of what that gives for each of the
step's batches (elsewhere it is the mean over all that counts). It is told what the step holds all
together, over all its batches and ranks, since a batch's part may be counted in those items.

A batch that is cut over ranks is made of its slices as of any other task: by what
`slice_check` has found. Where parts add up, as what is divided by the items of the whole step does,
each slice's loss counts as it is.

Not here: what a slice counts (`weighing`), and any such object (`saturn.trainers` has one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from saturn.data.seeds import RandomState


@dataclass(frozen=True)
class StepItems:
    """What a step holds all together."""

    #: Items (labels, say) in all its batches, over all ranks; None where nobody counts them.
    num_items: Any
    num_batches: int


class Listener(Protocol):
    """Is told of a training as it goes on."""

    def began(self, step: int) -> None:
        """It begins after so many steps."""

    def stepped(self, step: int, loss: float) -> None:
        """A step is done."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """The model was evaluated after so many steps."""

    def ended(self) -> None:
        """No more steps come in this attempt."""


class StepLoss(Protocol):
    """How a task computes the loss of a batch."""

    #: Whether `inputs` and `loss_from` say the same as `loss`: for techniques that don't run the
    #: model in one call.
    calls_model_once: bool

    def random_start(self) -> RandomState:
        """Where the random streams of the CPU stand when its first step begins."""

    @property
    def seed(self) -> int:
        """What the streams of other devices are seeded with then."""

    def begin_epoch(self) -> None:
        """Draw what is drawn when an epoch begins, from the streams as they stand."""

    def bind(self, model: nn.Module, device: torch.device) -> None:
        """`model` is spread over the gang by now, and computes on `device`."""

    def count(self, batches: Sequence[Any]) -> Any:
        """The items in these batches of one step, in host memory: a number or a scalar tensor.

        None where they aren't counted.
        """

    def loss(self, model: Any, batch: Any, step: StepItems) -> Tensor:
        """What `batch` adds to the loss of its step: a scalar."""

    def listener(self, note: Callable[[str], None]) -> Listener:
        """Who is told of the training, on one rank; `note` tells the person something."""

    def inputs(self, batch: Any, step: StepItems) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""

    def loss_from(self, outputs: Any, batch: Any, step: StepItems) -> Tensor:
        """What `loss` would give, where the model gave `outputs`."""
