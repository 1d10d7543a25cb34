"""Runs on a cluster whose agents, nodes and driver are killed, with real processes of Ray.

All tasks are the same but for their names, and train on one slot. So the losses of all must be the
same to the last bit, wherever and in however many pieces each was trained. (On two slots rounding
differs, and over 2,000 steps the losses drift apart.)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clusters
import pytest
import saturn
from clusters import TestCluster
from saturn.cluster import carrier as carrier_module
from saturn.cluster.carrier import Carrier
from saturn.errors import InvalidInput

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # they start Ray, and torch many times

STEPS = 2000
TASKS = 4
LATE = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with clusters.cluster(tmp_path_factory.mktemp("cluster"), slots=(2, 2)) as made:
        yield made


def tasks(first: int, after_last: int, steps: int = STEPS) -> list[saturn.Task]:
    return [
        clusters.task(f"t{number}", batches=steps, gpu_range=[1])
        for number in range(first, after_last)
    ]


def losses(run_dir: Path, task: str) -> dict[int, float]:
    """The loss of every step; of one that was trained again, the last."""
    path = run_dir / "tasks" / task / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {}
    for line in lines:
        try:
            step = json.loads(line)
        except ValueError:  # it is being written
            continue
        found[step["step"]] = step["loss"]
    return found


def wait_until(what: str, is_so: Callable[[], bool], within_s: float = 400.0) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.1)


def workers(run_dir: Path) -> list[int]:
    """Processes that start ranks of a run, and ranks: their command line names its lock."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if str(run_dir / "workers.lock").encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
    return found


def assert_all_trained_alike(run_dir: Path, *, num_tasks: int = TASKS, steps: int = STEPS) -> None:
    first = losses(run_dir, "t0")
    assert sorted(first) == list(range(1, steps + 1))
    for number in range(num_tasks):
        assert losses(run_dir, f"t{number}") == first


def agents(run: saturn.StartedRun) -> dict[str, int]:
    """Process ids of agents, by their nodes."""
    carrier = run._cluster._carrier  # type: ignore[union-attr]
    return {seat.name: seat.about.pid for seat in carrier.seats.values()} if carrier else {}


def begin(
    address: str,
    runs_dir: Path,
    name: str,
    *,
    steps: int = STEPS,
    log: bool = False,
    **more: Any,
) -> saturn.StartedRun:
    return saturn.start(
        tasks(0, TASKS, steps),
        log=log,
        cluster=address,
        runs_dir=runs_dir,
        name=name,
        techniques=["ddp"],
        checkpoint_every_s=1.0,
        max_switches=0,
        **more,
    )


#: Prints a journal's records. Two SQLites in one process would not see each other's locks.
RECORDS = """
import sqlite3, sys
journal = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for row in journal.execute("select * from record"):
    print(row[-1])
"""


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """A journal's records of one kind."""
    command = [sys.executable, "-c", RECORDS, run_dir / "journal.db"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    read = [json.loads(line) for line in printed.splitlines()]
    return [record for record in read if record["record"] == kind]


def num_joined(run: saturn.StartedRun, node: str) -> int:
    """How often the run has taken a node up."""
    joined = [record["spec"]["name"] for record in records(run.run_dir, "node_joined")]
    return joined.count(node)


def num_beyond(run_dir: Path, step: int) -> int:
    """How many tasks have trained so many steps."""
    return sum(len(losses(run_dir, f"t{number}")) > step for number in range(TASKS))


def test_agents_and_nodes_die_and_come_and_no_loss_is_another(
    cluster: TestCluster, tmp_path: Path
) -> None:
    run = begin(cluster.address, tmp_path, "faults", keep_open=True)
    run_dir = run.run_dir

    wait_until("two train", lambda: num_beyond(run_dir, 200) >= 2)
    before = agents(run)
    assert len(before) == 2

    victim, pid = sorted(before.items())[0]
    os.kill(pid, signal.SIGKILL)
    wait_until("it has another agent", lambda: num_joined(run, victim) == 2)
    assert agents(run)[victim] != pid

    node = cluster.add_node(2)
    wait_until("a node has joined", lambda: len(agents(run)) == 3)
    joined = (set(agents(run)) - set(before)).pop()
    wait_until("it can be used", lambda: num_joined(run, joined) == 1)
    # As many as there are devices.
    run.submit(tasks(TASKS, TASKS + LATE))
    run.close()
    wait_until("it is used", lambda: joined in json.dumps(run.status()))
    cluster.kill_node(node)
    wait_until("it is missed", lambda: joined not in agents(run))

    result = run.wait()
    assert [task.status for task in result.tasks] == ["done"] * (TASKS + LATE)
    assert_all_trained_alike(run_dir, num_tasks=TASKS + LATE)
    assert not workers(run_dir)


def test_answers_that_get_lost_cost_no_agent_and_no_step(
    cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, answer = random.Random(1), Carrier._result
    num_lost = 0

    def lossy(carrier: Carrier, reference: Any, number: int) -> Any:
        nonlocal num_lost
        answered = answer(carrier, reference, number)
        is_lost = draws.random() < 0.4
        num_lost += is_lost
        return carrier_module._UNANSWERED if is_lost else answered

    monkeypatch.setattr(Carrier, "_result", lossy)
    run = begin(cluster.address, tmp_path, "lossy", steps=500)
    result = run.wait()
    assert num_lost >= 10
    attempts = [(task.status, task.attempts) for task in result.tasks]
    assert attempts == [("done", 1)] * TASKS, records(run.run_dir, "ended")
    assert_all_trained_alike(run.run_dir, steps=500)
    assert not workers(run.run_dir)


PROGRAM = """
import json, sys
from pathlib import Path
import test_cluster_faults
address, runs_dir, more = sys.argv[1:]
run = test_cluster_faults.begin(address, Path(runs_dir), "program", log=True, **json.loads(more))
run.wait()
"""


def start_program(address: str, runs_dir: Path, **more: Any) -> subprocess.Popen[bytes]:
    """The run `program`, driven by a process of its own."""
    with (runs_dir / "program.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(runs_dir), json.dumps(more)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            stderr=log,
        )


def resume(run_dir: Path, address: str) -> None:
    """`saturn resume`, on a cluster."""
    program = Path(sys.executable).with_name("saturn")
    resumed = subprocess.run(
        [program, "resume", run_dir, "--cluster", address, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert resumed.returncode == 0
    assert json.loads(resumed.stdout)["totals"]["done"] == TASKS


def test_a_driver_that_is_killed_takes_all_ranks_along_and_resume_finishes(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = start_program(cluster.address, tmp_path)
    run_dir = tmp_path / "program"
    try:
        wait_until("two train", lambda: num_beyond(run_dir, 200) >= 2)
    finally:
        driver.kill()
        driver.wait()
    killed = time.monotonic()
    wait_until("all ranks have ended", lambda: not workers(run_dir))
    print(f"all ranks had ended {time.monotonic() - killed:.1f} s after their driver")
    resume(run_dir, cluster.address)
    assert_all_trained_alike(run_dir)
    assert not workers(run_dir)


def test_two_drivers_share_a_cluster(cluster: TestCluster, tmp_path: Path) -> None:
    driver = start_program(cluster.address, tmp_path, gpus_per_node=1)
    try:
        wait_until("two train", lambda: num_beyond(tmp_path / "program", 1) >= 2)
        run = begin(cluster.address, tmp_path, "other", gpus_per_node=1)
        # At once: on busy cores, the first may end before the other trains.
        with pytest.raises(InvalidInput, match="no node of the cluster has free devices"):
            begin(cluster.address, tmp_path, "third")
        result = run.wait()
        assert driver.wait(timeout=600) == 0
    finally:
        driver.kill()
        driver.wait()
    assert [task.status for task in result.tasks] == ["done"] * TASKS
    for name in ("program", "other"):
        assert_all_trained_alike(tmp_path / name)
        assert not workers(tmp_path / name)
    assert not (tmp_path / "third").exists()


def test_an_agent_that_was_frozen_and_given_up_has_no_say_any_more(
    cluster: TestCluster, tmp_path: Path
) -> None:
    run = begin(cluster.address, tmp_path, "frozen")
    run_dir = run.run_dir
    wait_until("one trains", lambda: num_beyond(run_dir, 100) >= 1)
    victim, pid = sorted(agents(run).items())[0]
    os.kill(pid, signal.SIGSTOP)
    wait_until("it is given up", lambda: agents(run).get(victim) != pid)
    result = run.wait()
    assert [task.status for task in result.tasks] == ["done"] * TASKS
    assert_all_trained_alike(run_dir)
    assert not workers(run_dir)
    marks = {path.read_text() for path in run_dir.glob("tasks/*/attempts/*/given-up")}
    assert marks == {"it has not answered for 180 s"}


def test_a_driver_that_stands_still_loses_no_agent_and_no_step(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = start_program(cluster.address, tmp_path, steps=5 * STEPS)
    run_dir = tmp_path / "program"
    try:
        wait_until("one trains", lambda: num_beyond(run_dir, 100) >= 1)
        before = set(workers(run_dir))
        os.kill(driver.pid, signal.SIGSTOP)
        time.sleep(120)
        assert before & set(workers(run_dir)), "its agents and their parents live"
        os.kill(driver.pid, signal.SIGCONT)
        assert driver.wait(timeout=600) == 0
    finally:
        driver.kill()
        driver.wait()
    assert_all_trained_alike(run_dir, steps=5 * STEPS)
    assert not list(run_dir.glob("tasks/*/attempts/*/given-up"))


def test_without_rays_head_a_run_stops_at_checkpoints_and_goes_on_elsewhere(
    tmp_path: Path,
) -> None:
    with clusters.cluster(tmp_path, slots=(2,)) as first:
        driver = start_program(first.address, tmp_path, steps=5 * STEPS)
        run_dir = tmp_path / "program"
        try:
            wait_until("one trains", lambda: num_beyond(run_dir, 100) >= 1)
            first.kill_head()
            code = driver.wait(timeout=400)
        finally:
            driver.kill()
            driver.wait()
        assert code in (130, -signal.SIGINT)
        assert "Ray's head has not answered" in (tmp_path / "program.log").read_text()
        wait_until("all ranks have ended", lambda: not workers(run_dir))
    with clusters.cluster(tmp_path, slots=(2,)) as second:
        resume(run_dir, second.address)
    assert_all_trained_alike(run_dir, steps=5 * STEPS)
