"""The sweep of `sweep.py` on a Ray cluster of two nodes, of which one dies and another comes.

The cluster is on this machine, and ends with the program: two nodes of two CPU slots each, which
share this machine's cores, so nothing is fast here. Beside the sweep there is a deep model that
fits neither node; both together hold it. When it trains, a node is killed, as by a power cut, and
a little later a new one joins. Whatever was on the node goes on from its checkpoints.

    python examples/cluster.py [--name NAME]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sweep
from saturn import HParams, RunInterrupted, RunResult, SaturnError, StartedRun, Task, start

#: CPU slots of each node, and what each may hold.
SLOTS, SLOT_MEMORY = 2, "200MB"
#: Steps of the deep model before a node is killed, and seconds after that until another joins.
STEPS_BEFORE, SECONDS_AFTER = 3, 10.0


def deep_reader(steps: int) -> Task:
    """Parameters and gradients of 400 MB: all slots of two nodes hold them, with room to work."""
    return Task(
        sweep.reader,
        partial(sweep.excerpts, 256, 64),
        sweep.next_symbol_loss,
        HParams(
            lr=0.05,
            batch_count=steps,
            optimizer_cls=sweep.plain_descent,
            vocabulary=256,
            layers=24,
        ),
        name="deep",
        techniques=["fsdp"],  # `offload` would stream it through one slot
        gpu_range=[2 * SLOTS],
    )


class Cluster:
    """Nodes of a Ray cluster, all on this machine."""

    def __init__(self, home: Path) -> None:
        """Devices' locks are in `home`, apart for each node: they share this machine's cores."""
        from ray.cluster_utils import Cluster as RayCluster

        self._home = home
        self._cluster = RayCluster()

    @property
    def address(self) -> str:
        """Of its head."""
        return str(self._cluster.address)

    def add(self, name: str) -> Any:
        """A node joins; the first is the head."""
        return self._cluster.add_node(
            node_name=name,
            num_cpus=SLOTS,
            include_dashboard=False,
            env_vars={"SATURN_LOCKS_DIR": str(self._home / name)},
        )

    def kill(self, node: Any) -> None:
        """A node dies with everything on it."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        """End it."""
        self._cluster.shutdown()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that asks for a token, as Saturn wants of one that others can reach."""
    home = Path(tempfile.mkdtemp(prefix="saturn-cluster-"))
    (home / "token").write_text(os.urandom(16).hex())
    (home / "token").chmod(0o600)
    # Ray reads these when it is imported.
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own affairs
            made = Cluster(home)
            try:
                yield made
            finally:
                made.shutdown()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def trouble(run: StartedRun, made: Cluster, victim: Any) -> None:
    """Kill a node once the deep model trains on both, and have another join."""
    while len((deep := run.status().task("deep"))["devices"]) < 2 or deep["step"] < STEPS_BEFORE:
        if run.is_over or deep["ended_s"] is not None:
            return
        time.sleep(0.5)
    made.kill(victim)
    time.sleep(SECONDS_AFTER)
    made.add("three")


def show(result: RunResult) -> None:
    """What came of it, on standard output."""
    for task in result.tasks:
        print(f"{task.name:18} loss {task.final_loss:.3f}")
    print(f"\nTrained in {result.makespan_s:.0f} s, on nodes of which one died and one joined.")
    print(f"To see what happened, open {result.report_path}")


def main() -> None:
    """Start the cluster, train, show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--name", help="name of the run directory in saturn_runs/")
    args = parser.parse_args()
    with cluster() as made:
        made.add("one")
        second = made.add("two")
        run = start(
            [deep_reader(10), *sweep.sweep(short=True)],
            interval=60,
            cluster=made.address,
            device_memory=SLOT_MEMORY,
            checkpoint_every_s=5.0,
            name=args.name,
        )
        trouble(run, made, second)
        show(run.wait())


if __name__ == "__main__":
    try:
        main()
    except RunInterrupted as stop:
        sys.exit(stop.exit_code)  # the last lines on the screen say how to go on
    except SaturnError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
