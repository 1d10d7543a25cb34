"""The manifest of a checkpoint, and which checkpoint directories count.

A checkpoint is a directory `step-<8 digits>` with a `manifest.json` that names every other file
in it with size and SHA-256. It is written under another name, made durable, and renamed into
place, so a directory of that name is complete; the digests say whether it still is. Nothing in a
checkpoint is opened (DCP's `.metadata` is a pickle) before its manifest has been verified.

Nothing is ever written in place of a checkpoint. One of a step that has one already, because that
one is damaged or a black-box technique saves a step again, gets a name with a number of its own,
`step-<8 digits>.2`, and counts before it; the older one is removed once the newer one is durable.

An attempt whose node was silent for too long has been given up: its task trains elsewhere by now,
and nothing that it saves may count (`GivenUp`).
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

from saturn import durable

VERSION = 1
NAME = "manifest.json"
#: How many complete checkpoints stay on disk.
KEPT = 2

#: The file in an attempt's directory by which the runtime says that it was given up.
_GIVEN_UP = "given-up"

#: Prefixes of directories that are no checkpoint: not one yet, and no longer one.
UNFINISHED, _REMOVED = ".new-", ".old-"

_STEP_DIR = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
_CHUNK_BYTES = 1 << 20


def step_dir_name(step: int) -> str:
    """The directory of the checkpoint after `step` done steps."""
    return f"step-{step:08d}"


def found(checkpoints_dir: Path) -> list[tuple[int, Path]]:
    """(step, directory) of every checkpoint directory that has a manifest, newest first."""
    return [
        (step, directory)
        for step, _, directory in sorted(_step_dirs(checkpoints_dir), reverse=True)
        if (directory / NAME).is_file()
    ]


def of_step(checkpoints_dir: Path, step: int) -> Path:
    """The directory of the checkpoint after `step` steps, which must be there."""
    return next(directory for its, directory in found(checkpoints_dir) if its == step)


def _step_dirs(checkpoints_dir: Path) -> Iterator[tuple[int, int, Path]]:
    """(step, number among those of the step, path) of all that is called like a checkpoint."""
    if not checkpoints_dir.is_dir():
        return
    for entry in checkpoints_dir.iterdir():
        if match := _STEP_DIR.fullmatch(entry.name):
            yield int(match[1]), int(match[2] or 1), entry


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


class GivenUp(Exception):
    """The attempt has been given up: its task is trained elsewhere."""


def commit(scratch: Path, checkpoints_dir: Path, manifest: Mapping[str, Any]) -> Path:
    """Write the manifest into `scratch`, make all of it durable, and rename it into place.

    The files in `scratch` must have been synced already. Returns the checkpoint's directory. Raises
    `GivenUp`.
    """
    manifest_path = scratch / NAME
    with manifest_path.open("w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    durable.sync(scratch)
    if "attempt" in manifest:
        _refuse_given_up(checkpoints_dir.parent / "attempts" / str(manifest["attempt"]))
    return put(scratch, checkpoints_dir, int(manifest["step"]))


def put(scratch: Path, checkpoints_dir: Path, step: int) -> Path:
    """Rename `scratch`, a whole and durable checkpoint of `step`, into place; returns where."""
    taken = [number for its, number, _ in _step_dirs(checkpoints_dir) if its == step]
    name = step_dir_name(step)
    target = checkpoints_dir / (f"{name}.{max(taken) + 1}" if taken else name)
    scratch.rename(target)
    durable.sync(checkpoints_dir)
    return target


def _refuse_given_up(attempt_dir: Path) -> None:
    # The directory is read anew: a network file system may remember that a file was not there.
    with contextlib.suppress(FileNotFoundError):
        if _GIVEN_UP in [entry.name for entry in attempt_dir.iterdir()]:
            raise GivenUp("this attempt was given up: its node was silent for too long")


def prune(checkpoints_dir: Path) -> None:
    """Keep the last steps' checkpoints, as `keep_only` does."""
    newest_of: dict[int, Path] = {}
    with contextlib.suppress(OSError):
        for step, directory in found(checkpoints_dir):
            newest_of.setdefault(step, directory)
        keep_only(list(newest_of.values())[:KEPT], checkpoints_dir)


def keep_only(kept: Collection[Path], checkpoints_dir: Path) -> None:
    """Remove all other checkpoints, and whatever was left half-written.

    What can't be removed stays for the next time, and fails nothing: what was saved is saved.
    """
    with contextlib.suppress(OSError):
        for _, _, directory in list(_step_dirs(checkpoints_dir)):
            if directory not in kept:
                # Renamed first: a half-removed directory must not look like a checkpoint.
                directory.rename(checkpoints_dir / f"{_REMOVED}{directory.name}-{os.getpid()}")
    with contextlib.suppress(OSError):
        for entry in checkpoints_dir.iterdir():
            if entry.name.startswith((UNFINISHED, _REMOVED)):
                shutil.rmtree(entry, ignore_errors=True)


def _digest(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}
