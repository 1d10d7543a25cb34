"""How a gang's ranks lie on nodes.

Ranks of a node are neighbours. A gang that no node holds takes whole nodes and part of one more; it
has the node with the most of its devices first.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Why a gang on several nodes may not be split so.
ACROSS_NODES = "a tensor group talks in every layer, and must not lie across nodes"


def spread(gpus: int, node_gpus: Sequence[int]) -> tuple[int, ...]:
    """Devices on each node of a gang of `gpus`, on the largest of nodes with so many."""
    parts: list[int] = []
    for size in sorted(node_gpus, reverse=True):
        if gpus == 0:
            break
        parts.append(min(size, gpus))
        gpus -= parts[-1]
    return tuple(parts) if gpus == 0 else ()


def are_alike(node_gpus: Sequence[int]) -> bool:
    """Whether there are several nodes, all with as many devices."""
    return len(node_gpus) > 1 and len(set(node_gpus)) == 1
