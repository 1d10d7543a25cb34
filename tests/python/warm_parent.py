"""The warm parent of the tests, from which ranks are forked, and what the runtime gives to ranks.

Like `harness`, this file follows the text of the worker protocol and shares nothing with the Rust
runtime.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Programs that tests start import this file without pytest's paths.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from fake_gpu.environment import device_uuid

PYTHON_DIR = Path(__file__).resolve().parents[2] / "python"
#: Longest any single gang of these tests may take.
LIMIT_S = 200.0
#: The most GPUs of a machine of fake GPUs.
MOST_GPUS = 16


def worker_env(gpus: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that the runtime gives to its workers; `gpus` is that of fake GPUs."""
    gpus = gpus or {}
    tests = Path(__file__).parent
    path = [str(PYTHON_DIR), str(tests), str(tests.parent), gpus.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **gpus,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def rank_env(rank: int, world_size: int, attempt: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
        "SATURN_TASK": "test",
        "SATURN_ATTEMPT": str(attempt),
        "OMP_NUM_THREADS": "1",
    }


class Warm:
    """A warm parent, shared by all tests of a session."""

    def __init__(
        self,
        lock: Path,
        preload: str = "",
        gpus: Mapping[str, str] | None = None,
        uuids: Sequence[str] = (),
    ) -> None:
        """`gpus` is the environment of a machine with GPUs: its ranks train there by default.

        `uuids` are theirs; without, those of fake GPUs.
        """
        self.gpus = gpus
        self._uuids = uuids or [device_uuid(number) for number in range(MOST_GPUS)]
        self.process = subprocess.Popen(
            # The tests' modules, from which ranks take functions and models, import pytest: in
            # each rank, that would take a fifth of a second.
            [
                *(sys.executable, "-m", "saturn.worker.warm", "--workers-lock", str(lock)),
                *("--preload", ",".join(["pytest", *([preload] if preload else [])])),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_env(gpus),
            start_new_session=True,
        )
        self.pids: dict[str, int] = {}
        self._exits: dict[str, queue.Queue[int]] = {}
        self.ready: dict[str, Any] = self._line()
        threading.Thread(target=self._read, daemon=True).start()

    def visible(self, count: int) -> str:
        """`CUDA_VISIBLE_DEVICES` of a gang on so many GPUs; of fewer, all share one."""
        uuids = self._uuids[: count if count <= len(self._uuids) else 1]
        return ",".join(uuids)

    def launch(self, key: str, *, spec: Path, rank: int, env: dict[str, str], log: Path) -> None:
        self._exits[key] = queue.Queue()
        request = {"key": key, "spec": str(spec), "rank": rank, "env": env, "log": str(log)}
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"launch": request}) + "\n").encode())
        self.process.stdin.flush()

    def exit_code(self, key: str, timeout_s: float = LIMIT_S) -> int:
        return self._exits[key].get(timeout=timeout_s)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def _read(self) -> None:
        with contextlib.suppress(ValueError):  # closed under us
            while message := self._line():
                if "launched" in message:
                    self.pids[message["launched"]["key"]] = message["launched"]["pid"]
                elif "exited" in message:
                    exited = message["exited"]
                    self._exits[exited["key"]].put(exited["code"])
