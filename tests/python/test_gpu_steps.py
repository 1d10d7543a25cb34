"""On an accelerator the host never waits in a step for the device, but where a table here says why.

The fake GPUs (`fake_gpu`) refuse what would make a real device's host wait.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import closeness
import model_kinds
import pytest
import torch
from harness import Runtime
from live_gangs import Result
from models import Mlp, shuffled_loader
from saturn.techniques import BUILT_IN
from saturn.worker import observer
from step_waits import LAST, waits_in, watched
from torch.utils.data import DataLoader, default_collate

STEPS = LAST + 2
#: What a test's task holds until this step.
HELD_BYTES, FREED_AT = 50_000_000, 4
#: Where the host waits until the device has done the step before, which it has to read.
OF_THE_STEP_BEFORE = "agreement.py:result"
#: Where else a technique waits, and why.
WAITS: dict[str, dict[str, str]] = {
    "offload": {
        "courier.py:done": "for the layer before the last: else all layers were copied at once",
        "courier.py:finish": "for gradients: the optimizer steps on the host",
    },
    "cpu_offload": {
        "_fsdp_param_group.py:finalize_backward": "FSDP2's own, for gradients: as above",
    },
}
LLAMA = partial(
    model_kinds.llama, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4
)


@dataclass(frozen=True)
class Case:
    """One task under one technique."""

    technique: str
    ranks: int
    knobs: dict[str, Any] = field(default_factory=dict)
    #: Where a model's own code reads from the device (transformers does in a causal mask, where no
    #: cache is kept), another one is taken.
    kind: str = "llama"
    #: What is particular about the task.
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        named = [f"{name}={value}" for name, value in self.knobs.items()]
        return " ".join([self.technique, str(self.ranks), self.kind, *named, *self.options])


def num_tokens(batch: Any) -> float:
    """A `loss_weight` that reads from the batch."""
    return float((batch["labels"][:, 1:] != -100).sum())


WEIGHTED = {"loss_weight": num_tokens, "gradient_accumulation_steps": 2}
CASES = [
    Case("ddp", 1),
    Case("ddp", 1, options={"precision": "bf16"}),
    Case("ddp", 2),
    Case("ddp", 2, options=WEIGHTED),
    Case("ddp", 2, kind="residual"),
    Case("ddp", 2, {"activation_checkpointing": True}, kind="vit"),
    Case("fsdp", 2),
    Case("fsdp", 2, options={"precision": "bf16"}),
    Case("fsdp", 2, options={"precision": "bf16-params"}),
    Case("fsdp", 2, {"reshard_after_forward": False}, options=WEIGHTED),
    Case("fsdp", 1, {"cpu_offload": True}),
    Case("fsdp", 2, {"cpu_offload": True}),
    Case("tensor", 2),
    Case("tensor+fsdp", 4, {"tensor": 2}),
    Case("offload", 1, kind="vit"),
    Case("pipeline", 2, {"schedule": "1f1b", "microbatches": 4}),
    Case("pipeline", 2, {"schedule": "gpipe", "microbatches": 4}, options=WEIGHTED),
    Case("pipeline", 2, kind="gpt2"),
    Case("pipeline+fsdp", 4, {"stages": 2, "microbatches": 2}),
    Case("pipeline+tensor", 4, {"tensor": 2, "microbatches": 2}),
    Case("pipeline+tensor+fsdp", 8, {"stages": 2, "tensor": 2, "microbatches": 2}),
]


def test_every_technique_is_watched() -> None:
    assert {case.technique for case in CASES} == set(BUILT_IN)


def task_of(kind: str, **options: Any) -> Any:
    more = {"get_model": LLAMA} if kind == "llama" else {}
    number = STEPS * options.get("gradient_accumulation_steps", 1)
    plain = {"batch_size": 8, "batch_count": number, "max_grad_norm": 1.0, "lr_scheduler": watched}
    return model_kinds.task_of(kind, **{**more, **plain, **options})


def run_of(gpu_run: Runtime, case: Case, **options: Any) -> Result:
    task = task_of(case.kind, **case.options, **options)
    gpu_run.write_task(task)
    return gpu_run.run(task.name, case.technique, ranks=case.ranks, knobs=case.knobs, steps=STEPS)


@pytest.mark.slow(quick=["fsdp 2 llama", "pipeline 2 gpt2"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_step_waits(gpu_run: Runtime, case: Case) -> None:
    result = run_of(gpu_run, case)
    assert result.codes == [0] * case.ranks, result.logs
    found = waits_in(result.logs)
    assert len(found) == case.ranks
    expected = {OF_THE_STEP_BEFORE, *WAITS.get(case.technique, {})}
    if "cpu_offload" in case.knobs:
        expected |= set(WAITS["cpu_offload"])
    for of_rank in found:
        assert set(of_rank) == expected
    assert list(gpu_run.losses(case.kind)) == list(range(1, STEPS + 1))
    # What is told of steps comes without a wait, too.
    lines = (gpu_run.task_dir(case.kind) / "metrics.jsonl").read_text().splitlines()
    told = json.loads(lines[-2])  # the last one has no time of its own
    assert told["gradient_norm"] > 0 and told["lr"] > 0 and told["samples_per_s"] > 0
    assert ("tokens_per_s" in told) == (case.kind in ("llama", "gpt2"))


def holds_much_at_first(optimizer: torch.optim.Optimizer) -> Any:
    """A scheduler that keeps much memory for some steps; each step is one in which it is read."""
    held = [torch.empty(HELD_BYTES, dtype=torch.uint8, device="cuda")]
    observer._WEIGHED_EVERY_S = 0.0

    def free(done: int) -> float:
        if done == FREED_AT:
            held.clear()
        return 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, free)


def test_the_curve_of_memory_falls_where_a_step_frees_some(gpu_run: Runtime) -> None:
    gpu_run.write_task(task_of("llama", batch_count=8, lr_scheduler=holds_much_at_first))
    result = gpu_run.run("llama", "ddp", steps=8)
    assert result.codes == [0], result.logs
    lines = (gpu_run.task_dir("llama") / "metrics.jsonl").read_text().splitlines()
    curve = [json.loads(line)["memory_bytes"] for line in lines]
    assert len(curve) == 8 and min(curve[: FREED_AT - 1]) > HELD_BYTES
    assert 0 < max(curve[FREED_AT + 1 :]) < HELD_BYTES


def reads_the_loss(outputs: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = outputs.loss
    loss.item()
    return loss


def copies_what_is_not_pinned(outputs: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = outputs.loss
    return loss * torch.tensor([1.0], device=loss.device)


def sizes_by_data(outputs: Any, batch: Any) -> torch.Tensor:
    labels = batch["labels"]
    return outputs.loss + 0.0 * len(labels[labels > 3])


@pytest.mark.slow(quick=["reads_the_loss-1", "copies_what_is_not_pinned-2", "sizes_by_data-2"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("waits", [reads_the_loss, copies_what_is_not_pinned, sizes_by_data])
def test_a_step_that_waits_is_found(
    gpu_run: Runtime, waits: Callable[..., Any], ranks: int
) -> None:
    result = run_of(gpu_run, Case("ddp", ranks), loss_function=waits)
    failed = result.of("failed")
    assert any("called a synchronizing CUDA operation" in each["error"] for each in failed)


def waits_for_all(outputs: Any, batch: Any) -> torch.Tensor:
    torch.cuda.synchronize()
    loss: torch.Tensor = outputs.loss
    return loss


def test_so_is_one_that_torch_lets_pass(gpu_run: Runtime) -> None:
    result = run_of(gpu_run, Case("ddp", 1), loss_function=waits_for_all)
    ((*found,),) = waits_in(result.logs)
    assert set(found) == {OF_THE_STEP_BEFORE, "test_gpu_steps.py:waits_for_all"}


@pytest.mark.slow(quick=["1-1", "2-2"])
@pytest.mark.parametrize(("ranks", "at"), [(1, 1), (1, 4), (2, 1), (2, 2), (2, 4)])
def test_a_stop_at_a_step_is_exact(gpu_run: Runtime, ranks: int, at: int) -> None:
    task = model_kinds.task_of("llama", batch_count=6)
    gpu_run.write_task(task)
    whole = {"ranks": ranks, "steps": 6}
    result = gpu_run.run("llama", "ddp", stop_at_step=at, **whole)
    assert result.one("stopped")["step"] == at
    stopped = gpu_run.losses("llama")
    assert list(stopped) == list(range(1, at + 1))
    again = gpu_run.run("llama", "ddp", **whole)
    assert again.one("started")["step"] == at and again.one("finished")["step"] == 6
    losses = gpu_run.losses("llama")
    assert list(losses) == list(range(1, 7)) and again.one("finished")["loss"] == losses[6]
    assert {step: losses[step] for step in stopped} == stopped


def test_a_save_is_asked_for_once(gpu_run: Runtime) -> None:
    gpu_run.write_task(model_kinds.task_of("llama", batch_count=9))
    result = gpu_run.run("llama", "ddp", ranks=2, steps=9, checkpoint_every_s=1e-6)
    *saved, last = [message["step"] for message in result.of("checkpoint")]
    assert last == 9 and saved[0] == 2  # asked for with the first step, agreed on with the second
    # In the step between two of them it could be asked for again.
    assert all(later - sooner >= 2 for sooner, later in itertools.pairwise(saved))


def asks_for_a_stop_at_once(optimizer: torch.optim.Optimizer) -> Any:
    """The test's word comes before this step ends."""

    def wait(done: int) -> float:
        if done == 3:
            time.sleep(2.0)
        return 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, wait)


def test_a_stop_at_once_comes_after_the_same_step_on_all_ranks(gpu_run: Runtime) -> None:
    task = model_kinds.task_of("llama", batch_count=40, lr_scheduler=asks_for_a_stop_at_once)
    gpu_run.write_task(task)
    gang = gpu_run.launch("llama", "ddp", ranks=2, steps=40)
    gang.wait_for("progress", step=1)
    gang.tell({"type": "stop"}, ranks=[1])
    result = gang.wait()
    assert result.codes == [0, 0], result.logs
    step = result.one("stopped")["step"]
    assert step < 40 and list(gpu_run.losses("llama")) == list(range(1, step + 1))


def fails_in_the_fourth(optimizer: torch.optim.Optimizer) -> Any:
    def fail(done: int) -> float:
        if done == 4 and int(os.environ["RANK"]) == 0:
            raise RuntimeError("enough")
        return 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, fail)


@pytest.mark.slow(quick=["1"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_was_told_before_a_failure_is_not_lost(gpu_run: Runtime, ranks: int) -> None:
    gpu_run.write_task(model_kinds.task_of("llama", lr_scheduler=fails_in_the_fourth))
    result = gpu_run.run("llama", "ddp", ranks=ranks, steps=6)
    failed = next(message for rank, message in result.messages if message["type"] == "failed")
    assert failed["kind"] == "task" and "enough" in failed["error"]
    assert list(gpu_run.losses("llama")) == [1, 2, 3]


class Wrapped:
    """Holds a tensor where nobody but itself finds it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def to(self, device: torch.device) -> Wrapped:
        return Wrapped(self.tensor.to(device))


class OfWrapped(Mlp):
    def forward(self, inputs: Wrapped) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(inputs.tensor)
        return outputs


def wrapped_batches() -> DataLoader[Any]:
    def collate(samples: list[Any]) -> Any:
        inputs, labels = default_collate(samples)
        return Wrapped(inputs), labels

    plain = shuffled_loader()
    return DataLoader(plain.dataset, batch_size=4, collate_fn=collate)


def test_a_batch_that_moves_in_its_own_way_comes_to_the_device(gpu_run: Runtime) -> None:
    found = []
    for kind in ("cpu", "cuda"):
        task = model_kinds.task_of("mlp", kind, get_model=OfWrapped, get_dataloader=wrapped_batches)
        gpu_run.write_task(task)
        result = gpu_run.run(kind, "ddp", steps=6, device_kind=kind)
        assert result.codes == [0], result.logs
        found.append(gpu_run.losses(kind))
    assert closeness.ulps(found[0], found[1]) < closeness.ACROSS
