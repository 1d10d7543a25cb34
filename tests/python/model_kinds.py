"""Tiny models of the kinds that people train, each as a task: transformers' own, plain torch's.

Importing this file does not import transformers; building one of its models does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from models import NUM_CLASSES, WIDTH, Mlp, definition, shuffled_loader
from saturn.tasks.definition import TaskDefinition
from torch import nn
from torch.utils.data import DataLoader

VOCABULARY, LENGTH = 32, 16
#: Kinds that transformers builds.
HUGGING_FACE = ("gpt2", "llama", "mixtral", "vit")


def gpt2(dropout: float = 0.0, **options: Any) -> nn.Module:
    """Tied embeddings, learned positions; keeps a cache unless told not to."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16, "n_layer": 3}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**{**size, "n_head": 2, **drops, **ends, **options}))


def llama(dropout: float = 0.0, **options: Any) -> nn.Module:
    """Rotary positions, given to each layer as a tuple of keywords."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "hidden_size": 16}
    depth = {"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2}
    more = {"intermediate_size": 32, "attention_dropout": dropout}
    return LlamaForCausalLM(LlamaConfig(**{**size, **depth, **more, **options}))


def mixtral(dropout: float = 0.0, **options: Any) -> nn.Module:
    """Four experts, in one tensor; each token goes to two of them."""
    from transformers import MixtralConfig, MixtralForCausalLM

    size = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "hidden_size": 16}
    depth = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 16}
    more = {"attention_dropout": dropout}
    return MixtralForCausalLM(MixtralConfig(**{**size, **depth, **experts, **more, **options}))


#: A model that every technique can split over eight devices.
DIVISIBLE = partial(llama, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4)


def vit(dropout: float = 0.0, **options: Any) -> nn.Module:
    """Images; its first layer list holds no embeddings of words."""
    from transformers import ViTConfig, ViTForImageClassification

    size = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 16}
    depth = {"num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    config = ViTConfig(**{**size, **depth, **drops, "num_labels": NUM_CLASSES, **options})
    return ViTForImageClassification(config)


def sequential(dropout: float = 0.0) -> nn.Module:
    """A plain list whose first layer gets the inputs themselves."""
    middle = [nn.Linear(24, 24), nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), *middle, nn.Linear(24, NUM_CLASSES))


def convolutional() -> nn.Module:
    """Layers with batch norm."""

    def stage(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)), stage(1), stage(4), nn.Flatten(), nn.Linear(48, 5)
    )


class Residual(nn.Module):
    """A small ResNet: convolutions without biases, batch norm, shortcuts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.blocks = nn.ModuleList(ResidualBlock(6) for _ in range(2))
        self.out = nn.Linear(6, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.stem(inputs.view(-1, 1, 3, 4))))
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(hidden.mean((2, 3)))


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norms[0](self.convs[0](inputs)))
        return torch.relu(inputs + self.norms[1](self.convs[1](hidden)))


class Tied(nn.Module):
    """Input and output layer share their weight, as language models' do."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_CLASSES, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, NUM_CLASSES, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        numbers = (inputs[:, :4].abs() * 3).long().clamp(max=NUM_CLASSES - 1)
        hidden = self.embed(numbers).mean(1)
        for layer in self.layers:
            hidden = hidden + self.dropout(layer(hidden).tanh())
        return self.head(hidden)


class Scaled(nn.Module):
    """Parameters without a dimension: one for all, one in each layer, and one that is frozen."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Gated(dropout) for _ in range(4))
        self.head = nn.Linear(WIDTH, NUM_CLASSES)
        self.logit_scale = nn.Parameter(torch.tensor(0.7))
        self.fixed = nn.Parameter(torch.tensor(1.1), requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden) * self.logit_scale.exp() * self.fixed


class Gated(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Parameter(torch.tensor(0.1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.gate * self.dropout(self.inner(inputs).tanh())


def frozen(dropout: float = 0.0) -> nn.Module:
    """Two layers don't train, one of them whole and one its bias alone."""
    model = Mlp(4, dropout=dropout)
    model.layers[0].requires_grad_(False)
    model.layers[2].bias.requires_grad_(False)
    return model


def token_rows(batch_size: int = 6) -> DataLoader[Any]:
    """Mappings of tokens; 20 rows."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, VOCABULARY, (20, LENGTH), generator=generator)

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    return DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=collate)


def images(batch_size: int = 6) -> DataLoader[Any]:
    """Mappings of images; 20 of them."""
    pixels = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        return {"pixel_values": pixels[samples], "labels": torch.tensor(samples) % NUM_CLASSES}

    return DataLoader(range(20), batch_size=batch_size, shuffle=True, collate_fn=collate)


#: Each kind's model, as a function of its dropout.
BUILD: dict[str, Callable[[float], nn.Module]] = {
    "gpt2": gpt2,
    "llama": llama,
    "mixtral": mixtral,
    "vit": vit,
    "mlp": lambda dropout: Mlp(dropout=dropout),
    "sequential": sequential,
    "convolutional": lambda dropout: convolutional(),
    "residual": lambda dropout: Residual(),
    "tied": Tied,
    "frozen": frozen,
    "scaled": Scaled,
}


def task_of(
    kind: str,
    name: str | None = None,
    *,
    dropout: float = 0.0,
    batch_size: int | None = None,
    **changes: Any,
) -> TaskDefinition:
    """A task definition that trains a model of `kind`; the loss is its own where it has one."""
    loader: Callable[..., Any] = shuffled_loader
    fields: dict[str, Any] = {"get_model": partial(BUILD[kind], dropout)}
    if kind in HUGGING_FACE:
        loader = images if kind == "vit" else token_rows
        fields["loss_function"] = None
    fields["get_dataloader"] = partial(loader, batch_size) if batch_size else loader
    return definition(name or kind, **{**fields, **changes})


def loss_of(task: TaskDefinition) -> Any:
    """What `reference.train` wants as `loss_of`."""
    return None if task.loss_function else (lambda model, batch: model(**batch).loss)
