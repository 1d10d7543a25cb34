"""A live task that a re-plan moves to another technique and device count, with real training.

The profile that the run is given claims that the first task takes long. It doesn't: when it has
ended, one device is idle, and moving the other task from `ddp` on one device to `fsdp` on both is
worth its cost by the same profile.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import closeness
import pytest
import saturn
import torch
from saturn import HParams, Task, native

pytestmark = pytest.mark.slow

STEPS, QUICK_STEPS = 400, 100


def get_model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 2)
    )


def get_dataloader() -> torch.utils.data.DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(300, 8, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, (inputs.prod(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=25, shuffle=True)


def slow_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    time.sleep(0.01)  # a step takes as long on any machine
    return torch.nn.functional.cross_entropy(outputs, labels)


def task(name: str, steps: int) -> Task:
    hparams = HParams(lr=0.01, batch_count=steps)
    return Task(get_model, get_dataloader, slow_loss, hparams, name=name)


def losses(run_dir: Path, name: str) -> list[float]:
    lines = (run_dir / "tasks" / name / "metrics.jsonl").read_text().splitlines()
    by_step = {point["step"]: point["loss"] for point in map(json.loads, lines)}
    return [by_step[step] for step in range(1, STEPS + 1)]


def claim(task: str, technique: str, gpus: int, step_s: float) -> dict[str, Any]:
    return {
        "task": task,
        "technique": technique,
        "gpus": gpus,
        "outcome": "measured",
        "step_s": step_s,
        "setup_s": 0.1,
        "peak_memory_bytes": 1,
        "timed_steps": 3,
    }


def refused(task: str, technique: str, gpus: int) -> dict[str, Any]:
    outcome = {"outcome": "not_applicable", "reason": "for this test"}
    return {"task": task, "technique": technique, "gpus": gpus, **outcome}


@pytest.fixture
def gains_of_less_than_seconds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are moved for any gain: these are short."""
    run = native.run
    monkeypatch.setattr(
        native,
        "run",
        lambda request, *given, **more: run(
            json.dumps(json.loads(request) | {"min_gain_s": 0.0}), *given, **more
        ),
    )


@pytest.mark.usefixtures("gains_of_less_than_seconds_count")
@pytest.mark.timeout(240)
def test_a_live_task_moves_from_ddp_to_fsdp_and_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = [
        # Claimed to take as long as the other.
        claim("quick", "ddp", 1, 0.012 * STEPS / QUICK_STEPS),
        *[refused("quick", *way) for way in (("ddp", 2), ("fsdp", 1), ("fsdp", 2))],
        claim("long", "ddp", 1, 0.012),
        claim("long", "fsdp", 2, 0.004),
        *[refused("long", *way) for way in (("ddp", 2), ("fsdp", 1))],
    ]
    (tmp_path / "claims.json").write_text(json.dumps({"trials": profile}))
    # Two keys: tasks of one function would share a profile.
    tasks = [task("quick", QUICK_STEPS), task("long", STEPS)]
    tasks[0].get_model = lambda: get_model()
    result = saturn.orchestrate(
        tasks,
        1.0,
        name="moved",
        devices=2,
        techniques=["ddp", "fsdp"],
        profile="claims.json",
        solver_time_limit_s=0.3,
        max_switches=0,
    )
    assert [one.status for one in result.tasks] == ["done", "done"]
    report = json.loads((result.run_dir / "report.json").read_text())
    ways = [
        (attempt["technique"], attempt["gpus"], attempt["how"])
        for attempt in report["attempts"]
        if attempt["purpose"] == "train" and report["tasks"][attempt["task"]]["name"] == "long"
    ]
    # On busy cores fsdp may turn out to be slow too, and another plan moves it once more.
    assert ways[0] == ("ddp", 1, "stopped") and ways[1][:2] == ("fsdp", 2), ways

    alone = saturn.orchestrate(
        [task("long", STEPS)], name="alone", devices=1, techniques=["ddp"], log=False
    )
    moved, straight = losses(result.run_dir, "long"), losses(alone.run_dir, "long")
    assert closeness.ulps(moved, straight) < closeness.ACROSS
    assert "re-plan" in capsys.readouterr().err


@pytest.mark.timeout(240)
def test_a_planned_switch_is_made_at_its_step_and_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    timed = {"checkpoint_s": 0.05}
    profile = [
        {**claim("short", "ddp", 1, 0.012), **timed},
        *[refused("short", *way) for way in (("ddp", 2), ("fsdp", 1), ("fsdp", 2))],
        {**claim("long", "ddp", 1, 0.012), **timed},
        {**claim("long", "fsdp", 2, 0.008), **timed},
        *[refused("long", *way) for way in (("ddp", 2), ("fsdp", 1))],
    ]
    (tmp_path / "claims.json").write_text(json.dumps({"trials": profile}))
    tasks = [task("short", STEPS // 2), task("long", STEPS)]
    tasks[0].get_model = lambda: get_model()
    result = saturn.orchestrate(
        tasks,
        name="switched",
        devices=2,
        profile="claims.json",
        techniques=["ddp", "fsdp"],
        solver_time_limit_s=0.3,
    )
    assert [one.status for one in result.tasks] == ["done", "done"]
    report = json.loads((result.run_dir / "report.json").read_text())
    named = [one["name"] for one in report["tasks"]].index("long")
    segments = [one for one in report["plans"][0]["tasks"] if one["task"] == named]
    ways = {(one["technique"], one["gpus"]) for one in segments}
    assert ways == {("ddp", 1), ("fsdp", 2)}, segments
    attempts = [
        one for one in report["attempts"] if one["purpose"] == "train" and one["task"] == named
    ]
    # On busy cores steps take longer than claimed, and another plan may move the task earlier.
    if len(report["plans"]) == 1:
        assert [one["how"] for one in attempts] == ["stopped", "finished"]
        for segment, attempt in zip(segments, attempts, strict=True):
            assert (attempt["technique"], attempt["gpus"]) == (
                segment["technique"],
                segment["gpus"],
            )
        assert attempts[0]["step"] == attempts[1]["from_step"] == segments[0]["until_step"]
        assert "the plan switched it here" in capsys.readouterr().err

    alone = saturn.orchestrate(
        [task("long", STEPS)], name="alone", devices=1, techniques=["ddp"], log=False
    )
    switched, straight = losses(result.run_dir, "long"), losses(alone.run_dir, "long")
    assert closeness.ulps(switched, straight) < closeness.ACROSS
