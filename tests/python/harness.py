"""Plays the runtime for the tests: a socket, spec files, gangs from a warm parent or cold.

It speaks the worker protocol from its text alone, and shares nothing with the Rust runtime. Every
launch is a real gang of real processes.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saturn.cluster.store import AgentStore
from saturn.scripts.command import ScriptDefinition
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import BUILT_IN
from warm_parent import LIMIT_S, Warm, rank_env, worker_env

#: How long the peers of a failed rank may take to notice, before the gang is killed.
GRACE_S = 60.0


@dataclass
class Result:
    """What a gang said and how it ended."""

    messages: list[tuple[int, dict[str, Any]]]  # (rank, message)
    codes: list[int]
    logs: str

    def of(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [
            message
            for sender, message in self.messages
            if message["type"] == kind and rank in (None, sender)
        ]

    def one(self, kind: str) -> dict[str, Any]:
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} `{kind}` messages\n{self.messages}\n{self.logs}"
        return found[0]


@dataclass
class Gang:
    """A launched gang."""

    runtime: Runtime
    keys: list[str]
    world_size: int
    logs: list[Path]
    processes: list[subprocess.Popen[bytes]]  # of a cold start
    messages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    connections: dict[int, socket.socket] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    #: The steps to which a trial that waits for it is told to go on; None to end it.
    goes_on_to: int | None = None

    def stop(self) -> None:
        """Ask every rank to stop at a checkpoint."""
        self.tell({"type": "stop"})

    def tell(self, message: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        """Send a line to these ranks, or to all of them."""
        self.wait_for("hello", count=self.world_size)
        for rank, connection in self.connections.items():
            if ranks is None or rank in ranks:
                connection.sendall((json.dumps(message) + "\n").encode())

    def has_been_read(self) -> bool:
        """Whether the ranks have read all that they were told."""
        with self.changed:
            connections = list(self.connections.values())
        return not any(map(_unread, connections))

    def wait_for(self, kind: str, *, count: int = 1, step: int = 0) -> None:
        """Wait for messages of a kind, with at least `step` where they carry one."""

        def there() -> bool:
            found = [m for _, m in self.messages if m["type"] == kind and m.get("step", 0) >= step]
            return len(found) >= count

        with self.changed:
            assert self.changed.wait_for(there, LIMIT_S), f"no {kind}: {self.messages}"

    def pid(self, rank: int) -> int:
        self.wait_for("hello", count=self.world_size)
        with self.changed:
            return next(m["pid"] for r, m in self.messages if m["type"] == "hello" and r == rank)

    def kill(self, rank: int) -> None:
        os.kill(self.pid(rank), signal.SIGKILL)

    def kill_all(self) -> None:
        for rank in range(self.world_size):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid(rank), signal.SIGKILL)

    def wait(self) -> Result:
        """Wait for every rank's end; as the runtime does, end a gang that has failed.

        Peers get a while to say what they saw. Some never return: gloo may leave a rank waiting
        for another that waits too.
        """
        codes: list[int | None] = [None] * self.world_size
        deadline = time.monotonic() + LIMIT_S
        failed_at: float | None = None
        while None in codes:
            for rank, code in enumerate(codes):
                if code is None:
                    codes[rank] = self._poll(rank)
            if failed_at is None and any(codes):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > GRACE_S:
                self.kill_all()
                failed_at = math.inf
            if time.monotonic() > deadline:
                self.kill_all()
                raise AssertionError(f"gang hangs: {codes} {self.messages}\n{self._text()}")
            time.sleep(0.005)
        ended = [code for code in codes if code is not None]
        self.runtime.meet()
        with self.changed:
            # A rank's last lines may still be on their way to the reader threads. A rank that
            # ended well has connected; others may have died before.
            self.changed.wait_for(lambda: self._is_heard_out(ended), 30 if not any(ended) else 5)
            return Result(list(self.messages), ended, self._text())

    def _is_heard_out(self, codes: Sequence[int]) -> bool:
        """Whether all that the ranks sent has been read, as far as can be known."""
        have_connected = all(
            rank in self.connections for rank, code in enumerate(codes) if not code
        )
        return have_connected and not self.runtime.open_readers(self)

    def _poll(self, rank: int) -> int | None:
        if self.processes:
            return self.processes[rank].poll()
        try:
            assert self.runtime.warm is not None
            return self.runtime.warm.exit_code(self.keys[rank], timeout_s=0.001)
        except queue.Empty:
            return None

    def _text(self) -> str:
        return "\n".join(log.read_text() for log in self.logs if log.exists())


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


def _unread(connection: socket.socket) -> int:
    """Bytes that were sent and are not yet read; none where either side has closed."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError):
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]


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
