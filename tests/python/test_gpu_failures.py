"""Failures on (fake) GPUs, where the peers of a failed rank stay in their collectives."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Any

import memory_models
import pytest
import techniques_of_tests as techniques
import torch
from harness import Runtime
from live_gangs import Result
from models import Calls, definition
from saturn.techniques import Knobs, ParallelModel, Setting, Technique
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.pipeline.technique import Pipeline
from techniques_of_tests import spec_of
from torch import nn
from warm_parent import LIMIT_S

MB = 1_000_000
#: Within this a failure is told. It would take a minute if it waited for the peers to leave the
#: collectives that it left them in.
TOLD_S = 20.0
#: Longer than torch's watchdog over NCCL waits between two looks at the collectives (1 s in 2.15).
WATCHDOG_S = 2.0
EARLIER_GROUPS = "_register_builtin_nccl_as_legacy"


class Greedy(Technique):
    """Takes 300 MB in a forward of rank 1 with its first knobs, and nothing with the next ones."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{**super().knob_sets(module, setting)[0], "greedy": True}]

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        return [[super().knob_sets(module, setting)[0]]]

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> Any:
        return None

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        def take(*_: Any) -> None:
            torch.ones(300 * MB // 4, device=gang.device)

        if knobs.get("greedy") and gang.rank == 1:
            module.layers[-1].register_forward_pre_hook(take)
        return super().parallelise(module, gang, {k: v for k, v in knobs.items() if k != "greedy"})


class GreedyDdp(Greedy, Ddp):
    pass


class GreedyFsdp(Greedy, Fsdp):
    pass


class GreedyPipeline(Greedy, Pipeline):
    pass


GREEDY = (GreedyDdp, GreedyFsdp, GreedyPipeline)


def kinds(result: Result) -> dict[int, str]:
    return {rank: message["kind"] for rank, message in result.messages if "kind" in message}


@pytest.mark.slow
@pytest.mark.parametrize("technique", GREEDY)
def test_memory_that_runs_out_on_one_rank_of_a_trial_has_thriftier_knobs_tried(
    gpu_run: Runtime, technique: type[Any]
) -> None:
    gpu_run.write_task(memory_models.task())
    gang = gpu_run.launch(
        *("deep", spec_of(technique)), kind="trial", ranks=2, device_memory_bytes=400 * MB
    )
    result = gang.wait()
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured", (trial, result.logs)
    assert "greedy" not in trial["knobs"]


@pytest.mark.slow(quick=["GreedyFsdp"])
@pytest.mark.parametrize("technique", GREEDY)
def test_memory_that_runs_out_on_one_rank_in_training_is_told_at_once(
    gpu_run: Runtime, technique: type[Any]
) -> None:
    gpu_run.write_task(memory_models.task())
    knobs = {"microbatches": 4, "schedule": "1f1b"} if technique is GreedyPipeline else {}
    gang = gpu_run.launch(
        *("deep", spec_of(technique)),
        ranks=2,
        steps=4,
        knobs={**knobs, "greedy": True},
        device_memory_bytes=400 * MB,
    )
    gang.wait_for("failed")
    gang.kill_all()  # as the runtime does
    found = kinds(gang.wait())
    assert found[1] == "out_of_memory" and found.get(0, "peer_lost") == "peer_lost"


def test_what_no_knobs_can_do_on_one_rank_is_told_with_its_cause(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition())
    result = gpu_run.run("mlp", spec_of(techniques.OnlyBadKnobs), kind="trial", ranks=2)
    outcome = result.one("trial")["outcome"]
    assert outcome["outcome"] == "out_of_memory" and "no room" in outcome["detail"], result.logs


def test_a_trial_without_host_memory_has_no_outcome_so_that_it_is_repeated(
    gpu_run: Runtime,
) -> None:
    gpu_run.write_task(definition())
    result = gpu_run.run("mlp", spec_of(techniques.NoHostMemory), kind="trial", ranks=1)
    assert not result.of("trial"), result.logs
    failed = result.one("failed")
    assert failed["kind"] == "host_memory" and "no room on the host" in failed["error"]
    # Knobs that work are what counts.
    result = gpu_run.run("mlp", spec_of(techniques.HostMemoryAtFirst), kind="trial", ranks=1)
    assert result.one("trial")["outcome"]["outcome"] == "measured", result.logs


def test_every_knob_set_is_tried_whichever_rank_fails(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition())
    result = gpu_run.run("mlp", spec_of(techniques.ManyKnobs), kind="trial", ranks=2)
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured"
    assert trial["knobs"].keys() == {"sleep_s"}  # those that don't fail


def raises_late(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """On rank 1 raises at the third batch; says when."""
    raises_late.calls = getattr(raises_late, "calls", 0) + 1  # type: ignore[attr-defined]
    if os.environ["RANK"] == "1" and raises_late.calls == 3:  # type: ignore[attr-defined]
        raise ValueError(f"a cursed batch at {time.monotonic()}")
    return nn.functional.cross_entropy(outputs, labels)


@pytest.mark.parametrize("kind", ["train", "trial"])
@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_a_rank_that_raises_between_collectives_is_heard_while_its_peers_wait_for_it(
    gpu_run: Runtime, technique: str, kind: str
) -> None:
    gpu_run.write_task(definition(loss_function=raises_late))
    gang = gpu_run.launch("mlp", technique, ranks=3, steps=9, kind=kind)

    def causes() -> list[tuple[int, dict[str, Any]]]:
        return [(rank, said) for rank, said in gang.messages if said.get("kind") == "task"]

    with gang.changed:  # each rank has a reader: a peer's `peer_lost` may be read first
        assert gang.changed.wait_for(causes, LIMIT_S), gang.messages
        heard = time.monotonic()
        [(rank, failed)] = causes()
    gang.kill_all()
    assert rank == 1 and "loss_function raised ValueError: a cursed batch" in failed["error"]
    raised = float(re.findall(r"batch at ([0-9.]+)", failed["error"])[0])
    assert heard - raised < TOLD_S
    assert set(kinds(gang.wait()).values()) <= {"task", "peer_lost"}


class RaisesLate(Ddp):
    """Its first knobs fail on rank 0 in the second step, in the midst of the backward."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": True}, {}]

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        calls = []

        def fail(gradient: torch.Tensor) -> None:
            calls.append(gradient)
            if len(calls) == 2:
                raise RuntimeError("no kernel for that")

        if knobs.get("fail") and gang.rank == 0:
            next(module.parameters()).register_hook(fail)
        return super().parallelise(module, gang, {})


def test_a_knob_set_that_fails_in_a_backward_costs_seconds_and_no_other_knobs(
    gpu_run: Runtime,
) -> None:
    gpu_run.write_task(definition())
    began = time.monotonic()
    result = gpu_run.run("mlp", spec_of(RaisesLate), kind="trial", ranks=4)
    assert result.codes == [0] * 4, result.logs
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured" and trial["knobs"] == {}
    assert time.monotonic() - began < 100


class FailsEarly(Ddp):
    """Its first knobs fail on rank 0, its second on rank 1: before there is a group to lose."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": 0}, {"fail": 1}, {}]

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        if knobs.get("fail") == gang.rank:
            raise RuntimeError("not even begun")
        return super().parallelise(module, gang, {})


def test_a_rank_that_fails_before_it_joins_the_others_hangs_nobody(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition())
    result = gpu_run.run("mlp", spec_of(FailsEarly), kind="trial", ranks=3)
    assert result.codes == [0, 0, 0], result.logs
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured" and trial["knobs"] == {}


@pytest.mark.parametrize("kind", ["train", "trial"])
def test_a_rank_that_can_not_open_its_group_is_heard_within_seconds(
    gpu_run: Runtime, kind: str
) -> None:
    # As where /dev/shm is too small for NCCL on one node, and rank 0 waits for rank 1 within NCCL.
    gpu_run.write_task(definition())
    env = {"FAKE_GPU_NCCL_FAILS": "1"}
    gang = gpu_run.launch("mlp", "ddp", ranks=2, steps=2, kind=kind, env=env)
    gang.wait_for("hello", count=2)
    said_hello = time.monotonic()
    gang.wait_for("failed")
    heard = time.monotonic()
    gang.kill_all()  # as the runtime does
    [failed] = gang.wait().of("failed")
    assert failed["kind"] == "error" and "NCCL" in failed["error"], failed
    assert heard - said_hello < TOLD_S


def fail_when_all_is_measured() -> None:
    """Have rank 1 fail in a trial at the very end, when its peers have measured all."""
    from saturn.worker import trial

    measure = trial.checkpoint_cost.measure

    def failing(*arguments: Any) -> float:
        measure(*arguments)
        raise RuntimeError("too late")

    if os.environ["RANK"] == "1":
        trial.checkpoint_cost.measure = failing  # type: ignore[attr-defined]


def test_steps_that_only_some_ranks_have_taken_are_dropped(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition(hints={"sabotage": Calls(fail_when_all_is_measured)}))
    # With one knob set, whose steps would be the task's first.
    result = gpu_run.run("mlp", "fsdp", kind="trial", ranks=2, knobs={}, goes_on_to=8)
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert trial["outcome"]["error"] == "RuntimeError: too late" and trial["step"] is None


class Deaf(RaisesLate):
    """A peer that nothing takes out of its collective, as a kernel that never ends would be."""

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        from saturn.rank import peer_watch
        from saturn.worker import trial

        trial._PEERS_S = 1.0
        peer_watch.abort_groups = lambda: None
        return super().parallelise(module, gang, knobs)


def test_a_peer_that_does_not_come_leaves_the_cause_to_be_told(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition())
    gang = gpu_run.launch("mlp", spec_of(Deaf), kind="trial", ranks=2)
    gang.wait_for("failed")
    gang.kill_all()
    failed = gang.wait().of("failed", rank=0)
    assert [(each["kind"], each["error"]) for each in failed] == [
        ("error", "RuntimeError: no kernel for that")
    ]


def labels_too_large(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels + 1)  # the last class is none


@pytest.mark.parametrize(("kind", "ranks"), [("train", 1), ("trial", 1), ("train", 2)])
def test_a_label_out_of_range_is_the_tasks_though_its_kernel_tells_later(
    gpu_run: Runtime, kind: str, ranks: int
) -> None:
    gpu_run.write_task(definition(loss_function=labels_too_large))
    gang = gpu_run.launch("mlp", "ddp", kind=kind, ranks=ranks, steps=4)
    gang.wait_for("failed")
    gang.kill_all()
    for failed in gang.wait().of("failed"):
        if failed["kind"] != "peer_lost":
            assert failed["kind"] == "task", failed
            assert "indexes out of range on the GPU" in failed["error"]
            assert "device-side assert" in failed["error"]


def loses_the_device_beside_a_collective(
    outputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """An index out of range, of which nothing asks for a while, but torch's watchdog does."""
    torch.distributed.all_reduce(torch.ones(1, device=outputs.device), async_op=True)
    loss = nn.functional.cross_entropy(outputs, labels + outputs.shape[-1])
    time.sleep(WATCHDOG_S)
    return loss


def take_the_earlier_groups() -> None:
    """Have torch 2.15 open the NCCL groups of torch 2.14 and before, which 2.15 still has."""
    register = getattr(torch.distributed.distributed_c10d, EARLIER_GROUPS, None)
    if register is not None:
        register()


@pytest.mark.parametrize("is_earlier", [False, True], ids=["todays", "earlier"])
def test_a_lost_device_is_told_by_the_rank_before_torchs_watchdog_ends_it(
    gpu_run: Runtime, is_earlier: bool
) -> None:
    hints = {"sabotage": Calls(take_the_earlier_groups)} if is_earlier else {}
    task = definition(loss_function=loses_the_device_beside_a_collective, hints=hints)
    gpu_run.write_task(task)
    result = gpu_run.run("mlp", "ddp", ranks=2, steps=4)
    assert result.codes == [1, 1], result.logs  # by SIGABRT it would be -6
    assert kinds(result) == {0: "task", 1: "task"}
    assert all("device-side assert" in failed["error"] for failed in result.of("failed"))


class OneKnobBreaksTheDevice(Ddp):
    """Its first knobs make a kernel's assertion fail, by no fault of the task."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"break": True}, {}]

    def parallelise(self, module: nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        if knobs.get("break"):
            torch.ones(3, device=gang.device)[torch.tensor([7], device=gang.device)]
            raise RuntimeError("these knobs break the device")
        return super().parallelise(module, gang, knobs)


def test_where_the_device_is_lost_the_first_cause_is_told_and_nothing_else_is_tried(
    gpu_run: Runtime,
) -> None:
    gpu_run.write_task(definition())
    result = gpu_run.run("mlp", spec_of(OneKnobBreaksTheDevice), kind="trial")
    assert result.codes == [1] and not result.of("trial")
    assert result.one("failed")["error"] == "RuntimeError: these knobs break the device"


def test_bf16_is_refused_where_the_device_has_none(gpu_run: Runtime) -> None:
    gpu_run.write_task(definition(precision="bf16"))
    older = {"FAKE_GPU_CAPABILITY": "7.5"}
    outcome = gpu_run.run("mlp", "ddp", kind="trial", env=older).one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable"
    assert "Fake GPU does not compute in bf16 (compute capability 7.5" in outcome["reason"]
