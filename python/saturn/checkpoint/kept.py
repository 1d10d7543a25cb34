"""Weights that don't train, which are equal in all checkpoints of a task.

They are written once, into files of their own. Every later checkpoint has the same files as hard
links. So each checkpoint is complete: it can be loaded, copied or exported alone, on any machine,
and the disk holds the files once. (Building these weights again instead would rely on `get_model`
giving the same bits everywhere, which random numbers and downloads don't.)

A parameter without gradients may still change: a model may keep the average of another parameter
in it. So before each save every rank computes a checksum of its part. If a checksum differs from
the last, the weights are written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.checkpoint.reader import reader_of
from saturn.checkpoint.writer import CheckpointWriter, Digest
from saturn.plain import durable

#: The beginning of the names of these files.
_PREFIX = "frozen"
#: How many words of eight bytes are summed at once; the sum needs three times their memory.
_WORDS_AT_ONCE = 1 << 20


def saved_name(name: str) -> str:
    """The name in checkpoints of an entry of a state dict: without `torch.compile`'s prefixes."""
    return name.replace("_orig_mod.", "")


def frozen_names(module: nn.Module) -> set[str]:
    """The names, in state dicts, of the parameters of `module` that don't train."""
    return {
        saved_name(name)
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, nn.Parameter) and not value.requires_grad
    }


def bit_sum(tensors: Iterable[Any]) -> int:
    """A checksum of this rank's part of `tensors`, which changes if any number changes.

    Each eight bytes are weighted by their position, so exchanged numbers change the sum too.
    """
    total = 0
    for number, tensor in enumerate(tensors, start=1):
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        own = local.detach().contiguous()
        if own.storage_offset() * own.element_size() % 8:
            own = own.clone()  # words can't be read across their borders
        flat = own.view(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        of_tensor = int(flat[words.numel() * 8 :].sum())
        for start in range(0, words.numel(), _WORDS_AT_ONCE):
            some = words[start : start + _WORDS_AT_ONCE]
            # Only odd factors keep every bit of a word; sums that overflow wrap around.
            places = torch.arange(start, start + some.numel(), device=some.device) * 2 + 1
            of_tensor += int((some * places).sum())
        total += number * of_tensor
    return total


def kept_names(index: Metadata, content: Mapping[str, Any]) -> set[str]:
    """The names in a checkpoint's index whose tensors are in files of their own."""
    files = set(content.get("frozen", []))
    stored = index.storage_data or {}
    return {key.fqn for key, place in stored.items() if place.relative_path in files}


@dataclass(frozen=True)
class Kept:
    """The files of these weights, and their entries in DCP's index; only rank 0 has this."""

    directory: Directory  # a checkpoint that has the files, or one that is being written
    files: Mapping[str, Digest]
    entries: Mapping[str, Any]
    places: Mapping[Any, Any]
    paths: Mapping[str, Any]

    @classmethod
    def of(cls, directory: Directory, content: Mapping[str, Any]) -> Kept | None:
        """The files in a verified checkpoint; None if it has none."""
        files = {name: content["files"][name] for name in content.get("frozen", [])}
        if not files:
            return None
        index = reader_of(directory).read_metadata()
        names = kept_names(index, content)
        stored = index.storage_data or {}
        places = {key: place for key, place in stored.items() if key.fqn in names}
        return cls(
            directory,
            files,
            {name: index.state_dict_metadata[name] for name in names},
            places,
            {name: path for name, path in (index.planner_data or {}).items() if name in names},
        )

    def put_into(self, scratch: Directory) -> None:
        """Link the files into `scratch`; copy them if the storage has no links."""
        source = self.directory
        if isinstance(scratch, Folder) and isinstance(source, Folder):
            present = scratch.objects()
            for name in self.files:
                if name not in present:
                    (scratch / name).copy_from(source / name)
        elif isinstance(scratch, Path) and isinstance(source, Path):
            for name in self.files:
                if not (scratch / name).exists():
                    durable.link(source / name, scratch / name)

    def at(self, directory: Directory) -> Kept:
        """The same files, in another checkpoint."""
        return replace(self, directory=directory)

    def join(self, metadata: Metadata) -> list[WriteResult]:
        """Add the weights to a checkpoint's index; returns the places of their tensors."""
        metadata.state_dict_metadata.update(self.entries)
        if isinstance(metadata.planner_data, dict):
            metadata.planner_data.update(self.paths)
        return [WriteResult(index, 0, place) for index, place in self.places.items()]


class KeptWriter(CheckpointWriter):
    """Writes these weights into `scratch`, without an index; rank 0 calls `done` with them."""

    def __init__(self, scratch: Directory, done: Callable[[Kept], None]) -> None:
        super().__init__(scratch, lambda files: None)
        self._done = done

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        plans = super().prepare_global_plan(plans)
        for plan in plans:
            plan.storage_data.prefix = f"{_PREFIX}{plan.storage_data.prefix}"
        return plans

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        files = {name: digest for digests, *_ in results for name, digest in digests.items()}
        places = {one.index: one.storage_data for _, *written in results for one in written}
        paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
        self._done(Kept(self._scratch, files, metadata.state_dict_metadata, places, paths))
