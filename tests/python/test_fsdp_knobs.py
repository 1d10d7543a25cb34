"""Knobs of `ddp` and `fsdp`: the same training under each, tried only where they can pay."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import reference
import techniques_of_tests as techniques
import torch
from harness import Runtime
from model_kinds import BUILD, convolutional, gpt2, loss_of, task_of
from models import Mlp, definition
from saturn.techniques import NotApplicable, Setting
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from torch import nn

CHECKPOINTED = {"activation_checkpointing": True}
OFFLOADED = {"cpu_offload": True}
KEPT = {"reshard_after_forward": False}
ALL = {**CHECKPOINTED, **OFFLOADED, **KEPT}
GIB = 2**30


@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit", "sequential", "mlp"])
def test_checkpointing_changes_no_bit_of_training(tmp_path: Path, kind: str) -> None:
    task = task_of(kind, dropout=0.2)
    if kind in ("gpt2", "llama"):
        # The cache, which checkpointing does without, lays keys out otherwise in memory, and that
        # shows in the last bits of attention with dropout.
        task = task_of(kind, get_model=partial(BUILD[kind], 0.2, use_cache=False))
    losses, weights = in_process.train(task, Ddp(), tmp_path, steps=4)
    expected, _ = reference.train(task, 4, loss_of=loss_of(task))
    assert losses == expected
    again, same = in_process.train(task, Ddp(), tmp_path, steps=4, knobs=CHECKPOINTED)
    assert again == losses
    assert same.keys() == weights.keys()
    assert all(torch.equal(same[name], weights[name]) for name in weights)


def test_python_and_numpy_draw_the_same_numbers_twice(tmp_path: Path) -> None:
    class Scaled(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            import random

            import numpy

            return super().forward(inputs).tanh() * (random.random() + numpy.random.rand())

    def get_model() -> nn.Module:
        return nn.Sequential(Scaled(12, 12), Scaled(12, 12), nn.Linear(12, 5))

    task = definition(get_model=get_model)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=4)
    again, _ = in_process.train(task, Ddp(), tmp_path, steps=4, knobs=CHECKPOINTED)
    assert again == losses


def test_checkpointing_forgets_activations() -> None:
    kept: list[int] = []

    def saved_bytes(checkpointed: bool) -> int:
        from saturn.techniques.model.recompute import checkpoint_layers

        model = gpt2()
        if checkpointed:
            checkpoint_layers(model, torch.device("cpu"))
        kept.clear()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(input_ids=torch.zeros(2, 16, dtype=torch.long))
        return sum(kept)

    assert saved_bytes(True) < saved_bytes(False) / 2


@pytest.mark.slow
def test_moves_between_all_knobs_reproduce_plain_torch(run: Runtime) -> None:
    task = definition()
    run.write_task(task)
    moves: list[tuple[str, int, dict[str, Any]]] = [
        ("fsdp", 2, CHECKPOINTED),
        ("ddp", 2, CHECKPOINTED),
        ("fsdp", 3, KEPT),
        ("fsdp", 1, OFFLOADED),
        ("ddp", 1, CHECKPOINTED),
        ("fsdp", 2, ALL),
        ("fsdp", 2, OFFLOADED),
        ("ddp", 1, {}),
    ]
    for number, (technique, ranks, knobs) in enumerate(moves, start=1):
        result = run.run("mlp", technique, ranks=ranks, steps=2 * number, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 2 * len(moves))
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [CHECKPOINTED, ALL])
def test_each_knob_stops_and_resumes_bit_for_bit_with_dropout(
    run: Runtime, knobs: dict[str, Any]
) -> None:
    for name, stops in (("whole", [6]), ("parts", [2, 3, 6])):
        run.write_task(task_of("mlp", name, dropout=0.3))
        for steps in stops:
            result = run.run(name, "fsdp", ranks=2, steps=steps, knobs=knobs)
            assert result.codes == [0, 0], result.logs
    assert run.losses("parts") == run.losses("whole")


def test_batch_norm_is_not_run_twice(tmp_path: Path) -> None:
    cpu = Setting(gpus=2, device_kind="cpu", hints={})
    model = convolutional()
    assert list(Ddp().thriftier_knob_sets(model, cpu)) == []
    with in_process.gang_of_one(tmp_path) as gang, pytest.raises(NotApplicable, match="batch norm"):
        Ddp().parallelise(model, gang, CHECKPOINTED)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    assert list(Ddp().thriftier_knob_sets(model, cpu)) == [[CHECKPOINTED]]
    with (
        in_process.gang_of_one(tmp_path) as gang,
        pytest.raises(NotApplicable, match="no list of repeated layers"),
    ):
        Ddp().parallelise(nn.Linear(3, 3), gang, CHECKPOINTED)


def test_a_cache_asked_for_by_the_batch_is_refused_in_words(tmp_path: Path) -> None:
    with in_process.gang_of_one(tmp_path) as gang:
        parallel = Ddp().parallelise(gpt2(), gang, CHECKPOINTED)
        tokens = torch.zeros(1, 4, dtype=torch.long)
        assert parallel.module(input_ids=tokens).past_key_values is None
        with pytest.raises(NotApplicable, match="use_cache=True"):
            parallel.module(input_ids=tokens, use_cache=True)


def test_what_is_tried_goes_from_fast_to_thrifty() -> None:
    def setting(gpus: int, kind: str, memory: int | None = None) -> Setting:
        return Setting(gpus=gpus, device_kind=kind, hints={}, device_memory_bytes=memory)

    model, fsdp = Mlp(), Fsdp()
    assert fsdp.knob_sets(model, setting(2, "cpu")) == [{}, KEPT]
    assert fsdp.thriftier_knob_sets(model, setting(2, "cpu")) == [[CHECKPOINTED]]
    assert fsdp.thriftier_knob_sets(model, setting(2, "cuda")) == [
        [CHECKPOINTED, OFFLOADED],
        [{**CHECKPOINTED, **OFFLOADED}],
    ]
    assert Ddp().thriftier_knob_sets(model, setting(1, "cpu")) == [[CHECKPOINTED]]
    # One device: only where the host's memory has a use.
    needed = Ddp().least_memory_bytes(model, setting(1, "cuda"), {})
    assert fsdp.not_applicable(model, setting(1, "cuda", needed)) is None
    assert fsdp.knob_sets(model, setting(1, "cuda", needed)) == [OFFLOADED]
    assert fsdp.thriftier_knob_sets(model, setting(1, "cuda", needed)) == [
        [{**CHECKPOINTED, **OFFLOADED}]
    ]
    assert "takes 0% of one device" in (fsdp.not_applicable(model, setting(1, "cuda", GIB)) or "")
    assert "nothing to split" in (fsdp.not_applicable(model, setting(1, "cpu", needed)) or "")


def test_memory_bounds_by_hand() -> None:
    # Layers of 156 parameters, three of them; norm 24 and head 65: 557 in all.
    model, fsdp = Mlp(), Fsdp()
    two = Setting(gpus=2, device_kind="cuda", hints={})
    sgd = Setting(gpus=1, device_kind="cuda", hints={}, optimizer_state_ratio=0.0)
    assert Ddp().least_memory_bytes(model, two, {}) == 557 * 4 * 4
    assert Ddp().least_memory_bytes(model, sgd, {}) == 557 * 4 * 2
    # Between steps a half of parameters and AdamW's state. At the last layer's end that layer and
    # the rest are whole, with its gradients, and of the other two's gradients a half is there.
    between, at_the_end = 557 * 3 / 2, 89 + 2 * 156 + 2 * 156 / 2
    assert fsdp.least_memory_bytes(model, two, {}) == (between + at_the_end) * 4
    # Every layer is gathered at the end of the forward: as much, by chance.
    assert fsdp.least_memory_bytes(model, two, KEPT) == (between + 557) * 4
    assert fsdp.least_memory_bytes(model, two, OFFLOADED) == (89 + 2 * 156) * 4
    model.layers[0].requires_grad_(False)
    assert Ddp().least_memory_bytes(model, sgd, {}) == (557 + 401) * 4


class Activations(nn.Module):
    """8 layers of next to no parameters, which keep 12 MB each for their backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Spread() for _ in range(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = inputs + layer(inputs)
        return inputs[:, :5]


class Spread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        wide = inputs.repeat(1, 10_000)
        return (wide * self.scale).tanh().exp().view(len(inputs), 10_000, -1).mean(1)


def test_what_runs_out_of_memory_is_tried_with_checkpointing(run: Runtime) -> None:
    run.write_task(definition(get_model=Activations))
    for memory, knobs in ((400 << 20, {}), (48 << 20, CHECKPOINTED)):
        result = run.run("mlp", "ddp", kind="trial", device_memory_bytes=memory)
        assert result.codes == [0], result.logs
        trial = result.one("trial")
        assert trial["outcome"]["outcome"] == "measured" and trial["knobs"] == knobs, trial


def test_thriftier_sets_are_measured_only_where_memory_was_short(run: Runtime) -> None:
    def knobs_of(technique: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        run.write_task(definition())
        result = run.run("mlp", techniques.spec_of(technique), kind="trial")
        assert result.codes == [0], result.logs
        trial = result.one("trial")
        return trial["knobs"], trial["outcome"]

    # The third rung would be faster, but the second fits.
    assert knobs_of(techniques.FitsOnTheSecondRung)[0] == {"sleep_s": 0.01}
    # One set of the first rung fits: nothing else is measured.
    assert knobs_of(techniques.FitsAtOnce)[0] == {"sleep_s": 0.02}
    knobs, outcome = knobs_of(techniques.FailsOnTheFirstRung)
    assert knobs == {"fail": "all ranks"} and outcome["outcome"] == "failed"
    knobs, outcome = knobs_of(techniques.FitsNowhere)
    # What the thriftiest came to says most.
    assert knobs == {"fail": "memory of one rank", "thrifty": True}
    assert outcome["outcome"] == "out_of_memory"
