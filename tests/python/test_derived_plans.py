"""`tensor` on models that bring no plan: what is derived, that it trains alike, and what isn't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import tensor_models
import torch
import zoo_models
from harness import Runtime
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import NotApplicable, Setting
from saturn.techniques.tensor import TensorFsdp, TensorParallel
from saturn.techniques.tensor.plan import TensorPlan
from tensor_models import Attentive
from torch import nn
from warm_parent import Warm

#: PEFT asks transformers for something by its former name.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
ARCHITECTURES = {each.name: each for each in zoo_models.ZOO}
ATTENTION_AND_MLPS = ("GPT-2", "GPT-J", "OPT", "BERT", "ViT", "T5")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    names = (*ATTENTION_AND_MLPS, "BLOOM", "MPNet", "GPT-2 with LoRA")
    preload = dict.fromkeys(ARCHITECTURES[name].preload for name in names)
    lock = tmp_path_factory.mktemp("warm") / "workers.lock"
    parent = Warm(lock, preload=",".join(preload))
    yield parent
    parent.close()


def expected(task: TaskDefinition, steps: int) -> dict[int, float]:
    own_loss = None if task.loss_function else lambda model, batch: model(**batch).loss
    return reference.train(task, steps, loss_of=own_loss)[0]


def train(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int]], **knobs: Any
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        more = {"tensor": 2} if technique == "tensor+fsdp" else {}
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs={**knobs, **more})
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


MOVES = [("ddp", 1, 1), ("tensor", 4, 3), ("tensor+fsdp", 4, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ATTENTION_AND_MLPS, "GPT-2 with LoRA"])
def test_moves_to_and_from_a_derived_plan_reproduce_plain_torch(run: Runtime, name: str) -> None:
    task = ARCHITECTURES[name].task()
    losses = train(run, task, MOVES)
    assert closeness.ulps(losses, expected(task, MOVES[-1][2])) < closeness.ACROSS


def own_attention(**options: Any) -> TaskDefinition:
    """A model of plain torch, with a norm of each head; some take sizes from their input."""
    fields = {
        "name": "own",
        "get_model": partial(Attentive, **options),
        "get_dataloader": tensor_models.tokens,
        "loss_function": tensor_models.next_token_loss,
        "loss_weight": None,
        "lr": 0.01,
        "epochs": None,
        "batch_count": 12,
        "optimizer_cls": torch.optim.AdamW,
        "kwargs": {},
        "hints": {},
        "seed": 3,
    }
    return TaskDefinition(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("sizes_from_input", [False, True])
def test_a_model_of_plain_torch_has_one_too(run: Runtime, sizes_from_input: bool) -> None:
    task = own_attention(sizes_from_input=sizes_from_input)
    losses = train(run, task, [("tensor", 2, 2), ("tensor+fsdp", 4, 4)])
    assert closeness.ulps(losses, expected(task, 4)) < closeness.ACROSS


@pytest.mark.slow
@pytest.mark.parametrize("technique", ["tensor", "tensor+fsdp"])
def test_layers_that_run_again_in_the_backward_change_nothing(run: Runtime, technique: str) -> None:
    ranks = 2 if technique == "tensor" else 4
    task = ARCHITECTURES["GPT-2"].task()
    losses = train(run, task, [(technique, ranks, 3)], activation_checkpointing=True)
    assert closeness.ulps(losses, expected(task, 3)) < closeness.ACROSS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MPNet"])
def test_where_attention_can_not_be_split_a_trial_splits_the_mlps(run: Runtime, name: str) -> None:
    task = ARCHITECTURES[name].task()
    run.write_task(task)
    told = run.run(name, "tensor", ranks=2, kind="trial").one("trial")
    assert told["outcome"]["outcome"] == "measured", told
    assert told["knobs"] == {"only": "mlp"}
    losses = train(run, task, [("tensor", 2, 3)], **told["knobs"])
    assert closeness.ulps(losses, expected(task, 3)) < closeness.ACROSS


class InPlace(nn.Module):
    """Changes what its layers give in place."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(tensor_models.VOCABULARY, width)
        self.up = nn.Linear(width, 24)
        self.down = nn.Linear(24, width)
        self.head = nn.Linear(width, tensor_models.VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        spread = self.down(self.up(hidden).relu_())
        spread += hidden
        logits: torch.Tensor = self.head(spread)
        return logits


def test_what_a_split_layer_gives_may_be_changed_in_place(run: Runtime) -> None:
    task = TaskDefinition(**{**vars(own_attention()), "get_model": InPlace})
    losses = train(run, task, [("tensor", 2, 2), ("tensor+fsdp", 4, 4)])
    assert closeness.ulps(losses, expected(task, 4)) < closeness.ACROSS


class Mixed(nn.Module):
    """What its MLP is named for is not what it does: it looks at all features at once."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(tensor_models.VOCABULARY, width)
        self.up = nn.Linear(width, 24)
        self.down = nn.Linear(24, width)
        self.head = nn.Linear(width, tensor_models.VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        logits: torch.Tensor = self.head(hidden + self.down(self.up(hidden).softmax(-1)))
        return logits


def test_a_plan_that_is_wrong_is_refused_in_words(run: Runtime) -> None:
    task = own_attention()
    task = TaskDefinition(**{**vars(task), "get_model": Mixed})
    run.write_task(task)
    outcome = run.run("own", "tensor", ranks=2, kind="trial").one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable", outcome
    assert "`down` gives another result than when it is whole" in outcome["reason"]


def styles(name: str) -> dict[str, str]:
    """What is derived for the modules of a model, but for those of later layers."""
    module = ARCHITECTURES[name].build()
    found = TensorPlan(module, {}).splits(2)
    return {
        split.name: f"{split.units} {split.units_are}" if split.style is not None else "summed"
        for split in found
    }


def test_heads_and_not_only_features_are_what_is_split() -> None:
    gpt2 = styles("GPT-2")
    assert gpt2["transformer.h.0.attn.c_attn"] == "4 heads"
    assert gpt2["transformer.h.0.attn.c_proj"] == "4 heads"
    assert gpt2["transformer.h.0.mlp.c_fc"] == "64 outputs"
    assert gpt2["transformer.h.0.mlp.c_proj"] == "64 inputs"
    bert = styles("BERT")
    assert bert["bert.encoder.layer.0.attention.output.dense"] == "4 heads"
    assert bert["bert.encoder.layer.0.intermediate.dense"] == "32 outputs"
    assert (
        styles("T5")["encoder.block.0.layer.0.SelfAttention.relative_attention_bias"] == "4 heads"
    )
    # Interleaved by heads, which their names don't tell: attention stays whole.
    assert not any("attention" in name for name in styles("BLOOM"))


def test_only_a_derived_plan_can_be_kept_to_a_part() -> None:
    with pytest.raises(
        NotApplicable, match="the knob `only` is for models whose plan Saturn derives"
    ):
        TensorPlan(ARCHITECTURES["Llama"].build(), {}, "mlp")
    of_mlps = TensorPlan(ARCHITECTURES["GPT-2"].build(), {}, "mlp").splits(2)
    assert of_mlps and all(".mlp." in split.name for split in of_mlps)


def test_what_does_not_divide_says_which_sizes_do() -> None:
    where = Setting(gpus=8, device_kind="cpu", hints={})
    assert TensorParallel().not_applicable(ARCHITECTURES["GPT-2"].build(), where) == (
        "`transformer.h.0.attn.c_proj` has 4 heads, which 8 devices can't share evenly; 2 or 4 can"
    )


@pytest.mark.parametrize("technique", [TensorParallel, TensorFsdp])
def test_the_bound_of_memory_counts_biases_of_conv1d_with_its_outputs(
    technique: Callable[[], TensorParallel],
) -> None:
    # Of GPT-2's Conv1D, as of nn.Linear: half of each weight, and of each bias by outputs.
    module = ARCHITECTURES["GPT-2"].build().requires_grad_(False)
    gpus, knobs = (2, {}) if technique is TensorParallel else (4, {"tensor": 2})
    where = Setting(gpus=gpus, device_kind="cpu", hints={})
    whole = sum(parameter.nbytes for parameter in module.parameters())
    halves = 0
    for name, parameter in module.named_parameters():
        is_weight = ".attn.c_" in name or ".mlp.c_" in name
        if is_weight and (name.endswith("weight") or "c_proj" not in name):
            halves += parameter.nbytes // 2
    least = technique().least_memory_bytes(module, where, knobs)
    assert least == (whole - halves) // (gpus // 2)
