"""`start_from`: the weights that a task starts with, wherever they lie, under every technique."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import black_boxes
import closeness
import pytest
import reference
import torch
from faces import make_task
from harness import Runtime
from models import Mlp, definition
from saturn import Task
from saturn.checkpoint import manifest
from saturn.checkpoint.starting import StartingWeights, _Unpickler
from saturn.errors import InvalidInput
from saturn.rank.exceptions import TaskError
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.profile_key import profile_key
from saturn.training.stepper import build_model
from techniques_of_tests import spec_of
from torch import nn

PLAIN = spec_of(black_boxes.Plain, "black_box")


def trained(seed: int = 99) -> Mlp:
    """A model whose weights no task of these tests would make."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Mlp()


def saved(directory: Path, seed: int = 99, name: str = "weights.pt") -> Path:
    torch.save(trained(seed).state_dict(), directory / name)
    return directory / name


def starting(path: Path, name: str = "mlp", **changes: Any) -> TaskDefinition:
    return definition(name, start_from=StartingWeights.at(path), **changes)


def expected(seed: int, steps: int) -> dict[int, float]:
    """Losses of plain torch, from those weights."""
    return reference.train(definition(get_model=lambda: trained(seed)), steps)[0]


def of_torch(state: dict[str, Any], directory: Path) -> Path:
    torch.save(state, directory / "w.pt")
    return directory / "w.pt"


def in_old_format(state: dict[str, Any], directory: Path) -> Path:
    torch.save(state, directory / "w.bin", _use_new_zipfile_serialization=False)
    return directory / "w.bin"


def with_more(state: dict[str, Any], directory: Path) -> Path:
    return of_torch({"model_state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}}, directory)


def wrapped(state: dict[str, Any], directory: Path) -> Path:
    return of_torch({f"module.{name}": value for name, value in state.items()}, directory)


def of_safetensors(state: dict[str, Any], directory: Path) -> Path:
    pytest.importorskip("safetensors.torch").save_file(state, directory / "w.safetensors")
    return directory / "w.safetensors"


def in_shards(state: dict[str, Any], directory: Path) -> Path:
    """As `save_pretrained` writes a large model."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    names = sorted(state)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: state[name] for name in part}, directory / f"{number}.safetensors")
    places = {name: f"{index % 2}.safetensors" for index, name in enumerate(names)}
    index = directory / "model.safetensors.index.json"
    index.write_text(str({"weight_map": places}).replace("'", '"'))
    return directory


@pytest.mark.parametrize(
    "write", [of_torch, in_old_format, with_more, wrapped, of_safetensors, in_shards]
)
def test_weights_are_read_from_what_people_save(
    tmp_path: Path, write: Callable[[dict[str, Any], Path], Path]
) -> None:
    state = trained().state_dict()
    found = build_model(starting(write(state, tmp_path))).state_dict()
    assert all(torch.equal(found[name], value) for name, value in state.items())


@pytest.mark.slow(quick=["fsdp", "technique3"])
@pytest.mark.parametrize("technique", ["ddp", "fsdp", "offload", PLAIN])
def test_weights_are_read_from_checkpoints(run: Runtime, tmp_path: Path, technique: Any) -> None:
    run.write_task(definition())
    result = run.run("mlp", technique, steps=2, gpus=2 if technique is PLAIN else 1)
    assert result.codes == [0], result.logs
    (_, checkpoint), *_ = manifest.found(run.task_dir("mlp") / "checkpoints")
    assert isinstance(checkpoint, Path)
    weights = reference.train(definition(), 2)[1].state_dict()
    found = build_model(starting(checkpoint)).state_dict()
    if technique is not PLAIN:  # whose loop is its own
        assert closeness.ulps(found, weights) < closeness.ACROSS
    else:
        content = torch.load(checkpoint / "state.pt", weights_only=True)
        assert closeness.ulps(found, content.get("model", content)) == 0
    damaged = checkpoint / ("state.pt" if technique is PLAIN else "__0_0.distcp")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(TaskError, match="damaged checkpoint"):
        build_model(starting(checkpoint))


def test_weights_that_do_not_train_come_from_the_same_checkpoint(run: Runtime) -> None:
    run.write_task(definition(get_model=frozen))
    assert run.run("mlp", "ddp", steps=2).codes == [0]
    (_, checkpoint), *_ = manifest.found(run.task_dir("mlp") / "checkpoints")
    assert isinstance(checkpoint, Path)
    found = build_model(starting(checkpoint, get_model=Mlp, seed=4)).state_dict()
    expected = reference.train(definition(get_model=frozen), 2)[1].state_dict()
    assert closeness.ulps(found, expected) < closeness.ACROSS


def frozen() -> Mlp:
    model = Mlp()
    model.layers[0].requires_grad_(False)
    return model


def test_a_tied_weight_is_there_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

    path = of_torch({"embed.weight": torch.ones(5, 4)}, tmp_path)
    model: Any = build_model(starting(path, get_model=Tied))
    assert torch.equal(model.head.weight, torch.ones(5, 4))


@pytest.mark.slow
def test_every_technique_starts_from_them(run: Runtime, tmp_path: Path) -> None:
    weights = saved(tmp_path)
    for technique, ranks in (("ddp", 1), ("fsdp", 2), ("pipeline", 2), ("offload", 1)):
        run.write_task(starting(weights, technique))
        result = run.run(technique, technique, ranks=ranks, steps=4)
        assert result.codes == [0] * ranks, result.logs
        assert closeness.ulps(run.losses(technique), expected(99, 4)) < closeness.ACROSS, technique


def test_tasks_of_a_group_have_their_own_weights_and_builds(run: Runtime, tmp_path: Path) -> None:
    paths = [saved(tmp_path, seed, f"{seed}.pt") for seed in (1, 2)]
    one, other = (make_task(start_from=path) for path in paths)
    assert profile_key(one) == profile_key(other), "weights change no step's time"
    assert one.definition().start_from != other.definition().start_from
    for seed, path in zip((1, 2), paths, strict=True):
        run.write_task(starting(path, f"task-{seed}", group=profile_key(one)))
    for seed in (1, 2):
        # A trial first, which leaves a saved build behind, and then training, which maps it.
        assert run.run(f"task-{seed}", "ddp", kind="trial").codes == [0]
        assert (run.task_dir(f"task-{seed}") / "build" / "model").is_dir()
    for seed in (1, 2):
        result = run.run(f"task-{seed}", "ddp", ranks=2, steps=3)
        assert result.codes == [0, 0], result.logs
        losses = run.losses(f"task-{seed}")
        assert closeness.ulps(losses, expected(seed, 3)) < closeness.ACROSS


def test_a_build_without_weights_is_not_taken_for_one_with_them(
    run: Runtime, tmp_path: Path
) -> None:
    run.write_task(definition("mlp"))
    assert run.run("mlp", "ddp", kind="trial").codes == [0]
    run.write_task(starting(saved(tmp_path)))
    result = run.run("mlp", "ddp", steps=2)
    assert result.codes == [0], result.logs
    assert closeness.ulps(run.losses("mlp"), expected(99, 2)) < closeness.ACROSS


def test_after_a_kill_the_checkpoint_counts(run: Runtime, tmp_path: Path) -> None:
    run.write_task(starting(saved(tmp_path)))
    assert run.run("mlp", "ddp", steps=3).codes == [0]
    gang = run.launch("mlp", "ddp", steps=10**6)
    gang.wait_for("progress", step=4)
    gang.kill_all()
    gang.wait()
    # Without what it built, as after a reboot: the weights are loaded, and the checkpoint after.
    result = run.run("mlp", "fsdp", ranks=2, steps=7)
    assert result.codes == [0, 0], result.logs
    assert result.one("started")["step"] == 3
    losses = {step: loss for step, loss in run.losses("mlp").items() if step <= 7}
    assert closeness.ulps(losses, expected(99, 7)) < closeness.ACROSS


def test_weights_that_do_not_fit_are_told_before_anything_trains(
    run: Runtime, tmp_path: Path
) -> None:
    state = trained().state_dict()
    del state["layers.1.weight"], state["layers.1.bias"]
    state["extra.weight"] = torch.ones(2)
    state["head.weight"] = torch.ones(5, 7)
    run.write_task(starting(of_torch(state, tmp_path)))
    result = run.inspect("mlp")
    failed = result.one("failed")
    assert failed["kind"] == "task"
    for text in (
        "it lacks `layers.1.weight` (and 1 more)",
        "it has `extra.weight`, which the model has not",
        "`head.weight` is 5 x 7 there and 5 x 12 in the model",
    ):
        assert text in failed["error"]


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_no_pickle_runs_code(run: Runtime, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    path = of_torch({**trained().state_dict(), "x": Malicious(trap)}, tmp_path)
    with pytest.raises(InvalidInput, match=r"w\.pt can't be read as weights"):
        make_task(start_from=path)
    # Nor that of a checkpoint, whose manifest is made to agree.
    run.write_task(definition())
    assert run.run("mlp", "ddp", steps=1).codes == [0]
    (_, checkpoint), *_ = manifest.found(run.task_dir("mlp") / "checkpoints")
    assert isinstance(checkpoint, Path)
    (checkpoint / ".metadata").write_bytes(pickle.dumps(Malicious(trap)))
    with pytest.raises(InvalidInput, match=r"index holds a posix\.mkdir"):
        make_task(start_from=checkpoint)
    assert not trap.exists()


def test_an_index_holds_types_of_torch_and_none_by_the_same_name() -> None:
    def found(module: str, name: str) -> Any:
        return _Unpickler(BytesIO(f"c{module}\n{name}\n.".encode())).load()

    assert found("torch", "bfloat16") is torch.bfloat16
    for module, name in (("numpy", "float32"), ("torch", "load"), ("torch.nn", "Linear")):
        with pytest.raises(InvalidInput, match=rf"index holds a {module}\.{name}"):
            found(module, name)


def test_weights_that_change_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    task = starting(path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(TaskError, match="has changed since the task was made"):
        build_model(task)
    path.unlink()
    with pytest.raises(TaskError, match="is not there"):
        build_model(task)


def test_what_holds_no_weights_is_refused(tmp_path: Path) -> None:
    def refused(start_from: Any, kind: type[Exception] = InvalidInput) -> str:
        with pytest.raises(kind) as raised:
            make_task(start_from=start_from)
        return str(raised.value)

    assert "is not there" in refused(tmp_path / "nothing.pt")
    assert "directory without weights" in refused(tmp_path)
    assert "start_from is a int" in refused(3, TypeError)
    torch.save([1, 2], tmp_path / "list.pt")
    assert "holds a list; it must be a state dict" in refused(tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    assert "holds no tensors" in refused(tmp_path / "epoch.pt")
    (tmp_path / "text.pt").write_text("no weights")
    assert "can't be read as weights" in refused(tmp_path / "text.pt")
    (tmp_path / "x.safetensors").write_text("no weights")
    assert "can't be read as safetensors" in refused(tmp_path / "x.safetensors")
    (tmp_path / "adapter_config.json").touch()
    assert "PEFT's adapters alone" in refused(tmp_path)
    with pytest.raises(InvalidInput, match="load the weights in make_trainer"):
        Task.from_trainer(lambda: None, start_from=saved(tmp_path))
