"""The files of the pages on where clusters come from: run as far as one machine allows.

The scripts for SSH and for Slurm start a real Ray cluster of two nodes, both on this machine, by
stand-ins for `ssh`, `srun` and `scontrol` that run here what they would elsewhere. The files for
KubeRay and for a cloud are read by Ray's own readers of them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FILES = Path(__file__).parents[2] / "examples" / "clusters"
BIN = Path(sys.executable).parent

#: What users would run there: it says what Saturn finds.
PROGRAM = """
import ray, sys
from saturn.cluster import seating
from saturn.cluster.connection import Connection, asks_for_token
from saturn.cluster.wish import ClusterWish
connection = Connection(ClusterWish(address="auto", nodes=2, gpus_per_node=None))
nodes = seating.chosen(ClusterWish(address="auto", nodes=2, gpus_per_node=None),
                       seating.free_nodes({}))
print(asks_for_token(), sorted((node.name, node.free) for node in nodes))
connection.close()
sys.exit(7)
"""

STAND_INS = {
    # ssh [-o OPTION]... HOST COMMAND
    "ssh": 'while [[ $1 == -* ]]; do shift; [[ $1 == *=* ]] && shift; done; cd; exec bash -c "$2"',
    # Both nodes are this machine: Ray tells them apart by the ports that the kernel gives.
    "scontrol": 'printf "127.0.0.1\\n127.0.0.1\\n"',
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with the stand-ins, a home, and Ray's directory apart from others'."""
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    for name, script in STAND_INS.items():
        (stand_ins / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (stand_ins / name).chmod(0o755)
    # `ray` as an installed program, whatever the environment was built for.
    (stand_ins / "ray").write_text(
        f"#!/usr/bin/env bash\nexec {sys.executable} -c "
        "'from ray.scripts.scripts import main; main()' \"$@\"\n"
    )
    (stand_ins / "ray").chmod(0o755)
    short = tempfile.mkdtemp(prefix="ray-")  # sockets' paths are short
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "PATH": f"{stand_ins}:{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RAY_TMPDIR": short,
        "NODES_S": "600",
    }
    shutil.rmtree(short, ignore_errors=True)


def free_port() -> int:
    """Of those that the kernel gives to nobody who doesn't ask for one by its number."""
    for number in range(10_000):
        port = 20_000 + (os.getpid() + number) % 10_000
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def processes_naming(word: str) -> list[str]:
    """Command lines of processes that name `word`."""
    found = subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in found.stdout.splitlines() if word in line]


def assert_ended(word: str) -> None:
    until = time.monotonic() + 60
    while left := processes_naming(word):
        assert time.monotonic() < until, left
        time.sleep(0.2)


def lines_of(command: list[str], place: dict[str, str], tmp_path: Path) -> str:
    """What a command prints, which ends with 7."""
    while True:
        ran = subprocess.run(
            command, env=place, cwd=tmp_path, capture_output=True, text=True, timeout=800
        )
        # Ray allows itself 30 s for that, which is too little where all cores are busy.
        if "node timed out during startup" not in ran.stderr:
            break
    assert ran.returncode == 7, ran.stdout + ran.stderr
    return ran.stdout


def test_scripts_are_well_written() -> None:
    for script in FILES.glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)
        if (checker := shutil.which("shellcheck", path=f"{BIN}:{os.environ['PATH']}")) is not None:
            subprocess.run([checker, str(script)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)  # it starts Ray
def test_by_ssh(place: dict[str, str], tmp_path: Path) -> None:
    port = str(free_port())
    own = "--num-cpus=1 --num-gpus=0"
    (tmp_path / "hosts").write_text(
        f"# two\n127.0.0.1 {own} --node-name=one\n127.0.0.1 {own} --node-name=two\n"
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [str(FILES / "ssh.sh"), "hosts", "python", "program.py"]
    said = lines_of(command, {**place, "PORT": port}, tmp_path)
    assert said.endswith("True [('one', 1), ('two', 1)]\n")
    assert (tmp_path / f".ray/ssh-cluster-{port}.token").stat().st_mode & 0o77 == 0
    assert_ended(place["RAY_TMPDIR"])
    no_hosts = subprocess.run([command[0], "/dev/null", "true"], stderr=subprocess.PIPE, text=True)
    assert (no_hosts.returncode, no_hosts.stderr) == (2, "/dev/null names no machine\n")


@pytest.mark.slow
@pytest.mark.timeout(900)  # it starts Ray
def test_in_a_job_of_slurm(place: dict[str, str], tmp_path: Path) -> None:
    disk = Path(place["RAY_TMPDIR"])
    (tmp_path / "program.py").write_text(PROGRAM)
    # What is in Saturn's home when a job ends is there when the next begins.
    (tmp_path / "saturn-home").mkdir()
    (tmp_path / "saturn-home/mark").write_text("before\n")
    # The journal of a driver that was killed. The next one ends well: no write-ahead log is left.
    journal = tmp_path / "saturn-home/journals/host/run-1"
    journal.mkdir(parents=True)
    for name in ("journal.db", "journal.db-wal"):
        (journal / name).write_text("killed\n")
    moved = (
        'cat "$SATURN_HOME/mark"; echo after >"$SATURN_HOME/mark"; '
        'cd "$SATURN_HOME/journals/host/run-1" && rm journal.db-wal && echo ended >journal.db; cd -'
    )
    jobs = {
        **place,
        "SLURM_JOB_ID": str(free_port()),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_GPUS_PER_NODE": "0",
        "SATURN_DISK": str(disk),
        "USER": "somebody",
    }
    command = [str(FILES / "slurm.sh"), "bash", "-c", f"{moved}; python program.py"]
    before, _, found = lines_of(command, jobs, tmp_path).splitlines()[-3:]
    assert before == "before"
    assert [one.name for one in journal.iterdir()] == ["journal.db"]
    assert (journal / "journal.db").read_text() == "ended\n"
    assert found.startswith("True [('127.0.0.1', ") and "('127.0.0.1-2', " in found
    assert (tmp_path / "saturn-home/mark").read_text() == "after\n"
    assert not list((tmp_path / ".ray").glob("*.token"))
    assert_ended(str(disk))


def test_kuberay() -> None:
    from ray.autoscaler._private.kuberay import autoscaling_config

    documents = list(yaml.safe_load_all((FILES / "kuberay.yaml").read_text()))
    cluster = next(one for one in documents if one["kind"] == "RayCluster")
    read = autoscaling_config._derive_autoscaling_config_from_ray_cr(cluster)
    gpus = read["available_node_types"]["gpus"]
    assert (gpus["min_workers"], gpus["resources"]["GPU"]) == (2, 8)
    assert read["available_node_types"]["headgroup"]["resources"]["CPU"] == 0
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    claims = {
        one["metadata"]["name"] for one in documents if one["kind"] == "PersistentVolumeClaim"
    }
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
        named = [volume.get("persistentVolumeClaim") for volume in pod["volumes"]]
        assert claims >= {claim["claimName"] for claim in named if claim}


def cloud() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FILES / "aws.yaml").read_text())
    return read


def test_the_launcher_of_a_cloud() -> None:
    from ray.autoscaler._private.util import fillout_defaults, validate_config

    whole = fillout_defaults(cloud())
    validate_config(whole)
    with pytest.raises(Exception, match="node_types"):
        validate_config({**whole, "node_types": {}})
    for key in ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands"):
        for command in cloud()[key]:
            subprocess.run(["bash", "-n", "-c", command], check=True)
            assert "ray start" not in command or "RAY_AUTH_MODE=token" in command
