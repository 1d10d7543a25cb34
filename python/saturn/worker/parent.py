"""A parent of ranks: starts them, reaps them, and ends all processes that they leave behind.

Protocol, JSON lines: `{"launch": {key, spec, rank, env, log}}` on stdin; `{"ready": …}` once,
then `{"launched": {key, pid}}` and `{"exited": {key, pid, code}}` on stdout (a negative code is a
signal's number). A rank that could not be started only exits, with pid 0 and the reason as `why`.
The end of stdin means that the runtime is gone: every rank is killed.

Each rank leads a session of its own and adopts its orphans. When the rank has gone, its orphans
come to this process. So a child that is no rank, and was not there before the first rank, was left
behind by a rank. Such a child is killed.

The module imports only the standard library, so that the cold parent starts at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from saturn.rank.orphans import adopt_orphans, children, die_with_parent


class Parent:
    """The loop between the runtime's pipe and the ranks."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests  # the protocol's two file descriptors
        self._answers = answers
        self._keys: dict[int, str] = {}  # the launch keys of live ranks, by process id
        self._own: set[int] = set()  # children that imported modules started as their helpers
        self._buffer = b""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run_rank(self, spec: str, rank: int) -> int:
        """Be a rank, in the process that was forked for it; returns the rank's exit code."""
        raise NotImplementedError

    def serve(self, ready: dict[str, Any]) -> None:
        """Answer requests until stdin ends; when this returns, no rank is left."""
        self._own = children()
        adopt_orphans()
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._end())
        self._answer(ready)
        while True:
            readable, _, _ = select.select([self._requests, self._wake_read], [], [])
            if self._wake_read in readable:
                self._drain_wake()
                self._reap()
            if self._requests in readable:
                data = os.read(self._requests, 1 << 16)
                if not data:
                    self._end()
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                for line in lines:
                    self._launch(json.loads(line)["launch"])

    def _launch(self, request: dict[str, Any]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(request, error)
            return
        if pid == 0:
            self._become_rank(request, parent)
        self._keys[pid] = request["key"]
        self._answer({"launched": {"key": request["key"], "pid": pid}})

    def _refuse(self, request: dict[str, Any], error: OSError) -> None:
        """Report the exit of a rank that could not be forked, so never had a process."""
        try:
            with Path(request["log"]).open("a") as log:
                log.write(f"this rank could not be started: {error}\n")
        except OSError as log_error:
            sys.stderr.write(f"{request['log']}: {log_error}; wanted to say: {error}\n")
        exited = {"key": request["key"], "pid": 0, "code": 1, "why": str(error)}
        self._answer({"exited": exited})

    def _become_rank(self, request: dict[str, Any], parent: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in (self._requests, self._answers, self._wake_read, self._wake_write):
                os.close(descriptor)
            os.setsid()
            try:
                log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError:  # a rank can train without a log
                log = os.open(os.devnull, os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            die_with_parent()
            if os.getppid() != parent:  # the parent died before `die_with_parent` took effect
                os._exit(1)
            adopt_orphans()
            os.environ.update(request["env"])
            code = self.run_rank(request["spec"], int(request["rank"]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        has_reaped = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            has_reaped = True
            self._own.discard(pid)
            key = self._keys.pop(pid, None)
            if key is None:
                continue
            # Loader workers and other processes that a rank started are in its process group.
            _kill(pid, group=True)
            code = os.waitstatus_to_exitcode(status)
            self._answer({"exited": {"key": key, "pid": pid, "code": code}})
        if has_reaped:
            # A stray's own children come here once the stray is reaped, and are killed then.
            self._kill_strays()

    def _kill_strays(self) -> None:
        for pid in children() - self._keys.keys() - self._own:
            _kill(pid, group=False)

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake_read, 512):
                pass
        except BlockingIOError:
            return

    def _answer(self, message: dict[str, Any]) -> None:
        data = (json.dumps(message) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._answers, data) :]
        except BrokenPipeError:
            self._end()

    def _end(self) -> NoReturn:
        for pid in self._keys:
            _kill(pid, group=True)
            _kill(pid, group=False)  # the rank may not lead a process group yet
        # If the kernel can't end a process, the runtime ends this one.
        while self._keys.keys() | (children() - self._own):
            self._kill_strays()
            try:
                pid, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            self._keys.pop(pid, None)
            self._own.discard(pid)
        os._exit(0)


def claim_pipes() -> tuple[int, int]:
    """Move the protocol to descriptors of its own, so that what modules print can't enter it."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, answers


def _kill(pid: int, *, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
