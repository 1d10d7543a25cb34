"""Weights that don't train: written once, whole in every checkpoint, right after every move."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import model_kinds
import pytest
import reference
import torch
from harness import Runtime, runtime
from models import Calls, Mlp, definition
from saturn.checkpoint import manifest
from saturn.checkpoint.black_box_state import read_into
from saturn.tasks.definition import TaskDefinition
from saturn.training.stepper import build_model
from torch import nn
from warm_parent import Warm

#: PEFT asks transformers for something by its former name.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
Moves = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    lock = tmp_path_factory.mktemp("warm") / "workers.lock"
    parent = Warm(lock, preload="transformers:LlamaForCausalLM,peft:PeftModel")
    yield parent
    parent.close()


def adapted(dropout: float = 0.0, **options: Any) -> nn.Module:
    """A Llama with adapters, as PEFT makes them."""
    peft = pytest.importorskip("peft")
    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(
        r=4, lora_alpha=8, lora_dropout=dropout, target_modules=layers, task_type="CAUSAL_LM"
    )
    model: nn.Module = peft.get_peft_model(model_kinds.llama(**options), config)
    return model


def adapted_task(name: str = "adapted", **changes: Any) -> TaskDefinition:
    # Gradients that are nothing but rounding must not come out as large as any other.
    adam = partial(torch.optim.AdamW, eps=1e-3)
    return model_kinds.task_of(
        "llama", name, get_model=adapted, optimizer_cls=adam, lr=0.02, **changes
    )


def train(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int]]
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        knobs = {"tensor": 2} if technique == "tensor+fsdp" else {}
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    return run.losses(task.name)


def newest(run: Runtime, task: str) -> tuple[Path, dict[str, Any]]:
    found = manifest.newest_valid(run.task_dir(task) / "checkpoints")
    assert found is not None
    return found


def own_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def frozen_files(directory: Path) -> dict[str, int]:
    """The files of weights that don't train, and which they are on disk."""
    return {path.name: path.stat().st_ino for path in directory.glob("frozen*")}


@pytest.mark.slow
def test_adapters_train_exactly_under_every_technique(run: Runtime) -> None:
    task = adapted_task()
    moves = [
        ("tensor", 2, 2),
        ("fsdp", 2, 4),
        ("pipeline", 2, 6),
        ("tensor+fsdp", 4, 8),
        ("offload", 1, 9),
        ("ddp", 3, 11),
        ("tensor", 2, 12),
    ]
    expected, model = reference.train(task, 12, loss_of=own_loss)
    assert closeness.ulps(train(run, task, moves), expected) < closeness.ACROSS
    trained = build_model(task)
    read_into(*newest(run, task.name), trained)
    # Saturn wraps the model, so the names differ.
    found, wanted = (dict(enumerate(each.parameters())) for each in (trained, model))
    assert closeness.ulps(found, wanted) < closeness.ACROSS


@pytest.mark.slow
def test_frozen_weights_are_written_once(run: Runtime) -> None:
    task = adapted_task()
    train(run, task, [("ddp", 2, 2)])
    first, content = newest(run, task.name)
    files = frozen_files(first)
    assert files and sorted(files) == content["frozen"]
    written = sum(size["bytes"] for name, size in content["files"].items() if name in files)
    others = sum(size["bytes"] for name, size in content["files"].items() if name not in files)
    model = adapted()
    frozen = sum(p.nbytes for p in model.parameters() if not p.requires_grad)
    assert frozen < written < 3 * frozen
    train(run, task, [("fsdp", 3, 4), ("pipeline", 2, 6)])
    second, content = newest(run, task.name)
    assert second != first and frozen_files(second) == files, "the same files, not copies"
    assert others < 1.5 * sum(
        size["bytes"] for name, size in content["files"].items() if name not in files
    )


@pytest.mark.slow
def test_a_run_goes_on_where_nothing_else_is_left_of_it(
    run: Runtime, warm: Warm, tmp_path: Path
) -> None:
    task = adapted_task(dropout=0.0)
    expected, _ = reference.train(task, 8, loss_of=own_loss)
    train(run, task, [("fsdp", 2, 3), ("fsdp", 2, 5)])
    elsewhere = tmp_path / "elsewhere"
    source, _ = newest(run, task.name)
    target = elsewhere / "tasks" / task.name / "checkpoints" / source.name
    target.parent.mkdir(parents=True)
    shutil.copytree(source, target)
    # There `get_model` gives other weights, as another machine's random numbers might.
    other = adapted_task(seed=task.seed, hints={"by": Calls(draw_otherwise)})
    with runtime(elsewhere, warm) as there:
        there.write_task(other)
        result = there.run(task.name, "ddp", ranks=1, steps=8)
        assert result.codes == [0], result.logs
        losses = there.losses(task.name)
    assert sorted(losses) == [6, 7, 8]
    assert closeness.ulps(losses, {step: expected[step] for step in losses}) < closeness.ACROSS


def draw_otherwise() -> None:
    from saturn.data import seeds
    from saturn.training import stepper

    build = stepper.build_model

    def other(task: TaskDefinition) -> nn.Module:
        model = build(task)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        seeds.seed_all(task.seed)
        return model

    from saturn.training import saved_build
    from saturn.worker import build as builds

    saved_build.build_model = builds.build_model = other


class Averaged(nn.Module):
    """Keeps a slow average of its own weights, which has no gradient and plays a part."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = Mlp(), Mlp().requires_grad_(False)
        self.slow.load_state_dict(self.fast.state_dict())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
                slow.data.lerp_(fast.data, 0.3)
        return self.fast(inputs) + self.slow(inputs)


def only_once() -> None:
    from saturn.checkpoint import checkpoints

    checkpoints.bit_sum = lambda tensors: 1  # type: ignore[attr-defined]


def test_what_changes_without_a_gradient_is_written_again(run: Runtime) -> None:
    moves = [("ddp", 1, 2), ("ddp", 1, 4), ("ddp", 1, 7)]
    task = definition("averaged", get_model=Averaged)
    expected, _ = reference.train(task, 7)
    assert train(run, task, moves) == expected
    bad = definition("bad", get_model=Averaged, hints={"by": Calls(only_once)})
    assert closeness.ulps(train(run, bad, moves), expected) > 10 * closeness.ACROSS


def without_links() -> None:
    def refused(*args: Any, **options: Any) -> None:
        raise OSError(95, "Operation not supported")

    os.link = refused


@pytest.mark.slow
def test_a_file_system_without_links_gets_copies(run: Runtime) -> None:
    task = adapted_task(hints={"by": Calls(without_links)})
    expected, _ = reference.train(task, 5, loss_of=own_loss)
    losses = train(run, task, [("ddp", 1, 2), ("fsdp", 2, 4), ("ddp", 1, 5)])
    assert closeness.ulps(losses, expected) < closeness.ACROSS
    directory, _ = newest(run, task.name)
    assert all(path.stat().st_nlink == 1 for path in directory.glob("frozen*"))


def damage_the_last_link() -> None:
    from saturn.checkpoint.kept import Kept

    put, calls = Kept.put_into, []

    def failing(self: Kept, scratch: Path) -> None:
        calls.append(scratch)
        if len(calls) == 2:
            raise FileNotFoundError("somebody has tidied up")
        put(self, scratch)

    Kept.put_into = failing  # type: ignore[method-assign]


def test_where_the_files_are_gone_they_are_written_anew(run: Runtime) -> None:
    task = adapted_task(hints={"by": Calls(damage_the_last_link)})
    run.write_task(task)
    first = run.run(task.name, "fsdp", ranks=2, steps=6, checkpoint_every_s=1e-6)
    assert first.of("failed"), (
        "a save that training waits for, where nothing goes to the background"
    )
    train(run, task, [("fsdp", 2, 6)])
    expected, _ = reference.train(task, 6, loss_of=own_loss)
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


@pytest.mark.parametrize("gpus", [2, 4])
def test_the_plan_of_the_model_inside_is_found(gpus: int) -> None:
    from saturn.techniques import Setting
    from saturn.techniques.tensor import TensorParallel

    setting = Setting(gpus=gpus, device_kind="cpu", hints={})
    inner, outer = (
        TensorParallel().not_applicable(model, setting)
        for model in (model_kinds.llama(), adapted())
    )
    assert (inner is None) == (outer is None) == (gpus == 2)
    if inner is not None and outer is not None:
        assert "heads" in inner and "heads" in outer


def test_adapters_are_exported_as_peft_writes_them(tmp_path: Path, run: Runtime) -> None:
    peft = pytest.importorskip("peft")
    import saturn

    task = adapted_task(save_dir=tmp_path / "exports")
    _, model = reference.train(task, 6, loss_of=own_loss)
    train(run, task, [("ddp", 2, 4), ("tensor", 2, 6)])
    at_the_end = tmp_path / "exports" / task.name / "step-00000006-huggingface"
    asked_for = saturn.export(run.run_dir, task.name, tmp_path / "asked-for")
    for directory in (at_the_end, asked_for):
        names = {path.name for path in directory.iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors"} <= names
        assert not any(name.startswith("model") for name in names), "the adapters alone"
        torch.manual_seed(task.seed)
        loaded = peft.PeftModel.from_pretrained(model_kinds.llama(), str(directory))
        batch = next(iter(task.get_dataloader()))
        with torch.no_grad():
            logits, wanted = loaded(**batch).logits, model(**batch).logits
        assert closeness.ulps(logits, wanted) < closeness.ACROSS
