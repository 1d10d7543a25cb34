"""Tasks that adapt one base, each by an adapter of its own, and their training alone and fused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import model_kinds
import peft
import torch
from in_process import gang_of_one
from saturn.data import seeds
from saturn.data.slices import Position
from saturn.fused.group import Group
from saturn.fused.turns import Member
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from saturn.techniques.interface import Technique
from saturn.training.stepper import Stepper
from torch import nn
from torch.utils.data import DataLoader

#: The layers that adapters are put around, of each kind of model.
FEW = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"], "bert": ["query", "value"]}
MANY = {
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"],
    "bert": ["query", "key", "value", "attention.output.dense"],
}
VOCABULARY = 48
#: A row has other last bits if other rows are beside it, with MKL's kernels for all x86 processors,
#: and where several threads share out the rows.
ROWS_STAND_ALONE = (
    os.environ.get("MKL_CBWR") != "COMPATIBLE"
    and int(os.environ.get("SATURN_TEST_THREADS", "1")) == 1
)


def bert(dropout: float = 0.0, **options: Any) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    size = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
    more = {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    return BertForSequenceClassification(BertConfig(**{**size, **more, **drops, **options}))


SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_positions": 64, "n_layer": 2, "vocab_size": VOCABULARY},
    "llama": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "vocab_size": VOCABULARY,
    },
    "bert": {},
}
BUILD: dict[str, Callable[..., nn.Module]] = {
    "gpt2": model_kinds.gpt2,
    "llama": model_kinds.llama,
    "bert": bert,
}


def base(kind: str, dropout: float = 0.0, base_seed: int = 0, **options: Any) -> nn.Module:
    """The same weights in each task, as pretrained weights are."""
    with seeds.forked():
        torch.manual_seed(base_seed)
        return BUILD[kind](dropout, **{**SIZES[kind], **options})


def adapted(
    kind: str,
    *,
    layers: Sequence[str],
    rank: int = 4,
    adapter_dropout: float = 0.0,
    config: peft.PeftConfig | None = None,
    **options: Any,
) -> nn.Module:
    settings: dict[str, Any] = {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": adapter_dropout}
    settings["fan_in_fan_out"] = kind == "gpt2"
    if kind == "bert":
        settings["task_type"] = "SEQ_CLS"
    adapters = config or peft.LoraConfig(target_modules=list(layers), **settings)
    model: nn.Module = peft.get_peft_model(base(kind, **options), adapters)
    return model


def rows(
    batch_size: int, length: int, *, padded: str = "", classes: bool = False, seed: int = 0
) -> DataLoader[Any]:
    """Batches of tokens, of which some rows are shorter and padded on that side."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (20, length), generator=generator)

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        ids = torch.stack(samples)
        mask = torch.ones_like(ids)
        for number, row in enumerate(mask):
            cut = number * length // (2 * len(ids))
            if padded and cut:
                row[:cut] = 0 if padded == "left" else 1
                row[length - cut :] = 1 if padded == "left" else 0
        labels = ids[:, 0] % 2 if classes else ids.masked_fill(mask == 0, -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return DataLoader(tokens, batch_size=batch_size, shuffle=True, collate_fn=collate)


def task(name: str, kind: str, *, data: Any = None, model: Any = None, **changes: Any) -> Any:
    """A task that adapts the base of this kind."""
    about = {"layers": FEW[kind], "dropout": 0.1, **(model or {})}
    data = {"batch_size": 2, "length": 16, "classes": kind == "bert", **(data or {})}
    fields: dict[str, Any] = {
        "get_model": partial(adapted, kind, **about),
        "get_dataloader": partial(rows, **data),
        "loss_function": None,
        "batch_count": 12,
    }
    return model_kinds.definition(name, **{**fields, **changes})


def sweep(kind: str, **changes: Any) -> list[TaskDefinition]:
    """Four tasks over one base, different in all that may be different."""
    many = MANY[kind]
    cosine = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=10)
    return [
        task("a", kind, seed=11, lr=1e-2, data={"batch_size": 1, "length": 17}, **changes),
        task(
            *("b", kind),
            seed=12,
            lr=3e-2,
            max_grad_norm=0.5,
            model={"layers": many, "rank": 8, "adapter_dropout": 0.1},
            data={"length": 32, "padded": "right"},
            **changes,
        ),
        task(
            *("c", kind),
            seed=13,
            lr=5e-2,
            lr_scheduler=cosine,
            gradient_accumulation_steps=2,
            model={"layers": many, "rank": 16},
            data={"batch_size": 4, "length": 48, "padded": "left", "seed": 1},
            **changes,
        ),
        task(
            *("d", kind),
            seed=14,
            optimizer_cls=torch.optim.SGD,
            lr=0.5,
            max_grad_norm=1.0,
            model={"rank": 3, "adapter_dropout": 0.05},
            data={"batch_size": 3, "length": 40},
            **changes,
        ),
    ]


class Trained:
    """A task's losses and weights; may be asked for while it trains."""

    def __init__(self, definition: TaskDefinition) -> None:
        self.definition = definition
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.stepper: Stepper | None = None

    def train(
        self,
        technique: Technique,
        gang: Gang,
        *,
        steps: int = 6,
        knobs: dict[str, Any] | None = None,
    ) -> None:
        self.stepper = Stepper(self.definition, technique, gang, knobs or {}, note=print)
        self.go_on(Position(), steps)

    def go_on(self, position: Position, steps: int) -> Position:
        assert self.stepper is not None
        pieces = self.stepper.pieces(position)
        for _ in range(steps):
            staged = self.stepper.stage(next(pieces))
            result = self.stepper.step(staged, stop=False, save=False).result()
            self.losses.append(result.loss)
            self.norms.append(result.gradient_norm)
            position = staged.after
        pieces.close()
        return position

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        assert self.stepper is not None
        return {
            name: value.detach()
            for name, value in self.stepper.parallel.module.named_parameters()
            if value.requires_grad
        }


def alone(definition: TaskDefinition, directory: Path, **options: Any) -> Trained:
    """Trained under `ddp` on one device."""
    trained = Trained(definition)
    with gang_of_one(directory) as gang:
        trained.train(Ddp(), gang, **options)
    return trained


def finish(group: Group) -> None:
    """Let the members of a group train until the work of each is over."""
    while group.round():
        pass


def train_together(works: Sequence[Trained], gang: Gang, **options: Any) -> list[Member]:
    """Each as a member of one group; an error is left with the member."""
    group = Group(gang.device)
    members = [
        group.add(
            each.definition.name,
            lambda technique, each=each: each.train(technique, gang, **options),
        )
        for each in works
    ]
    finish(group)
    return members


def fused(definitions: Sequence[TaskDefinition], directory: Path, **options: Any) -> list[Trained]:
    """Trained together."""
    trained = [Trained(each) for each in definitions]
    with gang_of_one(directory) as gang:
        members = train_together(trained, gang, **options)
    for member in members:
        if member.error is not None:
            raise member.error
    return trained


def assert_same(found: Trained, expected: Trained) -> None:
    """Every loss, gradient norm and weight has the same bits."""
    if not ROWS_STAND_ALONE:
        assert closeness.ulps(found.losses, expected.losses) < closeness.ACROSS
        assert closeness.ulps(found.weights, expected.weights) < closeness.ACROSS
        return
    assert found.losses == expected.losses
    assert list(map(str, found.norms)) == list(map(str, expected.norms))  # NaN if nobody clips
    assert found.weights.keys() == expected.weights.keys()
    for name, weight in expected.weights.items():
        assert torch.equal(found.weights[name], weight), name
