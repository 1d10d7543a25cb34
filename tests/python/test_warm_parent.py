"""The warm parent and the cold start: launching, exit codes, and that nothing outlives them."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Runtime, runtime
from models import Mlp, definition, shuffled_loader
from saturn.core.executors.Technique import BaseTechnique
from saturn.worker import warm
from saturn.worker.warm import WarmParent
from techniques_of_tests import spec_of
from torch.utils.data import DataLoader
from warm_parent import Warm


@pytest.fixture
def own_warm(tmp_path: Path) -> Iterator[Warm]:
    """A warm parent of the test's own, to end as it likes."""
    parent = Warm(tmp_path / "workers.lock", preload="json.tool,no_such_module,os:getcwd")
    yield parent
    if parent.process.poll() is None:
        parent.close()


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may go while its file is read
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"{alive} live on"
        time.sleep(0.02)


def is_locked(path: Path) -> bool:
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def with_children(directory: str) -> Any:
    """A loader whose worker processes write down who they are."""

    def start(worker_id: int) -> None:
        Path(directory, str(os.getpid())).touch()

    return DataLoader(
        shuffled_loader().dataset, 8, shuffle=True, num_workers=2, worker_init_fn=start
    )


def children(directory: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 100
    while len(found := list(directory.iterdir())) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(path.name) for path in found]


def with_daemon(directory: str) -> Mlp:
    """A model that leaves a process in a session, a group and under a parent of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(directory, str(os.getpid())).touch()
            time.sleep(1000)
        os._exit(0)
    return Mlp()


class Torchruns(BaseTechnique):
    """A black box that trains in torchrun's processes."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        directory = os.environ["CHILDREN"]
        script = Path(directory).parent / "train.py"
        script.write_text(
            "import os, pathlib, time\n"
            f"pathlib.Path({directory!r}, str(os.getpid())).touch()\n"
            "time.sleep(1000)\n"
        )
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        subprocess.run([*launcher, "--nproc-per-node=2", str(script)], check=True)

    def search(task, gpus, task_id):  # noqa: N805
        return None


def noisy_model() -> Mlp:
    print("this goes to the log")
    return Mlp()


def test_ready_says_that_forking_is_safe(own_warm: Warm) -> None:
    assert own_warm.ready["ready"] is True and own_warm.ready["cannot_fork"] is None
    assert 0 < own_warm.ready["import_s"] < 120


@pytest.mark.slow
def test_pyarrow_leaves_no_thread_behind(tmp_path: Path) -> None:
    # As pandas, datasets and scikit-learn import it. Its allocator would start a thread.
    pytest.importorskip("pyarrow")
    parent = Warm(tmp_path / "workers.lock", preload="pyarrow")
    assert parent.ready["cannot_fork"] is None
    parent.close()


def test_a_driver_that_an_import_has_opened_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nvidia-uvm"
    file.touch()
    monkeypatch.setattr(warm, "DRIVER_FILES", {str(file)})
    assert not warm._holds_gpu()
    with file.open():
        assert warm._holds_gpu()


def test_output_goes_to_the_log_and_the_environment_is_set(run: Runtime) -> None:
    def loss(outputs: Any, labels: Any) -> Any:
        assert os.environ["SATURN_TASK"] == "test" and os.environ["MINE"] == "yes"
        assert os.getpgid(0) == os.getpid() and not os.isatty(0)
        return outputs.sum()

    run.write_task(definition(get_model=noisy_model, loss_function=loss))
    result = run.run("mlp", "ddp", steps=2, env={"MINE": "yes"})
    assert result.codes == [0], result.logs
    assert "this goes to the log" in result.logs


@pytest.mark.slow(quick=["killed"])
@pytest.mark.parametrize("ending", ["end of stdin", "killed"])
def test_no_process_outlives_the_warm_parent(tmp_path: Path, own_warm: Warm, ending: str) -> None:
    (tmp_path / "children").mkdir()
    with runtime(tmp_path, own_warm) as run:
        name = str(tmp_path / "children")
        run.write_task(definition(get_dataloader=lambda: with_children(name)))
        gang = run.launch("mlp", "ddp", ranks=2, steps=10**6)
        gang.wait_for("progress")
        pids = [gang.pid(0), gang.pid(1), *children(tmp_path / "children", 4)]
        assert all(is_alive(pid) for pid in pids) and is_locked(tmp_path / "workers.lock")
        if ending == "killed":
            own_warm.process.kill()
            own_warm.process.wait()
            assert own_warm.process.stdin is not None and own_warm.process.stdout is not None
            own_warm.process.stdin.close()
        else:
            own_warm.close()
            assert own_warm.process.returncode == 0
        wait_until_gone(pids)
        # The last thread of a killed process may close its files a moment after it shows as dead.
        deadline = time.monotonic() + 60
        while is_locked(tmp_path / "workers.lock"):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_what_a_killed_rank_had_started_dies_with_it(run: Runtime, tmp_path: Path) -> None:
    (tmp_path / "children").mkdir()
    name = str(tmp_path / "children")
    run.write_task(definition(get_dataloader=lambda: with_children(name)))
    gang = run.launch("mlp", "ddp", steps=10**6)
    pids = children(tmp_path / "children", 2)
    gang.kill(0)
    assert gang.wait().codes == [-9]
    wait_until_gone(pids)


@pytest.mark.parametrize("ending", ["done", "killed"])
def test_a_process_that_escapes_its_session_dies_with_its_rank(
    run: Runtime, tmp_path: Path, ending: str
) -> None:
    (tmp_path / "children").mkdir()
    name = str(tmp_path / "children")
    run.write_task(definition(get_model=lambda: with_daemon(name)))
    gang = run.launch("mlp", "ddp", steps=2 if ending == "done" else 10**6)
    children(tmp_path / "children", 1)
    if ending == "killed":
        gang.wait_for("progress")
        gang.kill(0)
    assert gang.wait().codes == [0 if ending == "done" else -9]
    wait_until_gone(children(tmp_path / "children", 1))


def test_what_torchrun_had_started_dies_with_the_black_box_that_started_it(
    run: Runtime, tmp_path: Path
) -> None:
    directory = tmp_path / "children"
    directory.mkdir()
    run.write_task(definition())
    technique = spec_of(Torchruns, "black_box")
    gang = run.launch("mlp", technique, gpus=2, steps=10, env={"CHILDREN": str(directory)})
    pids = children(directory, 2)
    assert all(os.getsid(pid) != gang.pid(0) for pid in pids)
    gang.kill(0)
    assert gang.wait().codes == [-9]
    wait_until_gone(pids)


def test_ranks_end_when_the_runtime_is_gone(run: Runtime) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", "ddp", ranks=2, steps=10**6)
    gang.wait_for("progress")
    pids = [gang.pid(0), gang.pid(1)]
    import socket

    for connection in gang.connections.values():
        connection.shutdown(socket.SHUT_RDWR)
    wait_until_gone(pids)


@pytest.mark.slow
def test_cold_starts_train_alike(tmp_path: Path, run: Runtime) -> None:
    run.write_task(definition("warm"))
    assert run.run("warm", "ddp", ranks=2, steps=4).codes == [0, 0]
    run.write_task(definition("cold"))
    cold = run.launch("cold", "ddp", ranks=2, steps=4, cold=True)
    cold.wait_for("started")
    assert is_locked(tmp_path / "workers.lock")
    result = cold.wait()
    assert result.codes == [0, 0], result.logs
    assert run.losses("cold") == run.losses("warm")
    assert result.one("started")["setup_s"] > 0.5


def test_a_rank_that_cannot_reach_the_runtime_says_so_in_its_log(run: Runtime) -> None:
    run.write_task(definition())
    run.socket_path += "-elsewhere"
    result = run.run("mlp", "ddp", steps=1)
    assert result.codes == [1] and "FileNotFoundError" in result.logs


def test_a_fork_that_fails_costs_the_rank_and_not_the_warm_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    requests, answers = os.pipe(), os.pipe()
    parent = WarmParent(requests[0], answers[1])
    for log in (tmp_path / "rank-0.log", tmp_path / "no such directory" / "rank-0.log"):
        parent._launch({"key": "7/0", "spec": "s", "rank": 0, "env": {}, "log": str(log)})
        answer = json.loads(os.read(answers[0], 1 << 16))
        why = f"[Errno {errno.EAGAIN}] Resource temporarily unavailable"
        assert answer == {"exited": {"key": "7/0", "pid": 0, "code": 1, "why": why}}
    assert "Resource temporarily unavailable" in (tmp_path / "rank-0.log").read_text()
    for descriptor in (*requests, *answers, parent._wake_read, parent._wake_write):
        os.close(descriptor)
