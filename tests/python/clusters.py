"""Ray clusters for the tests: nodes of CPU slots, all on this machine, which ask for a token."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from saturn import HParams, Task
from saturn.runs import started


def _set_up_ray() -> None:
    """Have all of Ray's processes that start from here on ask for a token.

    Ray reads this when it is first imported: so it is done when this module is. What a test starts
    has it already.

    Ray's processes get the niceness 0 in place of Ray's own 15: on busy cores that is a thirtieth
    of a core, and a run would wait minutes for a rank.
    """
    if "RAY_AUTH_TOKEN_PATH" in os.environ:
        return
    token = Path(tempfile.mkdtemp(prefix="saturn-ray-")) / "token"
    atexit.register(shutil.rmtree, token.parent, ignore_errors=True)
    token.write_text("a token of the tests, which nobody guesses")
    token.chmod(0o600)
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


_set_up_ray()


class TestCluster:
    """A cluster whose nodes can be killed and joined."""

    __test__ = False  # no test of its own

    def __init__(self, home: Path) -> None:
        from ray.cluster_utils import Cluster

        self._home = home
        self._cluster = Cluster()
        self.nodes: list[Any] = []  # as they came

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add_node(self, slots: int) -> Any:
        """A node; the first is the head. On one machine each needs device locks of its own."""
        locks = self._home / f"locks-{len(self.nodes)}"
        node = self._cluster.add_node(
            num_cpus=slots,
            include_dashboard=False,
            env_vars={"SATURN_LOCKS_DIR": str(locks)},
        )
        self.nodes.append(node)
        return node

    def kill_node(self, node: Any) -> None:
        """End a node at once, with everything on it, as a power cut does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """End what knows the nodes; they live on for a while."""
        self._cluster.head_node.all_processes["gcs_server"][0].process.kill()

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextmanager
def cluster(home: Path, *, slots: tuple[int, ...]) -> Iterator[TestCluster]:
    """A cluster with a node for each number of slots."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        made = TestCluster(home)
        try:
            for each in slots:
                made.add_node(each)
            yield made
        finally:
            import ray

            started._stop_unfinished()  # those of a test that has failed
            ray.shutdown()
            made.shutdown()


def get_model(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 4)
    )


def get_dataloader() -> torch.utils.data.DataLoader[Any]:
    seeded = torch.Generator().manual_seed(0)
    inputs = torch.randn(256, 16, generator=seeded)
    labels = torch.randint(4, (256,), generator=seeded)
    data = torch.utils.data.TensorDataset(inputs, labels)
    return torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)


def task(name: str, *, batches: int, **more: Any) -> Task:
    """A task of `batches` steps."""
    from torch.nn.functional import cross_entropy

    hparams = HParams(lr=1e-2, batch_count=batches, width=32)
    data = more.pop("get_dataloader", get_dataloader)
    return Task(get_model, data, cross_entropy, hparams, name=name, **more)
