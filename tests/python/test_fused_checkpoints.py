"""A member writes the checkpoints of a task alone; a task resumes them alone or in a group."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fused_models import Trained, alone, assert_same, finish, sweep, task
from in_process import gang_of_one
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data.slices import Position
from saturn.fused.group import Group
from saturn.rank.gang import Gang
from saturn.techniques.ddp import Ddp
from saturn.techniques.interface import Technique

# peft asks transformers for something by its former name.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with gang_of_one(tmp_path) as one:
        yield one


def checkpoints_of(trained: Trained, gang: Gang, directory: Path) -> Checkpoints:
    stepper = trained.stepper
    assert stepper is not None
    return Checkpoints(
        directory,
        gang,
        {"attempt": 1},
        stepper.optimizer_groups,
        stepper.lr_schedule,
        stepper.loss_scale,
        stepper.draws,
    )


def stretch(
    trained: Trained, technique: Technique, gang: Gang, directory: Path, steps: int
) -> None:
    """Train `steps` more steps from the last checkpoint in `directory`, and save there."""
    trained.train(technique, gang, steps=0)
    assert trained.stepper is not None
    checkpoints = checkpoints_of(trained, gang, directory)
    position, done = Position(), 0
    if (newest := checkpoints.newest()) is not None:
        done = newest[1]["step"]
        position = checkpoints.load(*newest, trained.stepper.parallel, trained.stepper.optimizer)
    position = trained.go_on(position, steps)
    checkpoints.save(
        *(trained.stepper.parallel, trained.stepper.optimizer),
        step=done + steps,
        position=position,
        loss=trained.losses[-1],
    )


@pytest.mark.slow(quick=["bf16"])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_checkpoints_go_from_alone_to_groups_and_back(
    precision: str, gang: Gang, tmp_path: Path
) -> None:
    tasks = sweep("gpt2", precision=precision)
    trained = {each.name: Trained(each) for each in tasks}

    def together(names: str, steps: int) -> None:
        group = Group(gang.device)
        members = []
        for name in names:
            (directory := tmp_path / name).mkdir(exist_ok=True)
            work = partial(stretch, trained[name], gang=gang, directory=directory, steps=steps)
            members.append(group.add(name, work))
        finish(group)
        assert [member.error for member in members] == [None] * len(members)

    (tmp_path / "a").mkdir()
    stretch(trained["a"], Ddp(), gang, tmp_path / "a", 1)
    together("abc", 2)
    together("cb", 1)
    for name in "ac":
        stretch(trained[name], Ddp(), gang, tmp_path / name, 1)
    for name, steps in (("a", 4), ("b", 3), ("c", 4)):
        expected = alone(trained[name].definition, tmp_path, steps=steps)
        assert_same(trained[name], expected)


def test_a_member_s_checkpoint_has_the_files_of_a_task_alone(gang: Gang, tmp_path: Path) -> None:
    (one := tmp_path / "alone").mkdir()
    (other := tmp_path / "fused").mkdir()
    stretch(Trained(task("a", "llama")), Ddp(), gang, one, 2)
    group = Group(gang.device)
    group.add("b", lambda technique: Trained(task("b", "llama", seed=9)).train(technique, gang))
    member = group.add(
        "a", lambda technique: stretch(Trained(task("a", "llama")), technique, gang, other, 2)
    )
    finish(group)
    assert member.error is None
    (expected,), (found,) = list(one.iterdir()), list(other.iterdir())
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names
    tensors = [name for name in names if name.endswith(".distcp")]
    assert len(tensors) == 2, "what trains, and what is frozen"
    for name in tensors:
        assert (found / name).read_bytes() == (expected / name).read_bytes()
