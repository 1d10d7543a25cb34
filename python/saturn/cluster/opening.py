"""The way in: a cluster, or in one line why Ray can't be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saturn.cluster.connection import ray_module
from saturn.cluster.wish import ClusterWish

if TYPE_CHECKING:
    from saturn.cluster.cluster import Cluster


def open_cluster(wish: ClusterWish, *, run: str) -> Cluster:
    """Agents on the nodes that a run may use; `run` is where the run will be.

    Raises `InvalidInput`: then nothing is left of it.
    """
    ray_module()  # which is looked for before anything that needs it is imported
    from saturn.cluster.cluster import Cluster

    return Cluster(wish, run=run)
