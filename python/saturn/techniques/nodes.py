"""How a gang's ranks are placed on nodes.

Ranks on one node are neighbours. A gang that is too large for one node takes whole nodes and a part
of another. Its first node has the most of its devices.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Why a technique refuses a gang on several nodes.
ACROSS_NODES = "a tensor group talks in every layer, and must not lie across nodes"


def spread(gpus: int, node_gpus: Sequence[int]) -> tuple[int, ...]:
    """Devices on each node of a gang of `gpus`, if nodes have `node_gpus`; empty if too few."""
    parts: list[int] = []
    for size in sorted(node_gpus, reverse=True):
        if gpus == 0:
            break
        parts.append(min(size, gpus))
        gpus -= parts[-1]
    return tuple(parts) if gpus == 0 else ()


def are_alike(node_gpus: Sequence[int]) -> bool:
    """Whether there are several nodes, all with equally many devices."""
    return len(node_gpus) > 1 and len(set(node_gpus)) == 1
