"""A run whose devices have little memory, end to end: predicted, tried, planned, trained, told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import memory_models
import pytest
import saturn
import saturn._core
from saturn import HParams, InvalidInput, Task
from saturn.plain.sizes import parse_limit
from saturn.runs.settings import Settings
from torch import nn

#: State of the model with AdamW: 168 MB. Half of it, and what a step needs besides, fits here.
LIMIT = "125MB"


def task(name: str = "deep", steps: int = 3) -> Task:
    return Task(
        memory_models.Deep,
        memory_models.batches,
        nn.functional.cross_entropy,
        HParams(lr=0.001, batch_count=steps, depth=10),
        name=name,
    )


def outcomes(report: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(trial["technique"], trial["gpus"]): trial["result"] for trial in report["trials"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("technique", "gpus", "gpu_range"), [("fsdp", 2, None), ("offload", 1, [1])]
)
def test_what_does_not_fit_under_ddp_trains_under(
    technique: str,
    gpus: int,
    gpu_range: list[int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    deep = task()
    deep.gpu_range = gpu_range
    result = saturn.orchestrate(
        [deep], techniques=["ddp", technique], devices=2, device_memory=LIMIT, name="small"
    )
    [trained] = result.tasks
    assert trained.status == "done" and trained.strategy is not None
    assert (trained.strategy.technique, trained.strategy.gpus) == (technique, gpus)
    assert trained.strategy.device_memory_bytes == 125_000_000
    assert trained.strategy.peak_memory_bytes is not None
    assert trained.strategy.peak_memory_bytes < 125_000_000

    words = "needs at least 168 MB of 125 MB a device: parameters, gradients and optimizer state"
    shown = capsys.readouterr().err
    assert "on 2 CPU slots of 125 MB each" in shown
    assert "too large for a device: ddp" in shown

    report = json.loads((result.run_dir / "report.json").read_text())
    assert report["device_memory_bytes"] == 125_000_000
    refused = {"outcome": "out_of_memory", "detail": f"{words}; not tried"}
    assert outcomes(report)["ddp", 1] == refused
    assert words in (result.run_dir / "report.html").read_text()
    profile = json.loads((result.run_dir / "profile.json").read_text())
    assert {trial["device_memory_bytes"] for trial in profile["trials"]} == {125_000_000}
    specs = [
        json.loads(path.read_text()) for path in result.run_dir.glob("tasks/*/attempts/*/spec.json")
    ]
    asked = [pool for spec in specs for pool in spec.get("pools", [spec])]
    assert {one["device_memory_bytes"] for one in asked} == {125_000_000}


def reused(name: str) -> list[bool]:
    report = json.loads(Path("saturn_runs", name, "report.json").read_text())
    return [trial["reused"] for trial in report["trials"]]


@pytest.mark.slow
def test_trials_under_one_limit_say_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"techniques": ["ddp"], "devices": 1, "log": False}
    earlier = "saturn_runs/first"
    small, again = task("small"), task("again")
    saturn.search([small], device_memory="100MB", name="first", **options)
    assert [strategy.status for strategy in small.strategies] == ["out_of_memory"]
    saturn.search([again], device_memory="100MB", profile=earlier, name="same", **options)
    assert reused("same") == [True]
    # Neither the profile nor what the task itself was found to need is used without the limit.
    again.strategies = []
    saturn.search([small, again], profile=earlier, name="free", **options)
    assert reused("free") == [False]
    assert [strategy.status for strategy in small.strategies] == ["measured"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("600M", 'device_memory is "600M"; it must be a size such as "600MB" or "2GiB"'),
        ("", 'device_memory is ""'),
        ("-1GB", "must be a size such as"),
        ("600", "device_memory is 600 bytes; it must be at least 1MB"),
        (0, "device_memory is 0 bytes"),
    ],
)
def test_a_bad_size_is_refused_before_anything_is_written(
    size: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=re.escape(words)):
        saturn.search([task()], device_memory=size)
    assert not list(tmp_path.glob("saturn_runs/*"))


def test_a_size_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="device_memory is a float"):
        saturn.search([task()], device_memory=1.5e9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("said", "limit"), [("none", None), (" None ", None), ("2MB", 2 * 10**6)])
def test_no_limit_may_be_said_wherever_a_limit_may(said: str, limit: int | None) -> None:
    described = Settings(mode="orchestrate", device_memory=said).checked().described
    assert described.get("device_memory_bytes") == limit
    # A resume takes the run's limit if none is given, so it has another value for no limit.
    assert parse_limit("device_memory", said, unlimited=0) == (limit or 0)
    with pytest.raises(InvalidInput, match="host_memory"):
        Settings(mode="orchestrate", host_memory="none").checked()
