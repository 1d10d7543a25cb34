"""`tensor` and `tensor+fsdp`: plans, the same training, and what can't be split."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import model_kinds
import pytest
import reference
import tensor_models
import torch
from harness import Runtime
from models import Mlp, shuffled_loader
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import Setting
from saturn.techniques.tensor import TensorFsdp, TensorParallel
from saturn.techniques.tensor.plan import TensorPlan
from techniques_of_tests import spec_of
from tensor_models import PLAN, PLAN_OF_OBJECTS, Attentive, tiny_llama
from torch import nn

TWO_GROUPS = {"tensor": 2}


def definition(name: str = "task", **changes: Any) -> TaskDefinition:
    fields: dict[str, Any] = {
        "name": name,
        "get_model": Attentive,
        "get_dataloader": tensor_models.tokens,
        "loss_function": tensor_models.next_token_loss,
        "loss_weight": None,
        "lr": 0.01,
        "epochs": None,
        "batch_count": 12,
        "optimizer_cls": torch.optim.AdamW,
        "kwargs": {},
        "hints": {"tensor_plan": PLAN},
        "seed": 3,
    }
    return TaskDefinition(**{**fields, **changes})


def chain(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int]], **more_knobs: Any
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        knobs = more_knobs | (TWO_GROUPS if technique == "tensor+fsdp" else {})
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


LLAMA = {
    "get_model": partial(tiny_llama, key_value_heads=4, tied=True),
    "loss_function": None,
    "hints": {},
}
GROUPED = {"get_model": tiny_llama, "loss_function": None, "hints": {}}
ALL_WAYS = [
    ("ddp", 1, 1),
    ("tensor", 2, 3),
    ("tensor+fsdp", 4, 5),
    ("tensor", 4, 6),
    ("fsdp", 2, 7),
    ("tensor+fsdp", 4, 8),
    ("ddp", 3, 9),
    ("tensor", 2, 10),
]
SEQUENCE = {
    "get_model": tensor_models.normed_sequence,
    "get_dataloader": shuffled_loader,
    "loss_function": nn.functional.cross_entropy,
    "hints": {"tensor_plan": {"0": "colwise", "2": "rowwise"}},
}
#: With one expert a token, the router's gradient is nothing but rounding: it must not come out as
#: large as any other, and send tokens elsewhere.
EXPERTS: dict[str, Any] = {
    "get_model": model_kinds.mixtral,
    "optimizer_cls": partial(torch.optim.AdamW, eps=1e-3),
    "loss_function": None,
    "hints": {},
    "max_grad_norm": 0.5,
}
MOMENTUM = partial(torch.optim.SGD, momentum=0.9)
FUSED = partial(torch.optim.AdamW, fused=True)
FOREACH = partial(torch.optim.AdamW, foreach=True)


@pytest.mark.slow(quick=["experts-and-a-shared-one"])
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        pytest.param(LLAMA, ALL_WAYS, id="llama-tied"),
        pytest.param(GROUPED, [("tensor", 2, 2), ("tensor+fsdp", 4, 4)], id="llama-grouped"),
        pytest.param(
            {"optimizer_cls": MOMENTUM, "max_grad_norm": 0.5, "gradient_accumulation_steps": 2},
            ALL_WAYS[:3],
            id="own-plan-clipped-accumulated",
        ),
        pytest.param(
            {"hints": {"tensor_plan": PLAN_OF_OBJECTS}, "optimizer_cls": FUSED},
            [("tensor", 2, 2), ("tensor+fsdp", 4, 4), ("ddp", 1, 5)],
            id="plan-of-objects-fused-adamw",
        ),
        pytest.param(
            SEQUENCE, [("tensor+fsdp", 4, 3), ("tensor", 3, 6), ("ddp", 3, 7)], id="batch-norm"
        ),
        pytest.param(
            {"get_model": tensor_models.first_layer_frozen, "optimizer_cls": FOREACH},
            [("tensor", 2, 2), ("tensor+fsdp", 4, 4)],
            id="frozen-foreach-adamw",
        ),
        pytest.param(EXPERTS, ALL_WAYS, id="experts"),
        pytest.param(
            {**EXPERTS, "get_model": partial(model_kinds.mixtral, num_experts_per_tok=1)},
            [("tensor", 4, 3), ("pipeline+tensor", 4, 5), ("ddp", 1, 6)],
            id="experts-that-no-token-comes-to",
        ),
        pytest.param(
            {**EXPERTS, "get_model": tensor_models.tiny_qwen_mixture},
            [("tensor", 2, 3), ("ddp", 2, 4)],
            id="experts-and-a-shared-one",
        ),
    ],
)
def test_moves_to_and_from_split_layers_reproduce_plain_torch(
    run: Runtime, changes: dict[str, Any], moves: list[tuple[str, int, int]]
) -> None:
    if changes.get("loss_function", True) is None:
        changes = {**changes, "get_dataloader": tensor_models.tokens_with_labels}
    task = definition(**changes)
    own_loss = None if task.loss_function else lambda model, batch: model(**batch).loss
    expected, _ = reference.train(task, moves[-1][2], loss_of=own_loss)
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS


@pytest.mark.slow
@pytest.mark.parametrize(("technique", "ranks"), [("tensor", 3), ("tensor+fsdp", 4)])
def test_stop_and_resume_with_dropout_is_bit_equal(
    run: Runtime, technique: str, ranks: int
) -> None:
    model = partial(Attentive, num_heads=3 if ranks == 3 else 4, dropout=0.3)
    whole = chain(run, definition("whole", get_model=model), [(technique, ranks, 6)])
    parts = [(technique, ranks, step) for step in (1, 4, 6)]
    assert chain(run, definition("parts", get_model=model), parts) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("technique", "ranks"), [("tensor", 2), ("tensor+fsdp", 4)])
def test_layers_that_run_again_in_the_backward_change_nothing(
    run: Runtime, technique: str, ranks: int
) -> None:
    model = partial(Attentive, dropout=0.3)
    moves = [(technique, ranks, 3)]
    kept = chain(run, definition("kept", get_model=model), moves)
    again = definition("again", get_model=model)
    assert chain(run, again, moves, activation_checkpointing=True) == kept


def test_under_bf16_the_checks_allow_for_its_precision(run: Runtime) -> None:
    losses = chain(run, definition(precision="bf16"), [("tensor", 2, 3)])
    expected, _ = reference.train(definition(), 3)
    assert 0.0 < closeness.ulps(losses, expected, of=torch.bfloat16) < 1.0


def told(run: Runtime, path: Path, technique: type[Any], ranks: int) -> list[dict[str, Any]]:
    """What a telling technique tells of three steps."""
    task = definition()
    run.write_task(task)
    knobs = TWO_GROUPS if ranks == 4 else {}
    env = {"TOLD": str(path)}
    result = run.run(task.name, spec_of(technique), ranks=ranks, steps=3, knobs=knobs, env=env)
    assert result.codes == [0] * ranks, result.logs
    return [json.loads(line) for line in path.read_text().splitlines()]


def norms_of_one_process() -> list[float]:
    norms: list[float] = []

    def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
        loss = tensor_models.next_token_loss(model(batch[0]), batch[1])
        model.zero_grad()
        loss.backward(retain_graph=True)
        norms.append(tensor_models.whole_norm(model))
        model.zero_grad()
        return loss

    reference.train(definition(), 3, loss_of=loss_of)
    return norms


@pytest.mark.slow(quick=["TellingTensor-TensorParallel-2"])
@pytest.mark.parametrize(
    ("technique", "base", "ranks"),
    [
        (tensor_models.TellingTensor, TensorParallel, 2),
        (tensor_models.TellingTensorFsdp, TensorFsdp, 4),
    ],
)
def test_norm_and_memory_are_those_of_one_process_and_of_the_formula(
    run: Runtime, tmp_path: Path, technique: type[Any], base: type[Any], ranks: int
) -> None:
    found = told(run, tmp_path / "told", technique, ranks)
    norms = [entry["norm"] for entry in found]
    assert closeness.ulps(norms, norms_of_one_process()) < closeness.ACROSS
    # Parameters alone: no gradients, no optimizer.
    frozen = Attentive().requires_grad_(False)
    least = base().least_memory_bytes(frozen, setting(ranks), TWO_GROUPS)
    assert least <= found[0]["bytes"] < least * 1.02 + 64


def test_a_norm_that_counts_replicas_twice_is_seen(run: Runtime, tmp_path: Path) -> None:
    found = told(run, tmp_path / "told", tensor_models.CountingTwice, 2)
    pairs = zip((entry["norm"] for entry in found), norms_of_one_process(), strict=True)
    assert all(closeness.ulps(one, other) > 100 * closeness.ACROSS for one, other in pairs)


WRONG_SIZES = partial(Attentive, sizes_from_input=True)
#: Without it, each rank would go its own way with the norm of the heads.
NOT_SUMMED = {name: style for name, style in PLAN.items() if "head_norm" not in name}
HALF_AN_OUTPUT = {**PLAN, "embed": "replicate", "head": "colwise"}


class Apart(Attentive):
    """Its output embedding is its own, so that a plan can split that alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())


class Centred(nn.Module):
    """What stands between its layers is no number where there are fewer features."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(tensor_models.VOCABULARY, 12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, tensor_models.VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inner = self.up(self.embed(tokens))
        spread: torch.Tensor = self.down(inner * torch.tensor(inner.shape[-1] - 20.0).sqrt())
        return spread


WRONG = [
    pytest.param(WRONG_SIZES, PLAN, "`layers.0.out` gives another result", id="sizes-of-heads"),
    pytest.param(
        *(Attentive, NOT_SUMMED),
        "the gradient of `layers.0.head_norm.weight` is not the same on the devices",
        id="gradient-not-summed",
    ),
    pytest.param(
        *(Apart, HALF_AN_OUTPUT),
        "must have the shape (1, 8, 30), like the whole model's, but has (1, 8, 15)",
        id="half-an-output",
    ),
    pytest.param(
        *(Centred, {"up": "colwise", "down": "rowwise"}),
        "`down` gives another result than when it is whole (relative difference inf)",
        id="no-numbers",
    ),
    pytest.param(
        *(Attentive, {"layers.*.down": "rowwise"}),
        "the model can't run: RuntimeError",
        id="shapes-do-not-fit",
    ),
]


@pytest.mark.parametrize(("model", "plan", "reason"), WRONG)
def test_a_split_model_that_computes_something_else_is_not_trained(
    run: Runtime, model: Callable[[], nn.Module], plan: dict[str, str], reason: str
) -> None:
    run.write_task(definition(get_model=model, hints={"tensor_plan": plan}))
    outcome = run.run("task", "tensor", ranks=2, kind="trial").one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable" and reason in outcome["reason"], outcome


@pytest.mark.slow
@pytest.mark.parametrize(("model", "plan"), [WRONG[0].values[:2], WRONG[1].values[:2]])
def test_unchecked_it_would_train_wrongly_and_say_nothing(
    run: Runtime, model: Callable[[], nn.Module], plan: dict[str, str]
) -> None:
    task = definition(get_model=model, hints={"tensor_plan": plan})
    run.write_task(task)
    result = run.run("task", spec_of(tensor_models.Unchecked), ranks=2, steps=4)
    assert result.codes == [0, 0], result.logs
    expected, _ = reference.train(task, 4)
    assert closeness.ulps(run.losses("task"), expected) > 10 * closeness.ACROSS


def setting(gpus: int, **hints: Any) -> Setting:
    return Setting(gpus=gpus, device_kind="cpu", hints=hints or {"tensor_plan": PLAN})


def unknown_plan(style: str) -> nn.Module:
    model: Any = tiny_llama()
    plan = {**model.tp_plan, "model.layers.*.mlp.up_proj": style}
    model.__class__ = type("LlamaForCausalLM", (type(model),), {"tp_plan": plan})
    return model  # type: ignore[no-any-return]


TIED_EMBEDDINGS = {name: PLAN[name] for name in ("embed", "head")}


@pytest.mark.parametrize(
    ("technique", "model", "gpus", "hints", "reason"),
    [
        (
            *(TensorParallel, Attentive, 1, {"tensor_plan": PLAN}),
            "one device leaves nothing to split: the same as ddp",
        ),
        (
            *(TensorParallel, Mlp, 2, {}),
            "Mlp brings no plan, and has no attention or MLP whose layers have names that are "
            "known; the hint `tensor_plan` can give a plan, such as "
            'hints={"tensor_plan": {"layers.*.up": "colwise", "layers.*.down": "rowwise"}}',
        ),
        (
            *(TensorParallel, partial(unknown_plan, "packed_colwise"), 2, {}),
            "the plan that LlamaForCausalLM brings splits `model.layers.*.mlp.up_proj` as "
            "`packed_colwise`, for which torch has no style; `fsdp`, `pipeline` and `offload` need "
            "none, and the hint `tensor_plan` can give another plan",
        ),
        (
            *(
                TensorParallel,
                partial(model_kinds.mixtral, num_attention_heads=8, num_key_value_heads=8),
                8,
                {},
            ),
            "`model.layers.0.mlp.experts` has 4 experts, which 8 devices can't share evenly; "
            "2 or 4 can",
        ),
        (
            *(TensorParallel, tiny_llama, 4, {}),
            "`model.layers.0.self_attn.k_proj` has 2 heads, which 4 devices can't share evenly; "
            "2 can",
        ),
        (
            *(TensorParallel, Attentive, 8, {"tensor_plan": PLAN}),
            "`layers.0.query` has 4 heads, which 8 devices can't share evenly; 2 or 4 can",
        ),
        (
            *(TensorParallel, Attentive, 7, {"tensor_plan": {"layers.*.up": "colwise"}}),
            "`layers.0.up` has 24 outputs, which 7 devices can't share evenly; "
            "2, 3, 4, 6, 8, 12 or 24 can",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": ["up"]}),
            "the hint `tensor_plan` is ['up']; it must map patterns of module names to styles, "
            'such as {"layers.*.up": "colwise", "layers.*.down": "rowwise"}',
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"layers.*.up": "columns"}}),
            "the hint `tensor_plan` says 'columns' of `layers.*.up`; it may say colwise, rowwise, "
            "colwise_gather_output, colwise_rep, rowwise_split_input, rowwise_rep, "
            "colwise_halves, colwise_thirds, embedding_rowwise, embedding_colwise, "
            "embedding_parts, experts, replicated_with_grad_allreduce, replicate, or be a "
            "ParallelStyle of torch",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"layer.*.up": "colwise"}}),
            "the hint `tensor_plan` names `layer.*.up`, and no module of Attentive is called so",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"layers.*.norm": "colwise"}}),
            "the plan splits `layers.0.norm`, which is a LayerNorm; only nn.Linear, nn.Embedding, "
            "the Conv1D of transformers and its experts in one tensor can be split",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"embed": "colwise"}}),
            "the plan says `colwise` of `embed`, which is an nn.Embedding; that can be "
            "embedding_rowwise, embedding_colwise, embedding_parts",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"head": "colwise"}}),
            "`head` shares its weight with `embed`; the plan must split them alike",
        ),
        (
            *(TensorParallel, Attentive, 2, {"tensor_plan": {"embed": "embedding_rowwise"}}),
            "the plan of Attentive leaves every module whole",
        ),
        (
            *(TensorParallel, Attentive, 4, {"tensor_plan": TIED_EMBEDDINGS}),
            "4 devices can share no module of the plan evenly",
        ),
        (
            *(TensorFsdp, Attentive, 3, {"tensor_plan": PLAN}),
            "it takes a device count that can be cut into several groups of two or more, such as "
            "4, 6 or 8; 3 can't",
        ),
        (
            *(TensorFsdp, Attentive, 9, {"tensor_plan": PLAN}),
            "`layers.0.query` has 4 heads, which 3 devices can't share evenly; 2 or 4 can",
        ),
    ],
)
def test_what_cannot_be_split_says_why(
    technique: type[Any],
    model: Callable[[], nn.Module],
    gpus: int,
    hints: dict[str, Any],
    reason: str,
) -> None:
    where = Setting(gpus=gpus, device_kind="cpu", hints=hints)
    assert technique().not_applicable(model(), where) == reason


def test_group_sizes_that_divide_the_model_are_tried() -> None:
    where = setting(24)
    assert TensorFsdp().not_applicable(Attentive(num_heads=8), where) is None
    assert TensorFsdp().knob_sets(Attentive(num_heads=8), where) == [
        *({"tensor": size} for size in (2, 4, 8))
    ]


def test_a_model_that_wraps_one_with_a_plan_uses_it() -> None:
    wrapped = nn.ModuleDict({"inner": tiny_llama()})
    names = {split.name for split in TensorPlan(wrapped, {}).splits(2)}
    assert {"inner.model.layers.1.mlp.down_proj", "inner.lm_head"} <= names
