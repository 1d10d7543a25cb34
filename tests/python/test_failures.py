"""Failures: told apart, told once, in words; and what the gang does then."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import saturn
import techniques_of_tests as techniques
import torch
from harness import Runtime
from models import Mlp, definition, shuffled_loader
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import describe, task_function
from saturn.techniques import NotApplicable
from torch import nn
from torch.distributed import DistBackendError
from torch.utils.data import DataLoader


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def through_task_function(error: BaseException) -> BaseException:
    try:
        with task_function("loss_function"):
            raise error
    except BaseException as caught:
        return caught


# What torch 2.15 says of NCCL's errors: `getNcclErrorDetailStr` with NCCL's own last error.
NCCL_SYSTEM = (
    "NCCL error in: NCCLUtils.cpp:93, unhandled system error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.29\nncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error. It can be also caused by unexpected exit of a remote "
    "peer, you can check NCCL warnings for failure reason.\nLast error:"
)
NO_SHM = "Error while creating shared memory segment /dev/shm/nccl-x1 (size 9637888)"
NCCL_CLOSED = "socketProgress: Connection closed by remote peer node-2<40123>"
NCCL_DRIVER = (
    "NCCL error in: NCCLUtils.cpp:93, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA "
    "function failed.\nLast error:\nCuda failure 803 'unsupported driver'"
)
NCCL_ASSERT = NCCL_DRIVER.replace("803 'unsupported driver'", "710 'device-side assert'")
NCCL_FULL = NCCL_DRIVER.replace("803 'unsupported driver'", "2 'out of memory'")
NCCL_REMOTE = (
    "NCCL error in: ProcessGroupNCCL.cpp:2100, remote process exited or there was a network error"
    "\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely."
)
#: What torch 2.15 raises in a rank whose device is lost.
NCCL_ASYNC = "NCCL Async Error: no error \nNCCL Last Error: \n"
KILLED = "DataLoader worker (pid 7) is killed by signal: Killed. "
NO_PAGE = (
    "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
NO_COPY = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"
CPU_MEMORY = "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate"


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (raised(ValueError("a\nb")), "error", "ValueError: a b"),
        (raised(ValueError()), "error", "ValueError"),
        (raised(MemoryError()), "out_of_memory", "MemoryError"),
        (raised(torch.OutOfMemoryError("full")), "out_of_memory", "OutOfMemoryError: full"),
        (raised(RuntimeError(CPU_MEMORY)), "out_of_memory", f"RuntimeError: {CPU_MEMORY}"),
        (raised(OSError(12, "Cannot allocate memory")), "out_of_memory", "OSError: [Errno 12]"),
        (through_task_function(MemoryError()), "out_of_memory", "MemoryError"),
        (raised(RuntimeError("x"), cause=MemoryError("y")), "out_of_memory", "MemoryError: y"),
        (through_task_function(ValueError("v")), "task", "loss_function raised ValueError: v"),
        (through_task_function(SystemExit(2)), "task", "loss_function raised SystemExit: 2"),
        (raised(TaskError("no batches")), "task", "no batches"),
        (raised(NotApplicable("too few layers")), "not_applicable", "too few layers"),
        (raised(RuntimeError("Connection closed by peer")), "error", "RuntimeError: Connection"),
        (
            raised(torch.distributed.DistNetworkError("Connection closed by peer")),
            "peer_lost",
            "DistNetworkError: Connection closed by peer",
        ),
        (raised(KeyboardInterrupt()), "error", "KeyboardInterrupt"),
        (raised(DistBackendError(f"{NCCL_SYSTEM}\n{NO_SHM}")), "error", "DistBackendError: NCCL"),
        (raised(DistBackendError(NCCL_DRIVER)), "error", "DistBackendError: NCCL error in"),
        (raised(DistBackendError(NCCL_FULL)), "out_of_memory", "DistBackendError: NCCL error in"),
        (raised(DistBackendError(f"{NCCL_SYSTEM}\n{NCCL_CLOSED}")), "peer_lost", "DistBackend"),
        (raised(DistBackendError(NCCL_REMOTE)), "peer_lost", "DistBackendError: NCCL error in"),
        (raised(DistBackendError("NCCL communicator was aborted.")), "peer_lost", "DistBackend"),
    ],
)
def test_kinds(error: BaseException, kind: str, line: str) -> None:
    failure = describe(error)
    assert failure.kind == kind
    assert failure.error.startswith(line) and "\n" not in failure.error
    # A cause that was never raised has no frames; what Saturn itself says needs none.
    if kind != "not_applicable" and line not in ("no batches", "MemoryError: y"):
        assert failure.error.split(":")[0].split()[-1] in failure.traceback


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "host_memory"),
        (OSError(12, "Cannot allocate memory"), "host_memory"),
        (RuntimeError(CPU_MEMORY), "host_memory"),
        (RuntimeError("std::bad_alloc"), "host_memory"),
        (RuntimeError(KILLED), "host_memory"),
        (RuntimeError(NO_PAGE), "host_memory"),
        (RuntimeError(NO_COPY), "host_memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out_of_memory"),
        (RuntimeError("CUDA error: out of memory"), "out_of_memory"),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublas"), "out_of_memory"),
        (DistBackendError(NCCL_FULL), "out_of_memory"),
        (ValueError("v"), "error"),
    ],
)
def test_memory_of_the_machine_is_no_gpus(error: Exception, kind: str) -> None:
    assert describe(raised(error), device_kind="cuda").kind == kind
    # A slot has no other memory than the machine's.
    of_slot = "error" if kind == "error" else "out_of_memory"
    assert describe(raised(error), device_kind="cpu").kind == of_slot


def test_a_failed_assertion_is_the_tasks_where_nccl_hears_of_it() -> None:
    failure = describe(raised(DistBackendError(NCCL_ASSERT)))
    assert failure.kind == "task" and "indexes out of range" in failure.error


class Stream:
    """A stream of a device whose kernels may have failed."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def query(self) -> bool:
        if self._error is not None:
            raise self._error
        return True


@pytest.mark.parametrize(
    ("of_device", "kind", "line"),
    [
        ("CUDA error: device-side assert triggered", "task", "the model or loss_function indexes"),
        ("CUDA error: an illegal memory access", "error", "AcceleratorError: CUDA error: an ille"),
        (None, "error", "RuntimeError: NCCL Async Error: no error"),
    ],
)
def test_what_the_device_says_is_told_where_nccl_says_nothing(
    monkeypatch: pytest.MonkeyPatch, of_device: str | None, kind: str, line: str
) -> None:
    stream = Stream(None if of_device is None else torch.AcceleratorError(of_device))
    monkeypatch.setattr("saturn.rank.failure.accelerator_is_in_use", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda: stream)
    failure = describe(raised(RuntimeError(NCCL_ASYNC)), device_kind="cuda")
    assert (failure.kind, failure.error[: len(line)]) == (kind, line)


def test_an_endless_traceback_keeps_both_ends() -> None:
    failure = describe(raised(ValueError("x" * 100_000 + " the end")))
    assert len(failure.traceback) < 21_000 and len(failure.error) < 600
    assert failure.traceback.startswith("Traceback") and failure.traceback.endswith("the end\n")


def no_model() -> Any:
    raise ImportError("no module called `models_of_mine`")


def not_a_model() -> Any:
    return {"weights": 1}


def frozen() -> Any:
    return Mlp().requires_grad_(False)


class HalfBroken(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 17:
            raise OSError("sample 17 is unreadable")
        return torch.zeros(12), torch.tensor(1)


def triples() -> Any:
    return [(torch.zeros(4, 12), torch.zeros(4, 12), torch.zeros(4).long())]


def mappings() -> Any:
    return [{"inputs": torch.zeros(4, 12)}]


def vector_loss(outputs: Any, labels: Any) -> Any:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def needs_more(width: int, *, depth: int) -> Mlp:
    return Mlp(depth)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"get_model": no_model}, "get_model raised ImportError: no module called"),
        ({"get_model": not_a_model}, "get_model returned a dict; it must return a torch.nn.Module"),
        ({"get_model": frozen}, "a model without trainable parameters"),
        (
            {"get_model": needs_more, "kwargs": {"width": 3}},
            "get_model raised TypeError: needs_more(width: 'int', *, depth: 'int') -> 'Mlp' "
            "accepts neither the keywords of HParams (['width'])",
        ),
        (
            {"get_dataloader": lambda: DataLoader(HalfBroken(), 4)},
            "get_dataloader's loader raised OSError: sample 17 is unreadable",
        ),
        (
            {"get_dataloader": lambda: DataLoader(HalfBroken(), 4, num_workers=1)},
            "OSError: sample 17 is unreadable",
        ),
        (
            {"get_dataloader": triples},
            "batches are a tuple of 3; a batch must be an (inputs, labels)",
        ),
        (
            {"loss_function": vector_loss},
            "loss_function returned a tensor of shape (8,), not a scalar",
        ),
        ({"loss_function": lambda o, y: 0.5}, "loss_function returned a float, not a tensor"),
        (
            {"loss_function": lambda o, y: torch.tensor(1.0)},
            "loss_function returned a loss that depends on no trainable parameter",
        ),
        (
            {"loss_function": None},
            "loss_function is None, which needs batches that are mappings",
        ),
        (
            {"loss_function": None, "get_dataloader": mappings},
            "the model returned a Tensor without a loss",
        ),
        ({"loss_weight": lambda batch: 0.0}, "loss_weight of batch 1 is 0"),
        ({"loss_weight": lambda batch: "many"}, "loss_weight raised ValueError"),
        ({"optimizer_cls": lambda parameters, lr: 7}, "optimizer_cls returned a int"),
        (
            {"optimizer_cls": lambda parameters: torch.optim.SGD(parameters, lr=1)},
            "optimizer_cls raised TypeError",
        ),
    ],
)
def test_the_tasks_own_errors_name_the_function_and_what_would_be_right(
    run: Runtime, changes: dict[str, Any], message: str
) -> None:
    run.write_task(definition(**changes))
    result = run.run("mlp", "ddp", steps=5)
    assert result.codes == [1]
    failed = result.one("failed")
    assert failed["kind"] == "task", failed
    assert message in failed["error"]
    assert "Traceback" in result.logs and failed["error"] in result.logs
    # Of the traceback that a person sees, every frame is the task's own.
    in_loader_worker = "DataLoader worker" in failed["traceback"]  # whose frames are only text
    own = re.escape(str(Path(saturn.__file__).parent)) + "/(?!techniques/)"
    assert not re.search(own, failed["traceback"]) or in_loader_worker
    assert not failed["traceback"] or " raised " in failed["error"]


def greedy_loss(outputs: Any, labels: Any) -> Any:
    return outputs.sum() * torch.empty(1 << 50)[0]


def test_running_out_of_memory_is_told_apart_from_its_echoes(run: Runtime) -> None:
    def only_rank_1(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if os.environ["RANK"] == "1":
            return greedy_loss(outputs, labels)
        return nn.functional.cross_entropy(outputs, labels)

    run.write_task(definition(loss_function=only_rank_1))
    result = run.run("mlp", "ddp", ranks=3, steps=5)
    assert result.codes == [1, 1, 1]
    kinds = {rank: message["kind"] for rank, message in result.messages if "kind" in message}
    assert kinds == {0: "peer_lost", 1: "out_of_memory", 2: "peer_lost"}, result.logs


@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_peers_of_a_killed_rank_say_that_they_lost_it(run: Runtime, technique: str) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", technique, ranks=3, steps=10**6)
    gang.wait_for("progress", step=2)
    gang.kill(2)
    result = gang.wait()
    assert result.codes[2] == -9 and 1 in result.codes[:2], result.codes
    # One that never noticed was killed with the gang; whoever speaks says just this.
    assert {message["kind"] for message in result.of("failed")} == {"peer_lost"}, result.logs


def test_a_rank_that_dies_in_a_step_ends_the_gang(run: Runtime) -> None:
    run.write_task(definition())
    result = run.run("mlp", techniques.spec_of(techniques.DiesInForward), ranks=2, steps=3)
    assert result.codes == [1, -9]
    assert result.one("failed")["kind"] == "peer_lost"


@pytest.mark.parametrize(
    ("technique", "words"),
    [
        ({"import": "no_such_module:Nothing"}, "No module named 'no_such_module'"),
        ({"import": "models:Nothing"}, "has no attribute 'Nothing'"),
        ({"import": "models:definition"}, "is a function, not a class"),
        ({"import": "techniques_of_tests:NotATechnique"}, "is not a saturn.techniques.Technique"),
        ({"import": "techniques_of_tests:Minimal"}, "abstract"),
        ({"import": None}, "has neither an import path nor a pickle"),
        (
            {"import": "techniques_of_tests:NotATechnique", "level": "black_box"},
            "is not a BaseTechnique",
        ),
    ],
)
def test_what_is_wrong_with_a_technique_is_said(
    run: Runtime, technique: dict[str, Any], words: str
) -> None:
    run.write_task(definition())
    reference = {"name": "odd", "level": "managed", "pickle": None, **technique}
    result = run.run("mlp", reference, steps=1)
    assert result.codes == [1]
    assert words in result.one("failed")["error"]


def test_a_loss_that_is_no_number_is_noted_and_told(run: Runtime) -> None:
    run.write_task(definition(loss_function=lambda o, y: o.sum() * float("nan")))
    result = run.run("mlp", "ddp", steps=3)
    assert result.codes == [0]
    assert result.one("finished")["loss"] == "nan"
    assert result.one("checkpoint")["loss"] == "nan"
    assert result.one("note")["text"] == "the loss is nan at step 1"
    assert run.losses("mlp") == {1: "nan", 2: "nan", 3: "nan"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec.update(version=2), "version must be 1"),
        (lambda spec: spec.pop("task_dir"), "field 'task_dir' is missing"),
        (
            lambda spec: spec.update(kind="dance"),
            "kind `dance` is not one of inspect, train, trial",
        ),
        (lambda spec: spec.update(steps=None), "steps must be a positive number"),
        (lambda spec: spec["technique"].update(level="x"), "level `x` is not one of"),
    ],
)
def test_a_bad_spec_is_refused(
    run: Runtime, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    import json

    from saturn.worker import spec as specs

    run.write_task(definition())
    run.run("mlp", "ddp", steps=1)
    path = next(run.task_dir("mlp").glob("attempts/*/spec.json"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"spec\.json") as caught:
        specs.load(path)
    assert message in str(caught.value)


def test_mappings_reach_the_model_as_keywords(run: Runtime) -> None:
    run.write_task(definition(get_model=Keyworded, get_dataloader=worded, loss_function=None))
    own = run.run("mlp", "ddp", ranks=2, steps=4)
    assert own.codes == [0, 0], own.logs
    run.write_task(
        definition(
            "outside",
            get_model=Keyworded,
            get_dataloader=worded,
            loss_function=lambda outputs, batch: outputs["loss"] + 0.0 * batch["labels"].sum(),
        )
    )
    assert run.run("outside", "ddp", ranks=2, steps=4).codes == [0, 0]
    assert run.losses("mlp") == run.losses("outside")


class Keyworded(Mlp):
    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = super().forward(inputs)
        return {"loss": nn.functional.cross_entropy(outputs, labels)}


def worded() -> Any:
    def collate(samples: list[Any]) -> dict[str, torch.Tensor]:
        inputs, labels = zip(*samples, strict=True)
        return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}

    return DataLoader(shuffled_loader().dataset, 8, shuffle=True, collate_fn=collate)
