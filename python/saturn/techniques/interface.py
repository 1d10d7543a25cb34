"""The managed technique interface: what a technique says, and what Saturn owns.

A technique says only three things. `not_applicable` says whether it can run a model at all, with
the reason in words. `knob_sets` gives the settings worth trying. `parallelise` spreads a module
over a gang. Saturn owns the data, the training loop, checkpoints, progress and failures, so that a
task trains the same way under every technique.

Every technique keeps these invariants, because techniques load each other's checkpoints:

* the parameters of `ParallelModel.module` have the names of the unsplit model, and the ranks of the
  gang together hold every parameter;
* one `forward_backward` over all data ranks adds the gradients of the loss over the whole global
  batch, each slice weighted by its share.

This file knows no technique, and holds no training code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from saturn.rank.exceptions import NotApplicable
from saturn.tasks.definition import BF16, FLOAT32, FP16

if TYPE_CHECKING:
    from torch import Tensor, nn

    from saturn.rank.gang import Gang

__all__ = [
    "Knobs",
    "NotApplicable",
    "Objective",
    "ParallelModel",
    "Setting",
    "Technique",
]

#: Settings of a technique: plain JSON data, opaque to everything but the technique.
Knobs = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The circumstances in which a technique would run, by which it may decide."""

    gpus: int  # devices of the strategy; the gang has one rank on each
    device_kind: str  # "cpu" or "cuda"
    hints: Mapping[str, Any]  # the task's hints about its model
    #: The precision of forward and loss: one of `saturn.tasks.definition.PRECISIONS`.
    precision: str = FLOAT32
    #: Memory of one device; None if it is not known.
    device_memory_bytes: int | None = None
    #: Bytes of optimizer state for each byte of trainable parameters: 2 for AdamW, 0 for SGD.
    optimizer_state_ratio: float = 2.0
    #: Devices on each of the gang's nodes, in the order of ranks; empty if all are on one node.
    node_gpus: tuple[int, ...] = ()
    #: The name of the task's part that calls the model itself; None if the technique calls it.
    model_caller: str | None = None

    @property
    def num_nodes(self) -> int:
        """How many nodes the gang spans."""
        return len(self.node_gpus) or 1

    def holds_groups_of(self, size: int) -> bool:
        """Whether each node has whole groups of `size` neighbouring ranks."""
        return all(gpus % size == 0 for gpus in self.node_gpus)


class Objective(Protocol):
    """How a batch enters the model and becomes a loss: the task's side of one step.

    A technique that runs the whole model calls `loss_of`. Other techniques call `inputs` and
    `loss`, and must set `Technique.runs_whole_model` to false, because some tasks only have
    `loss_of`.
    """

    def loss_of(self, model: Callable[..., Any], batch: Any) -> Tensor:
        """Scalar mean loss of `batch`; may call `model` once or several times, as the task does."""
        ...

    def outputs_of(self, model: Callable[..., Any], batch: Any) -> Any:
        """The outputs of `model` for one sample of `batch`, for comparing models.

        If the batch can't be cut, the outputs for all of it. If the task calls the model itself,
        the loss of the batch.
        """
        ...

    def inputs(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the model for `batch`."""
        ...

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Scalar mean loss of the model's `outputs` on `batch`.

        Raises `TaskError`, with the shape that it got, if the task's loss is not a scalar.
        """
        ...

    def weight(self, batch: Any) -> float:
        """The weight of `batch`'s mean loss beside another part of the global batch.

        It is the number of samples or labels, or the task's `loss_weight`. It is for techniques
        that cut their slice further. Raises `NotApplicable` if a task's batches must not be cut.
        """
        ...

    def in_host_memory(self, batch: Any) -> Any:
        """The present slice, passed as `batch`, as it was before the copy to the device.

        Reading it, as `weight` may, doesn't wait for the device.
        """
        ...


class ParallelModel(ABC):
    """A module spread over the gang, as one rank holds it."""

    #: Holds this rank's parameters under their unsplit names. The optimizer gets them, and
    #: checkpoints hold them.
    module: nn.Module
    #: The number of this rank's slice, and the number of slices of the global batch. Ranks of one
    #: pipeline or one tensor group have the same slice.
    data_rank: int
    data_size: int
    #: Whether the present `forward_backward` is its step's last; `accumulating` sets it.
    is_last_of_step = True
    #: Whether a `forward_backward` that fails leaves only gradients behind, on all ranks. A step
    #: that ran out of memory may then be repeated, with more memory.
    leaves_only_gradients = False
    #: Whether each batch's gradient is added to a parameter's once, and whole, by autograd itself.
    #: Hooks that a model has put on such sums then run as without a technique.
    keeps_sums = False
    #: Whether the technique exists to hold less memory, and takes longer for it.
    saves_memory = False

    @abstractmethod
    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        """Add the gradients of `share` times the mean loss over `batch`.

        `batch` is this data rank's slice, already on the device. `share` is the slice's part of the
        whole step, between 0 and 1, under fp16 times the loss's scale. Saturn calls the method once
        a step, or, with gradient accumulation, once for each of the step's batches. Returns the
        unscaled mean loss, detached, or None if another rank of the same slice reports it.
        """

    def accumulating(self) -> AbstractContextManager[None]:
        """The context of every `forward_backward` of a step except its last.

        Within it, gradients needn't be combined over the ranks. A technique that can delay that
        saves time, by reading `is_last_of_step` or by overriding this.
        """
        return self._before_the_last()

    @contextmanager
    def _before_the_last(self) -> Iterator[None]:
        self.is_last_of_step = False
        try:
            yield
        finally:
            self.is_last_of_step = True

    def forward(self, batch: Any, objective: Objective) -> Any:
        """The model's outputs for `batch`, whole and on the device, without gradients.

        It is called within `evaluating`, equally often by every rank. Ranks of one data rank get
        the same batch, other data ranks other batches. Returns None if another rank of the same
        data rank has the outputs. This implementation calls the module.
        """
        args, kwargs = objective.inputs(batch)
        return self.module(*args, **kwargs)

    def evaluating(self) -> AbstractContextManager[nn.Module]:
        """The context of an evaluation, which every rank enters between two steps.

        It gives a model for the task's evaluation function, which every rank calls with the same
        inputs. This implementation gives the module. If no rank has a whole model,
        `runs_whole_model` must be false.
        """
        return nullcontext(self.module)

    def begin_trial(self) -> None:  # noqa: B027  (most techniques have nothing to look at)
        """Called on every rank before the first step of a trial; may begin to watch the steps.

        `Technique.changes_after` may use what was learnt.
        """

    def gradient_norm(self) -> Tensor:
        """The 2-norm of the whole model's gradients, each parameter once: equal on every rank.

        This implementation is right if every rank holds every parameter, whole or as a `DTensor`.
        """
        # Imported here, because `import saturn` imports this file and must not wait for torch.
        from saturn.techniques.gradient_norm import total_norm

        return total_norm(p.grad for p in self.module.parameters() if p.grad is not None)

    def optimizer_memory(self) -> AbstractContextManager[Any]:
        """The context in which the optimizer is made, steps, or gets its state for loading.

        A technique may allocate the optimizer's state in a place of its own.
        """
        return nullcontext()

    def expect_skipped_parts(self) -> None:  # noqa: B027  (most techniques have nothing to do)
        """Called before training if some slices use parts of the model that others don't.

        Raise `NotApplicable` if the technique can't train such a model with these knobs.
        """

    def before_save(self) -> None:  # noqa: B027  (most techniques have nothing to do)
        """Called on every rank before the module's state is read for a checkpoint."""


class Technique(ABC):
    """A way to parallelise. Subclass it, and `saturn.register("name", TheClass)`.

    Instances are made without arguments, one on each rank, and live as long as the attempt.
    """

    #: The task's hints about its model, as in `Setting`; set before any method is called.
    hints: Mapping[str, Any] = MappingProxyType({})
    #: The precision of the task's forward and loss, as in `Setting`; set before any method is
    #: called.
    precision: str = FLOAT32
    #: The precisions that the technique can train in. `bf16-params` is for techniques that gather
    #: parameters themselves. Saturn applies the others to the model's forward under any technique.
    precisions: frozenset[str] = frozenset({FLOAT32, BF16, FP16})
    #: Whether the technique can give a task the whole model to call.
    runs_whole_model = True

    def reason_against(self, module: nn.Module, setting: Setting) -> str | None:
        """Why the technique can't train `module` in this setting; None if it can."""
        if setting.precision not in self.precisions:
            return (
                f"precision {setting.precision!r} is for techniques that gather parameters (fsdp)"
            )
        if setting.model_caller is not None and not self.runs_whole_model:
            return (
                f"{setting.model_caller} calls the model by itself, so it needs the whole model on "
                "every rank; here no rank has all of it"
            )
        return self.not_applicable(module, setting)

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        """Say in words why this technique can't run `module` in this setting; None if it can.

        It is called before anything is tried, and again in each trial. `module` is as the task
        builds it, and may be on `meta`, with shapes and without values. If the method raises on
        `meta`, it is called again with the real model.
        """
        return None

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        """Whether the loss of a batch is computed in parts, on slices or micro-batches.

        If a task's loss is not made of the losses of such parts, these knobs are not used.
        """
        return setting.gpus > 1

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        """Settings worth measuring, at least one; the fastest that fits wins."""
        return [{}]

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        """Settings that need less memory and more time, in rungs from fast to thrifty.

        A rung is measured only if all before it, `knob_sets` first, ran out of memory. So sets that
        can only be slower cost no trial if a faster set fits, and the fastest set that fits wins.
        """
        return []

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        """A lower bound of what one device needs to train `module` so; None if unknown.

        A knob set whose bound exceeds the device's memory is not tried.
        """
        return None

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        """Another setting to try after `knobs` failed with `error`; None if there is none."""
        return None

    def changes_after(self, knobs: Knobs, model: ParallelModel) -> Knobs | None:
        """Changes to `knobs` that are worth measuring too, judging by a trial's steps of `model`.

        Every rank calls this with its own `model`, and all must return the same; None if there are
        none. It is called once a trial, after the first set that was measured. If the changes make
        that set faster, later sets take them over, by `changed`.
        """
        return None

    def changed(self, knobs: Knobs, changes: Knobs) -> Knobs:
        """`knobs` with the changes of another set, as far as they are right for `knobs` too."""
        return {**knobs, **changes}

    @abstractmethod
    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        """Spread `module`, which every rank built alike on the CPU, over `gang`.

        Every rank calls this at once; it may replace parts of `module`. Raise `NotApplicable`, with
        a reason, if it turns out not to work.
        """
