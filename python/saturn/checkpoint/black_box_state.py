"""The saves of a black-box technique: one file, in a checkpoint directory like any other.

The file holds what `task.save` was given: the model's state dict, or a mapping with it under
`model`. Managed techniques can resume from the model in it, and black boxes from managed
checkpoints. A save is *pending*, and not a checkpoint yet, until its position is known.
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
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

from saturn.checkpoint import manifest
from saturn.checkpoint.folder import Folder
from saturn.checkpoint.kept import saved_name
from saturn.checkpoint.place import Directory
from saturn.checkpoint.reader import reader_of
from saturn.checkpoint.writer import digested
from saturn.plain import durable

#: The single file of such a checkpoint.
FILE = "state.pt"
#: The directory of a pending save.
_PENDING = ".pending"
#: The prefix that `DataParallel` and `DistributedDataParallel` put before every name.
_WRAPPER_PREFIX = "module."


def _on_disk(checkpoints_dir: Directory) -> Path:
    """Where a pending save lies: always on the file system, even if checkpoints are not."""
    if isinstance(checkpoints_dir, Folder):
        return checkpoints_dir.task_dir / "checkpoints"
    return checkpoints_dir


def write_pending(state: Mapping[str, Any], place: Directory) -> None:
    """Write a pending save durably, replacing an earlier one; it is no checkpoint yet."""
    checkpoints_dir = _on_disk(place)
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
        shutil.rmtree(scratch, ignore_errors=True)  # on a full disk, the space is needed
        raise


def has_pending(checkpoints_dir: Directory) -> bool:
    """Whether there is a pending save."""
    return (_on_disk(checkpoints_dir) / _PENDING / FILE).is_file()


def drop_pending(checkpoints_dir: Directory) -> None:
    """Remove the pending save, if there is one."""
    shutil.rmtree(_on_disk(checkpoints_dir) / _PENDING, ignore_errors=True)


def commit_pending(checkpoints_dir: Directory, about: Mapping[str, Any]) -> Directory:
    """Make the pending save a checkpoint; `about` is its manifest except for the files.

    Returns the checkpoint's directory.
    """
    pending = _on_disk(checkpoints_dir) / _PENDING
    content = {
        "version": manifest.VERSION,
        "format": "torch",
        "loss": None,
        **about,
        **manifest.versions(),
        "files": manifest.digests(pending, [FILE]),
    }
    if isinstance(checkpoints_dir, Folder):
        step, attempt = int(about["step"]), int(about["attempt"])
        numbers = (manifest.fresh(checkpoints_dir, step, attempt, one) for one in range(1000))
        names = checkpoints_dir.folders()
        folder = next(one for one in numbers if one.name not in names)
        assert isinstance(folder, Folder)
        (folder / FILE).upload(pending / FILE)
        directory = manifest.commit(folder, checkpoints_dir, content)
        drop_pending(checkpoints_dir)
    else:
        directory = manifest.commit(pending, checkpoints_dir, content)
    manifest.prune(checkpoints_dir)
    return directory


def read_whole(directory: Directory, *, mapped: bool = False) -> Any:
    """The whole saved state, in host memory; the directory must have been verified.

    With `mapped`, tensors are read from the file when they are used, and must not be written to.
    """
    # The pickle is safe: the digest shows that this run's own worker wrote it.
    if isinstance(directory, Folder):
        with (directory / FILE).open("rb") as file:
            return torch.load(file, map_location="cpu", weights_only=False)
    return torch.load(directory / FILE, map_location="cpu", weights_only=False, mmap=mapped)


def saved_model(directory: Directory) -> dict[str, Any]:
    """The model's saved state, under unwrapped names; mapped, so nothing else is read."""
    whole = read_whole(directory, mapped=True)
    state = whole["model"] if isinstance(whole.get("model"), Mapping) else whole
    if state and all(key.startswith(_WRAPPER_PREFIX) for key in state):
        return {key.removeprefix(_WRAPPER_PREFIX): value for key, value in state.items()}
    return dict(state)


def read_into(directory: Directory, content: Mapping[str, Any], module: nn.Module) -> None:
    """Load the model's state of a verified checkpoint, managed or black box, into `module`."""
    if content["format"] == "torch":
        module.load_state_dict(saved_model(directory))
        return
    names = {saved_name(name): name for name in module.state_dict()}
    state = {saved_name(name): value for name, value in module.state_dict().items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_distributed({"model": state}, storage_reader=reader_of(directory), no_dist=True)
    module.load_state_dict({names[name]: value for name, value in state.items()})
