"""`make gpu-check` on one fake GPU: a part that passes, and what it says without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_gpu.environment import environment

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("gpu_check.py")


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.usefixtures("fake_gpus")
def test_a_part_leaves_its_findings_versions_and_a_report(tmp_path: Path) -> None:
    done = run(
        "--only", "out-of-memory,host-and-memory", "--out", tmp_path, **environment(devices=1)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out-of-memory.json").read_text())
    assert found["ddp in 100 MB"]["outcome"] == "out_of_memory"
    assert found["offload in 140 MB"]["outcome"] == "measured"
    memory = json.loads((tmp_path / "host-and-memory.json").read_text())
    if memory["can_keep_pinned_sizes"]:
        assert memory["pinned_taken_bytes"] == memory["pinned_asked_bytes"]
    assert json.loads((tmp_path / "versions.json").read_text())["torch"]
    assert "## out-of-memory: ok" in (tmp_path / "report.md").read_text()


LINES = "opening-failure,nccl-error,device-memory,staging,fused-step,mig"


@pytest.mark.usefixtures("fake_gpus")
def test_every_line_holds_on_a_fake_gpu_with_a_context_beside_one_that_is_split(
    tmp_path: Path,
) -> None:
    env = environment(devices=1) | {"FAKE_GPU_CONTEXT_BYTES": "50000000"}
    done = run("--small", "--only", LINES, "--out", tmp_path, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {part: json.loads((tmp_path / f"{part}.json").read_text()) for part in LINES.split(",")}
    assert found["opening-failure"]["trial"]["seconds"] < 5
    assert found["nccl-error"]["kind"] == "error"
    memory = found["device-memory"]
    assert memory["limit_bytes"] == 350_000_000
    assert 330_000_000 < memory["held_bytes"] <= 350_000_000
    assert memory["held_bytes"] == memory["of_these_torch_bytes"] + 50_000_000
    assert found["staging"]["first"]["GB"] > 0.1
    assert set(found["fused-step"]) == {"cuda", "cpu"}
    assert found["mig"]["split"] == []
    env = environment(devices=2) | {"FAKE_GPU_MIG": "1"}
    done = run("--small", "--only", "mig", "--out", tmp_path, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "mig.json").read_text())["split"]) == 1


def test_without_a_gpu_it_says_so_and_ends_with_2(tmp_path: Path) -> None:
    done = run("--out", tmp_path / "none", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr == "gpu-check: torch finds no GPU on this machine\n"
    assert not (tmp_path / "none").exists()


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("--only", "speed", "--out", tmp_path)
    assert done.returncode == 2
    assert "no part `speed`; there are same-training, out-of-memory" in done.stderr
