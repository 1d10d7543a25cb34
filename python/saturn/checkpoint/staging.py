"""Copy one rank's share of a checkpoint's state to host memory, from which it is then written.

Training stands still meanwhile. So on an accelerator the copies go to pinned memory, one after
another without a wait between them, and the host waits once, for the last.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

#: Smaller tensors share one piece of pinned memory, because each piece takes time to pin. (DCP
#: copies a tensor that shares its memory once more, so that it writes no more than the tensor.)
_SMALL_BYTES = 64 << 10
#: In a shared piece, each tensor begins at a multiple of this.
_ALIGNMENT = 64


class StagingPlanner(DefaultSavePlanner):
    """Plans as DCP does; `stage` copies what this rank writes, and the copies are then written.

    `room` holds the copies' memory from one save to the next.
    """

    def __init__(self, room: dict[Any, Tensor]) -> None:
        super().__init__()
        self._room = room
        self._copies: dict[Any, Tensor | io.BytesIO] = {}

    def stage(self, plan: SavePlan) -> None:
        """Copy the tensors that this rank writes under `plan`."""
        found = {item.index: self.resolve_data(item) for item in plan.items}
        tensors = {index: each for index, each in found.items() if isinstance(each, Tensor)}
        self._make_room(tensors)
        self._copies = {**found, **{index: self._room[index] for index in tensors}}
        devices = {each.device for each in tensors.values() if each.device.type != "cpu"}
        for index, each in tensors.items():
            self._room[index].copy_(each.detach(), non_blocking=each.device in devices)
        for device in devices:
            copied = torch.Event(device)
            copied.record(torch.accelerator.current_stream(device))
            copied.synchronize()

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        copy = self._copies.get(write_item.index)
        return super().resolve_data(write_item) if copy is None else copy

    def _make_room(self, tensors: dict[Any, Tensor]) -> None:
        small: list[tuple[Any, Tensor]] = []
        for index, each in tensors.items():
            held = self._room.get(index)
            if held is not None and held.shape == each.shape and held.dtype == each.dtype:
                continue
            if each.device.type == "cpu":
                self._room[index] = torch.empty(each.shape, dtype=each.dtype)
            elif each.nbytes < _SMALL_BYTES:
                small.append((index, each))
            else:
                self._room[index] = torch.empty(each.shape, dtype=each.dtype, pin_memory=True)
        self._room.update(_in_one_piece(small))


def _in_one_piece(tensors: Sequence[tuple[Any, Tensor]]) -> dict[Any, Tensor]:
    """Pinned memory for each of `tensors`, by its key."""
    starts, end = [], 0
    for _, each in tensors:
        starts.append(end)
        end += -(-each.nbytes // _ALIGNMENT) * _ALIGNMENT
    if end == 0:
        return {index: torch.empty(each.shape, dtype=each.dtype) for index, each in tensors}
    piece = torch.empty(end, dtype=torch.uint8, pin_memory=True)
    return {
        index: piece[start : start + each.nbytes].view(each.dtype).view(each.shape)
        for start, (index, each) in zip(starts, tensors, strict=True)
    }
