"""The processes of a script: one for each device, in the environment that torchrun would give.

All of them are in the process group of the rank that starts them, so ending that group ends them.
Rank 0 writes to the rank's own log; every other process has a log of its own beside it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from saturn.scripts.command import REPORT, RUN_DIR, STOP_FILE, TRIAL, ScriptDefinition
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.worker.spec import Spec

#: Memory allowed beyond a slot's limit, for what a process starts later.
_ALLOWANCE_BYTES = 16 << 20
#: How many bytes at the end of a log are read for a process's last output.
_TAIL_BYTES = 8192
#: Variables that workers have in their environment, and a script started by hand has not.
_OF_WORKERS = ("PYTHONSAFEPATH", "PYTORCH_NVML_BASED_CUDA_CHECK", "GLOO_SOCKET_IFNAME")
#: SIGTERM's bit in the mask of handled signals in /proc/PID/status: bit n - 1 is signal n.
_SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


class Processes:
    """All processes of one launch; leaving the `with` block kills those that are left."""

    def __init__(self, spec: Spec, script: ScriptDefinition, args: Sequence[str]) -> None:
        """Start the processes. The stop file must not exist yet."""
        self._spec = spec
        self._script = script
        self.report_path = spec.attempt_dir / "report.jsonl"
        self._stop_file = spec.attempt_dir / "stop"
        self._asked_s: float | None = None
        self._is_killed = False  # whether processes were killed because they didn't end in time
        self._processes: list[subprocess.Popen[bytes]] = []
        self.peak_bytes = 0
        common = self._environment()
        program = [*_interpreter(script.path), *script.before, str(script.path)]
        command = [*program, *script.args, *args]
        try:
            for rank in range(spec.gpus):
                self._start(rank, command, common)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Processes:
        """Enter the block in which the processes run."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill the processes that are left."""
        self.kill()

    @property
    def have_ended(self) -> bool:
        """Whether all processes have ended."""
        return all(one.poll() is not None for one in self._processes)

    def failed(self) -> tuple[int, int] | None:
        """(rank, exit code) of the first process that failed; None if none has."""
        for rank, process in enumerate(self._processes):
            code = process.poll()
            if code is not None and code != 0 and not (self._asked_s and self._is_by_us(code)):
                return rank, code
        return None

    def _is_by_us(self, code: int) -> bool:
        """Whether the exit code comes from a signal that this object sent."""
        return _is_by_term(code) or (self._is_killed and code == -signal.SIGKILL)

    def look_at_memory(self) -> None:
        """Update the most memory that any process has held."""
        for process in self._processes:
            text = ""
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{process.pid}/status").read_text()
            for line in text.splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_bytes = max(self.peak_bytes, int(line.split()[1]) << 10)

    def ask_to_stop(self) -> None:
        """Ask all processes to save and end, by the stop file, and by SIGTERM if they handle it.

        A process without a handler would die of SIGTERM in the middle of a step. Such a process
        gets the signal only after `stop_within_s`. After twice that time, all are killed.
        """
        if self._asked_s is None:
            self._asked_s = time.monotonic()
            self._stop_file.touch()
            can_save = self._script.resume is not None
            self._signal(signal.SIGTERM, only_handled=can_save)
            return
        waited_s = time.monotonic() - self._asked_s
        if waited_s > 2 * self._script.stop_within_s:
            self._is_killed = True
            self._signal(signal.SIGKILL, only_handled=False)
        elif waited_s > self._script.stop_within_s:
            self._signal(signal.SIGTERM, only_handled=False)

    def kill(self) -> None:
        """Kill all processes, and wait for their end."""
        self._signal(signal.SIGKILL, only_handled=False)
        for process in self._processes:
            process.wait()

    def last_words(self, rank: int) -> str:
        """The end of a process's log."""
        try:
            with self._log(rank).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def _log(self, rank: int) -> Path:
        return self._spec.attempt_dir / f"rank-{rank}.log"

    def _environment(self) -> dict[str, str]:
        spec = self._spec
        environment = {key: value for key, value in os.environ.items() if key not in _OF_WORKERS}
        environment.update(
            {
                "WORLD_SIZE": str(spec.gpus),
                "LOCAL_WORLD_SIZE": str(spec.gpus),
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "default",
                "ROLE_WORLD_SIZE": str(spec.gpus),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(_free_port()),
                "TORCHELASTIC_RUN_ID": f"{spec.task}-{spec.attempt}",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0",
                RUN_DIR: str(spec.run_dir),
                REPORT: str(self.report_path),
                STOP_FILE: str(self._stop_file),
            }
        )
        if spec.cores is not None or spec.gpus > 1:
            # As torchrun does. A single process may use all cores, unless it is pinned to its own.
            environment["OMP_NUM_THREADS"] = "1"
        if spec.kind == "trial":
            environment[TRIAL] = "1"
        surroundings = Surroundings.read(spec.task_dir / SUBMITTED)
        if surroundings is not None:
            of_run = environment.get("PYTHONPATH", "").split(os.pathsep)
            paths = dict.fromkeys([*surroundings.places, *of_run])
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment.update(self._script.environment)
        return environment

    def _start(self, rank: int, command: Sequence[str], common: Mapping[str, str]) -> None:
        spec = self._spec
        numbers = dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(rank))
        log = None if rank == 0 else os.open(self._log(rank), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            process = subprocess.Popen(
                command,
                cwd=self._script.cwd,
                env={**common, **numbers},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        finally:
            if log is not None:
                os.close(log)
        self._processes.append(process)
        # Set at once, because what the process starts later inherits both.
        with contextlib.suppress(ProcessLookupError):
            if spec.cores is not None:
                os.sched_setaffinity(process.pid, set(spec.cores[rank]))
            if spec.device_memory_bytes is not None and spec.device_kind == "cpu":
                own = _data_bytes() + _ALLOWANCE_BYTES
                limit = spec.device_memory_bytes + own
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (limit, limit))

    def _signal(self, number: signal.Signals, *, only_handled: bool) -> None:
        for process in self._processes:
            if process.poll() is None and (not only_handled or _handles_sigterm(process.pid)):
                process.send_signal(number)


def _interpreter(path: Path) -> list[str]:
    """The program that runs the script: this Python; none if the script is itself a program."""
    return [] if path.suffix != ".py" and os.access(path, os.X_OK) else [sys.executable, "-u"]


def _is_by_term(code: int) -> bool:
    """Whether a process ended by SIGTERM, or exited with a shell's code for it."""
    return code in (-signal.SIGTERM, 128 + signal.SIGTERM)


def _handles_sigterm(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line for line in text.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) & _SIGTERM_BIT)


def _data_bytes() -> int:
    """Data of this process, which has imported torch too: an allowance beyond a script's model."""
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) << 10


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
