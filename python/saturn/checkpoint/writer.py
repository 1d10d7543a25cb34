"""Write one rank's files of a distributed checkpoint: staged, digested as they are written, synced.

On top of DCP's own writer:

* *staging*: this rank's share of the state is copied to host memory first, and only that; from
  then on the state itself may change;
* *digests*: every file's size and SHA-256 are counted while its bytes pass, not read back;
* *room*: what all ranks will write is compared with what the disk has left before any of it is;
* *early syncing*: the disk works while the file is still being written, so that the last sync has
  little left to do.

What makes a directory of such files a checkpoint is in `manifest`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemBase,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.plain.sizes import size_text

#: Size and SHA-256 of a file, as the manifest holds them.
Digest = dict[str, Any]

#: Bytes after which the disk is set to work on a file that is still being written.
_SYNC_EVERY_BYTES = 64 << 20


class StagingPlanner(DefaultSavePlanner):
    """Plans as DCP does; once asked to, it copies what this rank writes and gives the copies.

    `room` holds the copies' memory from one save to the next.
    """

    def __init__(self, room: dict[Any, torch.Tensor]) -> None:
        super().__init__()
        self._room = room
        self._copies: dict[Any, torch.Tensor | io.BytesIO] = {}

    def stage(self, plan: SavePlan) -> None:
        """Copy what `plan` has this rank write."""
        for item in plan.items:
            found = self.resolve_data(item)
            if not isinstance(found, io.BytesIO):
                copy = self._room.get(item.index)
                if copy is None or copy.shape != found.shape or copy.dtype != found.dtype:
                    copy = torch.empty(found.shape, dtype=found.dtype)
                    self._room[item.index] = copy
                found = copy.copy_(found.detach())
            self._copies[item.index] = found

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        copy = self._copies.get(write_item.index)
        return super().resolve_data(write_item) if copy is None else copy


class CheckpointWriter(FileSystemWriter):
    """Writes into the fresh directory `scratch`; rank 0 then hands all digests to `commit`.

    `commit` runs inside DCP's last exchange, so what it raises is raised on every rank.
    """

    def __init__(
        self,
        scratch: Directory,
        commit: Callable[[dict[str, Digest]], None],
        staged: Callable[[], None] | None = None,
        join: Callable[[Metadata], list[WriteResult]] = lambda metadata: [],
    ) -> None:
        """`join` enters into rank 0's index what is in the directory besides."""
        is_stored = isinstance(scratch, Folder)
        # A store's objects are durable when they are there.
        super().__init__("." if is_stored else str(scratch), sync_files=not is_stored)
        self._scratch = scratch
        self._join = join
        self._commit = commit
        self._staged = staged  # told that the state may change, where a `StagingPlanner` plans
        self._files: _DigestedFiles | StoredFiles
        if isinstance(scratch, Folder):
            self._files, self.path = StoredFiles(scratch), str(scratch)
        else:
            self._files = _DigestedFiles()
        self.fs = self._files  # type: ignore[assignment]

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Rank 0 sees here what all ranks will write; raises `OSError` where it has no room."""
        if not isinstance(self._scratch, Path):
            return super().prepare_global_plan(plans)  # a store has room
        sizes = [item.tensor_storage_size() for plan in plans for item in plan.items]
        needed = sum(size for size in sizes if size is not None)
        free = shutil.disk_usage(self._scratch).free
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"a checkpoint would write {size_text(needed)}, and the disk of "
                f"`{self._scratch.parent}` has room for {size_text(free)}; nothing was written",
            )
        return super().prepare_global_plan(plans)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if isinstance(planner, StagingPlanner):
            planner.stage(plan)
            if self._staged is not None:
                self._staged()
        results = super().write_data(plan, planner).wait()
        # This rank's digests travel to rank 0 ahead of what DCP sends there.
        sent: Future[list[Any]] = Future()
        sent.set_result([dict(self._files.digests), *results])
        return sent

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        others = self._join(metadata)
        super().finish(metadata, [*(written for _, *written in results), others])
        files = {name: digest for digests, *_ in results for name, digest in digests.items()}
        # The index was written under another name, and renamed.
        self._commit({**files, ".metadata": self._files.digests[".metadata.tmp"]})


class _DigestedFiles(FileSystem):
    """Files whose digests are known when they are closed."""

    def __init__(self) -> None:
        self.digests: dict[str, Digest] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        with super().create_stream(path, mode) as file:
            with digested(file) as stream:
                yield stream
            self.digests[Path(path).name] = stream.digest()


class StoredFiles(FileSystemBase):
    """The objects of a folder, whose digests are known when they are written."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.digests: dict[str, Digest] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        name = Path(path).name
        with (self._folder / name).open(mode) as file:
            if mode != "wb":
                yield file  # type: ignore[misc]
                return
            with digested(file, syncs=False) as stream:
                yield stream
            self.digests[name] = stream.digest()

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{path}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return str(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        (self._folder / Path(new_path).name).copy_from(self._folder / Path(path).name)
        self._folder.remove(Path(path).name)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """There is no need for it."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" in str(checkpoint_id)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return (self._folder / Path(path).name).exists()

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self._folder.remove(Path(path).name)


@contextlib.contextmanager
def digested(file: Any, *, syncs: bool = True) -> Iterator[_Digested]:
    """`file`, digested while it is written, and closed; and synced, where it is one of a disk.

    Where it can't be written, what is raised is the error itself: `torch.save` would say that a
    position is not what it expected.
    """
    stream = _Digested(file, syncs)
    try:
        with contextlib.closing(stream):
            yield stream
    except Exception as error:
        if stream.error is None or stream.error is error:
            raise
        raise stream.error from error


class _Digested(io.IOBase):
    """A file that is written from its beginning to its end."""

    def __init__(self, file: Any, syncs: bool) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._sync_at = _SYNC_EVERY_BYTES if syncs else math.inf
        self._syncing: threading.Thread | None = None
        self.error: OSError | None = None  # the first of a write, or of an early sync

    def write(self, data: Any) -> int:
        with self._noting():
            self._file.write(data)
            self._sha256.update(data)
            size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
            self._size += size
            if self._size >= self._sync_at and not (self._syncing and self._syncing.is_alive()):
                self._file.flush()
                self._syncing = threading.Thread(target=self._sync, name="saturn-sync")
                self._syncing.start()
                self._sync_at = self._size + _SYNC_EVERY_BYTES
            return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        with self._noting():
            self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        if self._syncing is not None:
            self._syncing.join()
            self._syncing = None
        self._file.close()
        if self.error is not None:
            # Of a sync: the kernel tells it once, and the last sync has heard nothing.
            raise self.error

    def digest(self) -> Digest:
        return {"bytes": self._size, "sha256": self._sha256.hexdigest()}

    def _sync(self) -> None:
        with contextlib.suppress(OSError), self._noting():
            os.fdatasync(self.fileno())

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            raise
