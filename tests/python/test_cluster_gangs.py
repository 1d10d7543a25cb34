"""Gangs on several nodes of a cluster, with real processes of Ray.

Two nodes, of two slots and of one: a gang of three takes both, and leaves none over. What the same
training comes to across them is `test_random_chains`'s; here it is that gangs start, meet, stop and
are given up as one.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import closeness
import clusters
import pytest
import saturn
from clusters import TestCluster
from saturn.cluster import network, seating
from saturn.cluster.seating import FreeNode, Unusable
from saturn.errors import InvalidInput
from test_cluster_faults import agents, losses, wait_until, workers

STEPS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with clusters.cluster(tmp_path_factory.mktemp("cluster"), slots=(2, 1)) as made:
        yield made


def nodes_of(run_dir: Path, task: str) -> list[set[int]]:
    """Of each training attempt of a task that the report tells of, the nodes that it was on."""
    report = json.loads((run_dir / "report.json").read_text())
    number = [each["name"] for each in report["tasks"]].index(task)
    trained = [one for one in report["attempts"] if one["purpose"] == "train"]
    of_task = [one for one in trained if one["task"] == number]
    return [{part["node"] for part in one["gang"]} for one in of_task]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # it starts torch many times
def test_a_gang_of_both_nodes_is_given_up_with_one_of_them_and_goes_on_with_another(
    cluster: TestCluster, tmp_path: Path
) -> None:
    wide: dict[str, Any] = {"gpu_range": [3], "techniques": ["ddp"]}
    tasks = [
        clusters.task("wide", batches=STEPS, **wide),
        clusters.task("narrow", batches=STEPS, gpu_range=[1]),
    ]
    run = saturn.start(
        tasks,
        log=False,
        cluster=cluster.address,
        runs_dir=tmp_path,
        name="gangs",
        techniques=["ddp"],
        checkpoint_every_s=0.2,
        max_switches=0,
    )
    run_dir = run.run_dir
    wait_until("it trains on both", lambda: len(losses(run_dir, "wide")) > 30, within_s=600.0)
    before = agents(run)
    # The slot that the other node had on top is what is taken away.
    single = cluster.nodes[1]
    cluster.kill_node(single)
    wait_until("the node is missed", lambda: len(agents(run)) == 1)
    cluster.add_node(1)
    wait_until("another has come", lambda: len(agents(run)) == 2)
    # It may have taken over the name of the lost node.
    assert len(set(agents(run).values()) & set(before.values())) == 1
    result = run.wait()
    assert [task.status for task in result.tasks] == ["done", "done"]
    assert list(run_dir.glob("tasks/wide/attempts/*/given-up"))
    for name in ("wide", "narrow"):
        assert sorted(losses(run_dir, name)) == list(range(1, STEPS + 1))
    there, here = losses(run_dir, "wide"), losses(run_dir, "narrow")
    assert closeness.ulps(there, here) < closeness.ACROSS
    of_wide = nodes_of(run_dir, "wide")
    assert len(of_wide) >= 2 and all(len(nodes) == 2 for nodes in of_wide)
    assert not workers(run_dir)


def test_a_task_is_kept_to_one_node_where_that_is_asked(
    cluster: TestCluster, tmp_path: Path
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    task = clusters.task("t", batches=10, gpu_range=[3])
    with pytest.raises(InvalidInput) as refused:
        saturn.orchestrate(
            [task], log=False, cluster=cluster.address, runs_dir=tmp_path, nodes_per_task=1
        )
    assert "its `gpu_range` is 3, but the nodes of this pool allow only 1, 2" in str(refused.value)
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is handler, "Ray has put its own in its place"


def test_the_first_agent_is_waited_for_longer_and_that_is_said(
    cluster: TestCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(seating, "_SEAT_S", 0.0)
    task = clusters.task("t", batches=10, gpu_range=[3])
    # Refused for what the task asks for, and so after an agent has started.
    with pytest.raises(InvalidInput, match="its `gpu_range` is 3"):
        saturn.orchestrate([task], cluster=cluster.address, runs_dir=tmp_path, nodes_per_task=1)
    assert "within 0 s; the run waits for the first up to 5 minutes" in capfd.readouterr().err


#: Ends when a run has taken up so many nodes.
UNTIL_JOINED = """
import sqlite3, sys, time
journal = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
num_joined = 0
while num_joined < int(sys.argv[2]):
    time.sleep(0.2)
    records = [row[-1] for row in journal.execute("select * from record")]
    num_joined = sum('"record":"node_joined"' in record for record in records)
"""


@pytest.mark.slow
def test_a_slow_node_does_not_keep_the_others_waiting_and_joins_later(
    cluster: TestCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    seat = seating.seat

    def seat_one(nodes: Sequence[FreeNode], *arguments: Any, **more: Any) -> list[Any]:
        """At first, all nodes but one are late."""
        monkeypatch.setattr(seating, "seat", seat)
        late = [
            Unusable(node_id=node.id, name=node.name, reason="its agent sleeps", is_late=True)
            for node in nodes[1:]
        ]
        return [*seat(nodes[:1], *arguments, **more), *late]

    monkeypatch.setattr(seating, "seat", seat_one)
    run = saturn.start(
        [clusters.task("t", batches=5, gpu_range=[1])],
        cluster=cluster.address,
        runs_dir=tmp_path,
        techniques=["ddp"],
        keep_open=True,
    )
    # In a process of its own: in this one, closing the journal would give up the run's locks.
    waits = [sys.executable, "-c", UNTIL_JOINED, run.run_dir / "journal.db", "2"]
    subprocess.run(waits, check=True, timeout=200)
    run.close()
    assert [task.status for task in run.wait().tasks] == ["done"]
    shown = capfd.readouterr().err
    assert "is late: its agent sleeps; the run begins without it, and it joins when" in shown


def test_the_network_that_ranks_talk_by() -> None:
    assert network.interface_of("127.0.0.1") == "lo"
    assert network.interface_of("192.0.2.1") is None
    assert network.address_of("lo") == "127.0.0.1"
    assert network.address_to("127.0.0.1") == "127.0.0.1"
    with pytest.raises(
        InvalidInput, match=r"no network interface `eth77` with an address; it has .*lo"
    ):
        network.address_of("eth77")


def test_a_network_that_a_node_does_not_have(cluster: TestCluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be used: it has no network interface `eth77`"):
        saturn.orchestrate(
            [clusters.task("t", batches=10)],
            log=False,
            cluster=cluster.address,
            runs_dir=tmp_path / "runs",
            network_interface="eth77",
        )
    assert not (tmp_path / "runs").exists()
