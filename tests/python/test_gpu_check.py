"""`make gpu-check` on one fake GPU: a part that passes, and what it says without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_lines
import pytest
from fake_gpu.environment import environment
from gpu_machine import Machine

PROGRAM = Path(__file__).with_name("gpu_check.py")
LIMIT_S = 280


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.slow
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


#: The lines in two runs, for the time of each is limited.
FAILURES = ("opening-failure", "nccl-error", "lost-device", "device-memory", "mig")
COPIES = ("bf16-fsdp", "staging", "offload-overlap", "fused-step")


def run_lines(lines: Sequence[str], out: Path, **env: str) -> dict[str, Any]:
    done = run("--small", "--only", ",".join(lines), "--out", out, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line: json.loads((out / f"{line}.json").read_text()) for line in lines}


def test_every_line_is_run_below() -> None:
    assert {*FAILURES, *COPIES} == set(gpu_lines.LINES)


@pytest.mark.slow
@pytest.mark.usefixtures("fake_gpus")
def test_lines_of_failures_hold_on_a_fake_gpu_with_a_context_beside_one_that_is_split(
    tmp_path: Path,
) -> None:
    env = environment(devices=1) | {"FAKE_GPU_CONTEXT_BYTES": "50000000"}
    found = run_lines(FAILURES, tmp_path, **env)
    assert found["opening-failure"]["trial"]["seconds"] < 5
    assert found["nccl-error"]["kind"] == "error"
    assert found["lost-device"]["codes"] == [1]
    memory = found["device-memory"]
    assert memory["limit_bytes"] == 350_000_000
    assert 330_000_000 < memory["held_bytes"] <= 350_000_000
    assert memory["held_bytes"] == memory["of_these_torch_bytes"] + 50_000_000
    assert found["mig"]["split"] == []
    env = environment(devices=2) | {"FAKE_GPU_MIG": "1"}
    assert len(run_lines(["mig"], tmp_path, **env)["mig"]["split"]) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("fake_gpus")
def test_lines_of_copies_hold_on_a_fake_gpu(tmp_path: Path) -> None:
    found = run_lines(COPIES, tmp_path, **environment(devices=1))
    # Half of 42 MB of weights, and no copy of 21 MB.
    assert found["bf16-fsdp"]["bytes_of_a_bf16_copy"] == 20_992_000
    assert 21_000_000 < found["bf16-fsdp"]["bf16"]["held_after_forward_bytes"] < 25_000_000
    assert found["staging"]["first"]["GB"] > 0.1
    assert found["offload-overlap"]["offload_ms"] > 0
    assert set(found["fused-step"]) == {"cuda", "cpu"}


def machine(*uuids: str, small: bool = False) -> Machine:
    return Machine(uuids, ("A GPU",) * len(uuids), Path(), small)


@pytest.mark.parametrize(("small", "of_the_sum"), [(False, 0.7), (True, 1.2)])
def test_copies_that_overlap_pass_as_do_those_of_fake_gpus(
    monkeypatch: pytest.MonkeyPatch, small: bool, of_the_sum: float
) -> None:
    monkeypatch.setattr(gpu_lines, "_said", lambda *_: {"of_the_sum": of_the_sum})
    line = gpu_lines.LINES["offload-overlap"]
    assert line(machine("GPU-1", small=small)) == {"of_the_sum": of_the_sum}


def test_copies_that_do_not_overlap_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_lines, "_said", lambda *_: {"of_the_sum": 0.95})
    with pytest.raises(AssertionError, match="nearly nothing overlaps"):
        gpu_lines.LINES["offload-overlap"](machine("GPU-1"))


def test_tensor_is_refused_with_a_reason_where_ranks_share_a_gpu_over_gloo() -> None:
    one, two = machine("GPU-1"), machine("GPU-1", "GPU-2")
    for technique in ("tensor", "tensor+fsdp", "pipeline+tensor"):
        assert "segmentation fault" in (one.reason_against(technique) or "")
        assert one.widths(technique) == [1] and two.reason_against(technique) is None
    assert one.reason_against("fsdp") is None and one.widths("fsdp") == [1, 2, 4]
    assert two.widths("tensor") == [1, 2]


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_ends_with_2(tmp_path: Path) -> None:
    done = run("--out", tmp_path / "none", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr == "gpu-check: torch finds no GPU on this machine\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("--only", "speed", "--out", tmp_path)
    assert done.returncode == 2
    assert "no part `speed`; there are same-training, out-of-memory" in done.stderr
