"""The knob `attention`: the same training under each back end, and nothing overridden silently."""

from __future__ import annotations

import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import closeness
import in_process
import pytest
import reference
import torch
from harness import Runtime
from model_kinds import gpt2, llama, loss_of, task_of, vit
from models import Mlp
from saturn.rank.exceptions import TaskError
from saturn.techniques import NotApplicable, Setting, Technique
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.model.attention import set_back_end
from saturn.techniques.offload import Offload
from torch import Tensor, nn

EAGER, SDPA = {"attention": "eager"}, {"attention": "sdpa"}


def setting(kind: str = "cpu", gpus: int = 1, **changes: Any) -> Setting:
    return Setting(**{"gpus": gpus, "device_kind": kind, "hints": {}, **changes})


@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit"])
def test_back_ends_train_the_same(tmp_path: Path, kind: str) -> None:
    task = task_of(kind)
    sdpa, _ = in_process.train(task, Ddp(), tmp_path, steps=4, knobs=SDPA)
    assert sdpa == in_process.train(task, Ddp(), tmp_path, steps=4)[0]
    eager, _ = in_process.train(task, Ddp(), tmp_path, steps=4, knobs=EAGER)
    assert closeness.ulps(eager, sdpa) < closeness.ACROSS
    both: dict[str, Any] = {**EAGER, "activation_checkpointing": True}
    # Other knobs are another strategy: what is computed again may be added up in another order.
    recomputed, _ = in_process.train(task, Ddp(), tmp_path, steps=4, knobs=both)
    assert closeness.ulps(recomputed, eager) < closeness.ACROSS


@pytest.mark.parametrize("technique", [Fsdp, Offload])
def test_every_technique_obeys_the_knob(tmp_path: Path, technique: type[Technique]) -> None:
    with in_process.gang_of_one(tmp_path) as gang:
        model = gpt2()
        technique().parallelise(model, gang, EAGER)
        assert model.config._attn_implementation == "eager"


@pytest.mark.slow(quick=["fsdp-knobs1"])
@pytest.mark.parametrize(
    ("technique", "knobs"), [("tensor", {}), ("fsdp", {"reshard_after_forward": False})]
)
def test_split_models_train_the_same_with_it(
    run: Runtime, technique: str, knobs: dict[str, Any]
) -> None:
    task = task_of("llama")
    expected, _ = reference.train(task, 3, loss_of=loss_of(task))
    run.write_task(task)
    result = run.run("llama", technique, ranks=2, steps=3, knobs={**knobs, **EAGER})
    assert result.codes == [0, 0], result.logs
    assert closeness.ulps(run.losses("llama"), expected) < closeness.ACROSS


def test_without_a_hint_a_cpu_slot_tries_nothing_more() -> None:
    for technique in (Ddp(), Offload()):
        assert list(technique.knob_sets(gpt2(), setting())) == [{}]


def test_the_hint_decides_what_is_tried() -> None:
    both = setting(gpus=2, hints={"attention": ["eager", "sdpa", "flash_attention_2"]})
    assert list(Ddp().knob_sets(gpt2(), both)) == [EAGER, SDPA]
    assert list(Fsdp().knob_sets(gpt2(), both)) == [
        EAGER,
        SDPA,
        {"reshard_after_forward": False, **EAGER},
    ]
    assert list(Ddp().thriftier_knob_sets(gpt2(), both)) == [
        [{"activation_checkpointing": True, **EAGER}, {"activation_checkpointing": True, **SDPA}]
    ]
    one = setting(hints={"attention": "eager"})
    assert list(Offload().knob_sets(vit(), one)) == [EAGER]


@pytest.mark.parametrize("hint", ["flsh", ["sdpa", "flsh"], []])
def test_a_hint_nobody_knows_is_told(hint: Any) -> None:
    with pytest.raises(TaskError, match="must be one or a list of sdpa, flash_attention_2"):
        Ddp().knob_sets(gpt2(), setting(hints={"attention": hint}))


def test_what_can_not_be_set_is_refused_in_words() -> None:
    with pytest.raises(NotApplicable, match="only models of transformers"):
        set_back_end(Mlp(), EAGER)
    with pytest.raises(NotApplicable, match=r"`flash_attention_2`: .*(?i:flash)"):
        set_back_end(gpt2(), {"attention": "flash_attention_2"})
    # So a hint that can't be followed is not left out in silence either.
    alone = setting(hints={"attention": "flash_attention_2"})
    assert list(Ddp().knob_sets(gpt2(), alone)) == [{"attention": "flash_attention_2"}]


def test_a_knob_stays_with_its_model() -> None:
    """Models that a task builds from one configuration are the knob sets of one trial."""
    llama_model: Any = llama()
    kind, config = type(llama_model), llama_model.config
    one, other = kind(config), kind(config)
    set_back_end(one, EAGER)
    assert {part.config._attn_implementation for part in attentions(one)} == {"eager"}
    assert {part.config._attn_implementation for part in attentions(other)} == {"sdpa"}
    assert one.config is one.model.config
    assert kind(config).config._attn_implementation == "sdpa"


def attentions(model: nn.Module) -> list[Any]:
    return [part for part in model.modules() if hasattr(part, "config") and hasattr(part, "q_proj")]


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of compute capability 9.0 with flash-attn and xFormers, as far as asking goes."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    for name in ("flash_attn", "xformers"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("hopper")
def test_a_gpu_tries_what_is_installed_and_can_run() -> None:
    tried = [{}, {"attention": "flash_attention_2"}, {"attention": "xformers"}]
    assert list(Ddp().knob_sets(gpt2(), setting("cuda", precision="bf16"))) == tried
    # Flash attention has no kernel for float32; a model of bf16 needs no autocast.
    assert list(Ddp().knob_sets(gpt2(), setting("cuda"))) == [tried[0], tried[2]]
    assert list(Ddp().knob_sets(gpt2().bfloat16(), setting("cuda"))) == tried
    assert list(Ddp().knob_sets(Mlp(), setting("cuda", precision="bf16"))) == [{}]


@pytest.mark.usefixtures("hopper")
def test_a_choice_of_the_task_is_not_overridden() -> None:
    on_gpu = setting("cuda", precision="bf16")
    assert list(Ddp().knob_sets(gpt2(attn_implementation="eager"), on_gpu)) == [{}]
    pinned = setting("cuda", precision="bf16", hints={"attention": "sdpa"})
    assert list(Ddp().knob_sets(gpt2(), pinned)) == [SDPA]

    class Wrapped(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.inner = model

    assert len(Ddp().knob_sets(Wrapped(gpt2()), on_gpu)) == 3
    assert len(Ddp().knob_sets(Wrapped(llama(attn_implementation="eager")), on_gpu)) == 1


class LowerTriangularMask:
    """Causal, as in xFormers."""


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | LowerTriangularMask | None = None,
    p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """What xFormers documents as its equivalent in plain torch, with what its kernel demands."""
    assert query.shape[2] == key.shape[2] == value.shape[2], "no broadcast of heads"
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    scores = query * (query.shape[-1] ** -0.5 if scale is None else scale) @ key.transpose(-2, -1)
    if isinstance(attn_bias, LowerTriangularMask):
        scores = scores.masked_fill(~torch.ones_like(scores).tril().bool(), float("-inf"))
    elif attn_bias is not None:
        assert attn_bias.shape == scores.shape and attn_bias.stride(-2) % 8 == 0
        scores = scores + attn_bias
    weights = nn.functional.dropout(scores.softmax(-1), p)
    return (weights @ value).transpose(1, 2).contiguous()


@pytest.fixture
def xformers(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = ModuleType("xformers.ops")
    ops.__dict__.update(
        LowerTriangularMask=LowerTriangularMask,
        memory_efficient_attention=memory_efficient_attention,
    )
    monkeypatch.setitem(sys.modules, "xformers", ModuleType("xformers"))
    monkeypatch.setitem(sys.modules, "xformers.ops", ops)


@pytest.mark.usefixtures("xformers")
@pytest.mark.parametrize(
    "build", [gpt2, partial(llama, num_attention_heads=4, num_key_value_heads=2), vit]
)
def test_xformers_computes_what_sdpa_does(build: Any) -> None:
    torch.manual_seed(1)
    model = build()
    inputs: dict[str, Tensor] = {"pixel_values": torch.randn(3, 1, 8, 8)}
    batches = [inputs]
    if build is not vit:
        tokens = torch.randint(0, 32, (3, 13))
        padding = torch.ones_like(tokens)
        padding[0, 9:] = 0
        padding[1, :4] = 0  # on the left: queries there see nothing
        batches = [{"input_ids": tokens}, {"input_ids": tokens, "attention_mask": padding}]
    for batch in batches:
        found: list[list[Tensor]] = []
        for name in ("sdpa", "xformers"):
            set_back_end(model, {"attention": name})
            model.zero_grad()
            logits = model(**batch).logits
            seen = batch.get("attention_mask", torch.ones(logits.shape[:2])).bool()
            (logits[seen] if logits.dim() == 3 else logits).square().mean().backward()
            gradients = [p.grad.clone() for p in model.parameters()]
            found.append([logits[seen] if logits.dim() == 3 else logits, *gradients])
        one, other = (dict(enumerate(tensors)) for tensors in found)
        assert closeness.ulps(one, other) < closeness.ACROSS


@pytest.mark.usefixtures("xformers")
def test_what_xformers_can_not_do_is_an_error() -> None:
    from saturn.techniques.model.xformers_attention import attend

    heads = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="does not support `softcap`"):
        attend(nn.Identity(), heads, heads, heads, None, softcap=30.0)
