"""The manifest of a checkpoint, and which checkpoint directories are valid.

A checkpoint is a directory `step-<8 digits>` with a `manifest.json` that names every other file in
it, with size and SHA-256. It is written under another name, made durable, and renamed into place.
So a directory of that name was complete once, and the digests show whether it still is. Nothing in
a checkpoint is opened before it has been verified against its manifest, because DCP's `.metadata`
is a pickle.

A checkpoint is never overwritten. A step may already have a checkpoint: a damaged one, or one that
a black box saves again. The new checkpoint then gets a number: `step-<8 digits>.2`. It takes
precedence, and the older one is removed once the newer one is durable.

The runtime gives up an attempt whose node was silent for too long, and trains its task elsewhere.
Such an attempt must not commit anything (`GivenUp`).

In an object store (`folder`) nothing can be renamed. A checkpoint is written under its own name,
which has its attempt's number, so that no other attempt writes there; its manifest comes last. The
manifest also has the store's tag of each object. A matching tag shows that content is unchanged, so
most objects needn't be fetched to verify them. Pickles are fetched and digested before they are
opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.plain import durable

VERSION = 1
NAME = "manifest.json"
#: How many complete checkpoints are kept.
KEPT = 2

#: The file in an attempt's directory by which the runtime marks it as given up.
_GIVEN_UP = "given-up"

#: Prefixes of directories that are no checkpoint: unfinished ones, and removed ones.
UNFINISHED, _REMOVED = ".new-", ".old-"

_STEP_DIR = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
_CHUNK_BYTES = 1 << 20
#: Files that are pickles: a forged pickle could run any code.
_PICKLES = (".metadata", "state.pt")


def step_dir_name(step: int) -> str:
    """The directory name of the checkpoint after `step` finished steps."""
    return f"step-{step:08d}"


def fresh(checkpoints_dir: Directory, step: int, attempt: int, number: int) -> Directory:
    """Where this attempt writes its `number`th checkpoint, counted from 0.

    Equal on every rank.
    """
    if isinstance(checkpoints_dir, Folder):
        return checkpoints_dir / f"{step_dir_name(step)}.{attempt}{number % 1000:03}"
    return checkpoints_dir / f"{UNFINISHED}{step_dir_name(step)}-{attempt}"


def begin(scratch: Directory) -> None:
    """Make `scratch` an empty directory."""
    if isinstance(scratch, Folder):
        discard(scratch)
        return
    durable.make_directory(scratch.parent)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()


def discard(scratch: Directory) -> None:
    """Remove an unfinished checkpoint; parts that can't be removed stay."""
    if isinstance(scratch, Path):
        shutil.rmtree(scratch, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        # The manifest goes first, so that the rest is no checkpoint.
        for name in sorted(scratch.objects(), key=lambda name: name != NAME):
            scratch.remove(name)


def found(checkpoints_dir: Directory) -> list[tuple[int, Directory]]:
    """(step, directory) of every checkpoint directory that has a manifest, newest first."""
    return [
        (step, directory)
        for step, _, directory in sorted(
            _step_dirs(checkpoints_dir), key=lambda found: found[:2], reverse=True
        )
        if (directory / NAME).is_file()
    ]


def of_step(checkpoints_dir: Directory, step: int) -> Directory:
    """The directory of the checkpoint after `step` steps, which must exist."""
    return next(directory for its, directory in found(checkpoints_dir) if its == step)


def _step_dirs(checkpoints_dir: Directory) -> Iterator[tuple[int, int, Directory]]:
    """(step, number within the step, path) of everything that is named like a checkpoint."""
    if isinstance(checkpoints_dir, Folder):
        names = checkpoints_dir.folders()
    else:
        there = checkpoints_dir.iterdir() if checkpoints_dir.is_dir() else ()
        names = [entry.name for entry in there]
    for name in names:
        if match := _STEP_DIR.fullmatch(name):
            yield int(match[1]), int(match[2] or 1), checkpoints_dir / name


def digests(directory: Directory, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of the named files of `directory`."""
    return {name: _digest(directory / name) for name in names}


def read(directory: Directory) -> dict[str, Any] | None:
    """The manifest of `directory`; None if there is no manifest of this version."""
    try:
        manifest = json.loads((directory / NAME).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        return None
    return manifest


def verify(
    directory: Directory, manifest: Mapping[str, Any], *, part: int = 0, parts: int = 1
) -> str | None:
    """What is wrong with the files of a checkpoint; None if nothing is.

    Each rank of a gang digests its part of the files; all ranks check all names and sizes.
    """
    listed = manifest["files"]
    if isinstance(directory, Folder):
        return _verify_stored(directory, listed)
    present = {entry.name for entry in directory.iterdir()} - {NAME}
    if present != set(listed):
        return f"{directory}: files are {sorted(present)}, the manifest names {sorted(listed)}"
    for number, (name, expected) in enumerate(sorted(listed.items())):
        if (directory / name).stat().st_size != expected["bytes"]:
            return f"{directory / name}: not {expected['bytes']} bytes long"
        if number % parts == part and _digest(directory / name) != expected:
            return f"{directory / name}: content does not match the manifest"
    return None


def _verify_stored(directory: Folder, listed: Mapping[str, Any]) -> str | None:
    present = directory.objects()
    present.pop(NAME, None)
    if set(present) != set(listed):
        return f"{directory}: holds {sorted(present)}, the manifest names {sorted(listed)}"
    for name, expected in sorted(listed.items()):
        if present[name].num_bytes != expected["bytes"]:
            return f"{directory / name}: not {expected['bytes']} bytes long"
        if present[name].tag != expected["tag"]:
            return f"{directory / name}: the store has other content than was written"
        if name in _PICKLES and _digest(directory / name)["sha256"] != expected["sha256"]:
            return f"{directory / name}: content does not match the manifest"
    return None


def newest_valid(checkpoints_dir: Directory) -> tuple[Directory, dict[str, Any]] | None:
    """The newest checkpoint that verifies, and its manifest, for a single process."""
    for _, directory in found(checkpoints_dir):
        content = read(directory)
        if content is not None and verify(directory, content) is None:
            return directory, content
    return None


def versions() -> dict[str, str]:
    """The versions of the programs that write a checkpoint."""
    return {"torch": str(torch.__version__), "python": platform.python_version()}


class GivenUp(Exception):
    """The attempt was given up: its task is trained elsewhere."""


def commit(
    scratch: Directory, checkpoints_dir: Directory, manifest: Mapping[str, Any]
) -> Directory:
    """Write the manifest into `scratch`, make everything durable, and rename it into place.

    The files in `scratch` must have been synced already. Returns the checkpoint's directory. Raises
    `GivenUp` if the attempt was given up.
    """
    if isinstance(scratch, Folder):
        return _commit_stored(scratch, manifest)
    assert isinstance(checkpoints_dir, Path)
    _write(scratch, manifest)
    if "attempt" in manifest:
        _refuse_given_up(checkpoints_dir.parent / "attempts" / str(manifest["attempt"]))
    return put(scratch, checkpoints_dir, int(manifest["step"]))


def _commit_stored(folder: Folder, manifest: Mapping[str, Any]) -> Folder:
    present = folder.objects()
    files = {}
    for name, digest in manifest["files"].items():
        if name not in present or present[name].num_bytes != digest["bytes"]:
            raise OSError(f"{folder / name} is not in the store as it was written")
        files[name] = {**digest, "tag": present[name].tag}
    text = json.dumps({**manifest, "files": files}, indent=1, sort_keys=True)
    if "attempt" in manifest:
        _refuse_given_up(folder.task_dir / "attempts" / str(manifest["attempt"]))
    (folder / NAME).write_bytes(text.encode())
    return folder


def put(scratch: Path, checkpoints_dir: Path, step: int) -> Path:
    """Rename `scratch`, a complete and durable checkpoint of `step`; returns its new path."""
    taken = [number for its, number, _ in _step_dirs(checkpoints_dir) if its == step]
    name = step_dir_name(step)
    target = checkpoints_dir / (f"{name}.{max(taken) + 1}" if taken else name)
    scratch.rename(target)
    durable.sync(checkpoints_dir)
    return target


def _write(scratch: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest; make it and the directory's entries durable."""
    with (scratch / NAME).open("w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    durable.sync(scratch)


def link(
    checkpoint: Path, directory: Path, step: int, more: Mapping[str, Any] | None = None
) -> Path:
    """Put a committed checkpoint of `step` into `directory` too, durably; returns its path.

    Its files are hard links (copies, if the file system has no links). If there are `more` fields,
    the manifest is a new file with these fields added.
    """
    durable.make_directory(directory)
    scratch = directory / f"{UNFINISHED}{checkpoint.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for path in checkpoint.iterdir():
        if not (more and path.name == NAME):
            durable.link(path, scratch / path.name)
    if more:
        _write(scratch, {**json.loads((checkpoint / NAME).read_text()), **more})
    durable.sync(scratch)
    return put(scratch, directory, step)


def _refuse_given_up(attempt_dir: Path) -> None:
    # The directory is listed anew: a network file system may have cached that a file is absent.
    with contextlib.suppress(FileNotFoundError):
        if _GIVEN_UP in [entry.name for entry in attempt_dir.iterdir()]:
            raise GivenUp("this attempt was given up: its node was silent for too long")


def prune(checkpoints_dir: Directory) -> None:
    """Keep the checkpoints of the last steps, and remove all others (see `keep_only`)."""
    newest_of: dict[int, Directory] = {}
    with contextlib.suppress(OSError):
        for step, directory in found(checkpoints_dir):
            newest_of.setdefault(step, directory)
        keep_only(list(newest_of.values())[:KEPT], checkpoints_dir)


def keep_only(kept: Collection[Directory], checkpoints_dir: Directory) -> None:
    """Remove all other checkpoints, and everything that was left unfinished.

    Errors are ignored, since the saves themselves succeeded: the next call tries again.
    """
    if isinstance(checkpoints_dir, Folder):
        with contextlib.suppress(OSError):
            for _, _, folder in list(_step_dirs(checkpoints_dir)):
                if folder not in kept:
                    discard(folder)
        return
    with contextlib.suppress(OSError):
        for _, _, directory in list(_step_dirs(checkpoints_dir)):
            if directory not in kept and isinstance(directory, Path):
                # Renamed first, so that a half-removed directory doesn't look like a checkpoint.
                directory.rename(checkpoints_dir / f"{_REMOVED}{directory.name}-{os.getpid()}")
    with contextlib.suppress(OSError):
        for entry in checkpoints_dir.iterdir():
            if entry.name.startswith((UNFINISHED, _REMOVED)):
                shutil.rmtree(entry, ignore_errors=True)


def remove_all(checkpoints_dir: Directory) -> None:
    """Remove all checkpoints."""
    if isinstance(checkpoints_dir, Path):
        shutil.rmtree(checkpoints_dir, ignore_errors=True)
    else:
        keep_only([], checkpoints_dir)


def _digest(path: Directory) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}
