"""The same training on GPUs, which are fake (`fake_gpu`): what every plan there must reproduce.

`SATURN_GPU_CHAIN_SEEDS=100` runs as many chains with a share of gangs on GPUs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import closeness
import model_kinds
import pytest
import reference
import torch
from harness import Runtime
from models import Calls, definition
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
from saturn.checkpoint import manifest
from saturn.rank import process
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


def count_waits_of_staging() -> None:
    """Have each rank refuse copies that wait while it stages, and print what it has staged."""
    from saturn.checkpoint import checkpoints
    from saturn.checkpoint.staging import StagingPlanner

    checkpoints._LEAST_BACKGROUND_BYTES = 0  # there is little
    stage = StagingPlanner.stage

    def watched(planner: Any, plan: Any) -> None:
        waits: list[str] = []

        def see(frame: Any, event: str, argument: Any) -> None:
            if event == "c_call" and "synchronize" in argument.__name__:
                waits.append(argument.__name__)

        torch.cuda.set_sync_debug_mode("error")
        sys.setprofile(see)
        try:
            stage(planner, plan)
        finally:
            sys.setprofile(None)
            torch.cuda.set_sync_debug_mode("default")
        copies = [each for each in planner._copies.values() if isinstance(each, torch.Tensor)]
        pinned = sum(each.is_pinned() for each in copies)
        print(f"staged {len(copies)}, pinned {pinned}, waits {len(waits)}")

    StagingPlanner.stage = watched  # type: ignore[method-assign]


@pytest.mark.parametrize(("technique", "is_pinned"), [("fsdp", True), ("offload", False)])
def test_staging_a_save_waits_once_for_a_gpu(
    gpu_run: Runtime, technique: str, is_pinned: bool
) -> None:
    hints = {"sabotage": Calls(count_waits_of_staging)}
    task = model_kinds.task_of("llama", batch_size=7, batch_count=12, hints=hints)
    gpu_run.write_task(task)
    result = gpu_run.run("llama", technique, ranks=1, steps=12, checkpoint_every_s=0.0001)
    assert result.codes == [0], result.logs
    found = re.findall(r"staged (\d+), pinned (\d+), waits (\d+)", result.logs)
    assert len(found) >= 2, result.logs
    for num, pinned, waits in found:
        # Under `offload`, parameters are in pinned memory already, and their copies are in none.
        assert int(num) > 20
        assert (pinned, waits) == ((num, "1") if is_pinned else ("0", "0"))
    last = manifest.newest_valid(gpu_run.task_dir("llama") / "checkpoints")
    assert last is not None and last[1]["step"] == 12


def show_host_side(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss function that prints which cores the rank runs on, and what pinned memory takes."""
    print(f"cores {sorted(os.sched_getaffinity(0))}")
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    pinned = torch.empty(5_000_000, dtype=torch.uint8, pin_memory=True)
    taken = torch.cuda.host_memory_stats()["allocated_bytes.current"] - before
    print(f"pinned {pinned.nbytes} of {taken}, can keep sizes: {process.keep_pinned_sizes()}")
    return torch.nn.functional.cross_entropy(outputs, labels)


def move_gpus_to_a_numa_node() -> None:
    """Have the kernel say of each GPU that it is at a node with the process's first core."""
    node = Path(tempfile.mkdtemp())
    (node / "node0").mkdir()
    (node / "node0" / "cpulist").write_text(f"{min(os.sched_getaffinity(0))}\n")
    about: Any = torch.cuda.get_device_properties(0)
    address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
    (node / address).mkdir()
    (node / address / "numa_node").write_text("0\n")
    process.PCI_DEVICES = process.NUMA_NODES = str(node)


def test_a_rank_on_a_gpu_is_near_it_and_pins_no_more_than_it_asks_for(gpu_run: Runtime) -> None:
    hints = {"sabotage": Calls(move_gpus_to_a_numa_node)}
    gpu_run.write_task(definition(loss_function=show_host_side, hints=hints))
    result = gpu_run.run("mlp", "ddp", ranks=1, steps=1)
    assert result.codes == [0], result.logs
    assert f"cores [{min(os.sched_getaffinity(0))}]" in result.logs, result.logs
    # Earlier versions of torch round to a power of two, and have no setting against it.
    is_kept = "can keep sizes: True" in result.logs
    # torch compares versions by their numbers.
    assert is_kept or torch.__version__ < "2.15"
    assert f"pinned 5000000 of {5_000_000 if is_kept else 1 << 23}," in result.logs, result.logs
