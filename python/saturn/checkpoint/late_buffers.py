"""Buffers that a forward has added to its model, or has made larger: room for them on loading.

A freshly built model doesn't have them yet. Left out, their values would be lost without a word,
and the forward would make them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def make_room(module: nn.Module, saved: Mapping[str, Any], device: torch.device) -> None:
    """Give `module` each buffer of a checkpoint that it lacks, or has in another shape.

    `saved` is DCP's index of the checkpoint's model: the kind of each entry, by name.
    """
    parts = dict(module.named_modules())
    for full, entry in saved.items():
        prefix, _, name = full.rpartition(".")
        part = parts.get(prefix)
        if part is None or not isinstance(entry, TensorStorageMetadata):
            continue
        own = part._buffers.get(name)
        # On a stage of a pipeline, parts of other stages have stand-ins.
        is_new = own is None and not hasattr(part, name)
        if is_new or (own is not None and own.shape != entry.size):
            room = torch.empty(entry.size, dtype=entry.properties.dtype, device=device)
            if own is None:
                part.register_buffer(name, room)
            else:
                part._buffers[name] = room
