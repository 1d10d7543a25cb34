"""The loss of a step as a task's own object computes it, with the model in its hands.

Where a task has a `StepLoss`, the loss of a step is the *sum* of the losses of its batches; for
other tasks it is the mean over all samples. A `StepLoss` is told how many items the whole step has,
over all batches and ranks, because a batch's loss may be divided by that number.

A batch that is cut over ranks is weighed as for any other task, by the finding of `slice_check`. If
losses of slices add up to the loss of the batch, as they do where each is divided by the items of
the whole step, each slice's loss is added unchanged.

Not here: the weight of a slice (`weighing`), and implementations (`saturn.trainers` has one).
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


@dataclass(frozen=True)
class OwnEnd:
    """How a task's own code may end its training before its last step."""

    #: After any step; otherwise after evaluations alone.
    at_steps: bool
    #: Whether the model is evaluated once more then.
    evaluates: bool


class Listener(Protocol):
    """Is told of a training as it goes on, and may end it."""

    @property
    def is_over(self) -> bool:
        """Whether the training is to end with what was told last."""

    def state(self) -> Mapping[str, Any]:
        """What the next attempt's listener must know, as JSON can hold it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; called before `began`."""

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

    def follow(self, start_of: Callable[[int], RandomState]) -> None:
        """`start_of` says where the random streams stand when an epoch begins.

        It is asked of the epoch at work, and of the next once all of this one is done.
        """

    def begin_epoch(self, epoch: int) -> None:
        """Draw what is drawn when an epoch begins, from the streams as they stand."""

    @property
    def evaluates(self) -> bool:
        """Whether the task's evaluation is its own, and draws from the same streams."""

    def begin_evaluation(self, number: int) -> None:
        """Draw what is drawn when the `number`th evaluation begins, counted from 0."""

    def bind(self, model: nn.Module, device: torch.device) -> None:
        """`model` is spread over the gang by now, and computes on `device`."""

    def count(self, batches: Sequence[Any]) -> Any:
        """The items in these batches of one step, in host memory: a number or a scalar tensor.

        None where they aren't counted.
        """

    def loss(self, model: Any, batch: Any, step: StepItems) -> Tensor:
        """What `batch` adds to the loss of its step: a scalar."""

    @property
    def own_end(self) -> OwnEnd | None:
        """How the listener may end the training; None where it never does. On every rank alike."""

    @property
    def publishes(self) -> bool:
        """Whether the trained model is to be published. On every rank alike."""

    def publish(self, load: Callable[[nn.Module], None], step: int) -> str:
        """Publish the model as `load` fills it, after so many steps; returns where it is."""

    def listener(self, note: Callable[[str], None]) -> Listener:
        """Who is told of the training, on one rank; `note` tells the person something."""

    def inputs(self, batch: Any, step: StepItems) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""

    def loss_from(self, outputs: Any, batch: Any, step: StepItems) -> Tensor:
        """What `loss` would give, where the model gave `outputs`."""
