"""Which layers of a model are found."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from model_kinds import BUILD
from saturn.techniques.model.layers import repeated_layers
from torch import nn


def block(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def blocks(number: int) -> nn.ModuleList:
    return nn.ModuleList(block() for _ in range(number))


class Stack(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.layers = blocks(number)


class Shared(nn.Module):
    """The second layer shares a weight with the outside; the fourth is the third again."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = blocks(3)
        self.layers = nn.ModuleList([first, second, third, third])
        self.outside = nn.Linear(8, 8)
        self.outside.weight = second[0].weight


def small_head() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 1))


def named(**parts: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(parts))


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (nn.Linear(8, 8), []),
        (Stack(3), ["layers.0", "layers.1", "layers.2"]),
        # The pieces of a list whose one layer is nearly all are not what is looked for.
        (
            named(embed=nn.Embedding(9, 8), body=Stack(4), head=nn.Linear(8, 9)),
            ["body.layers.0", "body.layers.1", "body.layers.2", "body.layers.3"],
        ),
        (
            nn.ModuleDict({"encoder": Stack(3), "decoder": Stack(2)}),
            [
                *(f"encoder.layers.{i}" for i in range(3)),
                *(f"decoder.layers.{i}" for i in range(2)),
            ],
        ),
        # A small list beside a large one stays whole.
        (
            nn.ModuleDict(
                {"body": Stack(12), "head": nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 1))}
            ),
            [f"body.layers.{i}" for i in range(12)],
        ),
        (Shared(), ["layers.0", "layers.2"]),
        (nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))), ["0.0", "0.2"]),
    ],
)
def test_the_layers_of_a_model(model: nn.Module, names: list[str]) -> None:
    by_id = {id(part): name for name, part in model.named_modules()}
    assert [by_id[id(layer)] for layer in repeated_layers(model)] == names


@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit"])
def test_transformers_models_have_three(kind: str) -> None:
    assert len(repeated_layers(BUILD[kind](0.0))) == 3
