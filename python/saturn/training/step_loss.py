"""The interface by which a task's own object computes the loss of a step, calling the model itself.

If a task has a `StepLoss`, the loss of a step is the *sum* of its batches' losses; for other tasks
it is the mean over all samples. A `StepLoss` is told how many items the whole step has, over all
batches and ranks, because a batch's loss may be divided by that number.

A batch that is sliced over ranks is weighed as in any other task, by the finding of `slice_check`.
If the losses of slices add up to the batch's loss, each slice's loss is added unchanged. That holds
if each loss is divided by the items of the whole step.

The weight of a slice is the business of `weighing`; `saturn.trainers` has an implementation.
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
    """The totals of a step."""

    #: Items (such as labels) in all its batches, over all ranks; None if nobody counts them.
    num_items: Any
    num_batches: int


@dataclass(frozen=True)
class OwnEnd:
    """How a task's own code may end its training before the last step."""

    #: Whether it may end after any step; otherwise only after evaluations.
    at_steps: bool
    #: Whether the model is then evaluated once more.
    evaluates: bool


class Listener(Protocol):
    """Hears of a training's progress, and may end the training."""

    @property
    def is_over(self) -> bool:
        """Whether the training must end now."""

    def state(self) -> Mapping[str, Any]:
        """The state for the next attempt's listener, as JSON data."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state that `state` returned; called before `began`."""

    def began(self, step: int) -> None:
        """Training begins after `step` finished steps."""

    def stepped(self, step: int, loss: float) -> None:
        """Step `step` is done."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """The model was evaluated after `step` steps."""

    def ended(self) -> None:
        """This attempt takes no more steps."""


class StepLoss(Protocol):
    """How a task computes the loss of a batch."""

    #: Whether `inputs` and `loss_from` together give the same as `loss`. Techniques that don't run
    #: the model in one call need them.
    calls_model_once: bool

    def take_up(self) -> None:
        """Make this process, which does nothing but train the task, fit for the object's code.

        Such code may depend on the working directory, for example.
        """

    def random_start(self) -> RandomState:
        """The state of the CPU's random streams when the task's first step begins."""

    @property
    def seed(self) -> int:
        """The seed for the random streams of other devices at the first step."""

    def follow(self, start_of: Callable[[int], RandomState]) -> None:
        """Take `start_of`, which gives the state of the random streams at the start of an epoch.

        It is asked for the present epoch, and for the next once all of the present one is done.
        """

    def begin_epoch(self, epoch: int) -> None:
        """Draw the random numbers that the start of an epoch draws, from the present streams."""

    @property
    def evaluates(self) -> bool:
        """Whether the object evaluates too, drawing from the same streams."""

    def begin_evaluation(self, number: int) -> None:
        """Draw what the start of evaluation `number`, counted from 0, draws."""

    def bind(self, model: nn.Module, device: torch.device) -> None:
        """Take the model, which is already spread over the gang and computes on `device`.

        No steps are finished then.
        """

    def reached(self, done: int) -> None:
        """`done` steps are finished; called on every rank before a step, and an evaluation."""

    def count(self, batches: Sequence[Any]) -> Any:
        """Count the items in these batches of one step, which are in host memory.

        Returns a number or a scalar tensor; None if items aren't counted.
        """

    def loss(self, model: Any, batch: Any, step: StepItems) -> Tensor:
        """The part of the step's loss that `batch` adds: a scalar."""

    @property
    def own_end(self) -> OwnEnd | None:
        """How the listener may end training; None if it never does. Equal on every rank."""

    @property
    def publishes(self) -> bool:
        """Whether the trained model is to be published. Equal on every rank."""

    def publish(self, load: Callable[[nn.Module], None], step: int) -> str:
        """Publish the model after `step` steps, with weights from `load`; returns where it is."""

    def listener(self, note: Callable[[str], None]) -> Listener:
        """Make the training's listener, on one rank; `note` tells the user something."""

    def inputs(self, batch: Any, step: StepItems) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments and keywords for the model."""

    def loss_from(self, outputs: Any, batch: Any, step: StepItems) -> Tensor:
        """The loss that `loss` would return if the model returned `outputs`."""
