"""One rank's life: read the spec, report in, do its part of the attempt, end.

The warm parent calls `run` in a process that it forked. The cold start is a program: `python -m
saturn.worker.rank SPEC RANK --workers-lock PATH`. A rank that fails reports why and ends at once,
without tidying: its closed connections tell waiting peers, and the runtime ends the gang.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import traceback
from typing import NoReturn

import torch

from saturn.rank import device_memory
from saturn.rank.exceptions import BuffersDifferError, PartsSkippedError, TaskError
from saturn.rank.failure import describe
from saturn.rank.gang import Gang
from saturn.rank.gpu_memory import OutsideTorch
from saturn.rank.process import (
    bind_to_numa_node,
    bind_to_numa_node_when_used,
    cores_a_gpu,
    device_of,
    keep_pinned_sizes,
    renew_threads_after_fork,
    settle,
)
from saturn.scripts.command import ScriptDefinition
from saturn.tasks import definition as definitions
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.importing import set_aside_others
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.training import numerics
from saturn.training.slicing import LabelsDifferError
from saturn.worker import black_box, load_technique, output, slicing
from saturn.worker import spec as specs
from saturn.worker.inspect import inspect
from saturn.worker.lock import hold_workers_lock
from saturn.worker.loop import train
from saturn.worker.report import Reporter
from saturn.worker.scripts import script
from saturn.worker.trial import trial


def run(spec_path: str, rank: int) -> int:
    """Live the life of `rank`; returns exit code 0, or ends the process if the rank fails."""
    output.never_fail()
    faulthandler.enable()  # a crash in native code leaves its stack in the log
    spec = specs.load(spec_path)
    stop_at_step = None if isinstance(spec, specs.InspectionSpec) else spec.stop_at_step
    reporter = Reporter(spec.socket, attempt=spec.attempt, rank=rank, stop_at_step=stop_at_step)
    try:
        _work(spec, rank, reporter)
    except BaseException as error:
        _fail(reporter, error, spec.device_kind)
    sys.stdout.flush()
    sys.stderr.flush()
    reporter.close()
    return 0


def _work(spec: specs.Spec | specs.InspectionSpec, rank: int, reporter: Reporter) -> None:
    definition = _definition(spec)
    if isinstance(definition, ScriptDefinition):
        assert isinstance(spec, specs.Spec)  # scripts aren't inspected: they have no model
        script.run(spec, definition, reporter)
        return
    if isinstance(spec, specs.InspectionSpec):
        settle(())
        inspect(spec, definition, reporter)
        return
    # Kernels are cached in the run directory, because other users may be able to write to torch's
    # own place. Importing parts of torch may have set the variable to that place.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(spec.task_dir.parent.parent / "compiled")
    is_black_box = spec.technique.level == "black_box"
    # A black box's single process holds all devices of the gang; a managed rank holds its own.
    local_rank = rank - spec.first_rank
    held = range(spec.gpus) if is_black_box else [local_rank]
    cores = () if spec.cores is None else [core for slot in held for core in spec.cores[slot]]
    # On GPUs, threads are for what the host computes, such as an offloaded optimizer's step.
    settle(cores, num_threads=len(held) * cores_a_gpu(len(spec.devices)))
    numerics.set_up(deterministic=definition.deterministic, tf32=definition.tf32)
    if is_black_box:
        _limit_black_box(spec)
        if spec.device_kind == "cuda" and spec.gpus == 1:  # several may be at different nodes
            bind_to_numa_node_when_used()
        # A black box is no rank of several. Ranks that it starts must not take this rank's number
        # for theirs: torch's NCCL chooses a rank's device by it.
        os.environ.pop("LOCAL_RANK", None)
        renew_threads_after_fork()
        black_box.run(spec, definition, reporter)
        return
    outside_torch = None
    if spec.device_kind == "cuda" and spec.device_memory_bytes is not None:
        outside_torch = OutsideTorch(local_rank)
    device = device_of(spec.device_kind, local_rank)
    if device.type == "cuda":
        bind_to_numa_node(device)
        keep_pinned_sizes()
    gang = Gang(
        rank=rank,
        world_size=spec.world_size,
        device=device,
        rendezvous=spec.rendezvous,
        store=spec.store,
        node_gpus=spec.node_gpus,
        device_memory_bytes=spec.device_memory_bytes,
        outside_torch=outside_torch,
    )
    technique = load_technique.of_task(spec.technique, definition)
    work = train if spec.kind == "train" else trial
    try:
        work(spec, definition, technique, gang, reporter)
    except LabelsDifferError:
        slicing.keep_by_labels(spec, definition)
        raise
    except PartsSkippedError as error:
        slicing.keep_skipping(spec, definition, error)
        raise
    except BuffersDifferError as error:
        slicing.keep_whole(spec, definition, str(error))
        raise
    gang.close()


def _limit_black_box(spec: specs.Spec) -> None:
    """Limit the one process that holds all devices; on CPU slots, to the sum of their memory."""
    if spec.device_memory_bytes is None:
        return
    if spec.device_kind == "cuda":
        device_memory.limit_gpus_when_used(spec.device_memory_bytes)
        return
    total = spec.device_memory_bytes * spec.gpus
    memory = device_memory.DeviceMemory(torch.device("cpu"), total)
    memory.building()
    memory.training()


def _definition(spec: specs.Spec | specs.InspectionSpec) -> TaskDefinition | ScriptDefinition:
    if (surroundings := Surroundings.read(spec.task_dir / SUBMITTED)) is not None:
        # Techniques are the run's, and the task's modules may have the names of theirs.
        load_technique.load_ahead(
            [spec.technique] if isinstance(spec, specs.Spec) else spec.techniques
        )
        surroundings.take_up()
        set_aside_others()
    try:
        definition = definitions.load(spec.task_dir / "task.pkl")
    except (ImportError, AttributeError) as error:
        raise TaskError(
            f"the task's functions can't be loaded in a worker: {error}; the modules that "
            "they come from must be importable, as in the script"
        ) from error
    if isinstance(definition, TaskDefinition) and definition.step_loss is not None:
        definition.step_loss.take_up()
    return definition


def _fail(reporter: Reporter, error: BaseException, device_kind: str) -> NoReturn:
    failure = describe(error, device_kind=device_kind)
    device_memory.lift()  # reporting the failure must not fail for lack of memory
    traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    reporter.send(failure.message())
    os._exit(1)


def main() -> NoReturn:
    """The program, for a cold start."""
    parser = argparse.ArgumentParser(prog="python -m saturn.worker.rank")
    parser.add_argument("spec")
    parser.add_argument("rank", type=int)
    parser.add_argument("--workers-lock")
    arguments = parser.parse_args()
    if arguments.workers_lock is not None:
        hold_workers_lock(arguments.workers_lock)
    os._exit(run(arguments.spec, arguments.rank))


if __name__ == "__main__":
    main()
