"""What a black-box technique saves: one file, in a checkpoint directory like any other.

The file holds whatever `task.save` was given: the model's state dict, or a mapping with it under
`model`. Managed techniques can go on from the model in it, and the other way round.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

from saturn import durable
from saturn.checkpoint import manifest
from saturn.checkpoint.writer import digested

#: The one file of such a checkpoint.
FILE = "state.pt"
#: Directory of what was saved by a function that hasn't said yet how far it is.
_PENDING = ".pending"
#: What `DataParallel` and `DistributedDataParallel` put before every name.
_WRAPPER_PREFIX = "module."


def write_pending(state: Mapping[str, Any], checkpoints_dir: Path) -> None:
    """Write what is saved, durably, in place of what was pending; it doesn't count yet."""
    scratch = checkpoints_dir / f"{manifest.UNFINISHED}{os.getpid()}"
    durable.make_directory(checkpoints_dir)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        with (scratch / FILE).open("wb") as file, digested(file) as stream:
            torch.save(state, cast(IO[bytes], stream))
            stream.flush()
            os.fsync(stream.fileno())
        drop_pending(checkpoints_dir)
        scratch.rename(checkpoints_dir / _PENDING)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)  # a full disk needs the room
        raise


def has_pending(checkpoints_dir: Path) -> bool:
    """Whether something is saved that doesn't count yet."""
    return (checkpoints_dir / _PENDING / FILE).is_file()


def drop_pending(checkpoints_dir: Path) -> None:
    """Forget what is pending, if anything is."""
    shutil.rmtree(checkpoints_dir / _PENDING, ignore_errors=True)


def commit_pending(checkpoints_dir: Path, about: Mapping[str, Any]) -> Path:
    """Make what is pending a checkpoint; `about` is its manifest but for the files.

    Returns its directory.
    """
    pending = checkpoints_dir / _PENDING
    content = {
        "version": manifest.VERSION,
        "format": "torch",
        "loss": None,
        **about,
        **manifest.versions(),
        "files": manifest.digests(pending, [FILE]),
    }
    directory = manifest.commit(pending, checkpoints_dir, content)
    manifest.prune(checkpoints_dir)
    return directory


def read_whole(directory: Path, *, mapped: bool = False) -> Any:
    """All that was saved, in host memory; the directory must have been verified.

    With `mapped`, tensors are read from the file as they are used, and not to be written to.
    """
    # A pickle, but one that this run's own worker wrote, as its digest says.
    return torch.load(directory / FILE, map_location="cpu", weights_only=False, mmap=mapped)


def saved_model(directory: Path) -> dict[str, Any]:
    """The model's state in what was saved, under unwrapped names; mapped: the rest isn't read."""
    whole = read_whole(directory, mapped=True)
    state = whole["model"] if isinstance(whole.get("model"), Mapping) else whole
    if state and all(key.startswith(_WRAPPER_PREFIX) for key in state):
        return {key.removeprefix(_WRAPPER_PREFIX): value for key, value in state.items()}
    return dict(state)


def read_into(directory: Path, content: Mapping[str, Any], module: nn.Module) -> None:
    """Load the model's state of a verified checkpoint of either kind into `module`."""
    if content["format"] == "torch":
        module.load_state_dict(saved_model(directory))
        return
    state = module.state_dict()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_distributed({"model": state}, storage_reader=FileSystemReader(directory), no_dist=True)
    module.load_state_dict(state)
