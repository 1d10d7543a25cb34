"""Black-box techniques on GPUs, which are fake (`fake_gpu`)."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import black_boxes
import closeness
import memory_models
import pytest
import reference
import torch
from harness import Runtime
from models import Calls, Mlp, definition
from saturn.rank import process
from techniques_of_tests import spec_of

MB = 1_000_000


def saved_model(run: Runtime, task: str, step: int) -> dict[str, torch.Tensor]:
    path = run.task_dir(task) / "checkpoints" / f"step-{step:08d}" / "state.pt"
    saved: dict[str, Any] = torch.load(path, map_location="cpu")
    return saved.get("model", saved)


def test_ranks_of_its_own_each_have_the_device_that_they_choose(gpu_run: Runtime) -> None:
    task = definition(optimizer_cls=torch.optim.SGD, lr=0.1)
    gpu_run.write_task(task)
    result = gpu_run.run("mlp", spec_of(black_boxes.OwnRanks, "black_box"), gpus=2, steps=5)
    assert result.codes == [0], result.logs
    _, expected = reference.train(task, 5)
    found = saved_model(gpu_run, "mlp", 5)
    assert closeness.ulps(found, expected.state_dict()) < closeness.ACROSS


def test_dropout_on_every_device_is_the_same_after_a_resume(gpu_run: Runtime) -> None:
    technique = spec_of(black_boxes.TwoDevices, "black_box")
    found = {}
    for name, ends in (("whole", [6]), ("parts", [2, 6])):
        gpu_run.write_task(definition(name, get_model=partial(Mlp, dropout=0.3), lr=0.1))
        for end in ends:
            result = gpu_run.run(name, technique, gpus=2, steps=end)
            assert result.codes == [0], result.logs
        found[name] = saved_model(gpu_run, name, 6)
    for key, tensor in found["whole"].items():
        assert torch.equal(tensor, found["parts"][key]), key


def move_gpus_to_a_numa_node() -> None:
    """Have the kernel say of each GPU that it is at a node with the process's first core."""
    node = Path(tempfile.mkdtemp())
    (node / "node0").mkdir()
    (node / "node0" / "cpulist").write_text(f"{min(os.sched_getaffinity(0))}\n")
    for bus in range(8):  # asking CUDA for the address would initialise it
        (node / f"0000:{bus:02x}:00.0").mkdir()
        (node / f"0000:{bus:02x}:00.0" / "numa_node").write_text("0\n")
    process.PCI_DEVICES = process.NUMA_NODES = str(node)
    print(f"before CUDA: {sorted(os.sched_getaffinity(0))}")


def show_cores(outputs: Any, labels: Any) -> torch.Tensor:
    print(f"cores {sorted(os.sched_getaffinity(0))}")
    return torch.nn.functional.cross_entropy(outputs, labels)


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_black_box_with_one_gpu_is_near_it(gpu_run: Runtime, gpus: int) -> None:
    hints = {"sabotage": Calls(move_gpus_to_a_numa_node)}
    gpu_run.write_task(definition(loss_function=show_cores, hints=hints))
    result = gpu_run.run("mlp", spec_of(black_boxes.OnGpu, "black_box"), gpus=gpus, steps=1)
    assert result.codes == [0], result.logs
    before = sorted(os.sched_getaffinity(0))
    assert f"before CUDA: {before}" in result.logs
    # Several GPUs may be at different nodes.
    assert f"cores {before[:1] if gpus == 1 else before}" in result.logs, result.logs


def note_waits(path: Path) -> None:
    """Has this process note each wait for a device."""
    synchronize = torch.accelerator.synchronize

    def noting(device: Any = None) -> None:
        synchronize(device)
        with path.open("a") as file:
            file.write(f"{device}\n")

    torch.accelerator.synchronize = noting  # type: ignore[assignment]


@pytest.mark.parametrize("kind", ["trial", "train"])
def test_a_trials_batches_are_timed_when_the_device_is_done_with_them(
    gpu_run: Runtime, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "waits"
    path.touch()
    gpu_run.write_task(definition(hints={"sabotage": Calls(partial(note_waits, path))}))
    result = gpu_run.run("mlp", spec_of(black_boxes.OnGpu, "black_box"), kind=kind, gpus=2, steps=4)
    assert result.codes == [0], result.logs
    waits = path.read_text().split()
    if kind == "train":
        assert not waits  # nothing is timed, and nothing held up
        return
    assert result.one("trial")["outcome"]["outcome"] == "measured"
    # One warm-up step, two timed ones and one more: each asks for a batch, and so does the end.
    assert waits.count("0") == waits.count("1") == 5


def test_a_limit_holds_on_its_gpus_once_it_uses_them(gpu_run: Runtime) -> None:
    gpu_run.write_task(memory_models.task())
    technique = spec_of(black_boxes.OnGpu, "black_box")
    options: dict[str, Any] = {"kind": "trial", "gpus": 1}
    fits = gpu_run.run("deep", technique, device_memory_bytes=250 * MB, **options)
    assert fits.one("trial")["outcome"]["outcome"] == "measured", fits.logs
    # Parameters, gradients and AdamW's moments are 168 MB.
    full = gpu_run.run("deep", technique, device_memory_bytes=150 * MB, **options)
    assert full.one("failed")["kind"] == "out_of_memory", full.logs


def test_of_what_a_black_box_has_saved_only_the_model_comes_to_the_devices(
    gpu_run: Runtime,
) -> None:
    gpu_run.write_task(memory_models.task())
    result = gpu_run.run("deep", spec_of(black_boxes.OnGpu, "black_box"), gpus=1, steps=2)
    assert result.codes == [0], result.logs
    # What is saved takes 126 MB, and a step 120 MB on each of two devices.
    result = gpu_run.run(
        *("deep", spec_of(memory_models.PlainFsdp)), ranks=2, steps=4, device_memory_bytes=140 * MB
    )
    assert result.codes == [0, 0], result.logs
    assert result.one("started")["step"] == 2
