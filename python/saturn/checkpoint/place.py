"""Where a task's checkpoints are: in its directory, or in the run's folder of an object store.

The run directory has the address in `storage.json`, which is written before anything is launched
and never changes. The name of a run's folder is unique among all runs that share the store.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TypeAlias

from saturn.checkpoint.folder import Folder
from saturn.errors import InvalidInput
from saturn.plain import durable

#: A directory on a file system, or a folder of an object store.
Directory: TypeAlias = Path | Folder

_FILE = "storage.json"


def checkpoints_of(task_dir: Path) -> Directory:
    """The place of a task's checkpoints, given the task's directory."""
    return _of(task_dir, "checkpoints")


def scratch_of(task_dir: Path, attempt_dir: Path) -> Directory:
    """A place where an attempt may write a trial checkpoint, which is then removed."""
    kept = _of(task_dir, "scratch")
    return attempt_dir if isinstance(kept, Path) else kept / attempt_dir.name


def _of(task_dir: Path, name: str) -> Directory:
    store = store_of(task_dir.parent.parent)
    if store is None:
        return task_dir / name
    return Folder(f"{store}/tasks/{task_dir.name}/{name}", task_dir)


def store_of(run_dir: Path) -> Folder | None:
    """The run's folder of an object store; None if checkpoints are on the file system."""
    try:
        described = json.loads((run_dir / _FILE).read_text())
    except FileNotFoundError:
        return None
    return Folder(described["url"], run_dir)


def checked(storage: object) -> str | None:
    """The store's address without slashes at its end. Raises `TypeError` or `InvalidInput`."""
    if storage is None:
        return None
    if not isinstance(storage, str):
        raise TypeError(f'storage is a {type(storage).__name__}; it must be a text: "s3://…"')
    protocol, separator, rest = storage.partition("://")
    if not separator or not rest.strip("/") or not protocol.isalnum():
        raise InvalidInput(
            f'storage is "{storage}"; it must be the address of an object store, such as '
            '"s3://bucket/folder"'
        )
    return storage.rstrip("/")


def keep_in(run_dir: Path, storage: str) -> None:
    """Keep a fresh run's checkpoints in a store; `InvalidInput` if the store doesn't work."""
    url = f"{storage}/{run_dir.name}-{secrets.token_hex(4)}"
    word = secrets.token_hex(16)
    proof = Folder(url, run_dir) / "proof"
    try:
        proof.write_bytes(word.encode())
        read = proof.read_text()
        proof.parent.remove(proof.name)
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f'storage "{storage}" can\'t be written to and read: {reason}') from None
    if read != word:
        raise InvalidInput(f'storage "{storage}" does not give back what was written to it')
    path = run_dir / _FILE
    path.write_text(json.dumps({"url": url}) + "\n")
    durable.sync(path)
    durable.sync(run_dir)
