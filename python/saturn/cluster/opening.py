"""Open a cluster, or say in one line why Ray can't be used.

Importing this module doesn't import Ray, so any run may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from saturn.cluster.connection import ray_module
from saturn.cluster.wish import ClusterWish

if TYPE_CHECKING:
    from saturn.cluster.cluster import Cluster


def open_cluster(wish: ClusterWish, *, run: str, tell: Callable[[str], None]) -> Cluster:
    """Agents on the nodes that a run may use; `run` is where the run will be.

    `tell` is given a line for the person who waits, if no agent starts soon.

    Raises `InvalidInput`, after undoing everything.
    """
    ray_module()  # checked before any module is imported that needs Ray
    from saturn.cluster.cluster import Cluster

    return Cluster(wish, run=run, tell=tell)
