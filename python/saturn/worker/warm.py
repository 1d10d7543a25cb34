"""The warm parent: imports torch once, then forks ranks in a hundredth of the time.

Forking is safe only while this process has one thread and has never computed: it imports, reports
how many threads it has, and from then on only forks and waits. It touches no tensor and no GPU.

Protocol, JSON lines: `{"launch": {key, spec, rank, env, log}}` on stdin; `{"ready": …}` once,
then `{"launched": {key, pid}}` and `{"exited": {key, pid, code}}` on stdout (a negative code is a
signal's number; a rank that could not be forked only exits, with pid 0). The end of stdin means
that the runtime is gone: every rank is killed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from saturn.techniques.built_in import BUILT_IN

#: What ranks come to import sooner or later. Optimizers import torch's compiler, half a second and
#: 100 MB in each rank where the warm parent hasn't.
_ALWAYS = ("torch._dynamo", *(path.partition(":")[0] for path in BUILT_IN.values()))


class WarmParent:
    """The loop between the runtime's pipe and the ranks."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests  # file descriptors of the protocol
        self._answers = answers
        self._keys: dict[int, str] = {}  # of live ranks, by process id
        self._buffer = b""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self, ready: dict[str, Any]) -> None:
        """Answer requests until stdin ends; no rank is left then."""
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
        """Answer for a rank that could not be forked: it has ended, before it had a process."""
        try:
            with Path(request["log"]).open("a") as log:
                log.write(f"this rank could not be started: {error}\n")
        except OSError as log_error:
            sys.stderr.write(f"{request['log']}: {log_error}; wanted to say: {error}\n")
        self._answer({"exited": {"key": request["key"], "pid": 0, "code": 1}})

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
            except OSError:  # a rank trains as well without a log
                log = os.open(os.devnull, os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            from saturn.worker import rank
            from saturn.worker.fetch import die_with_parent

            die_with_parent()
            if os.getppid() != parent:  # it died before the kernel knew to tell us
                os._exit(1)
            os.environ.update(request["env"])
            code = rank.run(request["spec"], int(request["rank"]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._keys:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            key = self._keys.pop(pid, None)
            if key is None:
                continue
            # Loader workers and whatever else a rank started are of its process group.
            _kill(pid, group=True)
            code = os.waitstatus_to_exitcode(status)
            self._answer({"exited": {"key": key, "pid": pid, "code": code}})

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
            _kill(pid, group=False)  # it may not have a group of its own yet
        for pid in self._keys:
            os.waitpid(pid, 0)
        os._exit(0)


def _kill(pid: int, *, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _preload(entries: list[str]) -> None:
    """Import what ranks will need: `module`, or `module:name` for lazily loaded names."""
    for entry in entries:
        module_name, _, attribute = entry.partition(":")
        try:
            module = importlib.import_module(module_name)
            if attribute:
                getattr(module, attribute)
        # Anything may happen in a stranger's module, and the rank that needs it will say so.
        except BaseException as error:
            sys.stderr.write(f"preload of {entry} failed: {error!r}\n")


def main() -> None:
    """The program: `python -m saturn.worker.warm --workers-lock PATH --preload a,b`."""
    parser = argparse.ArgumentParser(prog="python -m saturn.worker.warm")
    parser.add_argument("--workers-lock", required=True)
    parser.add_argument("--preload", default="")
    arguments = parser.parse_args()
    # The protocol gets descriptors of its own: what an imported module prints must not enter it.
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    began = time.monotonic()
    from saturn.worker import rank  # noqa: F401  (everything a rank imports)
    from saturn.worker.lock import hold_workers_lock

    hold_workers_lock(arguments.workers_lock)
    _preload(list(_ALWAYS))
    _preload([entry for entry in arguments.preload.split(",") if entry])
    # What is imported stays. Left out of garbage collection, it costs ranks neither the walk
    # (0.15 s each time) nor a private copy of its pages.
    gc.collect()
    gc.freeze()
    threads = len(list(Path("/proc/self/task").iterdir()))
    ready = {"ready": True, "import_s": time.monotonic() - began, "threads": threads}
    WarmParent(requests, answers).serve(ready)


if __name__ == "__main__":
    main()
