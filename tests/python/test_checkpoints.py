"""Checkpoints: complete or not there, verified before they are opened, the last two kept."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import closeness
import pytest
import reference
import torch
from harness import Runtime
from live_gangs import Gang
from models import Mlp, definition
from saturn.checkpoint import manifest


def slow_saving() -> Mlp:
    """Makes each save wait before its files are sealed, so that a test can strike there."""
    manifest.commit = lambda *_: time.sleep(30)  # type: ignore[assignment]
    return Mlp()


def wait_for_files(run: Runtime, pattern: str) -> None:
    deadline = time.monotonic() + 100
    while not list((run.task_dir("mlp") / "checkpoints").glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.01)


@pytest.mark.slow(quick=["0"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_while_saving_leaves_the_previous_checkpoint(
    run: Runtime, victim: int
) -> None:
    run.write_task(definition())
    assert run.run("mlp", "ddp", ranks=2, steps=4).codes == [0, 0]
    run.write_task(definition(get_model=slow_saving))
    gang = run.launch("mlp", "ddp", ranks=2, steps=7)
    wait_for_files(run, ".new-*/.metadata")
    gang.kill(victim)
    gang.kill_all()
    gang.wait()
    names = run.checkpoints("mlp")
    assert names[-1] == "step-00000004" and any(name.startswith(".new-") for name in names)
    run.write_task(definition())
    result = run.run("mlp", "fsdp", ranks=2, steps=9)
    assert result.codes == [0, 0], result.logs
    assert result.one("started")["step"] == 4
    # What was half-written is gone, and so is what is older than two checkpoints.
    assert run.checkpoints("mlp") == ["step-00000004", "step-00000009"]
    expected, _ = reference.train(definition(), 9)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


# That each operation of a save may be the last is quick: `test_durability`.
@pytest.mark.slow
def test_kills_at_random_moments_never_cost_more_than_the_last_save(run: Runtime) -> None:
    moments = random.Random(4)
    steps = 60
    run.write_task(definition())
    done = 0
    for attempt in range(8):
        technique, ranks = moments.choice([("ddp", 1), ("ddp", 2), ("fsdp", 2)])
        gang = run.launch("mlp", technique, ranks=ranks, steps=steps, checkpoint_every_s=0.0)
        gang.wait_for("started")
        time.sleep(moments.uniform(0.0, 0.35))
        gang.kill(moments.randrange(ranks))
        gang.kill_all()
        result = gang.wait()
        started = result.one("started")["step"]
        assert started >= done, f"attempt {attempt} went back from {done} to {started}"
        saves = result.of("checkpoint")
        done = saves[-1]["step"] if saves else started
    result = run.run("mlp", "ddp", ranks=2, steps=steps)
    assert result.codes == [0, 0] and result.one("started")["step"] >= done, result.logs
    expected, _ = reference.train(definition(), steps)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


def newest(run: Runtime) -> Path:
    return run.task_dir("mlp") / "checkpoints" / run.checkpoints("mlp")[-1]


def flip_a_byte(directory: Path) -> None:
    path = max(directory.glob("*.distcp"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_a_file(directory: Path) -> None:
    path = next(directory.glob("*.distcp"))
    path.write_bytes(path.read_bytes()[:-1])


def lose_a_file(directory: Path) -> None:
    next(directory.glob("*.distcp")).unlink()


def add_a_file(directory: Path) -> None:
    (directory / "__9_0.distcp").write_bytes(b"stranger")


def change_the_index(directory: Path) -> None:
    # DCP's index is a pickle: it must not be opened once it has changed.
    (directory / ".metadata").write_bytes(b"cos\nsystem\n(S'touch /tmp/saturn-was-here'\ntR.")


def lose_the_manifest(directory: Path) -> None:
    (directory / manifest.NAME).unlink()


def spoil_the_manifest(directory: Path) -> None:
    (directory / manifest.NAME).write_text("{")


def another_version(directory: Path) -> None:
    content = json.loads((directory / manifest.NAME).read_text())
    (directory / manifest.NAME).write_text(json.dumps({**content, "version": 99}))


@pytest.mark.slow(quick=["lose_a_file", "spoil_the_manifest"])
@pytest.mark.parametrize(
    "damage",
    [
        flip_a_byte,
        cut_a_file,
        lose_a_file,
        add_a_file,
        change_the_index,
        lose_the_manifest,
        spoil_the_manifest,
        another_version,
    ],
)
def test_a_damaged_checkpoint_is_passed_over(run: Runtime, damage: object) -> None:
    run.write_task(definition())
    for steps in (3, 5):
        run.run("mlp", "fsdp", ranks=2, steps=steps)
    damage(newest(run))  # type: ignore[operator]
    result = run.run("mlp", "ddp", ranks=2, steps=5)
    assert result.codes == [0, 0], result.logs
    assert result.one("started")["step"] == 3
    assert not Path("/tmp/saturn-was-here").exists()
    # The damaged one made way for a good one of the same step.
    directory, _ = manifest.newest_valid(run.task_dir("mlp") / "checkpoints") or (None, None)
    assert directory is not None
    assert run.checkpoints("mlp") == ["step-00000003", directory.name]
    assert run.run("mlp", "ddp", steps=6).one("started")["step"] == 5


def test_the_last_two_are_kept(run: Runtime) -> None:
    run.write_task(definition())
    result = run.run("mlp", "ddp", ranks=2, steps=7, checkpoint_every_s=0.0)
    assert [message["step"] for message in result.of("checkpoint")] == [1, 2, 3, 4, 5, 6, 7]
    assert run.checkpoints("mlp") == ["step-00000006", "step-00000007"]
    assert all(0 < each["blocked_s"] <= each["save_s"] for each in result.of("checkpoint"))


def test_the_manifest_says_what_it_holds(run: Runtime) -> None:
    run.write_task(definition())
    run.run("mlp", "fsdp", ranks=3, steps=8)
    content = manifest.read(newest(run))
    assert content is not None
    files = content.pop("files")
    assert set(files) == {"__0_0.distcp", "__1_0.distcp", "__2_0.distcp", ".metadata"}
    content.pop("loss")
    content.pop("attempt")
    content.pop("python")
    assert content == {
        "version": 1,
        "format": "dcp",
        "task": "mlp",
        "precision": "float32",
        "deterministic": False,
        "tf32": False,
        "loss_scale": None,
        "evaluation": None,
        "technique": "fsdp",
        "gpus": 3,
        "knobs": {},
        "step": 8,
        "optimizer_groups": [{}],
        "lr_scheduler": None,
        "samples": 44 + 16,
        "epoch": 1,
        "batch": 2,
        "batches": 8,
        "torch": torch.__version__,
    }


def test_a_checkpoint_loads_in_plain_torch(run: Runtime) -> None:
    import torch.distributed.checkpoint as dcp

    run.write_task(definition())
    run.run("mlp", "fsdp", ranks=2, steps=6)
    model = Mlp()
    state = {"model": model.state_dict()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(state, checkpoint_id=newest(run), no_dist=True)
    _, expected = reference.train(definition(), 6)
    assert closeness.ulps(model.state_dict(), expected.state_dict()) < closeness.ACROSS
    assert "scale" not in state["model"]


def test_batch_norm_statistics_are_those_of_one_rank_in_all_files(run: Runtime) -> None:
    run.write_task(definition(get_model=WithBatchNorm))
    assert run.run("mlp", "ddp", ranks=2, steps=3).codes == [0, 0]
    gang: Gang = run.launch("mlp", "fsdp", ranks=2, steps=6)
    assert gang.wait().codes == [0, 0]


class WithBatchNorm(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.batch_norm = torch.nn.BatchNorm1d(12)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(self.batch_norm(inputs))
