"""The best checkpoint of a task, kept beside the last ones: `<task>/best/step-<n>/`.

It has the files of a checkpoint by hard links (copies, where the file system has no links), and is
as whole as that one: what is removed there stays here, and takes room on the disk once. There is
one at a time; it goes when a better one is in place, and not before.
"""

from __future__ import annotations

import json
from pathlib import Path

from saturn.checkpoint import manifest
from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory

#: Beside the directory of a task's checkpoints.
DIRECTORY = "best"


def directory_of(checkpoints_dir: Directory) -> Directory:
    """Where the best of the checkpoints in `checkpoints_dir` is."""
    return checkpoints_dir.with_name(DIRECTORY)


def keep(checkpoint: Directory, step: int) -> None:
    """Keep the committed checkpoint of `step` as the best, in place of the one before."""
    directory = directory_of(checkpoint.parent)
    if isinstance(directory, Folder):
        _keep_stored(checkpoint, directory / checkpoint.name)
        return
    assert isinstance(checkpoint, Path)
    manifest.keep_only([manifest.link(checkpoint, directory, step)], directory)


def _keep_stored(checkpoint: Directory, folder: Folder) -> None:
    """The store copies it, object by object, the manifest last."""
    assert isinstance(checkpoint, Folder)
    content = json.loads((checkpoint / manifest.NAME).read_text())
    for name in content["files"]:
        (folder / name).copy_from(checkpoint / name)
    manifest.commit(folder, folder.parent, content)
    manifest.keep_only([folder], folder.parent)


def repair(checkpoint: Directory, step: int) -> None:
    """Keep `checkpoint`, of `step`, as the best, where a crash came before that."""
    if all(there != step for there, _ in manifest.found(directory_of(checkpoint.parent))):
        keep(checkpoint, step)
