"""The demo: on one device alone, as on several, every one of its models can be trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_gpu.environment import environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.append(str(EXAMPLES))

import sweep  # noqa: E402

#: Plans for the two kinds of readers, which are the models that a device of 200 MB can't hold.
SEARCH = """
import sys
import saturn, sweep
tasks = [task for task in sweep.sweep(short=True) if task.name in ("bytes-lr0.001", "words-lr0.1")]
assert len(tasks) == 2
saturn.search(tasks, device_memory=sweep.LONE_DEVICE_MEMORY, name="run")
"""


@pytest.mark.parametrize(("cores", "expected"), [(1, "300MB"), (2, "200MB")])
def test_a_slot_alone_may_hold_more(
    cores: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert sweep.device_memory(None, None) == expected
    assert sweep.device_memory(None, 2) == sweep.DEVICE_MEMORY
    assert sweep.device_memory(None, 1) == sweep.LONE_DEVICE_MEMORY
    assert sweep.device_memory("600MB", None) == "600MB"
    assert sweep.device_memory("none", 1) is None


def test_a_gpu_holds_all_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert sweep.device_memory(None, None) is None
    assert sweep.device_memory("2GiB", None) == "2GiB"


@pytest.mark.slow
@pytest.mark.usefixtures("fake_gpus")
@pytest.mark.parametrize("kind", ["GPU", "core"])
def test_one_device_alone_can_train_the_largest_models(kind: str, tmp_path: Path) -> None:
    found = environment(devices=1) if kind == "GPU" else {}
    home = {"SATURN_HOME": str(tmp_path / "home")}
    path = os.pathsep.join(filter(None, [str(EXAMPLES), found.get("PYTHONPATH")]))
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        cwd=tmp_path,
        env={**os.environ, **found, **home, "PYTHONPATH": path},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    device = "1 GPU" if kind == "GPU" else "1 CPU slot"
    assert f"2 tasks on {device} of 300 MB" in done.stderr + done.stdout
