"""The best checkpoint of a task, kept beside the last ones: `<task>/best/step-<n>/`.

It has the files of a checkpoint as hard links (copies, if the file system has no links). So when
the original is removed, the best checkpoint stays whole, and the disk holds its files once. A task
has one best checkpoint; it is removed only when a better one is in place. Which checkpoint is the
best is the business of `worker.evaluations`.
"""

from __future__ import annotations

import json
from pathlib import Path

from saturn.checkpoint import manifest
from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory

#: The name of the directory, beside the directory of a task's checkpoints.
DIRECTORY = "best"


def directory_of(checkpoints_dir: Directory) -> Directory:
    """The directory of the best of the checkpoints in `checkpoints_dir`."""
    return checkpoints_dir.with_name(DIRECTORY)


def keep(checkpoint: Directory, step: int) -> None:
    """Keep the committed checkpoint of `step` as the best, replacing the one before."""
    directory = directory_of(checkpoint.parent)
    if isinstance(directory, Folder):
        _keep_stored(checkpoint, directory / checkpoint.name)
        return
    assert isinstance(checkpoint, Path)
    manifest.keep_only([manifest.link(checkpoint, directory, step)], directory)


def _keep_stored(checkpoint: Directory, folder: Folder) -> None:
    """Let the store copy the checkpoint, object by object, the manifest last."""
    assert isinstance(checkpoint, Folder)
    content = json.loads((checkpoint / manifest.NAME).read_text())
    for name in content["files"]:
        (folder / name).copy_from(checkpoint / name)
    manifest.commit(folder, folder.parent, content)
    manifest.keep_only([folder], folder.parent)


def repair(checkpoint: Directory, step: int) -> None:
    """Keep `checkpoint`, of `step`, as the best, if a crash came before that was done."""
    if all(there != step for there, _ in manifest.found(directory_of(checkpoint.parent))):
        keep(checkpoint, step)
