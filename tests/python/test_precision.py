"""Precision, and which kernels compute: the same under every strategy, and as torch has it."""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import reference
import saturn
import torch
from harness import Runtime
from models import Mlp, definition
from saturn.checkpoint import manifest
from saturn.rank.exceptions import TaskError
from saturn.techniques import Setting
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.pinned import Pinned
from saturn.training.loss_scale import LossScale, Verdict
from saturn.training.precision import Precision
from torch import nn
from torch.distributed.checkpoint import FileSystemReader
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: In which order ranks add shows in the last of the bits that products have left.
ROUNDED = {"bf16": torch.bfloat16, "fp16": torch.float16, "bf16-params": torch.bfloat16}


def losses_of(run: Runtime, task: Any, moves: list[Any]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


def manifest_of(run: Runtime, task: str) -> dict[str, Any]:
    newest = manifest.newest_valid(run.task_dir(task) / "checkpoints")
    assert newest is not None
    return newest[1]


@pytest.mark.slow(quick=["fsdp-2-bf16", "ddp-2-fp16", "ddp-1-bf16"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(("technique", "ranks"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_autocast_is_torchs(run: Runtime, technique: str, ranks: int, precision: str) -> None:
    # AdamW would hide a loss scale that stays in the gradients.
    optimizer = {"optimizer_cls": torch.optim.SGD} if precision == "fp16" else {}
    task = definition(precision=precision, batch_count=6, **optimizer)
    expected, _ = reference.train(task, 6)
    whole = losses_of(run, task, [(technique, ranks, 6)])
    if ranks == 1:
        assert whole == expected
    assert closeness.ulps(whole, expected, of=ROUNDED[precision]) < 2.0
    parts = definition("parts", precision=precision, batch_count=6, **optimizer)
    assert losses_of(run, parts, [(technique, ranks, 4), (technique, ranks, 6)]) == whole


def overflowing(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss whose gradients pass what fp16 can hold until its scale is some halvings lower."""
    return nn.functional.cross_entropy(outputs * 2000.0, labels) / 50.0


def test_a_step_that_overflows_is_taken_again_and_trains_alike(run: Runtime) -> None:
    changes: dict[str, Any] = {
        "precision": "fp16",
        "loss_function": overflowing,
        "max_grad_norm": 0.5,
    }
    counting = definition("alone", **changes, get_model=Counting)
    expected, _ = reference.train(counting, 10)
    assert losses_of(run, counting, [("ddp", 1, 2), ("ddp", 1, 10)]) == expected
    assert manifest_of(run, "alone")["loss_scale"]["factor"] < reference.FIRST_SCALE
    moves = [("ddp", 2, 1), ("fsdp", 2, 3), ("offload", 1, 5), ("pipeline", 2, 7), ("fsdp", 3, 10)]
    expected, _ = reference.train(definition(**changes), 10)
    moved = losses_of(run, definition("moved", **changes), moves)
    assert closeness.ulps(moved, expected, of=torch.float16) < 2.0


class Counting(Mlp):
    """Its outputs depend on how often it has run."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return super().forward(inputs) * (1.0 + 0.01 * self.runs)


class Following(Mlp):
    """Keeps a slow average of its head, by its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = copy.deepcopy(self.head).requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.head.parameters(), strict=True):
                slow.lerp_(fast, 0.5)
        return super().forward(inputs)


def test_a_step_that_changes_parameters_itself_is_not_taken_again(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"get_model": Following, "precision": "fp16"}
    in_process.train(definition(**changes), Ddp(), tmp_path, steps=2)
    overflows = definition(**changes, loss_function=overflowing)
    with pytest.raises(TaskError, match=r"the change would be made twice\. Use bf16"):
        in_process.train(overflows, Ddp(), tmp_path, steps=1)


class AFewTimes(Counting):
    """Can't be run without end."""

    calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        assert self.calls < 50
        return super().forward(inputs)


@pytest.mark.parametrize("precision", ["float32", "fp16"])
@pytest.mark.parametrize("limit", [None, 0.5], ids=["unclipped", "clipped"])
def test_steps_that_are_scaled_or_clipped_are_those_of_plain_torch(
    tmp_path: Path, precision: str, limit: float | None
) -> None:
    task = definition(
        get_model=AFewTimes,
        precision=precision,
        loss_function=overflowing,
        max_grad_norm=limit,
        optimizer_cls=torch.optim.SGD,
        lr=1e-3,
    )
    expected, model = reference.train(task, 3)
    losses, weights = in_process.train(task, Ddp(), tmp_path, steps=3)
    assert losses == expected
    for name, value in model.named_parameters():
        assert torch.equal(weights[name], value), name


def vanishing(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss whose gradients are below what fp16 can hold, but for their scale."""
    return nn.functional.cross_entropy(outputs, labels) * 1e-6


def test_gradients_that_fp16_can_not_hold_are_not_lost(tmp_path: Path) -> None:
    optimizer = {"optimizer_cls": torch.optim.SGD, "lr": 1e4}
    task = definition(precision="fp16", loss_function=vanishing, **optimizer)
    expected, _ = reference.train(task, 3)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=3)
    assert losses == expected


def test_gradients_are_divided_by_the_scale() -> None:
    scale = LossScale()
    trained, frozen = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    trained.grad = torch.full((3,), 2.0 * scale.factor)
    scale.scale_back([trained, frozen])
    assert trained.grad.tolist() == [2.0] * 3 and frozen.grad is None


def test_the_scale_doubles_after_two_hundred_steps_without_an_overflow() -> None:
    scale = LossScale()
    factors = []
    for _ in range(2):
        for _ in range(199):
            scale.judge(1.0)
        factors.append(scale.factor)
        scale.judge(1.0)
        factors.append(scale.factor)
    assert [factor / reference.FIRST_SCALE for factor in factors] == [1, 2, 2, 4]


def test_where_no_scale_helps_a_step_is_left_out() -> None:
    scale = LossScale()
    judged = [scale.judge(math.nan) for _ in range(13)]
    assert judged == [Verdict.REPEAT] * 12 + [Verdict.LEAVE_OUT]
    assert scale.factor == reference.FIRST_SCALE
    # One that fits after some halvings leaves the factor there.
    assert [scale.judge(norm) for norm in (math.inf, 1.0)] == [Verdict.REPEAT, Verdict.TAKE]
    assert scale.factor == reference.FIRST_SCALE / 2
    assert all(scale.judge(1.0) is Verdict.TAKE for _ in range(199))
    again = LossScale()
    again.restore(json.loads(json.dumps(scale.state())))
    assert again.judge(1.0) is Verdict.TAKE and again.factor == reference.FIRST_SCALE


def test_parameters_are_gathered_in_bf16_and_kept_in_float32(run: Runtime) -> None:
    def in_bf16(model: nn.Module, batch: Any) -> torch.Tensor:
        rounded = {name: value.bfloat16() for name, value in model.named_parameters()}
        outputs = torch.func.functional_call(model, rounded, (batch[0].bfloat16(),))
        return nn.functional.cross_entropy(outputs.float(), batch[1])

    task = definition(precision="bf16-params", batch_count=8)
    expected, _ = reference.train(task, 8, loss_of=in_bf16)
    plain, _ = reference.train(definition(batch_count=8), 8)
    assert closeness.ulps(expected, plain) > 10 * closeness.ACROSS
    found = losses_of(run, task, [("fsdp", 1, 2), ("fsdp", 2, 5), ("fsdp", 3, 8)])
    assert closeness.ulps(found, expected, of=torch.bfloat16) < 2.0
    held = FileSystemReader(run.task_dir("mlp") / "checkpoints" / "step-00000008").read_metadata()
    entries = [each for each in held.state_dict_metadata.values() if hasattr(each, "properties")]
    assert entries and all(each.properties.dtype == torch.float32 for each in entries)


def test_parameters_in_bf16_are_fsdps_alone() -> None:
    setting = Setting(gpus=2, device_kind="cpu", hints={}, precision="bf16-params")
    reason = Pinned(Ddp(), {}).reason_against(Mlp(), setting)
    assert reason is not None and "'bf16-params'" in reason and "fsdp" in reason
    assert Fsdp().reason_against(Mlp(), setting) is None
    one = Setting(gpus=1, device_kind="cpu", hints={}, precision="bf16-params")
    assert Pinned(Fsdp(), {}).reason_against(Mlp(), one) is None
    assert Fsdp().knob_sets(Mlp(), one) == [{}, {"reshard_after_forward": False}]


def test_a_task_is_told_that_no_technique_keeps_its_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = saturn.Task(
        *(Mlp, definition().get_dataloader, nn.functional.cross_entropy),
        saturn.HParams(0.01, batch_count=3, precision="bf16-params"),
    )
    with pytest.raises(saturn.TasksFailed) as failed:
        saturn.orchestrate([task], devices=2, techniques=["ddp", "pipeline"])
    (outcome,) = failed.value.result.tasks
    assert "precision 'bf16-params' is for techniques that gather" in str(outcome.error)


def test_kernels_are_as_the_task_says(run: Runtime) -> None:
    def seen() -> None:
        import torch

        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32

    def full() -> None:
        import torch

        assert not torch.are_deterministic_algorithms_enabled()
        assert not (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)

    class Looking(Mlp):
        def __init__(self, look: Any) -> None:
            super().__init__()
            look()

    task = definition(kwargs={"look": seen}, get_model=Looking, deterministic=True, tf32=True)
    losses_of(run, task, [("ddp", 2, 2)])
    about = manifest_of(run, "mlp")
    told = {key: about[key] for key in ("precision", "deterministic", "tf32")}
    assert told == {"precision": "float32", "deterministic": True, "tf32": True}
    losses_of(run, definition("full", kwargs={"look": full}, get_model=Looking), [("ddp", 1, 2)])


def test_a_module_under_autocast_can_be_copied_and_looked_at() -> None:
    module, inputs = Mlp(), torch.ones(2, 12)
    Precision("bf16", torch.device("cpu")).put_on(module)
    assert module(inputs).dtype == torch.bfloat16
    assert list(inspect.signature(module.forward).parameters) == ["inputs"]
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.head.weight.zero_(), other.head.bias.zero_()
    assert not other(inputs).any() and module(inputs).any()
    # A forward that was put on the instance before.
    replaced = Mlp()
    replaced.forward = module.head.forward  # type: ignore[method-assign]
    Precision("fp16", torch.device("cpu")).put_on(replaced)
    assert replaced(inputs).dtype == torch.float16
    untouched = Mlp()
    Precision("float32", torch.device("cpu")).put_on(untouched)
    assert "forward" not in vars(untouched) and untouched(inputs).dtype == torch.float32


Pair = namedtuple("Pair", "one other")


@pytest.mark.parametrize(
    "of",
    [
        lambda value: value,
        lambda value: (value, [value, None, 3]),
        lambda value: {"logits": value, "name": "a"},
        lambda value: Pair(value, (value,)),
    ],
    ids=["tensor", "tuple", "dict", "named tuple"],
)
def test_a_trainer_gets_outputs_in_float32_in_the_structure_that_the_model_gives_them(
    of: Callable[[Any], Any],
) -> None:
    class Structured(Mlp):
        def forward(self, inputs: torch.Tensor) -> Any:
            outputs = super().forward(inputs)
            assert outputs.dtype == torch.bfloat16
            return of(outputs)

    module = Structured()
    Precision("bf16", torch.device("cpu")).put_on(module, outputs_in_float32=True)
    found, expected = module(torch.ones(2, 12)), of(torch.empty(2, 5))
    leaves, shape = pytree.tree_flatten(found)
    wanted, wanted_shape = pytree.tree_flatten(expected)
    assert shape == wanted_shape
    for leaf, other in zip(leaves, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            assert leaf.dtype == torch.float32
        else:
            assert leaf == other


class CastsSeen(TorchDispatchMode):
    """Counts the bf16 copies of matrices of one shape that are alive after each of them is made."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self._shape, self._seen = shape, list[StorageWeakRef]()
        self.most_alive = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and result.dtype == torch.bfloat16:
            if result.shape == self._shape:
                self._seen.append(StorageWeakRef(result.untyped_storage()))
            self.most_alive = max(self.most_alive, sum(not one.expired() for one in self._seen))
        return result


@pytest.mark.parametrize("is_recomputed", [True, False])
@pytest.mark.parametrize(("technique", "most"), [(Fsdp, 2), (Ddp, 8)])
def test_units_that_are_freed_leave_no_copies_in_bf16(
    tmp_path: Path, technique: type[Fsdp] | type[Ddp], most: int, is_recomputed: bool
) -> None:
    width, layers = 24, 8

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                inputs = layer(inputs).relu()
            return inputs

    model = Deep()
    Precision("bf16", torch.device("cpu")).put_on(model)
    with in_process.gang_of_one(tmp_path) as gang:
        knobs = {"activation_checkpointing": is_recomputed}
        module = technique().parallelise(model, gang, knobs).module
        with CastsSeen(torch.Size([width, width])) as seen:
            outputs = module(torch.ones(3, width))
            at_end = seen.most_alive
            outputs.float().sum().backward()
    # Where weights stay whole, autocast may keep its copies: that `ddp` does shows what is counted.
    assert at_end <= most and (technique is Fsdp or at_end == layers)
    assert torch.is_autocast_cache_enabled()
