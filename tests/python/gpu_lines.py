"""Parts of `make gpu-check` that take seconds each: failures, memory, copies, optimizers, MIG.

Each part asserts what must hold on a real GPU, and returns what it measured. This module is also a
program, `gpu_lines.py optimizers`, since a process that uses CUDA can't fork ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memory_models
import torch
from gpu_machine import MB, Machine, ranks_on
from models import Calls, definition
from saturn.rank import gpu_memory
from saturn.training.optimizer import build_optimizer
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

#: Within this a failure is told, after the rank that fails has raised it.
TOLD_S = 5.0
#: A step after the limit was last set; and bytes that CUDA may take later than that.
FILLED_AT, LATE_BYTES = 3, 32 * MB
#: Layers of 4.2 MB in float32, whose state is staged; three times that with AdamW's.
STAGED_LAYERS, FEW_LAYERS = 400, 10
#: Layers that fsdp splits, of which it gathers one or two at a time.
SPLIT_LAYERS = 40
#: How long a rank tells nobody that its device is lost. torch's watchdog looks once a second.
UNTOLD_S = 2.0
#: Most of the sum of its parts that a pass of `offload` may take.
OVERLAPPED = 0.9


def fail_opening() -> None:
    """Have rank 1 raise in place of opening its group, in which rank 0 then waits for it."""

    def raising(*args: Any, **kwargs: Any) -> None:
        print(f"raised at {time.time()}", flush=True)
        raise RuntimeError("no communicator here")

    if os.environ["RANK"] == "1":
        torch.distributed.init_process_group = raising  # type: ignore[assignment]


def opening_failure(machine: Machine) -> dict[str, Any]:
    """A rank that fails while communicators open is heard within seconds, with its cause."""
    found = {}
    for kind in ("train", "trial"):
        with ranks_on(machine) as run:
            run.write_task(definition(hints={"sabotage": Calls(fail_opening)}))
            gang = run.launch("mlp", "ddp", ranks=2, steps=2, kind=kind)
            gang.wait_for("failed")
            heard = time.time()
            gang.kill_all()  # as the runtime does
            result = gang.wait()
        [failed, *_] = result.of("failed")
        raised = re.search(r"raised at (\S+)", result.logs)
        if raised is None or "no communicator here" not in failed["error"]:
            raise AssertionError(f"another failure: {failed}\n{result.logs}")
        found[kind] = {"seconds": heard - float(raised[1]), "kind": failed["kind"]}
        if found[kind]["seconds"] > TOLD_S:
            raise AssertionError(f"told too late: {found}")
    return found


def nccls_own_error(machine: Machine) -> dict[str, Any]:
    """An error of NCCL's own is no lost peer: here two ranks on one GPU, which NCCL refuses."""
    with ranks_on(machine, over_gloo=False) as run:
        run.write_task(definition())
        env = {"CUDA_VISIBLE_DEVICES": machine.uuids[0]}
        gang = run.launch("mlp", "ddp", ranks=2, steps=2, env=env)
        gang.wait_for("failed")
        gang.kill_all()
        [failed, *_] = gang.wait().of("failed")
    if failed["kind"] != "error" or "NCCL" not in failed["error"]:
        raise AssertionError(f"not told as NCCL's: {failed}")
    return {"kind": failed["kind"], "error": failed["error"].splitlines()[0]}


def loses_the_gpu(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """An index out of range beside a collective, of which the rank hears late."""
    torch.distributed.all_reduce(torch.ones(1, device=outputs.device), async_op=True)
    loss = nn.functional.cross_entropy(outputs, labels + outputs.shape[-1])
    time.sleep(UNTOLD_S)
    return loss


def lost_device(machine: Machine) -> dict[str, Any]:
    """A rank whose device is lost tells why, and torch's watchdog over NCCL doesn't end it first.

    On one GPU a single rank has a group of its own, for NCCL refuses two.
    """
    ranks = 1 if machine.shares else 2
    with ranks_on(machine, over_gloo=False) as run:
        run.write_task(definition(loss_function=loses_the_gpu))
        result = run.run("mlp", "fsdp", ranks=ranks, steps=2)
    told = [(failed["kind"], failed["error"]) for failed in result.of("failed")]
    are_right = [kind == "task" and "device-side assert" in error for kind, error in told]
    if result.codes != [1] * ranks or are_right != [True] * ranks:
        raise AssertionError(f"ended with {result.codes}, and told {told}\n{result.logs}")
    return {"codes": result.codes, "error": told[0][1]}


def tells_memory(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss function that prints what torch holds at the end of the forward."""
    device = outputs.device
    held, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    print(f"rank {os.environ['RANK']} held {held} peak {peak}", flush=True)
    torch.cuda.reset_peak_memory_stats(device)
    return nn.functional.cross_entropy(outputs, labels)


def bf16_under_fsdp(machine: Machine) -> dict[str, Any]:
    """No bf16 copy of the whole model is kept until the backward, but of a layer or two at most.

    So a forward in bf16 ends with hardly more memory than one in float32.
    """
    layers = FEW_LAYERS if machine.small else SPLIT_LAYERS
    parameters = layers * memory_models.WIDTH * (memory_models.WIDTH + 1)
    found: dict[str, Any] = {"bytes_of_a_bf16_copy": 2 * parameters}
    with ranks_on(machine) as run:
        for precision in ("float32", "bf16"):
            options = {"optimizer_cls": torch.optim.SGD, "precision": precision}
            run.write_task(
                memory_models.task(precision, depth=layers, loss_function=tells_memory, **options)
            )
            result = run.run(precision, "fsdp", ranks=2, steps=3)
            # The last of each rank; the first ones are of the whole model, as it is examined.
            words = re.findall(r"rank (\d) held (\d+) peak (\d+)", result.logs)
            told = {rank: (int(held), int(peak)) for rank, held, peak in words}
            if result.codes != [0, 0] or len(told) != 2:
                raise AssertionError(result.logs)
            held, peak = max(told.values())
            found[precision] = {"held_after_forward_bytes": held, "peak_bytes": peak}
    in_float32, in_bf16 = (found[each]["held_after_forward_bytes"] for each in ("float32", "bf16"))
    if in_bf16 - in_float32 > found["bytes_of_a_bf16_copy"] / 2:
        raise AssertionError(f"a bf16 copy of the model is kept: {found}")
    return found


def fills_the_gpu(optimizer: torch.optim.Optimizer) -> LambdaLR:
    """A scheduler that takes all memory that a rank gets, and prints what its GPU then holds."""
    uuid = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]

    def factor(done: int) -> float:
        if done != FILLED_AT:
            return 1.0
        blocks = []
        with contextlib.suppress(torch.OutOfMemoryError):
            while True:
                blocks.append(torch.empty(10 * MB, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved()
        print(f"held {gpu_memory.used_bytes(uuid)} reserved {reserved}", flush=True)
        blocks.clear()
        torch.cuda.empty_cache()
        return 1.0

    return LambdaLR(optimizer, factor)


def device_memory(machine: Machine) -> dict[str, Any]:
    """The GPU as a whole holds no more than the limit: context, communicators and torch's memory.

    The limit leaves torch 300 MB beside the context. Training needs 170 MB, and the rest is filled.
    """
    uuid = machine.uuids[0]
    before = gpu_memory.used_bytes(uuid)
    if before is None:
        raise AssertionError("NVML doesn't tell a GPU's memory, so contexts are not counted")
    limit = 300 * MB + context_bytes(machine)
    with ranks_on(machine) as run:
        run.write_task(memory_models.task(lr_scheduler=fills_the_gpu))
        result = run.run("deep", "ddp", ranks=1, steps=4, device_memory_bytes=limit)
    if result.codes != [0]:
        raise AssertionError(result.logs)
    told = re.search(r"held (\d+) reserved (\d+)", result.logs)
    if told is None:
        raise AssertionError(result.logs)
    held, reserved = int(told[1]) - before, int(told[2])
    found = {"limit_bytes": limit, "held_bytes": held, "of_these_torch_bytes": reserved}
    if not reserved <= held <= limit + LATE_BYTES:
        raise AssertionError(f"more than the limit, or less than torch: {found}")
    return found


def context_bytes(machine: Machine) -> int:
    """What a process takes of a GPU beside torch's memory, after a step."""
    return int(facts(machine)["outside_torch_bytes"])


def facts(machine: Machine) -> dict[str, Any]:
    """What the first GPU says of memory and cores."""
    return _said("gpu_facts.py", machine.uuids[0])


def time_staging() -> None:
    """Have each rank print how long it stages a save, and how many bytes of which memory."""
    from saturn.checkpoint import checkpoints
    from saturn.checkpoint.staging import StagingPlanner

    checkpoints._LEAST_BACKGROUND_BYTES = 0  # small models, too
    stage = StagingPlanner.stage

    def timed(planner: Any, plan: Any) -> None:
        torch.cuda.synchronize()
        began = time.perf_counter()
        stage(planner, plan)
        seconds = time.perf_counter() - began
        copies = [each for each in planner._copies.values() if isinstance(each, torch.Tensor)]
        sizes = [
            sum(each.nbytes for each in copies if each.is_pinned() == p) for p in (True, False)
        ]
        print(f"staged {seconds} s, {sizes[0]} pinned, {sizes[1]} not", flush=True)

    StagingPlanner.stage = timed  # type: ignore[method-assign]


def staging(machine: Machine) -> dict[str, Any]:
    """Seconds and GB/s of staging a save: the first pins its memory, later ones have it."""
    layers = FEW_LAYERS if machine.small else STAGED_LAYERS
    with ranks_on(machine) as run:
        hints = {"sabotage": Calls(time_staging)}
        run.write_task(memory_models.task(depth=layers, batch_count=400, hints=hints))
        options = {"steps": 40, "checkpoint_every_s": 0.0001}
        result = run.run("deep", "ddp", ranks=1, **options)
    if result.codes != [0]:
        raise AssertionError(result.logs)
    told = re.findall(r"staged (\S+) s, (\d+) pinned, (\d+) not", result.logs)
    rows = [
        {
            "seconds": float(seconds),
            "GB": int(pinned) / 1e9,
            "GB_per_s": int(pinned) / 1e9 / float(seconds),
        }
        for seconds, pinned, _ in told
    ]
    if len(rows) < 2 or any(int(not_pinned) for _, _, not_pinned in told):
        raise AssertionError(f"not staged twice, or not in pinned memory: {told}\n{result.logs}")
    return {"first": rows[0], "later": rows[1:]}


def offload_overlap(machine: Machine) -> dict[str, Any]:
    """Copies of `offload` run beside the computation, and in both directions at once."""
    found = _said("gpu_overlap.py", *(["--small"] if machine.small else []))
    # On fake GPUs nothing overlaps.
    if not machine.small and found["of_the_sum"] > OVERLAPPED:
        raise AssertionError(f"nearly nothing overlaps: {found}")
    return found


def fused_step(machine: Machine) -> dict[str, Any]:
    """Saturn's default optimizer is the fused form, on the GPU and beside it; its time a step."""
    found = _said("gpu_lines.py", "optimizers", *(["--small"] if machine.small else []))
    if not all(each["saturn_is_fused"] for each in found.values()):
        raise AssertionError(f"not fused: {found}")
    return found


def optimizers(*, small: bool) -> dict[str, Any]:
    """Milliseconds of a step of AdamW: Saturn's choice, and torch's default."""
    device, width = torch.device("cuda", 0), 256 if small else 4096
    found = {}
    for place in (device, torch.device("cpu")):
        model = nn.Sequential(*(nn.Linear(width, width, device=place) for _ in range(4)))
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        chosen = build_optimizer(definition(optimizer_cls=None), model, device)
        default = torch.optim.AdamW(model.parameters())
        found[place.type] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "saturn_is_fused": chosen.param_groups[0]["fused"] is True,
            "saturn_ms": milliseconds(chosen.step),
            "torch_default_ms": milliseconds(default.step),
        }
    return found


def milliseconds(call: Callable[[], Any], *, calls: int = 10) -> float:
    """The time of a call and of the work that it launches, after a first call that warms up."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / calls


def mig(machine: Machine) -> dict[str, Any]:
    """A GPU that is split into MIG slices is refused in words, and no other is."""
    split = [uuid for uuid in machine.uuids if is_split(uuid)]
    saturn = Path(sys.executable).with_name("saturn")
    visible = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(machine.uuids)}
    done = subprocess.run(
        [saturn, "doctor", "--json"], env=visible, stdout=subprocess.PIPE, text=True, check=False
    )
    findings = {each["subject"]: each for each in json.loads(done.stdout)["findings"]}
    said = json.dumps(findings["GPUs"])
    if bool(split) != ("split into MIG slices" in said):
        raise AssertionError(f"split: {split}; `saturn doctor` says: {said}")
    return {"split": split, "doctor": findings["GPUs"]["found"]}


def is_split(uuid: str) -> bool:
    """Whether NVML says that MIG is on."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle, current, pending = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
    modes = ctypes.byref(current), ctypes.byref(pending)
    return nvml.nvmlDeviceGetMigMode(handle, *modes) == 0 and current.value == 1


def _said(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, Path(__file__).with_name(program), *arguments]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


LINES: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "opening-failure": opening_failure,
    "nccl-error": nccls_own_error,
    "lost-device": lost_device,
    "device-memory": device_memory,
    "bf16-fsdp": bf16_under_fsdp,
    "staging": staging,
    "offload-overlap": offload_overlap,
    "fused-step": fused_step,
    "mig": mig,
}

if __name__ == "__main__":
    print(json.dumps(optimizers(small="--small" in sys.argv)))
