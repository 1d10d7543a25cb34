"""Nodes that die in trials and in saves, and a shared disk that is slow or full, on a cluster.

Files in a directory of signs tell the tasks of a run, wherever they are, what is to go wrong:
`held` has their data wait, `slow` their saves, and `full` has saves fail for want of space.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import clusters
import pytest
import saturn
import torch
from clusters import TestCluster
from saturn.checkpoint import manifest
from test_cluster_faults import (
    TASKS,
    agents,
    assert_all_trained_alike,
    num_beyond,
    wait_until,
    workers,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # they start Ray, and torch many times


STEPS = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with clusters.cluster(tmp_path_factory.mktemp("cluster"), slots=(2, 2)) as made:
        yield made


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    path = tmp_path / "signs"
    path.mkdir()
    return path


def wait_while(sign: Path) -> None:
    """Wait while the sign is there, and leave word of which node does."""
    if sign.exists():
        node = Path(os.environ["SATURN_LOCKS_DIR"]).name
        sign.with_name(f"{sign.name}-at-{node}").touch()
        while sign.exists():
            time.sleep(0.05)


def get_dataloader(signs: Path, of: str) -> torch.utils.data.DataLoader[Any]:
    """What each rank calls before it trains: from then on its saves heed the signs.

    `of` is another for each task, so that each is measured by itself.
    """
    wait_while(signs / "held")
    commit = manifest.commit

    def heeding(*arguments: Any, **named: Any) -> Any:
        wait_while(signs / "slow")
        if (signs / "full").exists():
            (signs / "refused").touch()
            raise OSError(errno.ENOSPC, "No space left on device")
        return commit(*arguments, **named)

    manifest.commit = heeding
    return clusters.get_dataloader()


def begin(cluster: TestCluster, signs: Path) -> saturn.StartedRun:
    names = [f"t{number}" for number in range(TASKS)]
    return saturn.start(
        [
            clusters.task(
                name,
                batches=STEPS,
                get_dataloader=partial(get_dataloader, signs, name),
                gpu_range=[1],
            )
            for name in names
        ],
        log=False,
        cluster=cluster.address,
        runs_dir=signs.parent,
        techniques=["ddp"],
        checkpoint_every_s=0.5,
        max_switches=0,
    )


def lose_a_node(cluster: TestCluster, run: saturn.StartedRun) -> None:
    """The one that isn't the head goes, and another comes."""
    cluster.kill_node(cluster.nodes[-1])
    wait_until("the node is missed", lambda: len(agents(run)) == 1)
    cluster.add_node(2)
    wait_until("another has come", lambda: len(agents(run)) == 2)


def assert_trained_undisturbed(run: saturn.StartedRun) -> None:
    assert [task.status for task in run.wait().tasks] == ["done"] * TASKS
    assert_all_trained_alike(run.run_dir, steps=STEPS)
    assert not workers(run.run_dir)


def test_a_node_dies_while_trials_run_on_it(cluster: TestCluster, signs: Path) -> None:
    (signs / "held").touch()
    run = begin(cluster, signs)
    wait_until("trials of both nodes wait", lambda: len(list(signs.glob("held-at-*"))) == 2)
    lose_a_node(cluster, run)
    (signs / "held").unlink()
    assert_trained_undisturbed(run)


def training(cluster: TestCluster, signs: Path) -> saturn.StartedRun:
    """A run of which two tasks train."""
    run = begin(cluster, signs)
    wait_until("two train", lambda: num_beyond(run.run_dir, 100) >= 2)
    return run


def test_a_node_dies_in_a_save_that_takes_long(cluster: TestCluster, signs: Path) -> None:
    run = training(cluster, signs)
    (signs / "slow").touch()
    wait_until("saves of both nodes wait", lambda: len(list(signs.glob("slow-at-*"))) == 2)
    lose_a_node(cluster, run)
    (signs / "slow").unlink()
    assert_trained_undisturbed(run)


def test_a_shared_disk_that_is_full_for_a_while(cluster: TestCluster, signs: Path) -> None:
    run = training(cluster, signs)
    (signs / "full").touch()
    wait_until("a save has no space", (signs / "refused").exists)
    (signs / "full").unlink()
    assert_trained_undisturbed(run)
