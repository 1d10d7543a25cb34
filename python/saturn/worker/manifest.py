"""The manifest of a checkpoint, and which checkpoint directories count.

A checkpoint is a directory `step-<8 digits>` with a `manifest.json` that names every other file
in it with size and SHA-256. It is written under another name, made durable, and renamed into
place, so a directory of that name is complete; the digests say whether it still is. Nothing in a
checkpoint is opened (DCP's `.metadata` is a pickle) before its manifest has been verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

VERSION = 1
NAME = "manifest.json"
#: How many complete checkpoints stay on disk.
KEPT = 2

#: Prefixes of directories that are no checkpoint: not one yet, and no longer one.
UNFINISHED, _REPLACED = ".new-", ".old-"

_STEP_DIR = re.compile(r"step-(\d{8,})")
_CHUNK_BYTES = 1 << 20


def step_dir_name(step: int) -> str:
    """The directory of the checkpoint after `step` done steps."""
    return f"step-{step:08d}"


def found(checkpoints_dir: Path) -> list[tuple[int, Path]]:
    """(step, directory) of every checkpoint directory that has a manifest, newest first."""
    if not checkpoints_dir.is_dir():
        return []
    steps = []
    for entry in checkpoints_dir.iterdir():
        match = _STEP_DIR.fullmatch(entry.name)
        if match and (entry / NAME).is_file():
            steps.append((int(match[1]), entry))
    return sorted(steps, reverse=True)


def digests(directory: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of the named files of `directory`."""
    return {name: _digest(directory / name) for name in names}


def read(directory: Path) -> dict[str, Any] | None:
    """The manifest of `directory`, or None where it is not one of ours."""
    try:
        manifest = json.loads((directory / NAME).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        return None
    return manifest


def verify(
    directory: Path, manifest: Mapping[str, Any], *, part: int = 0, parts: int = 1
) -> str | None:
    """What is wrong with the files of a checkpoint, or None.

    The ranks of a gang verify one part of the files each; all of them check names and sizes.
    """
    listed = manifest["files"]
    present = {entry.name for entry in directory.iterdir()} - {NAME}
    if present != set(listed):
        return f"{directory}: files are {sorted(present)}, the manifest names {sorted(listed)}"
    for number, (name, expected) in enumerate(sorted(listed.items())):
        if (directory / name).stat().st_size != expected["bytes"]:
            return f"{directory / name}: not {expected['bytes']} bytes long"
        if number % parts == part and _digest(directory / name) != expected:
            return f"{directory / name}: content does not match the manifest"
    return None


def newest_valid(checkpoints_dir: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that verifies, and its manifest, for a process on its own."""
    for _, directory in found(checkpoints_dir):
        content = read(directory)
        if content is not None and verify(directory, content) is None:
            return directory, content
    return None


def versions() -> dict[str, str]:
    """What writes a checkpoint."""
    return {"torch": str(torch.__version__), "python": platform.python_version()}


def commit(scratch: Path, checkpoints_dir: Path, manifest: Mapping[str, Any]) -> Path:
    """Write the manifest into `scratch`, make all of it durable, and rename it into place.

    The files in `scratch` must have been synced already. Returns the checkpoint's directory.
    """
    manifest_path = scratch / NAME
    with manifest_path.open("w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    sync_dir(scratch)
    target = checkpoints_dir / step_dir_name(int(manifest["step"]))
    if target.exists():
        # A damaged one, since training came from before it, or one that a black-box technique
        # saves again. It is set aside: writing into it could mix old tensors with new.
        target.rename(checkpoints_dir / f"{_REPLACED}{target.name}-{os.getpid()}")
    scratch.rename(target)
    sync_dir(checkpoints_dir)
    return target


def prune(checkpoints_dir: Path) -> None:
    """Keep the last complete checkpoints; remove the others and whatever was left half-written."""
    for _, directory in found(checkpoints_dir)[KEPT:]:
        # Renamed first: a half-removed directory must not look like a checkpoint.
        doomed = checkpoints_dir / f"{_REPLACED}{directory.name}-{os.getpid()}"
        directory.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    for entry in checkpoints_dir.iterdir():
        if entry.name.startswith((UNFINISHED, _REPLACED)):
            shutil.rmtree(entry, ignore_errors=True)


def sync_dir(directory: Path) -> None:
    """Make a directory's entries durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}
