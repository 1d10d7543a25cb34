"""A folder of an object store (`s3://bucket/a/b`), as much of it as checkpoints need.

Stores have no folders and no rename: a name is an object's or the beginning of some. What is
written appears whole or not at all, and what was written is read. So a checkpoint is a folder whose
manifest is written last: without that it is not there.

Which store, and by what right, is fsspec's affair: the environment and the store's own files say so
(`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `~/.aws`, …), on every node. What a store raises is an
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

#: Bytes that are fetched at once where a file is read from its beginning to its end.
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class Stored:
    """What a store says of an object without handing it out."""

    num_bytes: int
    tag: str | None  # another one for other content; None where the store has none


@dataclass(frozen=True)
class Folder:
    """A folder, or an object in one."""

    url: str
    #: The task's own directory, on the file system.
    task_dir: Path

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.url}/{name}", self.task_dir)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Folder:
        """What it lies in."""
        return Folder(self.url.rpartition("/")[0], self.task_dir)

    def with_name(self, name: str) -> Folder:
        """Another one beside it."""
        return self.parent / name

    def folders(self) -> list[str]:
        """Names of the folders in it."""
        return [_last(one["name"]) for one in self._listed() if one["type"] == "directory"]

    def objects(self) -> dict[str, Stored]:
        """The objects in it, by name."""
        return {
            _last(one["name"]): Stored(int(one["size"]), one.get("ETag") or one.get("etag"))
            for one in self._listed()
            if one["type"] == "file"
        }

    def is_file(self) -> bool:
        """Whether it is an object."""
        return self.name in self.parent.objects()

    exists = is_file

    def read_bytes(self) -> bytes:
        """The object's content; `FileNotFoundError` where there is none."""
        with self.open("rb") as file:
            content: bytes = file.read()
        return content

    def read_text(self) -> str:
        """The object's content as text."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Have the object hold this, whole or not at all."""
        with _errors():
            system(self.url).pipe_file(self.url, content)

    @contextlib.contextmanager
    def open(self, mode: str) -> Iterator[IO[bytes]]:
        """The object as a file, to be read anywhere, or written from its beginning to its end."""
        with _errors(), system(self.url).open(self.url, mode, block_size=_BLOCK_BYTES) as file:
            yield file

    def copy_from(self, other: Folder) -> None:
        """Have the object hold what another one does; the store does that by itself."""
        with _errors():
            system(self.url).cp_file(other.url, self.url)

    def upload(self, path: Path) -> None:
        """Have the object hold what a file does."""
        with _errors():
            system(self.url).put_file(str(path), self.url)

    def download(self, directory: Path) -> None:
        """Copy all objects of the folder into a directory, which is made."""
        directory.mkdir(parents=True)
        for name in self.objects():
            with (self / name).open("rb") as file, (directory / name).open("wb") as target:
                shutil.copyfileobj(file, target, _BLOCK_BYTES)

    def remove(self, name: str) -> None:
        """Remove an object of the folder; none is well too."""
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
    """What fsspec has for stores of this kind; one a process.

    Raises `InvalidInput` where there is nothing, and says what to install.
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
    """What a store's client raises besides, as an `OSError` in one line."""
    try:
        yield
    except (OSError, InvalidInput):
        raise
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module in ("botocore", "aiobotocore", "aiohttp", "google", "azure", "s3fs"):
            raise OSError(f"{type(error).__name__}: {error}") from error
        raise
