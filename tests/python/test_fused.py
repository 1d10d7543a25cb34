"""Adapters of one base that train together train as each does alone: every bit is the same."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fused_models
import numpy as np
import peft
import pytest
import torch
from fused_models import (
    FEW,
    MANY,
    Trained,
    alone,
    assert_same,
    finish,
    fused,
    sweep,
    task,
    train_together,
)
from in_process import gang_of_one
from saturn.fused import turns
from saturn.fused.group import Group
from saturn.fused.packed import PackedCall
from saturn.fused.turns import FailedTogether
from saturn.rank.exceptions import TaskError
from saturn.rank.gang import Gang
from saturn.techniques.interface import Technique
from torch import nn

RECOMPUTED = {"activation_checkpointing": True}
# peft asks transformers for something by its former name, as one of the tasks does.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`[a-z_]*gradient_checkpointing[a-z_]*` is deprecated:FutureWarning"
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many members each packed call computed for."""
    seen: list[int] = []
    made = PackedCall.__init__

    def init(self: PackedCall, shapes: Any, *args: Any) -> None:
        seen.append(len(shapes))
        made(self, shapes, *args)

    monkeypatch.setattr(PackedCall, "__init__", init)
    yield seen


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with gang_of_one(tmp_path) as one:
        yield one


def test_the_caller_gets_its_own_stream_of_an_accelerator_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Accelerator:
        state = torch.tensor([1])

        def get_rng_state(self, device: torch.device) -> torch.Tensor:
            return self.state

        def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
            self.state = state

    accelerator = Accelerator()
    monkeypatch.setattr(torch, "get_device_module", lambda device: accelerator)
    members = turns.Turns(torch.device("cuda", 0))
    member = turns.Member("a", torch.device("cuda", 0))

    def work() -> None:
        accelerator.state = torch.tensor([2])
        member.meet(turns.BACKWARD, None, lambda visits: [None])
        accelerator.state = torch.tensor([3])

    member.start(work)
    members.add(member)
    while members.round():
        assert accelerator.state == 1
    assert accelerator.state == 1 and member.error is None


@pytest.mark.slow(quick=["gpt2-float32-kept", "llama-bf16-recomputed", "bert-float32-kept"])
@pytest.mark.parametrize("knobs", [{}, RECOMPUTED], ids=["kept", "recomputed"])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_members_train_as_each_does_alone(
    kind: str, precision: str, knobs: dict[str, Any], tmp_path: Path, calls: list[int]
) -> None:
    tasks = sweep(kind, precision=precision)
    together = fused(tasks, tmp_path, knobs=knobs)
    layers = 2 + (kind != "bert")  # a classifier is a member's own
    # Six passes of all members, then six of the one that accumulates two batches a step.
    assert calls == [4] * 6 * layers
    for definition, found in zip(tasks, together, strict=True):
        assert_same(found, alone(definition, tmp_path, knobs=knobs))


def test_frozen_weights_are_held_once(tmp_path: Path) -> None:
    together = fused(sweep("llama"), tmp_path, steps=1)
    held = []
    for each in together:
        assert each.stepper is not None
        parameters = each.stepper.parallel.module.parameters()
        held.append([p.data_ptr() for p in parameters if not p.requires_grad])
    first = set(held[0])
    assert len(first) == len(held[0]) and all(set(other) == first for other in held)


def test_members_join_and_end_when_they_like(gang: Gang, tmp_path: Path, calls: list[int]) -> None:
    tasks = [
        task(name, "gpt2", seed=seed, model={"rank": seed}) for seed, name in enumerate("abc", 3)
    ]
    first, short, late = (Trained(each) for each in tasks)
    group = Group(gang.device)
    group.add("first", lambda technique: first.train(technique, gang, steps=8))
    group.add("short", lambda technique: short.train(technique, gang, steps=3))
    for _ in range(5):
        assert group.round()
    assert len(short.losses) == 3
    group.add("late", lambda technique: late.train(technique, gang, steps=6))
    finish(group)
    # Three passes of two, two of one, three of two, three of one: three layers each.
    assert calls == [2] * 9 + [2] * 9
    for found, steps in ((first, 8), (short, 3), (late, 6)):
        assert_same(found, alone(found.definition, tmp_path, steps=steps))


def diverging(outputs: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = outputs.loss
    return loss * math.nan


def failing(outputs: Any, batch: Any) -> torch.Tensor:
    raise RuntimeError("the loss is not made")


class Interrupted(BaseException):
    pass


def interrupted(outputs: Any, batch: Any) -> torch.Tensor:
    raise Interrupted


@pytest.mark.parametrize(
    ("loss", "error"), [(failing, TaskError), (interrupted, Interrupted), (diverging, None)]
)
def test_a_member_that_fails_or_diverges_concerns_itself_alone(
    loss: Callable[..., Any], error: type[BaseException] | None, gang: Gang, tmp_path: Path
) -> None:
    good = [Trained(task(name, "gpt2", seed=seed)) for name, seed in (("a", 5), ("b", 6))]
    bad = Trained(task("bad", "gpt2", seed=7, loss_function=loss))
    members = train_together([good[0], bad, good[1]], gang)
    if error is None:
        assert members[1].error is None and all(map(math.isnan, bad.losses))
        weights = bad.weights.values()
        assert any(bool(weight.isnan().any()) for weight in weights)
    else:
        assert type(members[1].error) is error and not bad.losses
    for each in good:
        assert_same(each, alone(each.definition, tmp_path))


class Unlucky(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise MemoryError("no memory is left")


@pytest.mark.parametrize("passes", [1, 2])
def test_an_error_in_a_members_own_backward_pass_concerns_itself_alone(
    passes: int, gang: Gang, tmp_path: Path
) -> None:
    from saturn.rank.failure import describe

    tasks = [
        task(name, "gpt2", seed=seed, gradient_accumulation_steps=passes)
        for seed, name in enumerate("ab", 5)
    ]
    good = [Trained(each) for each in tasks]
    bad = Trained(task("bad", "gpt2", seed=7, loss_function=unlucky_later()))
    members = train_together([good[0], bad, good[1]], gang)
    assert isinstance(members[1].error, MemoryError) and len(bad.losses) == 1
    assert describe(members[1].error).kind == "out_of_memory"
    # The failing pass was the second of a step where a step has two: its first is not lost.
    for each in good:
        assert_same(each, alone(each.definition, tmp_path))


def unlucky_later() -> Callable[..., Any]:
    """A loss whose second backward pass fails."""
    calls: list[int] = []

    def loss(outputs: Any, batch: Any) -> torch.Tensor:
        calls.append(1)
        made: torch.Tensor = outputs.loss if len(calls) == 1 else Unlucky.apply(outputs.loss)
        return made

    return loss


def test_what_fails_in_a_common_layer_blames_no_member(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saturn.rank.failure import describe

    def pack(call: PackedCall, values: Any) -> torch.Tensor:
        raise MemoryError("no memory is left")

    monkeypatch.setattr(PackedCall, "pack", pack)
    tasks = [task("a", "gpt2"), task("b", "gpt2")]
    group = Group(gang.device)
    members = [
        group.add(each.name, lambda technique, each=each: Trained(each).train(technique, gang))
        for each in tasks
    ]
    finish(group)
    for member in members:
        assert isinstance(member.error, FailedTogether)
        assert "none of them is to blame" in str(member.error)
        assert describe(member.error).kind == "out_of_memory"


def test_a_closed_group_lets_its_members_clean_up(gang: Gang) -> None:
    cleaned = []

    def work(technique: Technique) -> None:
        try:
            Trained(task("a", "gpt2")).train(technique, gang)
        finally:
            cleaned.append("a")

    group = Group(gang.device)
    member = group.add("a", work)
    never = group.add("b", work)
    member_state = torch.get_rng_state()
    assert group.round()
    group.close()
    assert cleaned == ["a", "a"] and isinstance(member.error, turns.Abandoned)
    assert never.has_ended and not group.round()
    assert torch.equal(torch.get_rng_state(), member_state), "the caller's own stream is left alone"


def two_forwards(model: nn.Module, batch: Any) -> torch.Tensor:
    """A loss as DPO's: also of the base, which has no gradient."""
    with torch.no_grad(), model.disable_adapter():  # type: ignore[operator]
        without = model(**batch).logits
    with_adapter = model(**batch)
    loss: torch.Tensor = with_adapter.loss + 0.1 * (with_adapter.logits - without).square().mean()
    return loss


def lora(**options: Any) -> peft.PeftConfig:
    return peft.LoraConfig(**{"r": 4, "target_modules": MANY["llama"], **options})


OTHER_ADAPTERS: dict[str, Callable[[], peft.PeftConfig]] = {
    "dora": partial(lora, use_dora=True),
    "bias": partial(lora, bias="all"),
    "one layer": partial(lora, layers_to_transform=[1]),
    "trained head": partial(lora, modules_to_save=["lm_head"]),
    "output layer": partial(lora, target_modules=["q_proj", "lm_head"]),
    "ia3": lambda: peft.IA3Config(
        target_modules=["v_proj", "down_proj"], feedforward_modules=["down_proj"]
    ),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=["q_proj"]),
}


@pytest.mark.parametrize("adapter", OTHER_ADAPTERS)
def test_adapters_of_other_kinds_are_a_member_s_own_code(adapter: str, tmp_path: Path) -> None:
    tasks = [
        task("a", "llama", seed=4, model={"config": OTHER_ADAPTERS[adapter]()}),
        task("b", "llama", seed=5, model={"layers": FEW["llama"]}),
    ]
    for found in fused(tasks, tmp_path, steps=4):
        assert_same(found, alone(found.definition, tmp_path, steps=4))


def test_a_member_that_runs_its_base_too_meets_others_only_in_the_same_mode(
    tmp_path: Path, calls: list[int]
) -> None:
    tasks = [
        task("a", "gpt2", seed=4, training_step=two_forwards),
        task("b", "gpt2", seed=5, training_step=two_forwards, model={"layers": MANY["gpt2"]}),
        task("c", "gpt2", seed=6),
    ]
    together = fused(tasks, tmp_path, steps=4)
    assert sorted(set(calls)) == [2, 3]
    for found in together:
        assert_same(found, alone(found.definition, tmp_path, steps=4))


class Restless(torch.optim.SGD):
    """Draws from Python's and numpy's generators at each step, and from torch's."""

    def step(self, closure: Any = None) -> None:
        super().step()
        noise = random.random() + np.random.random() + torch.rand(()).item()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(1 + 1e-3 * noise)


@pytest.mark.parametrize("knobs", [{}, RECOMPUTED], ids=["kept", "recomputed"])
def test_what_a_member_draws_between_passes_is_its_own(
    knobs: dict[str, Any], tmp_path: Path
) -> None:
    tasks = [
        task(name, "gpt2", seed=seed, optimizer_cls=Restless) for seed, name in ((4, "a"), (5, "b"))
    ]
    for found in fused(tasks, tmp_path, steps=3, knobs=knobs):
        assert_same(found, alone(found.definition, tmp_path, steps=3, knobs=knobs))


def test_one_row_is_computed_by_itself(tmp_path: Path, calls: list[int]) -> None:
    tasks = [
        task("a", "bert", seed=4, data={"batch_size": 1, "length": 3}),
        task("b", "bert", seed=5, data={"batch_size": 1, "length": 8}),
    ]
    for found in fused(tasks, tmp_path):
        assert_same(found, alone(found.definition, tmp_path))
    assert not calls


def test_a_task_may_recompute_by_itself(tmp_path: Path, calls: list[int]) -> None:
    tasks = [
        task(name, "llama", seed=seed, get_model=partial(recomputing, seed))
        for name, seed in (("a", 4), ("b", 5))
    ]
    together = fused(tasks, tmp_path, steps=4)
    assert set(calls) == {2}
    for found in together:
        assert_same(found, alone(found.definition, tmp_path, steps=4))


def recomputing(rank: int) -> nn.Module:
    model = fused_models.adapted("llama", layers=FEW["llama"], rank=rank, adapter_dropout=0.1)
    model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    model.enable_input_require_grads()  # type: ignore[operator]
    return model
