"""What is refused of a cluster: in one line, before anything is started or on disk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import clusters
import pytest
import saturn
from saturn.cluster import storage, versions
from saturn.cluster.seating import FreeNode, chosen
from saturn.cluster.storage import Proof
from saturn.cluster.wish import ClusterWish
from saturn.errors import InvalidInput


def refused(tmp_path: Path, **arguments: Any) -> str:
    """The line with which `orchestrate` refuses these; nothing is left of it."""
    runs = tmp_path / "runs"
    with pytest.raises((InvalidInput, TypeError)) as error:
        saturn.orchestrate([clusters.task("t", batches=10)], log=False, runs_dir=runs, **arguments)
    assert not runs.exists()
    line = str(error.value)
    assert "\n" not in line
    return line


def test_arguments_that_say_nothing_or_two_things(tmp_path: Path) -> None:
    line = refused(tmp_path, nodes=2)
    assert line == 'nodes is 2, but no cluster is given: cluster="auto", or --cluster auto'
    assert "gpus_per_node is 2, but no" in refused(tmp_path, gpus_per_node=2)
    assert "gpus_per_node and nodes" in refused(tmp_path, cluster="auto", devices=2)
    assert "cluster is a bool" in refused(tmp_path, cluster=True)
    assert "nodes is 0" in refused(tmp_path, cluster="auto", nodes=0)
    assert '"10.0.0.1:6379"' in refused(tmp_path, cluster="my-host")
    assert "on a node of the cluster" in refused(tmp_path, cluster="ray://head:10001")


def test_without_ray_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("saturn.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    assert refused(tmp_path, cluster="auto").endswith("pip install 'ray>=2.52'")


def test_an_address_where_nobody_answers(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        line = refused(tmp_path, cluster=address)
    assert line.startswith(f"there is no Ray cluster at {address}: ")


#: A cluster that others can reach, as Ray makes it where nobody speaks of tokens.
WITHOUT_TOKEN = """
import sys
from ray.cluster_utils import Cluster
import clusters, saturn
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False))
try:
    task = clusters.task("t", batches=10)
    saturn.orchestrate([task], log=False, cluster=cluster.address, runs_dir=sys.argv[1])
except saturn.errors.InvalidInput as error:
    print(error)
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_cluster_that_does_what_anyone_tells_it_is_refused(tmp_path: Path) -> None:
    # Ray reads this once a process.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    program = subprocess.run(
        [sys.executable, "-c", WITHOUT_TOKEN, str(tmp_path / "runs")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    (line,) = program.stdout.splitlines()
    assert "asks for no token, so anyone who reaches the cluster can run programs on it" in line
    assert "make a token with `ray get-auth-token --generate`" in line
    assert not (tmp_path / "runs").exists()


def node(name: str, free: int, total: int) -> FreeNode:
    return FreeNode(id=name, name=name, resource="GPU", free=free, total=total)


def test_what_a_cluster_does_not_have() -> None:
    nodes = [node("a", 2, 8), node("b", 8, 8), node("c", 0, 4)]

    def picked(number: int | None = None, each: int | None = None) -> list[str]:
        wish = ClusterWish(address="auto", nodes=number, gpus_per_node=each)
        return [one.name for one in chosen(wish, nodes)]

    assert picked() == ["a", "b"]
    assert picked(1) == ["b"], "the one with the most"
    assert picked(None, 4) == ["b"]
    for wanted, said in [
        ((3, None), "nodes is 3, but 2 of the cluster can be used: a has 2 free GPUs of 8; "),
        ((None, 9), "gpus_per_node is 9, which no node of the cluster has: a has 2 free GPUs"),
        ((2, 8), "nodes is 2, but 1 of the cluster can be used"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            picked(*wanted)
    wish = ClusterWish(address="auto", nodes=None, gpus_per_node=None)
    with pytest.raises(InvalidInput, match="no node of the cluster has free devices: c has 0 free"):
        chosen(wish, [nodes[2]])
    with pytest.raises(InvalidInput, match="it has no node with devices"):
        chosen(wish, [])


def test_storage_that_is_not_shared_is_seen(tmp_path: Path) -> None:
    with Proof(tmp_path / "run") as proof:
        directory = str(proof.directory)
        assert proof.wrong_with("a", storage.answer(directory, proof.word, "a")) is None
        # Another machine's directory of that name: it isn't there, or holds what another wrote.
        elsewhere = tmp_path / "elsewhere"
        wrong = proof.wrong_with("b", storage.answer(str(elsewhere), proof.word, "b"))
        assert wrong is not None and "node `b` does not share" in wrong and "runs_dir" in wrong
        with Proof(elsewhere) as other:
            said = storage.answer(str(other.directory), proof.word, "b")
            assert said == "it reads other content in the test file"
            # It answered, but into storage that is not this one.
            assert storage.answer(str(other.directory), other.word, "c") is None
        wrong = proof.wrong_with("c", None)
        assert wrong is not None and "can't read the file that it wrote" in wrong
    assert not Path(directory).exists()


def test_versions_that_differ_are_named() -> None:
    ours = versions.here()
    assert versions.difference(ours) is None
    theirs = {**ours, "torch": "0.1"}
    assert versions.difference(theirs) == f"torch 0.1 in place of {ours['torch']}"
