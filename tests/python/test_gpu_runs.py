"""Whole runs on GPUs, which are fake (`fake_gpu`): found, planned, trained on, killed, resumed."""

from __future__ import annotations

import os
import pwd
import re
import signal
import time
from pathlib import Path

import closeness
import models
import pytest
import reference
from fake_gpu.environment import device_uuid, environment
from gpu_runs import SATURN, GpuRun
from warm_parent import LIMIT_S

pytestmark = pytest.mark.usefixtures("fake_gpus")

TWO_TYPES = """
import os
import models, torch, saturn
from saturn import HParams, Task

def loss(outputs, labels):
    return torch.nn.functional.cross_entropy(outputs, labels)

def cursed(outputs, labels):  # late enough that it is in training, not in the trial
    cursed.calls = getattr(cursed, "calls", 0) + 1
    if cursed.calls > 45 and os.environ["RANK"] == "1" and not os.path.exists(os.environ["RAISED"]):
        open(os.environ["RAISED"], "w").close()
        raise ValueError("the batch is cursed")
    return loss(outputs, labels)

def task(name, loss, width):
    hparams = HParams(lr=0.01, batch_count=60)
    made = Task(models.Mlp, models.shuffled_loader, loss, hparams,
                name=name, seed=3, save_dir="trained")
    made.gpu_range = [width]
    return made

tasks = [task("narrow", loss, 1), task("cursed", cursed, 2)]
saturn.orchestrate(tasks, techniques=["ddp"], name="run", checkpoint_every_s=0.2)
"""


def expected_losses(steps: int) -> dict[int, float]:
    return reference.train(models.definition(), steps)[0]


@pytest.mark.slow
def test_a_run_finds_gpus_by_type_trains_on_them_and_survives_a_rank_that_raises(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    names = ("Fake A", "Fake A", "Fake B")
    once = {"RAISED": str(tmp_path / "raised")}
    run = GpuRun(tmp_path, TWO_TYPES, environment(devices=3, names=names, log=log) | once)
    run.run()
    report = run.report()
    assert report["device_kind"] == "cuda"
    assert [device["gpu_type"] for device in report["devices"]] == list(names)
    [failed] = [attempt for attempt in report["attempts"] if attempt["how"] == "failed"]
    assert "loss_function raised ValueError: the batch is cursed" in failed["error"]
    for name in ("narrow", "cursed"):
        assert closeness.ulps(run.losses(name), expected_losses(60)) < closeness.ACROSS
        assert (tmp_path / "trained" / name / "step-00000060").is_dir()
    # Ranks see their gang's devices and no other, by UUID; who only looks or forks sees none.
    seen = set(re.findall(r"CUDA_VISIBLE_DEVICES=(\S*)", log.read_text()))
    a, b, c = map(device_uuid, range(3))
    assert seen <= {a, b, c, f"{a},{b}"} and f"{a},{b}" in seen
    assert "FORKED" not in log.read_text()


KILLED = """
import models, torch, saturn
from saturn import HParams, Task

def loss(outputs, labels):
    return torch.nn.functional.cross_entropy(outputs, labels)

task = Task(models.Mlp, models.shuffled_loader, loss, HParams(lr=0.01, batch_count=500), name="mlp",
            seed=3)
task.gpu_range = [2]
saturn.orchestrate([task], techniques=["ddp"], name="run", checkpoint_every_s=0.2)
"""


def wait_for_step(run: GpuRun, step: int, task: str = "mlp") -> None:
    deadline = time.monotonic() + LIMIT_S
    while len(run.losses(task)) < step:
        assert time.monotonic() < deadline, f"no step {step}"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_rank_and_an_interrupt_change_no_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = GpuRun(tmp_path, KILLED, environment(devices=2, log=log))
    process = run.start()
    wait_for_step(run, 60)
    rank = int(re.findall(r"(\d+) \(child of", log.read_text())[-1])
    os.kill(rank, signal.SIGKILL)
    wait_for_step(run, 200)
    process.send_signal(signal.SIGINT)
    assert run.wait(process) == 130, run.shown
    assert "killed" in run.shown
    stopped_at = len(run.losses("mlp"))
    assert stopped_at < 500
    run.run(SATURN, "resume", run.path)
    losses = run.losses("mlp")
    assert closeness.ulps(losses, expected_losses(500)) < closeness.ACROSS
    ends = [attempt["how"] for attempt in run.report()["attempts"]]
    assert ends.count("failed") == 1, ends
    assert "FORKED" not in log.read_text()


SMALL = """
import memory_models, torch, saturn
from saturn import HParams, Task

task = Task(memory_models.Deep, memory_models.batches, torch.nn.functional.cross_entropy,
            HParams(lr=0.001, batch_count=3, depth=10), name="deep")
saturn.orchestrate([task], techniques=["ddp", "fsdp"], device_memory="125MB", name="run")
"""


@pytest.mark.slow
def test_what_does_not_fit_a_gpu_is_split_over_two(tmp_path: Path) -> None:
    run = GpuRun(tmp_path, SMALL, environment(devices=2))
    run.run()
    assert "on 2 GPUs of 125 MB each" in run.shown
    [task] = run.report()["tasks"]
    assert task["status"] == "done"
    assert task["technique"] == "fsdp"


PRELOADED = """
import models, torch, saturn
from saturn import HParams, Task

def loss(outputs, labels):
    import uses_a_gpu
    return torch.nn.functional.cross_entropy(outputs, labels)

task = Task(models.Mlp, models.shuffled_loader, loss, HParams(lr=0.01, batch_count=6), name="mlp",
            seed=3)
saturn.orchestrate([task], techniques=["ddp"], name="run", devices=1)
"""


@pytest.mark.slow
def test_an_import_that_uses_a_gpu_has_ranks_start_cold(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "uses_a_gpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch\ntorch.zeros(1, device='cuda')\n")
    log = tmp_path / "log"
    gpus = environment(devices=2, log=log)
    run = GpuRun(tmp_path, PRELOADED, gpus, PYTHONPATH=str(package.parent))
    run.run()
    assert "(the warm parent) has a GPU in use after its imports, so it can't fork" in run.shown
    assert closeness.ulps(run.losses("mlp"), expected_losses(6)) < closeness.ACROSS
    assert "FORKED" not in log.read_text()


SHARED = """
import models, torch, saturn
from saturn import HParams, Task

def loss(outputs, labels):
    return torch.nn.functional.cross_entropy(outputs, labels)

def task(name, steps):
    made = Task(models.Mlp, models.shuffled_loader, loss, HParams(lr=0.01, batch_count=steps),
                name=name, seed=3)
    made.gpu_range = [1]
    return made

if __name__ == "__main__":
    tasks = [task("first", STEPS), task("second", STEPS)]
    saturn.orchestrate(tasks, techniques=["ddp"], name="run")
"""


def shared(tmp_path: Path, steps: int, devices: int = 2, **env: str) -> GpuRun:
    """A run on GPUs, of which this process uses the second."""
    programs = tmp_path / "programs"
    programs.write_text(f"1 {os.getpid()} 31000000000\n")
    gpus = {**environment(devices=devices), "FAKE_GPU_PROGRAMS": str(programs)}
    return GpuRun(tmp_path, SHARED.replace("STEPS", str(steps)), gpus, **env)


def devices_of(run: GpuRun) -> set[int]:
    """The numbers of all devices that ranks were on."""
    gangs = [attempt["gang"] for attempt in run.report()["attempts"]]
    return {device for gang in gangs for place in gang for device in place["devices"]}


def test_a_gpu_that_another_program_uses_is_left_alone(tmp_path: Path) -> None:
    run = shared(tmp_path, 20)
    run.run()
    me = pwd.getpwuid(os.getuid()).pw_name
    says_who = rf"device 1 set aside: outside Saturn, {me} \(.*, 31\.0 GB\) uses it"
    assert re.search(says_who, run.shown), run.shown
    assert devices_of(run) == {0}
    assert closeness.ulps(run.losses("second"), expected_losses(20)) < closeness.ACROSS


@pytest.mark.slow
def test_who_names_a_gpu_gets_it_and_who_needs_it_is_told_who_has_it(tmp_path: Path) -> None:
    run = shared(tmp_path, 20, CUDA_VISIBLE_DEVICES="1")
    run.run()
    assert "set aside" not in run.shown and devices_of(run) == {0}
    (tmp_path / "again").mkdir()
    run = shared(tmp_path / "again", 20)
    script = run.directory / "script.py"
    script.write_text(script.read_text().replace('name="run")', 'name="run", devices=2)'))
    assert run.wait(run.start()) != 0
    assert "`devices` is 2, but 1 GPUs are free: outside Saturn, " in run.shown
    assert not run.path.exists()


@pytest.mark.slow
def test_a_gpu_that_was_named_once_is_used_after_a_resume_that_names_none(tmp_path: Path) -> None:
    run = shared(tmp_path, 6000, CUDA_VISIBLE_DEVICES="1")
    process = run.start()
    wait_for_step(run, 20, "first")
    process.send_signal(signal.SIGINT)
    assert run.wait(process) == 130, run.shown
    del run.environment["CUDA_VISIBLE_DEVICES"]
    process = run.start(SATURN, "resume", run.path)
    wait_for_step(run, 20, "second")
    process.send_signal(signal.SIGINT)
    assert run.wait(process) == 130, run.shown
    assert "set aside" not in run.shown and devices_of(run) == {0, 1}


@pytest.mark.slow
def test_a_gpu_is_used_once_the_others_have_left_it(tmp_path: Path) -> None:
    run = shared(tmp_path, 60_000)  # the first task trains until the run is stopped
    process = run.start()
    wait_for_step(run, 20, "first")
    (tmp_path / "programs").write_text("")
    wait_for_step(run, 20, "second")
    process.send_signal(signal.SIGINT)
    assert run.wait(process) == 130, run.shown
    assert "device 1 in use again: no other program uses it" in run.shown
    assert devices_of(run) == {0, 1}
