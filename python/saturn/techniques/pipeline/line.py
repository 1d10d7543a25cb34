"""One of a gang's pipelines, as one of its ranks sees it: who else is in it.

The gang is a mesh whose first dimension is the places in a pipeline. Ranks that differ in nothing
else make one pipeline, through which one slice of the batch goes; the ranks of one place hold the
same part of the model, between them or each. There is a stage for each place, or several: then the
stages go round, so that the one after that of the last place is the first place's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

#: The mesh's first dimension.
STAGE = "stage"


class Line:
    """The ranks of one pipeline."""

    def __init__(self, mesh: DeviceMesh, device: torch.device, stages_a_rank: int = 1) -> None:
        """`mesh` is that of the whole gang."""
        #: This rank's place, and how many there are.
        self.place, self.num_places = mesh.get_local_rank(STAGE), mesh.size(0)
        self.num_stages = stages_a_rank * self.num_places
        self.stages = tuple(range(self.place, self.num_stages, self.num_places))
        self.device = device
        self.group = mesh.get_group(STAGE)
        # By place, of each of the gang's pipelines.
        self._lines: list[list[int]] = mesh.mesh.reshape(self.num_places, -1).T.tolist()

    def place_of(self, stage: int) -> int:
        """Where a stage runs."""
        return stage % self.num_places

    def send(self, tensors: Sequence[torch.Tensor], place: int) -> list[dist.Work]:
        """Begin to send `tensors` to a place; they must stay as they are until that has ended."""
        return self._begin(dist.isend, tensors, place)

    def receive(self, tensors: Sequence[torch.Tensor], place: int) -> None:
        """Fill `tensors` with what a place sends."""
        for work in self._begin(dist.irecv, tensors, place):
            work.wait()

    def _begin(self, way: Any, tensors: Sequence[torch.Tensor], place: int) -> list[dist.Work]:
        rank = dist.get_global_rank(self.group, place)
        return dist.batch_isend_irecv(
            [dist.P2POp(way, tensor, rank, self.group) for tensor in tensors]
        )

    def collect(self, value: Any) -> list[Any]:
        """Every place's `value` (small, picklable), in order, on every rank."""
        values: list[Any] = [None] * self.num_places
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
        """Groups of some places of each pipeline; every rank of the gang calls it with the same.

        By their places, those that this rank is in.
        """
        own: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for places in sorted(some):
            for line in self._lines:
                # Opened by all together, also by those that aren't in them.
                group = dist.new_group([line[place] for place in places])
                if isinstance(group, dist.ProcessGroup):  # a number for non-members
                    own[places] = group
        return own
