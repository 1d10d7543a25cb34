"""From a batch to a loss: how the task's functions are called.

A batch is an (inputs, labels) pair, or a mapping. From a pair, the model gets the inputs: a tuple
or list as its arguments, a mapping as its keywords. The loss is then
`loss_function(outputs, labels)`. From a mapping, the model gets everything as keywords. The loss is
then `loss_function(outputs, batch)` or, without a loss function, the model's own `outputs.loss`.
The loss is computed in the task's precision.

A task's `training_step(model, batch)`, or its `StepLoss`, replaces all of this: it gets the model
and calls it as it likes, and its batches may be anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from saturn.data import nested
from saturn.rank.exceptions import NotApplicable, TaskError
from saturn.rank.failure import task_function
from saturn.training.loss_memory import LossMemory
from saturn.training.precision import FLOAT32, Precision
from saturn.training.slicing import UNKNOWN, Slicing
from saturn.training.step_loss import StepItems

if TYPE_CHECKING:
    from saturn.tasks.definition import TaskDefinition


class TaskObjective:
    """The `Objective` of a task (see `saturn.techniques.interface`)."""

    def __init__(
        self,
        definition: TaskDefinition,
        loss_weight: Callable[..., Any] | None = None,
        *,
        precision: Precision = FLOAT32,
        slicing: Slicing = UNKNOWN,
    ) -> None:
        """`loss_weight` is the weight of a part of a batch; without it, its samples count."""
        self._loss_function = definition.loss_function
        self._training_step = definition.training_step
        self._step_loss = definition.step_loss
        self._model_caller = definition.model_caller_in_step
        self._loss_weight = loss_weight
        self._precision = precision
        self._slicing = slicing
        #: Samples of the present global batch, over all its slices.
        self.num_global: int | None = None
        #: The present slice as the loader gave it; None if only the device has it.
        self.in_host: Any = None
        #: Whether the present slice counts in the loss. A rank takes part in any case.
        self.counts = True
        #: Watches what the loss function keeps from call to call; None if nobody does.
        self.loss_memory: LossMemory | None = None
        #: The totals of the present step.
        self.items = StepItems(None, 1)

    def loss_of(self, model: Callable[..., Any], batch: Any) -> torch.Tensor:
        # Errors here keep their type: the model runs, so the technique may be at fault too.
        if self._step_loss is not None:
            return _scalar(self._step_loss.loss(model, batch, self.items), "compute_loss")
        if self._training_step is None:
            args, kwargs = self.inputs(batch)
            return self.loss(model(*args, **kwargs), batch)
        with self._precision.context():
            loss = _scalar(self._training_step(model, batch), "training_step")
        if not self.counts and not bool(loss.isfinite()):
            raise NotApplicable(
                f"a part of a batch has no weight, and training_step gives {float(loss):g} for it, "
                "which would spoil all gradients: let it return 0 times the model's outputs there"
            )
        return self._as_part(loss, batch)

    def outputs_of(self, model: Callable[..., Any], batch: Any) -> Any:
        if self._step_loss is not None or self._training_step is not None:
            return self.loss_of(model, batch)
        with contextlib.suppress(TaskError):  # a batch that can't be cut is used whole
            batch = nested.take(batch, 0, 1)
        args, kwargs = self.inputs(batch)
        return model(*args, **kwargs)

    def inputs(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._model_caller is not None:
            raise NotApplicable(
                f"{self._model_caller} calls the model by itself: a technique must ask for "
                "`objective.loss_of(model, batch)`, or say `runs_whole_model = False`"
            )
        if self._step_loss is not None:
            with task_function("the trainer's compute_loss"):
                args, kwargs = self._step_loss.inputs(batch, self.items)
            return args, kwargs
        if isinstance(batch, Mapping):
            return (), {str(key): value for key, value in batch.items()}
        inputs, _ = _pair(batch)
        if isinstance(inputs, Mapping):
            return (), {str(key): value for key, value in inputs.items()}
        if isinstance(inputs, tuple | list):
            return tuple(inputs), {}
        return (inputs,), {}

    def loss(self, outputs: Any, batch: Any) -> torch.Tensor:
        loss = self._task_loss(outputs, batch)
        if not self.counts and not bool(loss.isfinite()):
            # A mean over nothing. Its gradient is no number either, and 0 times it is none.
            return _nothing_of(outputs, loss)
        return self._as_part(loss, batch)

    def _as_part(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        num_samples = nested.num_samples(batch) if self._slicing.adds_up else None
        if num_samples and self.num_global:
            # A loss that sums over samples is scaled to a mean here, because gradients are weighted
            # by slice size later. A whole batch has factor 1.
            loss = loss * (self.num_global / num_samples)
        return loss

    def _task_loss(self, outputs: Any, batch: Any) -> torch.Tensor:
        if self._step_loss is not None:
            with task_function("the trainer's compute_loss"):
                loss = self._step_loss.loss_from(outputs, batch, self.items)
            return _scalar(loss, "compute_loss")
        if self._loss_function is None:
            return _scalar(_own_loss(outputs, batch), "the model's own `outputs.loss`")
        target = batch if isinstance(batch, Mapping) else _pair(batch)[1]
        function, memory = self._loss_function, self.loss_memory
        with task_function("loss_function"), self._precision.context():
            if memory is None:
                loss = function(outputs, target)
            else:
                loss = memory.watched(lambda: function(outputs, target))
        return _scalar(loss, "loss_function")

    def in_host_memory(self, batch: Any) -> Any:
        return batch if self.in_host is None else self.in_host

    def weight(self, batch: Any) -> float:
        if not self._slicing.samples_first:
            raise NotApplicable(
                "its batches do not have their samples first (time, or something else, comes "
                "before them), so they can't be cut into micro-batches"
            )
        return self.slice_weight(batch)

    def slice_weight(self, batch: Any) -> float:
        """The weight of a slice, which was fetched as a part of its batch."""
        if self._slicing.reason is not None:
            raise NotApplicable(self._slicing.reason)
        if self._loss_weight is None:
            return float(nested.num_samples(batch) or 0)
        with task_function("loss_weight"):
            return float(self._loss_weight(batch))


def _nothing_of(outputs: Any, loss: torch.Tensor) -> torch.Tensor:
    """0, with gradients of 0 for all of a model's `outputs` except the `loss` among them."""
    found = [
        array.float().sum() * 0.0
        for _, array in nested.arrays(outputs)
        if isinstance(array, torch.Tensor) and array.requires_grad and array.dim()
    ]
    return torch.stack(found).nan_to_num().sum() if found else loss


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, tuple | list):
        got = f"a {type(batch).__name__} of {len(batch)}"
    else:
        got = f"a {type(batch).__name__}"
    raise TaskError(
        f"get_dataloader's batches are {got}; a batch must be an (inputs, labels) pair, where "
        "inputs may be a tuple, or a mapping"
    )


def _own_loss(outputs: Any, batch: Any) -> Any:
    if not isinstance(batch, Mapping):
        raise TaskError(
            "loss_function is None, which needs batches that are mappings and a model that "
            "returns `outputs.loss`; these batches are pairs"
        )
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if loss is None:
        raise TaskError(
            f"the model returned a {type(outputs).__name__} without a loss; give the task a "
            "loss_function(outputs, batch), or put the labels into the batch"
        )
    return loss


def _scalar(loss: Any, source: str) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise TaskError(
            f"{source} returned a {type(loss).__name__}, not a tensor; it must return a scalar "
            "tensor, the mean loss over what it was given"
        )
    if loss.numel() != 1:
        raise TaskError(
            f"{source} returned a tensor of shape {tuple(loss.shape)}, not a scalar; it must "
            "return the mean loss over what it was given (reduction=`mean`, or .mean())"
        )
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise TaskError(
            f"{source} returned a loss that depends on no trainable parameter; is it detached, "
            "or is the whole model frozen?"
        )
    return loss.reshape(())
