"""Write one rank's files of a distributed checkpoint: staged, digested while written, synced.

This adds to DCP's own writer:

* *staging*: this rank's share of the state, and no more, is first copied to host memory (see
  `staging`); from then on the state itself may change;
* *digests*: every file's size and SHA-256 are computed while its bytes are written, not read back;
* *room*: the size of all ranks' files is compared with the free disk space before any is written;
* *early syncing*: the disk works while a file is still being written, so the last sync has little
  left to do.

What makes a directory of such files a checkpoint is the business of `manifest`.
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

from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemBase,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.checkpoint.staging import StagingPlanner
from saturn.plain.sizes import size_text

#: Size and SHA-256 of a file, as the manifest holds them.
Digest = dict[str, Any]

#: After this many bytes, a file is synced while it is still being written.
_SYNC_EVERY_BYTES = 64 << 20


class CheckpointWriter(FileSystemWriter):
    """Writes into the fresh directory `scratch`; rank 0 then calls `commit` with all digests.

    `commit` runs inside DCP's last exchange, so its errors are raised on every rank.
    """

    def __init__(
        self,
        scratch: Directory,
        commit: Callable[[dict[str, Digest]], None],
        staged: Callable[[], None] | None = None,
        join: Callable[[Metadata], list[WriteResult]] = lambda metadata: [],
    ) -> None:
        """`join` adds to rank 0's index the tensors that are already in the directory."""
        is_stored = isinstance(scratch, Folder)
        # A store's objects are durable once they exist.
        super().__init__("." if is_stored else str(scratch), sync_files=not is_stored)
        self._scratch = scratch
        self._join = join
        self._commit = commit
        self._staged = staged  # with a `StagingPlanner`, called once the state may change
        self._files: _DigestedFiles | StoredFiles
        if isinstance(scratch, Folder):
            self._files, self.path = StoredFiles(scratch), str(scratch)
        else:
            self._files = _DigestedFiles()
        self.fs = self._files  # type: ignore[assignment]

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Check the space for all ranks' files, on rank 0; raises `OSError` if it is short."""
        if not isinstance(self._scratch, Path):
            return super().prepare_global_plan(plans)  # a store doesn't run out of space
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
        # This rank's digests travel to rank 0 in front of the results that DCP sends.
        sent: Future[list[Any]] = Future()
        sent.set_result([dict(self._files.digests), *results])
        return sent

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        others = self._join(metadata)
        super().finish(metadata, [*(written for _, *written in results), others])
        files = {name: digest for digests, *_ in results for name, digest in digests.items()}
        # DCP wrote the index under another name, and renamed it.
        self._commit({**files, ".metadata": self._files.digests[".metadata.tmp"]})


class _DigestedFiles(FileSystem):
    """Files whose digests are known once they are closed."""

    def __init__(self) -> None:
        self.digests: dict[str, Digest] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        with super().create_stream(path, mode) as file:
            with digested(file) as stream:
                yield stream
            self.digests[Path(path).name] = stream.digest()


class StoredFiles(FileSystemBase):
    """The objects of a folder, whose digests are known once they are written."""

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
        """Do nothing: a store needs no directories."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" in str(checkpoint_id)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return (self._folder / Path(path).name).exists()

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self._folder.remove(Path(path).name)


@contextlib.contextmanager
def digested(file: Any, *, syncs: bool = True) -> Iterator[_Digested]:
    """Write `file` through a digest; it is closed afterwards, and a file on disk is synced.

    If the file can't be written, that error is raised. `torch.save` would raise another instead,
    about an unexpected position.
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
    """A file that is written once, from beginning to end."""

    def __init__(self, file: Any, syncs: bool) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._sync_at = _SYNC_EVERY_BYTES if syncs else math.inf
        self._syncing: threading.Thread | None = None
        self.error: OSError | None = None  # the first error of a write or an early sync

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
            # The kernel reports an error of a sync only once, so the last sync may have succeeded.
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
