"""The same training on GPUs, which are fake (`fake_gpu`): what every plan there must reproduce.

`SATURN_GPU_CHAIN_SEEDS=100` runs as many chains with a share of gangs on GPUs.
"""

from __future__ import annotations

import os
import shutil

import closeness
import model_kinds
import pytest
import reference
import torch
from harness import Runtime
from random_chains import (
    OPTIMIZERS,
    Chain,
    Move,
    Strategy,
    assert_trains_as_plain_torch_does,
    covering,
    draw,
    newest,
    play,
    strategies_of,
)
from saturn.techniques import BUILT_IN

DEFAULT_SEEDS = "7"
KINDS_OF_DEVICES = ("cpu", "cuda")
WIDTHS = (1, 2, 4)
#: What needs more devices than those.
WIDER = {"pipeline+tensor+fsdp": (8,)}


def seeds() -> range:
    return range(int(os.environ.get("SATURN_GPU_CHAIN_SEEDS", DEFAULT_SEEDS)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_chains_over_slots_and_gpus_train_as_plain_torch_does(gpu_run: Runtime, seed: int) -> None:
    assert_trains_as_plain_torch_does(gpu_run, draw(seed, KINDS_OF_DEVICES))


def test_the_default_seeds_have_gangs_on_both_kinds_of_device() -> None:
    chains = [draw(seed, KINDS_OF_DEVICES) for seed in range(int(DEFAULT_SEEDS))]
    used = {(move.strategy.device_kind, move.strategy.ranks) for c in chains for move in c.moves}
    assert used >= {("cuda", 1), ("cuda", 2), ("cuda", 4), ("cpu", 2)}
    stops = [chain.moves[chain.stop[0]].strategy for chain in chains if chain.stop is not None]
    assert any(strategy.device_kind == "cuda" for strategy in stops)


@pytest.mark.slow(quick=["pipeline+fsdp"])
@pytest.mark.parametrize("technique", BUILT_IN)
def test_every_width_and_knob_of_a_technique_trains_the_same(
    gpu_run: Runtime, technique: str
) -> None:
    offered = covering(offered_by(technique))
    moves = tuple(Move(strategy, 2 * (n + 1)) for n, strategy in enumerate(offered))
    task = model_kinds.task_of(
        *("llama", technique),
        get_model=model_kinds.DIVISIBLE,
        optimizer_cls=OPTIMIZERS["adamw"][0],
        batch_size=7,
        batch_count=moves[-1].until,
        max_grad_norm=1.0,
    )
    assert_trains_as_plain_torch_does(gpu_run, Chain(0, "llama", 7, {}, task, moves, None))


def offered_by(technique: str) -> list[Strategy]:
    return strategies_of(technique, model_kinds.DIVISIBLE(), "cuda", WIDER.get(technique, WIDTHS))


def test_what_is_offered_covers_the_widths_and_the_knobs() -> None:
    offered = {name: covering(offered_by(name)) for name in BUILT_IN}
    widths = {name: {each.ranks for each in every} for name, every in offered.items()}
    assert widths == {
        "ddp": {1, 2, 4},
        "fsdp": {1, 2, 4},
        "tensor": {2, 4},
        "tensor+fsdp": {4},
        "offload": {1},
        "pipeline": {2, 4},
        "pipeline+fsdp": {4},
        "pipeline+tensor": {4},
        "pipeline+tensor+fsdp": {8},
    }
    knobs = {name: {k for each in every for k, _ in each.knobs} for name, every in offered.items()}
    recomputed = "activation_checkpointing"
    assert knobs["fsdp"] == {recomputed, "reshard_after_forward", "cpu_offload"}
    assert knobs["tensor"] == {recomputed} and knobs["tensor+fsdp"] == {recomputed, "tensor"}


@pytest.mark.slow(quick=["ddp-2"])
@pytest.mark.parametrize(("technique", "ranks"), [("ddp", 2), ("fsdp", 2), ("offload", 1)])
def test_a_save_in_the_background_holds_its_own_step(
    gpu_run: Runtime, technique: str, ranks: int
) -> None:
    task = model_kinds.task_of("llama", dropout=0.2, batch_size=7, batch_count=12)
    gpu_run.write_task(task)
    options = {"ranks": ranks, "steps": 12, "checkpoint_every_s": 0.0001}
    result = gpu_run.run(task.name, technique, **options)
    assert result.codes == [0] * ranks, result.logs
    losses = gpu_run.losses(task.name)
    *_, before, last = gpu_run.checkpoints(task.name)
    assert last == "step-00000012"
    shutil.rmtree(gpu_run.task_dir(task.name) / "checkpoints" / last)
    result = gpu_run.run(task.name, technique, **options)
    assert result.one("started")["step"] == int(before.removeprefix("step-")) < 12
    assert gpu_run.losses(task.name) == losses


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        Strategy("ddp", 2, device_kind="cuda"),
        Strategy("fsdp", 2, (("activation_checkpointing", True),), "cuda"),
        Strategy("offload", 1, device_kind="cuda"),
        Strategy("pipeline", 2, (("microbatches", 4), ("schedule", "1f1b")), "cuda"),
    ],
    ids=str,
)
def test_with_dropout_under_bf16_a_stop_changes_no_bit(
    gpu_run: Runtime, strategy: Strategy
) -> None:
    found = {}
    for name, ends in (("whole", [6]), ("parts", [3, 6])):
        task = model_kinds.task_of(
            *("llama", name), dropout=0.2, precision="bf16", batch_size=7, batch_count=6
        )
        gpu_run.write_task(task)
        chain = Chain(0, "llama", 7, {}, task, tuple(Move(strategy, end) for end in ends), None)
        found[name] = play(gpu_run, chain, *chain.moves), newest(gpu_run, chain)[1]
    assert found["whole"][0] == found["parts"][0]
    for name, tensor in found["whole"][1].items():
        assert torch.equal(tensor, found["parts"][1][name]), name
    plain = model_kinds.task_of("llama", batch_size=7, batch_count=6)
    expected, _ = reference.train(plain, 6, loss_of=model_kinds.loss_of(plain))
    # Dropout and rounding are in force, on the device's own generator.
    assert closeness.ulps(found["whole"][0], expected) > 10 * closeness.ACROSS
