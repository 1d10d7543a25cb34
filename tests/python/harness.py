"""Plays the runtime for the tests: a socket, spec files, gangs from a warm parent or cold.

It speaks the worker protocol from its text alone, and shares nothing with the Rust runtime. Every
launch is a real gang of real processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from live_gangs import Gang, Result
from saturn.cluster.store import AgentStore
from saturn.scripts.command import ScriptDefinition
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import BUILT_IN
from warm_parent import Warm, rank_env, worker_env


class Runtime:
    """A run directory with its socket; launches attempts of tasks."""

    _attempts = 0

    def __init__(self, run_dir: Path, warm: Warm | None) -> None:
        self.run_dir = run_dir
        (run_dir / "journal.db").touch()  # where there is none, nothing has begun
        self.warm = warm
        self._gangs: dict[int, Gang] = {}
        self._store: AgentStore | None = None
        self._reading: dict[int, int] = {}
        self._unnamed = 0  # processes that have connected, and have not yet said who they are
        self._named = threading.Condition()
        # A short path: Unix socket names are at most 107 bytes long.
        self._socket_dir = tempfile.TemporaryDirectory(prefix="saturn-test-")
        self.socket_path = f"{self._socket_dir.name}/s"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.socket_path)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def task_dir(self, task: str) -> Path:
        return self.run_dir / "tasks" / task

    def write_task(self, definition: TaskDefinition | ScriptDefinition) -> None:
        directory = self.task_dir(definition.name)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "task.pkl").write_bytes(definition.dumps())

    def launch(
        self,
        task: str,
        technique: str | dict[str, Any] = "ddp",
        *,
        ranks: int = 1,
        kind: str = "train",
        steps: int | None = None,
        stop_at_step: int | None = None,
        knobs: dict[str, Any] | None = None,
        gpus: int | None = None,
        checkpoint_every_s: float = 1e9,
        warmup_steps: int = 1,
        timed_steps: int = 2,
        max_timed_steps: int = 2,
        device_kind: str | None = None,
        device_memory_bytes: int | None = None,
        goes_on_to: int | None = None,
        cold: bool = False,
        env: dict[str, str] | None = None,
        log: Path | None = None,
        node_gpus: Sequence[int] = (),
    ) -> Gang:
        """`node_gpus`: how many ranks there are on each node, as it were; all on one by default."""
        attempt, directory = self._new_attempt(task)
        has_gpus = self.warm is not None and self.warm.gpus is not None
        device_kind = device_kind or ("cuda" if has_gpus else "cpu")
        if has_gpus:
            assert self.warm is not None
            visible = self.warm.visible(gpus or ranks) if device_kind == "cuda" else ""
            env = {"CUDA_VISIBLE_DEVICES": visible, **(env or {})}
        spec = {
            "version": 1,
            "kind": kind,
            "run_dir": str(self.run_dir),
            "task": task,
            "task_dir": str(self.task_dir(task)),
            "attempt": attempt,
            "technique": _ref(technique),
            "gpus": gpus or ranks,
            "knobs": knobs if kind == "trial" else (knobs or {}),
            "world_size": ranks,
            "device_kind": device_kind,
            "devices": list(range(gpus or ranks)),
            "device_memory_bytes": device_memory_bytes,
            "cores": [[rank % (os.cpu_count() or 1)] for rank in range(gpus or ranks)]
            if device_kind == "cpu"
            else None,
            "steps": steps,
            "stop_at_step": stop_at_step,
            "warmup_steps": warmup_steps,
            "timed_steps": timed_steps,
            "max_timed_steps": max_timed_steps,
            "checkpoint_every_s": checkpoint_every_s,
            "failure_every_s": 86_400.0,
            "rendezvous": str(directory / "rendezvous"),
            "socket": self.socket_path,
            "node_gpus": list(node_gpus),
        }
        specs = [spec] if not node_gpus else list(self._shares(spec, node_gpus))
        return self._start(
            directory, specs, ranks, goes_on_to=goes_on_to, cold=cold, env=env, log=log
        )

    def _shares(self, spec: dict[str, Any], node_gpus: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The spec as each of several nodes has it."""
        if self._store is None:
            self._store = AgentStore("127.0.0.1")
        store = self._store.open()
        first = 0
        for number in node_gpus:
            own = slice(first, first + number)
            cores = spec["cores"] and spec["cores"][own]
            share = {"first_rank": first, "devices": spec["devices"][own], "cores": cores}
            yield {**spec, **share, "store": store}
            first += number

    def inspect(
        self,
        task: str,
        techniques: Sequence[str | dict[str, Any]] = ("ddp",),
        *,
        gpus: Sequence[int] = (1, 2),
        device_kind: str = "cpu",
        device_memory_bytes: int | None = None,
    ) -> Result:
        """Look at a task's model, as an inspection does."""
        attempt, directory = self._new_attempt(task)
        pool = {"gpu_type": device_kind, "gpus": list(gpus)}
        spec = {
            "version": 1,
            "kind": "inspect",
            "run_dir": str(self.run_dir),
            "task": task,
            "task_dir": str(self.task_dir(task)),
            "attempt": attempt,
            "techniques": [_ref(technique) for technique in techniques],
            "device_kind": device_kind,
            "pools": [{**pool, "device_memory_bytes": device_memory_bytes}],
            "socket": self.socket_path,
        }
        return self._start(directory, [spec], 1).wait()

    def _new_attempt(self, task: str) -> tuple[int, Path]:
        Runtime._attempts += 1
        directory = self.task_dir(task) / "attempts" / str(Runtime._attempts)
        directory.mkdir(parents=True)
        return Runtime._attempts, directory

    def _start(
        self,
        directory: Path,
        specs: Sequence[dict[str, Any]],
        ranks: int,
        *,
        goes_on_to: int | None = None,
        cold: bool = False,
        env: dict[str, str] | None = None,
        log: Path | None = None,
    ) -> Gang:
        attempt = specs[0]["attempt"]
        paths: list[Path] = []
        for number, spec in enumerate(specs):
            path = directory / ("spec.json" if number == 0 else f"spec-{number}.json")
            path.write_text(json.dumps(spec))
            paths += [path] * len(spec.get("devices", [0]))
        keys = [f"{attempt}/{rank}" for rank in range(ranks)]
        logs = [log or directory / f"rank-{rank}.log" for rank in range(ranks)]
        gang = Gang(self, keys, ranks, logs, [], goes_on_to=goes_on_to)
        self._gangs[attempt] = gang
        self._reading[attempt] = 0
        for rank in range(ranks):
            variables = {**rank_env(rank, ranks, attempt), **(env or {})}
            spec_path = paths[rank]
            if cold or self.warm is None:
                gang.processes.append(self._start_cold(spec_path, rank, variables, logs[rank]))
            else:
                self.warm.launch(
                    keys[rank], spec=spec_path, rank=rank, env=variables, log=logs[rank]
                )
        return gang

    def run(self, task: str, technique: str | dict[str, Any] = "ddp", **options: Any) -> Result:
        return self.launch(task, technique, **options).wait()

    def losses(self, task: str) -> dict[int, float]:
        """Loss by step number from 1; of a repeated step, the last."""
        lines = map(json.loads, (self.task_dir(task) / "metrics.jsonl").read_text().splitlines())
        return {entry["step"]: entry["loss"] for entry in lines if "loss" in entry}

    def evaluations(self, task: str) -> list[tuple[int, dict[str, float]]]:
        """(step, metrics) of each evaluation, in the order in which they were written."""
        lines = map(json.loads, (self.task_dir(task) / "metrics.jsonl").read_text().splitlines())
        return [(entry["step"], entry["evaluation"]) for entry in lines if "evaluation" in entry]

    def checkpoints(self, task: str) -> list[str]:
        return sorted(path.name for path in (self.task_dir(task) / "checkpoints").iterdir())

    def meet(self) -> None:
        """Wait until every process that has connected so far has said who it is."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as last:
            last.settimeout(30)
            last.connect(self.socket_path)
            # Connections are accepted in order. Where this one was, so were all before it.
            last.sendall(b"\n")
            last.recv(1)
        with self._named:
            self._named.wait_for(lambda: not self._unnamed, 30)

    def open_readers(self, gang: Gang) -> int:
        return next(self._reading[key] for key, value in self._gangs.items() if value is gang)

    def close(self) -> None:
        self._server.close()
        self._socket_dir.cleanup()

    def _start_cold(
        self, spec: Path, rank: int, env: dict[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "saturn.worker.rank", str(spec), str(rank)),
                    *("--workers-lock", str(self.run_dir / "workers.lock")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**worker_env(self.warm.gpus if self.warm else None), **env},
                start_new_session=True,
            )

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed under us
            while True:
                connection, _ = self._server.accept()
                with self._named:
                    self._unnamed += 1
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            try:
                line = lines.readline().strip()
                if not line:  # `meet`, or a process that was killed before it said anything
                    return
                hello = json.loads(line)
                assert hello["type"] == "hello"
                gang, rank = self._gangs[hello["attempt"]], hello["rank"]
                with gang.changed:
                    self._reading[hello["attempt"]] += 1
                    gang.connections[rank] = connection
            finally:
                with self._named:
                    self._unnamed -= 1
                    self._named.notify_all()
            self._add(gang, rank, hello)
            with contextlib.suppress(ConnectionError):
                for line in lines:
                    self._add(gang, rank, json.loads(line))
            with gang.changed:
                self._reading[hello["attempt"]] -= 1
                gang.changed.notify_all()

    def _add(self, gang: Gang, rank: int, message: dict[str, Any]) -> None:
        with gang.changed:
            gang.messages.append((rank, message))
            gang.changed.notify_all()
        if message["type"] == "trial" and message.get("step") is not None:
            steps = gang.goes_on_to
            gang.tell({"type": "stop"} if steps is None else {"type": "go_on", "steps": steps})


def _ref(technique: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(technique, dict):
        return technique
    return {
        "name": technique,
        "level": "managed",
        "import": BUILT_IN[technique],
        "pickle": None,
    }


@contextlib.contextmanager
def runtime(run_dir: Path, warm: Warm | None) -> Iterator[Runtime]:
    opened = Runtime(run_dir, warm)
    try:
        yield opened
    finally:
        opened.close()
