"""Layers that keep their weights for the backward pass in place of the weights' copies in bf16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import in_process
import model_kinds
import pytest
import torch
from saturn.tasks.definition import BF16, FP16
from saturn.techniques import sharding
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.model import casts
from saturn.techniques.model.casts import keep_weights_alone
from torch import Tensor, nn

WIDTH = 8


class Mixed(nn.Module):
    """Products of several kinds, with and without bias, and weights that stay in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.down(self.norm(self.up(inputs)).relu_()) @ self.weight
        return self.conv(hidden).sigmoid()


def gradients(layer: nn.Module, dtype: torch.dtype) -> list[Tensor]:
    """Of the inputs, and of all parameters."""
    inputs = torch.linspace(-1, 1, 3 * 4 * WIDTH).view(3, 4, WIDTH).requires_grad_()
    with torch.autocast("cpu", dtype):
        outputs = layer(inputs)
    outputs.float().square().sum().backward()
    found = [each.grad for each in (inputs, *layer.parameters()) if each.grad is not None]
    for parameter in layer.parameters():
        parameter.grad = None
    return found


@pytest.mark.parametrize("frozen", [(), ("down",), ("up", "weight", "conv"), ("up", "norm")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_have_the_same_bits_and_casts_are_not_kept(
    dtype: torch.dtype, frozen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cast: list[tuple[int, ...]] = []

    def noted(self: casts._Weight) -> Tensor:
        cast.append(tuple(self.weight.shape))
        return of_weight(self)

    of_weight = casts._Weight.cast
    monkeypatch.setattr(casts._Weight, "cast", noted)
    layer = Mixed()
    for name in frozen:
        getattr(layer, name).requires_grad_(False)
    expected = gradients(layer, dtype)
    keep_weights_alone(layer)
    found = gradients(layer, dtype)
    trained = [each for each in layer.parameters() if each.requires_grad]
    assert len(found) == len(expected) == 1 + len(trained)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    weights = [layer.up.weight, layer.down.weight, layer.weight, layer.conv.weight]
    assert sorted(cast) == sorted(tuple(weight.shape) for weight in weights)


@pytest.mark.parametrize("precision", [BF16, FP16])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral", "vit"])
def test_fsdp_trains_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, precision: str
) -> None:
    results = []
    for name, keeps in (("with", keep_weights_alone), ("without", lambda unit: None)):
        monkeypatch.setattr(sharding, "keep_weights_alone", keeps)
        task = model_kinds.task_of(kind, batch_size=4, batch_count=3, precision=precision)
        (tmp_path / name).mkdir()
        results.append(in_process.train(task, Fsdp(), tmp_path / name, steps=3))
    (losses, weights), (expected_losses, expected) = results
    assert losses == expected_losses
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def changed_in_place(inputs: Tensor) -> Tensor:
    kept = inputs.sigmoid()
    kept.mul_(2.0)
    return kept


def mapped(inputs: Tensor) -> Tensor:
    return torch.vmap(torch.sin)(nn.functional.dropout(inputs))


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(WIDTH, WIDTH), function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.linear(inputs))


def test_a_tensor_that_is_changed_before_the_backward_pass_is_still_told() -> None:
    layer = Calls(changed_in_place)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(layer, torch.bfloat16)
        keep_weights_alone(layer)


def test_a_layer_that_can_not_run_so_keeps_its_casts() -> None:
    layer = Calls(mapped)
    keep_weights_alone(layer)
    inputs = torch.ones(3, WIDTH)
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(layer(inputs))
    # It draws the same random numbers, though it was begun twice at first.
    assert torch.equal(*found) and found[0].grad_fn is not None


def test_without_autocast_or_gradients_nothing_changes() -> None:
    layer = Mixed()
    expected = layer(torch.ones(3, 4, WIDTH))
    keep_weights_alone(layer)
    assert torch.equal(layer(torch.ones(3, 4, WIDTH)), expected)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(3, 4, WIDTH)).grad_fn is None
