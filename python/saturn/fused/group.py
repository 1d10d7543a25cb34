"""A group: members that train over one base, and the technique under which each of them trains.

A member is a function of the group's caller, on a thread of its own. It trains as a task alone
does: it makes a `Stepper` with the technique that it is given, and steps, saves, evaluates and ends
as it likes. So its checkpoints, random numbers, optimizer, schedule and accumulation are those of
the task alone. Only its passes meet those of the others.

While one member is outside its passes, as in an evaluation or a save, all others wait.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from saturn.data.seeds import RandomState
from saturn.fused.base import Kind, SharedWeights, kind_of, model_of
from saturn.fused.layers import Handed, Layers
from saturn.fused.turns import BACKWARD, FailedTogether, Member, Turns, Visit
from saturn.techniques.interface import Knobs, Objective, ParallelModel, Technique
from saturn.techniques.model import attention

if TYPE_CHECKING:
    from saturn.rank.gang import Gang


class Group:
    """Members that train together on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.handed = Handed()
        self._shared = SharedWeights()
        self._kind: Kind | None = None
        self._turns = Turns(device)

    def add(self, name: str, work: Callable[[Technique], Any]) -> Member:
        """Let a member join from the next round on; its `work` gets the technique to train under.

        The member's `result` and `error` say how the work ended. Another member's work never ends
        by this error, unless it is `FailedTogether`.
        """
        member = Member(name, self.device)
        technique = Fused(self, member)
        member.start(lambda: work(technique))
        self._turns.add(member)
        return member

    def round(self) -> bool:
        """Let each member finish a pass; returns whether the work of any member is left."""
        return self._turns.round()

    def close(self) -> None:
        """End the work of all members, where they wait."""
        self._turns.close()

    def join(self, model: Any, kind: Kind) -> None:
        """Have `model` share the group's frozen weights; raises `CannotFuse` if it can't."""
        if self._kind is not None and (refusal := self._kind.reason_against(kind)) is not None:
            raise refusal
        self._shared.share(model)
        self._kind = kind


class Fused(Technique):
    """One member's way to train: as `ddp` on one device, with the others of its group.

    No plan can choose it: it isn't among the built-in techniques.
    """

    def __init__(self, group: Group, member: Member) -> None:
        self._group = group
        self._member = member

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        attention.set_back_end(module, knobs)
        module.to(gang.device)
        return _MemberModel(module, self._group, self._member, kind_of(model_of(module), knobs))


class _MemberModel(ParallelModel):
    """The member's own model. Its layers compute together with the layers of other members."""

    def __init__(self, module: nn.Module, group: Group, member: Member, kind: Kind) -> None:
        self.module = module
        self.data_rank, self.data_size = 0, 1
        self._group = group
        self._member = member
        self._kind = kind
        self._model = model_of(module)
        self._layers = Layers(self._model, member, group.handed, kind)
        self._has_joined = False

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        if not self._has_joined:
            # Not before the first pass: a checkpoint is loaded into the model's own weights first.
            self._group.join(self._model, self._kind)
            self._has_joined = True
        before = RandomState.now(self._group.device)
        gradients = self._gradients()
        self._layers.is_passing = True
        try:
            loss = objective.loss_of(self.module, batch)
        finally:
            self._layers.is_passing = False
        given = loss if share == 1.0 else loss * share
        try:
            self._member.meet(BACKWARD, (given, self._group.handed), _backward)
        except FailedTogether as failed:
            if not isinstance(failed.__cause__, Exception):
                raise  # somebody ends this process
            traceback.clear_frames(failed.__cause__.__traceback__)  # they hold everyone's tensors
        else:
            self._go_on_from(before)
            return loss.detach()
        del loss, given
        self._put_back(gradients)
        before.set()
        return self._pass_alone(batch, objective, share, before)

    def _pass_alone(
        self, batch: Any, objective: Objective, share: float, before: RandomState
    ) -> Tensor:
        """Repeat this member's pass alone, after the members' common backward pass has failed.

        The member whose own backward pass causes the error meets the error again here. The other
        members' passes succeed.
        """
        loss = objective.loss_of(self.module, batch)
        (loss if share == 1.0 else loss * share).backward()  # type: ignore[no-untyped-call]
        self._member.stream.keep()
        self._go_on_from(before)
        return loss.detach()

    def _go_on_from(self, before: RandomState) -> None:
        # Other members have seeded Python's and numpy's generators since; torch's are the member's.
        before.set()
        self._member.stream.use()

    def _gradients(self) -> list[tuple[nn.Parameter, Tensor | None]]:
        """What earlier passes of this step have left; there is nothing in a step's first pass."""
        trained = [each for each in self.module.parameters() if each.requires_grad]
        return [(each, None if each.grad is None else each.grad.clone()) for each in trained]

    def _put_back(self, gradients: Sequence[tuple[nn.Parameter, Tensor | None]]) -> None:
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _backward(visits: Sequence[Visit]) -> list[None]:
    """Add the gradients of all members' passes; no gradient holds a number of another member."""
    losses = []
    for visit in visits:
        loss, handed = visit.given
        handed.forget()
        losses.append(loss)
        visit.given = None  # if this fails, nothing else may hold the tensors of all passes
    torch.autograd.backward(losses)
    return [None] * len(visits)
