"""A device's memory limit on CPU slots: enforced, and told apart from its echoes."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import Any

import memory_models
import pytest
import torch
from harness import Runtime
from live_gangs import Result
from saturn.rank.device_memory import DeviceMemory, is_limited, limit_gpus_when_used
from techniques_of_tests import spec_of
from torch import nn

#: Megabytes of parameters of the task's model; with AdamW, its state is four times that.
MODEL_MB = 42
#: The most that a gang's own threads and buffers take, which the limit allows on top.
GANG_MB = 16
MB = 10**6


class FakeGpu:
    """Stands in for `torch.cuda`: two GPUs of 80 GB, and what was asked of their allocator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fractions: dict[int, float] = {}
        self.when_used: list[Any] = []
        names = {
            "get_device_properties": lambda device: SimpleNamespace(total_memory=80 * 10**9),
            "set_per_process_memory_fraction": self.limit,
            "device_count": lambda: 2,
            "_lazy_call": self.when_used.append,
        }
        for name, value in names.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def limit(self, fraction: float, device: torch.device) -> None:
        self.fractions[device.index] = fraction


def test_a_gpu_is_limited_by_the_share_of_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch)
    device = torch.device("cuda", 1)
    assert DeviceMemory(device, None).total_bytes == 80 * 10**9 and gpu.fractions == {}
    limited = DeviceMemory(device, 20 * 10**9)
    assert limited.total_bytes == 20 * 10**9 and gpu.fractions == {1: 0.25}
    # More than there is limits nothing; and nothing is limited for the process itself.
    assert DeviceMemory(device, 10**12).total_bytes == 80 * 10**9 and gpu.fractions == {1: 1.0}
    limited.building()
    limited.spreading()
    limited.training()
    with limited.host(), limited.lifted():
        assert not is_limited()


def outside_in_mb(gpu_run: Runtime, limit_mb: int, ranks: int = 1, **mb: int) -> dict[str, Any]:
    """What a trial says of a limit, where contexts and communicators take so many MB."""
    gpu_run.write_task(memory_models.task())
    env = {f"FAKE_GPU_{name.upper()}_BYTES": str(size * MB) for name, size in mb.items()}
    options = {"ranks": ranks, "device_memory_bytes": limit_mb * MB, "env": env}
    result = gpu_run.run("deep", "ddp", kind="trial", knobs={}, **options)
    outcome: dict[str, Any] = result.one("trial")["outcome"]
    return outcome


def test_on_a_gpu_context_and_communicators_are_within_the_limit(gpu_run: Runtime) -> None:
    assert outside_in_mb(gpu_run, 300)["outcome"] == "measured"
    # After the first step, 126 MB of weights and of AdamW's state are held.
    assert outside_in_mb(gpu_run, 300, context=80)["outcome"] == "measured"
    assert outside_in_mb(gpu_run, 300, context=150)["outcome"] == "out_of_memory"
    too_small = outside_in_mb(gpu_run, 300, context=270)
    assert too_small["outcome"] == "out_of_memory", too_small
    two = {"ranks": 2, "context": 20}
    assert outside_in_mb(gpu_run, 330, **two)["outcome"] == "measured"
    assert outside_in_mb(gpu_run, 330, **two, communicator=150)["outcome"] == "out_of_memory"


def test_a_black_box_has_its_gpus_limited_once_it_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu(monkeypatch)
    limit_gpus_when_used(40 * 10**9)
    assert gpu.fractions == {}
    for call in gpu.when_used:
        call()
    assert gpu.fractions == {0: 0.5, 1: 0.5}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_refuses_what_is_beyond_the_limit() -> None:
    device = torch.device("cuda", 0)
    DeviceMemory(device, 200 * MB)
    try:
        torch.ones(100 * MB // 4, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(300 * MB // 4, device=device)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def trial(run: Runtime, technique: Any, ranks: int, limit_mb: float | None, **task: Any) -> Result:
    run.write_task(memory_models.task(**task))
    limit = None if limit_mb is None else int(limit_mb * MB)
    return run.run("deep", technique, kind="trial", ranks=ranks, device_memory_bytes=limit)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_fits_trains_and_what_does_not_runs_out_of_memory(run: Runtime, ranks: int) -> None:
    technique = spec_of(memory_models.PlainDdp)
    # State, a batch, and what gloo copies of a bucket.
    fits = trial(run, technique, ranks, 4 * MODEL_MB + 25)
    assert fits.one("trial")["outcome"]["outcome"] == "measured", fits.logs
    # An eighth of the model less than its state.
    full = trial(run, technique, ranks, 3.5 * MODEL_MB)
    assert full.codes == [0] * ranks
    assert full.one("trial")["outcome"]["outcome"] == "out_of_memory", full.logs


@pytest.mark.slow
def test_building_the_model_takes_host_memory_not_the_devices(run: Runtime) -> None:
    # The whole state is 168 MB, half of it is on each device; building alone takes 42 MB more
    # than a device's share of the parameters.
    result = trial(run, spec_of(memory_models.PlainFsdp), 2, 2 * MODEL_MB + 40)
    assert result.one("trial")["outcome"]["outcome"] == "measured", result.logs
    built_too_much = trial(run, spec_of(memory_models.PlainDdp), 1, MODEL_MB * 0.5)
    detail = built_too_much.one("trial")["outcome"]["detail"]
    told = re.search(r"the model takes (\d+) MB of 21 MB a device before its first step", detail)
    # Besides the model, what a gang needs for itself counts: the stack of a thread that starts
    # while the model is built is 8 MB.
    assert told and MODEL_MB - 2 <= int(told[1]) <= MODEL_MB + GANG_MB, detail


def test_what_the_loader_holds_is_not_the_devices(run: Runtime) -> None:
    def hoarder() -> Any:
        loader = memory_models.batches()
        loader.hoard = torch.ones(200 * MB // 4)
        return loader

    technique = spec_of(memory_models.PlainDdp)
    result = trial(run, technique, 1, 4 * MODEL_MB + 25, get_dataloader=hoarder)
    assert result.one("trial")["outcome"]["outcome"] == "measured", result.logs


class Hungry(torch.utils.data.Dataset[Any]):
    """Every sample needs 300 MB for a moment."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        torch.ones(300 * MB // 4)
        return torch.ones(memory_models.WIDTH), torch.tensor(index % 5)


def test_loader_workers_are_not_limited_but_the_rank_itself_is(run: Runtime) -> None:
    def loader(workers: int) -> Any:
        return torch.utils.data.DataLoader(Hungry(), batch_size=4, num_workers=workers)

    technique = spec_of(memory_models.PlainDdp)
    limit_mb = 4 * MODEL_MB + 25
    result = trial(run, technique, 1, limit_mb, get_dataloader=lambda: loader(1))
    assert result.one("trial")["outcome"]["outcome"] == "measured", result.logs
    result = trial(run, technique, 1, limit_mb, get_dataloader=lambda: loader(0))
    assert result.one("trial")["outcome"]["outcome"] == "out_of_memory", result.logs


@pytest.mark.slow(quick=["fsdp"])
@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_the_cause_is_told_apart_from_its_echoes_in_training(run: Runtime, technique: str) -> None:
    def greedy_on_rank_1(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(outputs, labels)
        if os.environ["RANK"] == "1":
            loss = loss + torch.ones(300 * MB // 4).sum() * 0.0
        return loss

    run.write_task(memory_models.task(loss_function=greedy_on_rank_1))
    result = run.run("deep", technique, ranks=3, steps=4, device_memory_bytes=250 * MB)
    assert result.codes == [1, 1, 1], result.logs
    kinds = {rank: message["kind"] for rank, message in result.messages if "kind" in message}
    assert kinds == {0: "peer_lost", 1: "out_of_memory", 2: "peer_lost"}, result.logs


@pytest.mark.slow(quick=["92"])
@pytest.mark.parametrize("limit_mb", [104, 96, 92, 70])
def test_a_full_rank_in_the_midst_of_a_collective_hangs_no_trial(
    run: Runtime, limit_mb: int
) -> None:
    result = trial(run, spec_of(memory_models.PlainFsdp), 2, limit_mb)
    assert result.codes == [0, 0], result.logs
    outcome = result.one("trial")["outcome"]
    assert outcome["outcome"] in ("out_of_memory", "measured"), outcome


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint_within_the_limit(run: Runtime) -> None:
    run.write_task(memory_models.task())
    limit = (4 * MODEL_MB + 25) * MB
    first = run.run("deep", "ddp", steps=2, device_memory_bytes=limit)
    assert first.codes == [0], first.logs
    # Loading copies more than it leaves, and each save copies everything.
    second = run.run("deep", "ddp", steps=5, device_memory_bytes=limit, checkpoint_every_s=0.0001)
    assert second.codes == [0], second.logs
    assert second.one("started")["step"] == 2
    assert second.one("finished")["step"] == 5


def test_a_limit_changes_no_loss(run: Runtime) -> None:
    run.write_task(memory_models.task("free", depth=4))
    run.write_task(memory_models.task("bound", depth=4))
    assert run.run("free", "ddp", steps=4).codes == [0]
    assert run.run("bound", "ddp", steps=4, device_memory_bytes=100 * MB).codes == [0]
    assert run.losses("free") == run.losses("bound")


def test_a_black_box_holds_the_sum_of_its_devices(run: Runtime) -> None:
    def black_box_trial(limit_mb: int) -> Result:
        run.write_task(memory_models.task())
        return run.run(
            "deep",
            spec_of(memory_models.Box, "black_box"),
            kind="trial",
            gpus=2,
            device_memory_bytes=limit_mb * MB,
        )

    fits = black_box_trial(2 * MODEL_MB + 12)
    assert fits.one("trial")["outcome"]["outcome"] == "measured", fits.logs
    full = black_box_trial(int(1.5 * MODEL_MB))
    assert full.one("failed")["kind"] == "out_of_memory", full.logs
