"""Which models `offload` refuses, why, and the least that the device must hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import in_process
import pytest
import torch
from model_kinds import convolutional
from models import Mlp
from saturn.techniques import NotApplicable, Setting
from saturn.techniques.offload import Offload
from torch import nn

ONE = Setting(gpus=1, device_kind="cpu", hints={})


@pytest.mark.parametrize(
    ("module", "setting", "reason"),
    [
        (Mlp(), Setting(gpus=2, device_kind="cpu", hints={}), "there are 2"),
        (nn.Linear(2, 2), ONE, "no list of repeated layers"),
        (convolutional(), ONE, "batch norm"),
        (Mlp(), ONE, "nothing says that a device's memory is short"),
        (Mlp(), replace(ONE, device_memory_bytes=100_000), "takes 9% of one device"),
    ],
)
def test_where_it_does_not_apply_it_says_why(
    module: nn.Module, setting: Setting, reason: str
) -> None:
    assert reason in (Offload().not_applicable(module, setting) or "")


def test_what_the_device_holds_at_the_least() -> None:
    # Layers of 156 parameters; norm 24 and head 65, whose gradients never meet a layer's.
    setting = replace(ONE, device_memory_bytes=10_000)
    assert Offload().not_applicable(Mlp(), setting) is None
    assert Offload().least_memory_bytes(Mlp(), setting, {}) == (89 + 156 + 156) * 4


class Holder:
    """Hides a tensor."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden


class TakesHolder(nn.Linear):
    def forward(self, holder: Any) -> torch.Tensor:
        return super().forward(holder.hidden)


class GivesHolder(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> Any:
        return Holder(super().forward(inputs))


class InPlace(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.mul_(2.0))


class KeepsBeside(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        self.penalty = outputs.square().mean()
        return outputs


STRANGER = nn.Parameter(torch.ones(12))


class UsesAStranger(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) * STRANGER


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.Linear(12, 12), KeepsBeside(12, 12)], r"hands on a tensor of shape \(\) beside"),
        ([nn.Linear(12, 12), UsesAStranger(12, 12)], "neither an argument nor a parameter"),
        ([GivesHolder(12, 12), TakesHolder(12, 12)], "returns a Holder"),
        ([nn.Linear(12, 12), InPlace(12, 12)], "in place"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    tmp_path: Path, layers: list[nn.Module], words: str
) -> None:
    with in_process.gang_of_one(tmp_path) as gang:
        parallel = Offload().parallelise(nn.Sequential(*layers), gang, {})
        with pytest.raises(NotApplicable, match=words):
            parallel.module(torch.ones(2, 12))


def test_a_hidden_input_is_refused(tmp_path: Path) -> None:
    with in_process.gang_of_one(tmp_path) as gang:
        parallel = Offload().parallelise(nn.Sequential(TakesHolder(12, 12)), gang, {})
        with pytest.raises(NotApplicable, match="gets a Holder"):
            parallel.module(Holder(torch.ones(2, 12, requires_grad=True)))
