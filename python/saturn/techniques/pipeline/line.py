"""One of a gang's pipelines, as one of its ranks sees it: which ranks are in it.

The gang is a mesh whose first dimension is the place in a pipeline. Ranks that differ only in that
dimension make one pipeline, through which one slice of the batch goes. The ranks of one place hold
the same part of the model, split between them or as copies. Each place has one stage or several. If
there are several, stages go round: the stage after the last place's is again at the first place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

#: The name of the mesh's first dimension.
STAGE = "stage"


class Line:
    """The ranks of one pipeline."""

    def __init__(self, mesh: DeviceMesh, device: torch.device, stages_a_rank: int = 1) -> None:
        """`mesh` is the whole gang's mesh."""
        #: This rank's place, and the number of places.
        self.place, self.num_places = mesh.get_local_rank(STAGE), mesh.size(0)
        self.num_stages = stages_a_rank * self.num_places
        self.stages = tuple(range(self.place, self.num_stages, self.num_places))
        self.device = device
        self.group = mesh.get_group(STAGE)
        # The ranks of each of the gang's pipelines, in the order of places.
        self._lines: list[list[int]] = mesh.mesh.reshape(self.num_places, -1).T.tolist()

    def place_of(self, stage: int) -> int:
        """The place where a stage runs."""
        return stage % self.num_places

    def send(self, tensors: Sequence[torch.Tensor], place: int) -> list[dist.Work]:
        """Begin to send `tensors` to a place; they must not change until that has ended."""
        return self._begin(dist.isend, tensors, place)

    def receive(self, tensors: Sequence[torch.Tensor], place: int) -> None:
        """Fill `tensors` with the tensors that a place sends."""
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
        """Every rank's `value`, over all of the gang's pipelines, on every rank."""
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def open_groups(
        self, some: Collection[tuple[int, ...]]
    ) -> dict[tuple[int, ...], dist.ProcessGroup]:
        """Open groups of some places of each pipeline.

        Every rank of the gang calls this with the same places. Returns the groups with this rank,
        by their places.
        """
        own: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for places in sorted(some):
            for line in self._lines:
                # All ranks must open a group together, even those that aren't in it.
                group = dist.new_group([line[place] for place in places])
                if isinstance(group, dist.ProcessGroup):  # non-members get a number instead
                    own[places] = group
        return own
