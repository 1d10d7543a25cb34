"""One task built under one technique, and one step of its training.

Training and trials both step through this module, so a trial measures exactly what training does:
fetch, forward, backward, clipping, optimizer, scheduler, and the agreement of the ranks.

On an accelerator nothing in a step makes the host wait for the device, so the device always has
work. The next step's data is staged while this step computes, and the ranks' agreement is read one
step later. Only fp16 reads one number a step: whether a gradient has overflowed.

What belongs to the task is done here, equally under every technique: precision, gradient
accumulation and clipping, batch norm over the global batch, the learning rate schedule. How the
model is spread over devices is the technique's business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from saturn.data import nested, seeds
from saturn.data.delivery import Deliveries, Delivery
from saturn.data.slices import Data, Position, Slice
from saturn.rank.exceptions import NotApplicable, TaskError
from saturn.rank.failure import describe, task_function
from saturn.rank.gang import Gang
from saturn.tasks.definition import FP16, TaskDefinition, call_get_model
from saturn.techniques.interface import Knobs, Technique
from saturn.techniques.model.buffers import Buffers
from saturn.training import skipping
from saturn.training.accumulation import Accumulation
from saturn.training.agreement import Agreement, StepFacts, agree
from saturn.training.batch_norm import GlobalBatchNorm
from saturn.training.draws import Draws
from saturn.training.loss_memory import LossMemory
from saturn.training.loss_parameters import LossParameters
from saturn.training.loss_scale import LossScale, Verdict
from saturn.training.lr_schedule import LrSchedule
from saturn.training.model_memory import ModelMemory
from saturn.training.objective import TaskObjective
from saturn.training.optimizer import build_optimizer, step_optimizer, unstepped
from saturn.training.optimizer_groups import OptimizerGroups
from saturn.training.optimizer_memory import OptimizerMemory
from saturn.training.optimizer_settings import StandIns, expect_separable
from saturn.training.own_generators import OwnGenerators
from saturn.training.parameter_hooks import ParameterHooks
from saturn.training.precision import Precision
from saturn.training.slicing import UNKNOWN, Slicing
from saturn.training.weighing import Shares, Weighing


@dataclass(frozen=True)
class _Piece:
    """A slice, on its way to the device."""

    delivery: Delivery
    in_host: Any  # the batch as the loader gave it; None if its samples are all that counts
    num_samples: int
    num_global: int
    batches: int  # how many batches training has seen once this piece's batch is done


@dataclass(frozen=True)
class Staged:
    """The data of a step: weighed, and on its way to the device."""

    pieces: Sequence[_Piece]
    #: Waits for all ranks, and returns the share of each piece.
    shares: Callable[[], Shares]
    #: How many batches training has seen when the step begins.
    before: int
    #: The position once the step is done.
    after: Position
    #: Tokens in the step's global batches, estimated from this rank's slices; None if none.
    num_tokens: int | None

    @property
    def num_samples(self) -> int:
        """Samples in the step's global batches."""
        return sum(piece.num_global for piece in self.pieces)


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
        slicing: Slicing = UNKNOWN,
        note: Callable[[str], None],
    ) -> None:
        """Build model, optimizer and data; `note` tells the user something.

        Raises `NotApplicable` if the technique slices batches that must not be cut.
        """
        self._definition = definition
        self._gang = gang
        precision = Precision(definition.precision, gang.device)
        self._slicing, self._weigh = slicing, slicing.weigher(definition)
        self._objective = TaskObjective(
            definition, self._weigh, precision=precision, slicing=slicing
        )
        if definition.loss_function is not None:
            function = definition.loss_function
            self._objective.loss_memory = LossMemory(function, gang.device, note)
        memory = gang.device_memory
        if module is None:
            memory.building()
            module = build_model(definition)
        step_loss = definition.step_loss
        precision.put_on(module, outputs_in_float32=step_loss is not None)
        memory.spreading()
        whole = None if technique.runs_whole_model else StandIns(module)
        hooks = ParameterHooks(module, world_size=gang.world_size)
        self.parallel = technique.parallelise(module, gang, knobs)
        hooks.expect_kept(self.parallel)
        if self.parallel.data_size > 1:
            if slicing.reason is not None:
                raise NotApplicable(slicing.reason)
            skipping.prepare(self.parallel, slicing)
        if step_loss is not None:
            step_loss.bind(self.parallel.module, gang.device)
        self._weighing = Weighing(
            *(gang, slicing, self._objective),
            data_size=self.parallel.data_size,
            counts_samples=self._weigh is None,
            step_loss=step_loss,
            # Samples that are dealt anew would give batch norms other statistics, and a buffer that
            # counts batches would count fewer. A collator draws random numbers for whole batches.
            keeps_batches=slicing.changes_buffers
            or slicing.draws_in_collating
            or any(isinstance(m, _BatchNorm) for m in self.parallel.module.modules()),
        )
        self._batch_norm = GlobalBatchNorm(
            self.parallel.module,
            data_size=self.parallel.data_size,
            world_size=gang.world_size,
            note=note,
        )
        with self.parallel.optimizer_memory():
            self.optimizer = build_optimizer(definition, self.parallel.module, gang.device)
        if whole is not None:
            whole.expect_same_settings(definition, self.parallel.module, self.optimizer)
            expect_separable(definition, self.optimizer)
        self._own_generators = OwnGenerators(definition, self.parallel.module)
        self._optimizer_memory = OptimizerMemory(self.optimizer)
        self._loss_parameters = LossParameters(definition, self.parallel.module)
        self._model_memory = ModelMemory(self.parallel.module, note)
        self._unstepped = unstepped(self.optimizer, self.parallel.module)
        self._frozen = [
            (name, parameter)
            for name, parameter in self.parallel.module.named_parameters()
            if not parameter.requires_grad
        ]
        self.lr_schedule = LrSchedule(definition.lr_scheduler, self.optimizer)
        # Noted before any step: a trial's steps may go on as training, and be saved.
        self.optimizer_groups = OptimizerGroups(self.optimizer)
        with memory.host():
            self.data = build_data(definition, gang.device, note)
        memory.training(saves_memory=self.parallel.saves_memory)
        self.loss_scale = LossScale() if definition.precision == FP16 else None
        self._accumulation = Accumulation(definition, self.data.batches_per_epoch)
        #: The random stream of a task that draws from one stream; None if each batch is seeded.
        self.draws = (
            None
            if step_loss is None
            else Draws(step_loss, gang.device, definition.epoch_batches or 1)
        )
        self._deliveries = Deliveries(gang.device)
        #: The present step's gradient norm before clipping; None until it is computed.
        self._norm: Tensor | None = None

    @property
    def steps_behind(self) -> int:
        """How many more steps are launched on the device before a step's result is read."""
        return 0 if self._gang.device.type == "cpu" else 1

    @property
    def different_steps(self) -> int | None:
        """Steps until batches repeat or the task ends; None if neither is known."""
        batches = [self.data.batches_per_epoch, self._accumulation.total]
        known = [-(-number // self._accumulation.a_step) for number in batches if number]
        return min(known, default=None)

    def pieces(self, start: Position) -> Generator[list[Slice], None, None]:
        """This rank's slices of each step from `start` on.

        All slices of a step are fetched before the step begins, because a slice's weight depends on
        the others.
        """
        return self.data.steps(
            start,
            self._accumulation.next_step,
            data_rank=self.parallel.data_rank,
            data_size=self.parallel.data_size,
            deals=self._weighing.deals if self._weighing.may_deal else None,
        )

    def stage(self, slices: Sequence[Slice]) -> Staged:
        """Send the slices of one step to the device, and begin to weigh them.

        Every rank calls this before `step`; on an accelerator best while the step before computes.
        """
        shares = self._weighing.begin(slices)
        pieces = [
            _Piece(
                self._deliveries.send(piece.batch),
                in_host=None if self._weigh is None else piece.batch,
                num_samples=piece.num_samples,
                num_global=piece.num_global,
                batches=piece.after.batches,
            )
            for piece in slices
        ]
        after = slices[-1].after
        before = after.batches - (slices[0].step_batches or len(slices))
        return Staged(pieces, shares, before, after, _tokens_in(slices))

    def step(self, staged: Staged, *, stop: bool, save: bool) -> Agreement:
        """Train on the slices of one step; every rank calls this."""
        pieces, shares = staged.pieces, staged.shares()
        facts = StepFacts(
            lr=_number_at_hand(self.optimizer.param_groups[0].get("lr")),
            samples=staged.num_samples,
            tokens=staged.num_tokens,
        )
        self._norm = None
        self._objective.items = shares.items
        if self._definition.step_loss is not None:
            self._definition.step_loss.reached(self._accumulation.steps_before(staged.before))
        with self._drawing(staged):
            losses, is_taken = self._gradients(pieces, shares.shares)
        self._loss_parameters.check()
        self._expect_frozen()
        if is_taken:
            self._seed_optimizer(pieces[-1].batches)
            with self.parallel.optimizer_memory():
                step_optimizer(self.optimizer)
            self._optimizer_memory.check()
        self._drop_gradients()
        self._model_memory.stepped()
        if is_taken and not self._accumulation.is_past_end(pieces[-1].batches):
            self.lr_schedule.step()
        # If several ranks share a slice, only the rank that reports its loss counts it.
        weighed = list(zip(losses, shares.weights, strict=True))
        agreement = agree(
            *(self._gang, weighed),
            count=shares.count,
            stop=stop,
            save=save,
            gradient_norm=self._norm,
        )
        agreement.facts, self._norm = facts, None
        self._gang.device_memory.stepped(is_repeatable=self._is_repeatable)
        return agreement

    def _expect_frozen(self) -> None:
        """Raise `TaskError` if a forward has made a parameter trainable that was frozen."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise TaskError(
                    f"the parameter `{name}` was frozen when get_model returned the model, and a "
                    "forward has made it trainable: the optimizer, which has the parameters that "
                    "are trainable from the beginning, would never step it. Leave it trainable, "
                    "and multiply its layer's gradient by 0 in the first steps, for example"
                )

    @property
    def _draws_on(self) -> bool:
        """Whether each batch goes on drawing where the batch before it stopped."""
        return self.draws is not None and self._gang.world_size == 1

    def _drawing(self, staged: Staged) -> AbstractContextManager[None]:
        if self.draws is None:
            return nullcontext()
        self.draws.begin_step(staged.before)
        return self.draws.drawing() if self._draws_on else nullcontext()

    def _seed_optimizer(self, batches: int) -> None:
        # An optimizer may add noise, or round at random. Ranks that hold the same weights must draw
        # the same numbers, and their forwards have drawn different ones. torch's own draw nothing.
        if self.draws is None and not type(self.optimizer).__module__.startswith("torch.optim"):
            seed = seeds.optimizer_seed(self._definition.seed, batches)
            seeds.seed_batch(seed, self._gang.device)

    def _drop_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        # Added up over steps, these would count in the norm, and a stop would lose them.
        for parameter in self._unstepped:
            parameter.grad = None

    def _forward_backward(self, piece: _Piece, share: float, *, is_last: bool) -> Tensor | None:
        device, parallel = self._gang.device, self.parallel
        batch = piece.delivery.taken()
        if not self._draws_on:
            number = piece.batches - 1
            seed = seeds.batch_seed(self._definition.seed, number, parallel.data_rank)
            self._own_generators.seed(seed)
            seeds.seed_batch(seed, device)
        self._batch_norm.counts = piece.num_samples > 0
        self._objective.num_global, self._objective.in_host = piece.num_global, piece.in_host
        self._objective.counts = bool(share)
        if self._definition.step_loss is not None:
            # A slice's own loss adds up with others; only parts that a technique cuts are scaled.
            self._objective.num_global = nested.num_samples(batch)
        if not share:
            batch = self._slicing.with_labels(batch)
        with nullcontext() if is_last else parallel.accumulating():
            return parallel.forward_backward(batch, self._objective, share)

    def _gradients(
        self, pieces: Sequence[_Piece], shares: Sequence[float]
    ) -> tuple[list[Tensor | None], bool]:
        """Compute the step's gradients, clipped; returns (losses, whether the optimizer may step).

        All ranks agree on whether the optimizer may step.
        """
        scale = self.loss_scale
        before = Buffers(self.parallel.module) if scale is not None or self._may_repeat else None
        versions = None if before is None else self._versions()
        while True:
            losses = self._passes(pieces, shares, 1.0 if scale is None else scale.factor)
            verdict = Verdict.REPEAT if losses is None else self._finish_gradients()
            if losses is not None and (verdict is not Verdict.REPEAT or before is None):
                return losses, verdict is Verdict.TAKE
            self._drop_gradients()
            if losses is None:
                self._gang.device_memory.give_back()
            assert before is not None, "what is kept is kept from a step's beginning"
            if versions != self._versions():
                raise TaskError(
                    "a forward changes parameters of the model itself, and this step has to be "
                    "taken again (under fp16, if a gradient overflows): the change would be made "
                    "twice. Use bf16, or keep what the forward changes in buffers"
                )
            before.restore()

    def _versions(self) -> list[int]:
        """How often each parameter has been changed in place."""
        return [parameter._version for parameter in self.parallel.module.parameters()]

    def _passes(
        self, pieces: Sequence[_Piece], shares: Sequence[float], factor: float
    ) -> list[Tensor | None] | None:
        """Run forward and backward of each piece; returns their losses.

        None if memory ran out while freed memory is still kept, so that a repeat may fit.
        """
        try:
            return [
                self._forward_backward(piece, share * factor, is_last=piece is pieces[-1])
                for piece, share in zip(pieces, shares, strict=True)
            ]
        except Exception as error:
            kind = describe(error, device_kind=self._gang.device.type).kind
            if self._may_repeat and kind == "out_of_memory":
                return None
            raise

    @property
    def _is_repeatable(self) -> bool:
        """Whether a step that fails half-way can be repeated with the same result."""
        return self.parallel.leaves_only_gradients and not self._draws_on

    @property
    def _may_repeat(self) -> bool:
        """Whether a step that runs out of memory can be repeated with freed memory given back."""
        return self._is_repeatable and self._gang.device_memory.keeps_freed

    def _finish_gradients(self) -> Verdict:
        """Scale the gradients back and clip them, as far as the task asks for it."""
        limit, scale = self._definition.max_grad_norm, self.loss_scale
        if limit is None and scale is None:
            return Verdict.TAKE
        parameters = list(self.parallel.module.parameters())
        if scale is not None:
            scale.scale_back(parameters)
        self._norm = norm = self.parallel.gradient_norm()
        verdict = Verdict.TAKE if scale is None else scale.judge(float(norm))
        if limit is not None and verdict is Verdict.TAKE:
            torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return verdict


def build_model(definition: TaskDefinition) -> nn.Module:
    """The task's model, with the same first weights on every rank and in every attempt."""
    seeds.seed_all(definition.seed)
    with task_function("get_model"):
        module = call_get_model(definition.get_model, definition.kwargs)
    if not isinstance(module, nn.Module):
        raise TaskError(
            f"get_model returned a {type(module).__name__}; it must return a torch.nn.Module"
        )
    if definition.start_from is not None:
        definition.start_from.load_into(module)
    # Pretrained models come in eval mode; parts set to eval later stay so. A trainer puts every
    # part into train mode, also a pretrained one in a wrapper that is in train mode itself.
    if definition.step_loss is not None or not module.training:
        module.train()
    return module


def _tokens_in(slices: Sequence[Slice]) -> int | None:
    """Tokens in the global batches of these slices, estimated in proportion to samples."""
    counted = [(nested.num_tokens(one.batch), one) for one in slices if one.num_samples]
    if not counted:
        return None
    tokens = 0.0
    for number, one in counted:
        if number is None:
            return None
        tokens += number / one.num_samples * one.num_global
    return round(tokens)


def _number_at_hand(value: Any) -> float | None:
    """A setting of the optimizer; None if it lies on a device and reading it would wait."""
    if isinstance(value, Tensor):
        return float(value) if value.device.type == "cpu" else None
    return float(value) if isinstance(value, int | float) else None


def build_data(
    definition: TaskDefinition, device: torch.device, note: Callable[[str], None]
) -> Data:
    """The task's data; raises `TaskError` if `epochs` can't be converted to steps."""
    data = Data(
        definition.get_dataloader,
        seed=definition.seed,
        pin_memory=device.type == "cuda",
        # All batches of a step are fetched first. On an accelerator, so is the next step.
        holds_several=definition.gradient_accumulation_steps > 1 or device.type != "cpu",
        note=note,
    )
    if definition.epochs is not None and data.batches_per_epoch is None:
        raise TaskError(
            "get_dataloader's loader has no length, so `epochs` can't be counted in steps; say "
            "HParams(steps=…) instead"
        )
    return data
