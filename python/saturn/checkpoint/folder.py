"""A folder of an object store (`s3://bucket/a/b`), with the operations that checkpoints need.

Stores have no folders and no rename: a name is that of an object, or the beginning of such names. A
written object appears whole or not at all, and readers then see it. So a checkpoint is a folder
whose manifest is written last: without its manifest it doesn't exist.

fsspec chooses the store and its credentials, from the environment and the store's own files
(`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `~/.aws`, …), on every node. A store's errors become
`OSError` here.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from saturn.errors import InvalidInput

#: Bytes of one fetch when a file is read from beginning to end.
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Stored:
    """What a store says of an object without sending its content."""

    num_bytes: int
    tag: str | None  # changes with the content; None if the store has no tags


@dataclass(frozen=True)
class Folder:
    """A folder, or an object in a folder."""

    url: str
    #: The directory, on the file system, of the task (or run) that owns the folder.
    task_dir: Path

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.url}/{name}", self.task_dir)

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Folder:
        """The folder that contains this one."""
        return Folder(self.url.rpartition("/")[0], self.task_dir)

    def with_name(self, name: str) -> Folder:
        """A folder or object beside this one."""
        return self.parent / name

    def folders(self) -> list[str]:
        """Names of the folders in this one."""
        return [_last(one["name"]) for one in self._listed() if one["type"] == "directory"]

    def objects(self) -> dict[str, Stored]:
        """The objects in the folder, by name."""
        return {
            _last(one["name"]): Stored(int(one["size"]), one.get("ETag") or one.get("etag"))
            for one in self._listed()
            if one["type"] == "file"
        }

    def is_file(self) -> bool:
        """Whether this is an object that exists."""
        return self.name in self.parent.objects()

    exists = is_file

    def read_bytes(self) -> bytes:
        """The object's content; raises `FileNotFoundError` if it doesn't exist."""
        with self.open("rb") as file:
            content: bytes = file.read()
        return content

    def read_text(self) -> str:
        """The object's content as text."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Write the object, whole or not at all."""
        with _errors():
            system(self.url).pipe_file(self.url, content)

    @contextlib.contextmanager
    def open(self, mode: str) -> Iterator[IO[bytes]]:
        """The object as a file, for reading anywhere, or for writing from beginning to end."""
        with _errors(), system(self.url).open(self.url, mode, block_size=_BLOCK_BYTES) as file:
            yield file

    def copy_from(self, other: Folder) -> None:
        """Let the store copy another object's content into this one."""
        with _errors():
            system(self.url).cp_file(other.url, self.url)

    def upload(self, path: Path) -> None:
        """Copy a file's content into the object."""
        with _errors():
            system(self.url).put_file(str(path), self.url)

    def download(self, directory: Path) -> None:
        """Copy all objects of the folder into a new directory."""
        directory.mkdir(parents=True)
        for name in self.objects():
            with (self / name).open("rb") as file, (directory / name).open("wb") as target:
                shutil.copyfileobj(file, target, _BLOCK_BYTES)

    def remove(self, name: str) -> None:
        """Remove an object of the folder, if it exists."""
        with _errors(), contextlib.suppress(FileNotFoundError):
            system(self.url).rm_file(f"{self.url}/{name}")

    def _listed(self) -> list[dict[str, Any]]:
        with _errors():
            try:
                found: list[dict[str, Any]] = system(self.url).ls(
                    self.url, detail=True, refresh=True
                )
            except FileNotFoundError:
                return []
        return found


@functools.lru_cache
def _system(protocol: str) -> Any:
    import fsspec  # type: ignore[import-untyped]

    return fsspec.filesystem(protocol, use_listings_cache=False)


def system(url: str) -> Any:
    """The fsspec file system for stores of this kind; a process has one of each kind.

    Raises `InvalidInput`, which says what to install, if fsspec has none.
    """
    protocol = url.partition("://")[0]
    try:
        return _system(protocol)
    except (ImportError, ValueError) as error:
        how = "pip install s3fs" if protocol == "s3" else f"see fsspec ({error})"
        raise InvalidInput(
            f"checkpoints in `{url}` need a package that is not here: {how}"
        ) from None


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn other errors of a store's client into an `OSError` of one line."""
    try:
        yield
    except (OSError, InvalidInput):
        raise
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module in ("botocore", "aiobotocore", "aiohttp", "google", "azure", "s3fs"):
            raise OSError(f"{type(error).__name__}: {error}") from error
        raise
