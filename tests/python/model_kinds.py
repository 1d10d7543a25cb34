"""Tiny models of the kinds that people train, each as a task: transformers' own, plain torch's.

Importing this file does not import transformers; building one of its models does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from models import NUM_CLASSES, WIDTH, Mlp, definition
from saturn.definition import TaskDefinition
from torch import nn
from torch.utils.data import DataLoader

VOCABULARY, LENGTH = 32, 16
#: Kinds that transformers builds.
HUGGING_FACE = ("gpt2", "llama", "vit")


def gpt2(dropout: float = 0.0, **options: Any) -> nn.Module:
    """Tied embeddings, learned positions; keeps a cache unless told not to."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16, "n_layer": 3}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**size, n_head=2, **drops, **ends, **options))


def llama(**options: Any) -> nn.Module:
    """Rotary positions, given to each layer as a tuple of keywords."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "hidden_size": 16}
    depth = {"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**size, **depth, intermediate_size=32, **options))


def vit(**options: Any) -> nn.Module:
    """Images; its first layer list holds no embeddings of words."""
    from transformers import ViTConfig, ViTForImageClassification

    size = {"image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 16}
    depth = {"num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    drops = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = ViTConfig(**size, **depth, **drops, num_labels=NUM_CLASSES, **options)
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


def token_rows() -> DataLoader[Any]:
    """Mappings of tokens; 20 rows in batches of 6."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, VOCABULARY, (20, LENGTH), generator=generator)

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    return DataLoader(rows, batch_size=6, shuffle=True, collate_fn=collate)


def images() -> DataLoader[Any]:
    """Mappings of images; 20 in batches of 6."""
    pixels = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        return {"pixel_values": pixels[samples], "labels": torch.tensor(samples) % NUM_CLASSES}

    return DataLoader(range(20), batch_size=6, shuffle=True, collate_fn=collate)


def task_of(kind: str, name: str | None = None, *, dropout: float = 0.0, **changes: Any) -> Any:
    """A task definition that trains a model of `kind`; the loss is its own where it has one."""
    name = name or kind
    if kind in ("gpt2", "llama", "vit"):
        build = {"gpt2": partial(gpt2, dropout), "llama": llama, "vit": vit}[kind]
        loader = images if kind == "vit" else token_rows
        fields = {"get_model": build, "get_dataloader": loader, "loss_function": None}
        return definition(name, **{**fields, **changes})
    plain = {
        "mlp": partial(Mlp, dropout=dropout),
        "sequential": partial(sequential, dropout),
        "convolutional": convolutional,
    }
    return definition(name, **{"get_model": plain[kind], **changes})


def loss_of(task: TaskDefinition) -> Any:
    """What `reference.train` wants as `loss_of`."""
    return None if task.loss_function else (lambda model, batch: model(**batch).loss)
