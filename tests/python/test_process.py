"""A rank's process: how many cores are its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from saturn.rank.process import cores_a_gpu


@pytest.mark.parametrize(
    ("cores", "gpus", "each"), [(16, 1, 16), (16, 4, 4), (17, 4, 4), (2, 8, 1), (1, 1, 1)]
)
def test_cores_fall_to_gpus_evenly(
    monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int, each: int
) -> None:
    monkeypatch.setattr("saturn.rank.process.MACHINES_GPUS", "/nowhere")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert cores_a_gpu(gpus) == each


def test_the_machine_may_have_more_gpus_than_a_gang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "gpus"
    for number in range(4):
        (directory / f"0000:0{number}:00.0").mkdir(parents=True)
    monkeypatch.setattr("saturn.rank.process.MACHINES_GPUS", str(directory))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert cores_a_gpu(1) == 4 and cores_a_gpu(8) == 2
