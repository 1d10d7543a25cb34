"""Read a distributed checkpoint in place, with DCP's own reader of files or a store's objects.

The reader opens pickles, so the caller must have verified the checkpoint (`manifest.verify`).
"""

from __future__ import annotations

from torch.distributed.checkpoint.filesystem import FileSystemReader

from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.checkpoint.writer import StoredFiles


def reader_of(directory: Directory) -> FileSystemReader:
    """A reader of a checkpoint, which must already be verified."""
    if not isinstance(directory, Folder):
        return FileSystemReader(directory)
    reader = FileSystemReader(".")
    reader.fs, reader.path = StoredFiles(directory), str(directory)  # type: ignore[assignment]
    return reader
