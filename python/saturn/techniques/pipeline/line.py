"""One of a gang's pipelines, as one of its ranks sees it: who else is in it.

The gang is a mesh whose first dimension is the stages. Ranks that differ in nothing else make one
pipeline, through which one slice of the batch goes; the ranks of one stage hold the same part of
the model, between them or each.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

#: The mesh's first dimension.
STAGE = "stage"


class Line:
    """The ranks of one pipeline."""

    def __init__(self, mesh: DeviceMesh, device: torch.device) -> None:
        """`mesh` is that of the whole gang."""
        self.stage = mesh.get_local_rank(STAGE)
        self.num_stages = mesh.size(0)
        self.device = device
        self.group = mesh.get_group(STAGE)
        # By stage, of each of the gang's pipelines.
        self._lines: list[list[int]] = mesh.mesh.reshape(self.num_stages, -1).T.tolist()

    def collect(self, value: Any) -> list[Any]:
        """Every stage's `value` (small, picklable), in order, on every rank."""
        values: list[Any] = [None] * self.num_stages
        dist.all_gather_object(values, value, group=self.group)
        return values

    def collect_from_all(self, value: Any) -> list[Any]:
        """Every rank's `value`, of all of the gang's pipelines; on every rank."""
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def open_groups(
        self, some: Collection[tuple[int, ...]]
    ) -> dict[tuple[int, ...], dist.ProcessGroup]:
        """Groups of some stages of each pipeline; every rank of the gang calls it with the same.

        By their stages, those that this rank is in.
        """
        own: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for stages in sorted(some):
            for line in self._lines:
                # Opened by all together, also by those that aren't in them.
                group = dist.new_group([line[stage] for stage in stages])
                if isinstance(group, dist.ProcessGroup):  # a number for non-members
                    own[stages] = group
        return own
