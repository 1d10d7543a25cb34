"""Tasks that can't train over one base are refused, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fused_models
import model_kinds
import peft
import pytest
import torch
from fused_models import FEW, MANY, Trained, adapted, alone, assert_same, task
from in_process import gang_of_one
from saturn.fused.base import base_of
from saturn.fused.check import check
from saturn.fused.group import Group
from saturn.fused.refusal import CannotFuse, Reason
from saturn.rank.failure import describe
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.training.stepper import build_model
from torch import nn

# peft asks transformers for something by its former name.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with gang_of_one(tmp_path) as one:
        yield one


def reason_against(
    one: TaskDefinition, other: TaskDefinition, knobs: Any = None, other_knobs: Any = None
) -> CannotFuse | None:
    first = base_of(build_model(one), one, knobs or {})
    return first.reason_against(base_of(build_model(other), other, other_knobs or knobs or {}))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_sweep_has_one_base(kind: str) -> None:
    first, *others = fused_models.sweep(kind)
    assert [reason_against(first, other) for other in others] == [None] * 3


DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any], Reason, str]] = {
    "weights": (
        {"model": {"base_seed": 1}},
        {},
        Reason.OTHER_WEIGHTS,
        r"`lm_head\.weight` differs",
    ),
    "configuration": (
        {"model": {"rms_norm_eps": 1e-3}},
        {},
        Reason.OTHER_CONFIGURATION,
        "`rms_norm_eps`: 1e-06, 0.001",
    ),
    "precision": ({"precision": "bf16"}, {}, Reason.OTHER_PRECISION, "'float32'.*'bf16'"),
    "kernels": ({"deterministic": True}, {}, Reason.OTHER_PRECISION, "`deterministic` is False"),
    "recomputation": (
        {},
        {"activation_checkpointing": True},
        Reason.OTHER_RECOMPUTATION,
        "only one",
    ),
    "attention": (
        {},
        {"attention": "flash_attention_2"},
        Reason.OTHER_ATTENTION,
        "by sdpa, another by flash_attention_2",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_tasks_that_differ_in_what_is_shared_are_refused(what: str) -> None:
    changes, knobs, reason, words = DIFFERENT[what]
    one, other = task("a", "llama"), task("b", "llama", **changes)
    refusal = reason_against(one, other, {}, knobs)
    assert refusal is not None and refusal.reason is reason
    with pytest.raises(CannotFuse, match=words):
        raise refusal


def test_models_of_different_classes_are_refused() -> None:
    refusal = reason_against(task("a", "llama"), task("b", "gpt2"))
    assert refusal is not None and refusal.reason is Reason.OTHER_CLASS
    assert "LlamaForCausalLM" in str(refusal) and "GPT2LMHeadModel" in str(refusal)


def with_batch_norm() -> nn.Module:
    model = fused_models.base("llama")
    model.model.layers[0].input_layernorm = nn.BatchNorm1d(32)  # type: ignore[union-attr,index]
    return model.requires_grad_(False)


def hooked() -> nn.Module:
    model = adapted("llama", layers=FEW["llama"])
    layers = model.base_model.model.model.layers  # type: ignore[union-attr]
    layers[1].mlp.register_forward_hook(lambda *_: None)  # type: ignore[operator,index]
    return model


def frozen(kind: str, **options: Any) -> nn.Module:
    return model_kinds.BUILD[kind](0.0, **options).requires_grad_(False)


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=32, **size)).requires_grad_(False)


ALONE: dict[str, tuple[Any, dict[str, Any], Reason, str]] = {
    "plain torch": (partial(frozen, "mlp"), {}, Reason.MODEL, "Mlp holds no model"),
    "T5": (t5, {}, Reason.ATTENTION, "T5ForConditionalGeneration computes attention by code"),
    "eager": (
        partial(frozen, "llama"),
        {"attention": "eager"},
        Reason.ATTENTION,
        "`eager` attention",
    ),
    "batch norm": (with_batch_norm, {}, Reason.LAYERS, "batch norm `model.layers.0.input_layer"),
    "experts": (partial(frozen, "mixtral"), {}, Reason.LAYERS, "belongs to a Mixtral"),
    "hooks": (hooked, {}, Reason.HOOKS, r"`model\.layers\.1\.mlp` has a hook"),
    "all trains": (partial(fused_models.base, "llama"), {}, Reason.NOTHING_FROZEN, "no frozen"),
    "compiled": (partial(frozen, "llama"), {"compile": True}, Reason.KNOBS, "compiled layers"),
}


@pytest.mark.parametrize("what", ALONE)
def test_a_model_that_can_t_train_with_any_other_is_refused(what: str) -> None:
    build, knobs, reason, words = ALONE[what]
    with pytest.raises(CannotFuse, match=words) as caught:
        base_of(build(), task("a", "llama"), knobs)
    assert caught.value.reason is reason


def test_a_member_of_another_base_is_refused_when_it_joins(gang: Gang, tmp_path: Path) -> None:
    good = [Trained(task(name, "llama", seed=seed)) for seed, name in enumerate("ab")]
    others = [task("c", "llama", model={"base_seed": 1}), task("d", "gpt2")]
    group = Group(gang.device)
    members = [
        group.add(each.definition.name, partial(each.train, gang=gang))
        for each in [good[0], *map(Trained, others), good[1]]
    ]
    while group.round():
        pass
    for member, reason in zip(
        members[1:3], (Reason.OTHER_WEIGHTS, Reason.OTHER_CLASS), strict=True
    ):
        assert isinstance(member.error, CannotFuse) and member.error.reason is reason
        assert describe(member.error).kind == "not_applicable"
    for each in good:
        assert_same(each, alone(each.definition, tmp_path))


def test_a_sweep_is_found_to_train_as_alone(gang: Gang) -> None:
    check(fused_models.sweep("llama"), gang, {}, print)


class Mixing(nn.Module):
    """Takes something of all rows of a sample."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(rows)
        return made + 1e-3 * made.mean(1, keepdim=True)


class Noisy(Mixing):
    """Draws random numbers for all rows at once."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(rows)
        return nn.functional.dropout(made, 0.1)


def changed(kind: type[Mixing], rank: int) -> nn.Module:
    model = adapted("llama", layers=FEW["llama"], rank=rank)
    layer = model.base_model.model.model.layers[0]  # type: ignore[union-attr,index]
    layer.mlp.act_fn = kind(layer.mlp.act_fn)  # type: ignore[union-attr]
    return model


def diverging(outputs: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = outputs.loss
    return loss * torch.inf


@pytest.mark.parametrize("kind", [Mixing, Noisy])
def test_a_model_that_computes_over_all_rows_is_found(kind: type[Mixing], gang: Gang) -> None:
    tasks = [
        task(name, "llama", get_model=partial(changed, kind, rank))
        for rank, name in ((2, "a"), (3, "b"))
    ]
    for each in tasks:  # no rule finds it
        base_of(build_model(each), each, {})
    with pytest.raises(CannotFuse, match="away from training alone") as caught:
        check(tasks, gang, {}, print)
    assert caught.value.reason is Reason.OTHER_NUMBERS


def test_sums_in_another_order_are_found(gang: Gang) -> None:
    # Of a norm that trains, which reads its rows twice, gradients are added before the residual's.
    norms = peft.LoraConfig(target_modules=FEW["llama"], modules_to_save=["input_layernorm"])
    tasks = [task("a", "llama", seed=4, model={"config": norms}), task("b", "llama", seed=5)]
    with pytest.raises(CannotFuse, match=r"is [0-9.]+e-0[6-9] away"):
        check(tasks, gang, {}, print)


def test_what_is_no_number_in_both_is_no_difference(gang: Gang) -> None:
    tasks = [task("a", "llama", seed=4), task("b", "llama", loss_function=diverging)]
    check(tasks, gang, {}, print)


def test_layers_that_are_called_differently_are_refused(gang: Gang) -> None:
    tasks = [
        task("a", "gpt2", model={"layers": MANY["gpt2"]}),
        task("b", "gpt2", training_step=with_attentions),
    ]
    with pytest.raises(CannotFuse, match="called with different arguments") as refused:
        check(tasks, gang, {}, print)
    assert refused.value.reason is Reason.ARGUMENTS


def with_attentions(model: nn.Module, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model(**batch, use_it=True).loss
    return loss
