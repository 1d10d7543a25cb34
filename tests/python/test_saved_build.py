"""A task's model is built once; every rank of every attempt maps what was saved."""

from __future__ import annotations

import colorsys
import json
import random
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import model_kinds
import pytest
import sliced_models
import torch
from harness import Runtime
from models import NUM_CLASSES, WIDTH, Mlp, definition
from saturn.rank.memory import PeakMemory
from saturn.tasks.definition import TaskDefinition
from saturn.training import mapped_pickle, saved_build
from saturn.training.process_changes import ProcessChanges
from saturn.training.saved_build import Built, Unsaved
from saturn.training.stepper import build_model
from torch import nn

MIB = 1 << 20


class Odd(nn.Module):
    """What constructors do: tie, freeze, register, keep, hook."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(width, width)
        self.head = nn.Linear(width, width, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.quiet = nn.Dropout(0.5).eval()
        self.register_buffer("scale", torch.rand(width, width), persistent=False)
        self.register_buffer("count", torch.zeros(()))
        self.table = torch.rand(width, width)  # no buffer, and yet a part of the model
        self.view = self.table[1:]
        self.lengths = {"short": 3}
        self.seen: list[int] = []
        seen = self.seen
        self.register_forward_hook(lambda module, args, output: seen.append(output.shape[0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.frozen(self.embedding(inputs)) @ self.scale) + self.view.sum()


def built_in(task_dir: Path, task: TaskDefinition) -> Built:
    """A task's model, built and saved in its directory."""
    (task_dir / "task.pkl").write_bytes(b"")
    return saved_build.build(task_dir, task)


def saved(task: TaskDefinition, directory: Path) -> tuple[Built, nn.Module]:
    """What is read of a task's saved model, and the model as it would have been built."""
    made = built_in(directory, task)
    assert made.unsaved is None
    found = saved_build.read(directory, task.seed)
    assert isinstance(found, Built)
    return found, build_model(task)


def unsaved(task: TaskDefinition, directory: Path) -> str:
    """Why a task's model isn't saved; it is built all the same."""
    made = built_in(directory, task)
    found = saved_build.read(directory, task.seed)
    assert isinstance(found, Unsaved) and made.unsaved == found.unsaved
    assert isinstance(made.module, nn.Module)
    return found.unsaved


def test_what_constructors_do_survives(tmp_path: Path) -> None:
    found, built = saved(definition(get_model=Odd), tmp_path)
    module: Any = found.module
    assert module.head.weight is module.embedding.weight
    assert module.training and not module.quiet.training
    assert [p.requires_grad for p in module.parameters()] == [True, False, False]
    assert "scale" not in module.state_dict() and "count" in module.state_dict()
    assert module.view.data_ptr() == module.table[1:].data_ptr(), "what shared memory still does"
    assert module.lengths == {"short": 3}
    inputs = torch.arange(4)
    assert torch.equal(module(inputs), built(inputs))
    assert len(module.seen) == 1, "its hook"
    late: list[str] = []
    module.register_forward_hook(lambda *_: late.append("called"))
    module(inputs)
    assert len(module.seen) == 2 and late == ["called"], "a later hook takes no other's place"


def test_random_streams_go_on_as_after_get_model(tmp_path: Path) -> None:
    def drawn() -> list[float]:
        return [float(torch.rand(())), random.random()]

    task = definition(get_model=Mlp)
    build_model(task)
    expected = drawn()
    built_in(tmp_path, task)
    assert drawn() == expected
    saved_build.read(tmp_path, task.seed)
    assert drawn() == expected


SEEN: list[int] = []


def test_functions_of_the_task_share_what_they_shared(tmp_path: Path) -> None:
    """A loss that reads what the model's hook has written."""
    written: list[float] = []

    def get_model() -> nn.Module:
        model = Mlp()
        model.register_forward_hook(lambda module, args, output: written.append(1.0))
        return model

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output.sum() * len(written)

    found, _ = saved(definition(get_model=get_model, loss_function=loss), tmp_path)
    output = found.module(torch.zeros(1, WIDTH))
    assert found.definition.loss_function is not None
    assert found.definition.loss_function(output.detach() * 0 + 1, output) == NUM_CLASSES
    assert written == [], "what was pickled is another's"


@pytest.fixture(scope="module")
def imported() -> None:
    """A model of transformers was built in this process before.

    Where other tests have imported `transformers.AutoModel`, the first model's imports replace that
    class; a fresh process, as one that inspects a task, has no such class yet.
    """
    model_kinds.task_of("gpt2").get_model()


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit"])
def test_models_of_transformers_are_saved(kind: str, tmp_path: Path) -> None:
    found, built = saved(model_kinds.task_of(kind), tmp_path)
    for (name, one), (other_name, other) in zip(
        found.module.state_dict().items(), built.state_dict().items(), strict=True
    ):
        assert name == other_name and torch.equal(one, other)
    for one, other in zip(found.module.buffers(), built.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_model_that_is_read_gives_all_the_outputs_that_it_may_be_asked_for(
    tmp_path: Path, imported: None
) -> None:
    pytest.importorskip("transformers")
    from transformers.utils import output_capturing

    task = sliced_models.experts_task(balanced=True)
    assert built_in(tmp_path, task).unsaved is None
    # As in a process that has built none: what its classes record is noted by constructors.
    output_capturing._CAN_RECORD_REGISTRY.clear()
    found = saved_build.read(tmp_path, task.seed)
    assert isinstance(found, Built)
    outputs = found.module(**next(iter(task.get_dataloader())), output_hidden_states=True)
    assert len(outputs.hidden_states) == 3 and len(outputs.router_logits) == 2


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(16))


def test_mapped_models_take_no_memory_of_their_own_until_they_are_written(tmp_path: Path) -> None:
    task = definition(get_model=Large)
    built_in(tmp_path, task)
    memory = PeakMemory("cpu")
    memory.restart()
    first = saved_build.read(tmp_path, task.seed)
    second = saved_build.read(tmp_path, task.seed)
    assert isinstance(first, Built) and isinstance(second, Built)
    total = sum(
        float(p.detach().sum()) for built in (first, second) for p in built.module.parameters()
    )
    assert total != 0.0
    # The kernel's count is off by up to some MiB where there are many cores.
    assert memory.peak_bytes() < 32 * MIB, "64 MiB twice, all read"
    with torch.no_grad():
        next(first.module.parameters()).fill_(1.0)
    assert float(next(second.module.parameters()).detach().mean()) != 1.0, (
        "the other doesn't see it"
    )
    third = saved_build.read(tmp_path, task.seed)
    assert isinstance(third, Built)
    assert float(next(third.module.parameters()).detach().mean()) != 1.0, (
        "and neither does the file"
    )


def test_only_what_is_in_host_memory_is_put_into_files() -> None:
    with pytest.raises(mapped_pickle.NotMappable, match="a tensor of it is on meta"):
        mapped_pickle.dumps(torch.empty(2, device="meta").untyped_storage())


def test_weights_begin_where_torch_would_put_them_whatever_file_they_come_from(
    tmp_path: Path,
) -> None:
    # The bits of a matrix product may depend on it.
    safetensors = pytest.importorskip("safetensors.torch")
    built = {"small": torch.ones(3, 5), "large": torch.ones(200, 100)}
    safetensors.save_file({"a": torch.ones(1), **built}, tmp_path / "weights")

    def get_model() -> nn.Module:
        stored = safetensors.load_file(tmp_path / "weights")
        return nn.ParameterDict({name: nn.Parameter(stored[name]) for name in built})

    found, built_alone = saved(definition(get_model=get_model), tmp_path)
    assert any(weight.data_ptr() % 64 for weight in built_alone.parameters())
    assert [weight.data_ptr() % 64 for weight in found.module.parameters()] == [0, 0]


def test_other_seeds_are_other_models(run: Runtime) -> None:
    for name, seed in (("one", 1), ("other", 2)):
        run.write_task(definition(name, seed=seed))
        run.run(name, ranks=2, steps=3, stop_at_step=2)
    weights = []
    for name, seed in (("one", 1), ("other", 2)):
        found = saved_build.read(run.task_dir(name), seed)
        assert isinstance(found, Built)
        weights.append(next(found.module.parameters()))
    assert not torch.equal(*weights)


def truncate(directory: Path) -> None:
    with next(directory.glob("storage-*")).open("r+b") as file:
        file.truncate(100)


def overwrite(directory: Path) -> None:
    path = next(directory.glob("storage-*"))
    path.write_bytes(bytes(path.stat().st_size))


def remove_one(directory: Path) -> None:
    next(directory.glob("storage-*")).unlink()


def no_manifest(directory: Path) -> None:
    (directory / "manifest.json").unlink()


def odd_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_text('{"made_in": ')


def of_another_boot(directory: Path) -> None:
    path = directory / "manifest.json"
    content = json.loads(path.read_text())
    content["made_in"]["boot"] = "another"
    path.write_text(json.dumps(content))


def of_another_task(directory: Path) -> None:
    (directory.parent.parent / "task.pkl").write_bytes(b"another")


@pytest.mark.slow(quick=["truncate", "of_another_task"])
@pytest.mark.parametrize(
    "damage",
    [
        *(truncate, overwrite, remove_one, no_manifest, odd_manifest),
        *(of_another_boot, of_another_task),
    ],
)
def test_what_was_touched_is_built_anew(damage: Callable[[Path], None], tmp_path: Path) -> None:
    task = definition(get_model=Odd)
    directory = tmp_path / "build" / "model"
    built_in(tmp_path, task)
    damage(directory)
    assert saved_build.read(tmp_path, task.seed) is None
    (tmp_path / "build" / ".new-1").mkdir()  # of a process that died while it wrote
    built_in(tmp_path, task)
    found = saved_build.read(tmp_path, task.seed)
    assert isinstance(found, Built)
    assert torch.equal(next(found.module.parameters()), next(build_model(task).parameters()))
    assert [path.name for path in directory.parent.iterdir()] == ["model"]


class Unpicklable(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.unpicklable = (number for number in range(3))


class ChangesSettings(Mlp):
    def __init__(self) -> None:
        super().__init__()
        torch.set_float32_matmul_precision("high")


class Patches(Mlp):
    def __init__(self) -> None:
        super().__init__()
        nn.LayerNorm.extra_repr = nn.Linear.extra_repr  # type: ignore[method-assign,assignment]


class PatchesAModule(Mlp):
    def __init__(self) -> None:
        super().__init__()
        nn.functional.relu6 = nn.functional.relu  # type: ignore[assignment]


class RemovesAName(Mlp):
    def __init__(self) -> None:
        super().__init__()
        del nn.functional.relu6


class ReplacesAModule(Mlp):
    def __init__(self) -> None:
        super().__init__()
        sys.modules["colorsys"] = types.ModuleType("colorsys")


class SetsAGlobal(Mlp):
    def __init__(self) -> None:
        super().__init__()
        global SEEN
        SEEN = [1]


class HooksAParameter(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight.register_hook(lambda gradient: gradient * 2)


class HooksAllModules(Mlp):
    def __init__(self) -> None:
        super().__init__()
        nn.modules.module.register_module_forward_hook(lambda *_: None)


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put back what models of these tests change."""
    monkeypatch.setattr(nn.LayerNorm, "extra_repr", nn.LayerNorm.extra_repr)
    monkeypatch.setattr(nn.functional, "relu6", nn.functional.relu6)
    monkeypatch.setitem(sys.modules, "colorsys", colorsys)
    hooks = nn.modules.module._global_forward_hooks
    precision = torch.get_float32_matmul_precision()
    yield
    hooks.clear()
    torch.set_float32_matmul_precision(precision)


@pytest.mark.usefixtures("undone")
@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Unpicklable, "it can't be pickled: TypeError: cannot pickle 'generator' object"),
        (ChangesSettings, "get_model changes torch.set_float32_matmul_precision for the process"),
        (Patches, "get_model changes torch.nn.modules.normalization.LayerNorm.extra_repr"),
        (PatchesAModule, "get_model changes torch.nn.functional.relu6 for the process"),
        (RemovesAName, "get_model changes torch.nn.functional, which has lost a name, for the"),
        (ReplacesAModule, "get_model changes sys.modules['colorsys'] for the process"),
        (SetsAGlobal, f"get_model changes {__name__}.SEEN for the process"),
        (HooksAParameter, "its parameter `head.weight` has hooks of its own"),
        (HooksAllModules, "get_model changes hooks on all modules for the process"),
    ],
)
def test_what_would_be_lost_is_built_by_each_rank(
    cls: type[nn.Module], reason: str, tmp_path: Path
) -> None:
    assert unsaved(definition(get_model=cls), tmp_path).startswith(reason)


def test_nothing_is_said_to_have_changed_that_has_not() -> None:
    changes = ProcessChanges()
    model_kinds.task_of("gpt2").get_model()
    assert changes.first() is None


def test_ranks_that_build_by_themselves_say_so_in_the_log(run: Runtime) -> None:
    run.write_task(definition(get_model=Unpicklable))
    result = run.run("mlp", ranks=2, steps=2)
    assert result.codes == [0, 0]
    assert result.logs.count("each rank builds the model by itself: it can't be pickled") == 1


def counting(path: str, width: int) -> nn.Module:
    """A model whose every building leaves a line behind."""
    with Path(path).open("a") as file:
        file.write("built\n")
    return Mlp(dropout=0.1)


def test_a_model_is_built_once_for_all_attempts_and_trials(run: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "built"
    task = definition(get_model=partial(counting, str(path), 1))
    run.write_task(task)
    gangs = [run.launch("mlp", "ddp", ranks=1, kind="trial") for _ in range(2)]
    for gang in gangs:
        assert gang.wait().codes == [0]
    for technique, ranks, until in (("ddp", 2, 4), ("fsdp", 2, 8), ("ddp", 1, None)):
        result = run.run("mlp", technique, ranks=ranks, steps=12, stop_at_step=until)
        assert result.codes == [0] * ranks
    assert path.read_text() == "built\n"
    assert not (run.task_dir("mlp") / "build" / "model").exists(), "it is trained"


STRATEGIES = [("ddp", 1), ("ddp", 2), ("fsdp", 2), ("pipeline", 2), ("offload", 1)]


@pytest.mark.slow(quick=["ddp-2"])
@pytest.mark.parametrize(("technique", "ranks"), STRATEGIES)
def test_losses_are_those_of_models_that_each_rank_builds(
    technique: str, ranks: int, run: Runtime
) -> None:
    """Bit for bit: the same task, once saved and once kept from being saved."""
    losses = []
    for name in ("saved", "built"):
        run.write_task(
            model_kinds.task_of(
                "gpt2", name=name, get_model=partial(model_kinds.gpt2, 0.1, n_layer=4)
            )
        )
        if name == "built":
            scratch = run.task_dir(name) / "build" / ".new-1"
            scratch.mkdir(parents=True)
            saved_build._commit(scratch, run.task_dir(name), {"unsaved": "a test"})
        for until in (2, None):
            result = run.run(name, technique, ranks=ranks, steps=4, stop_at_step=until)
            assert result.codes == [0] * ranks, result.logs
        assert ("each rank builds" in result.logs) == (name == "built")
        losses.append(run.losses(name))
    assert losses[0] == losses[1] and len(losses[0]) == 4
