"""A pickled value whose tensors lie in files of their own, which every reader maps.

Pages of a mapped file are shared by all processes that read them, and stay one copy in host memory.
A process that writes to such a tensor gets the written pages for itself: the files never change.
Each storage has its own file, so its memory goes when the last tensor on it does, whatever else is
still in use; small ones are read whole from one file.

Whoever reads runs what the pickle says: read only what this run has written.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle  # type: ignore[import-untyped]
import torch

#: Smaller storages are read, not mapped: a mapping takes whole pages, and the kernel has only so
#: many mappings for a process.
_SMALLEST_MAPPED_BYTES = 64 << 10

_VALUE, _SMALL = "value.pickle", "small.bin"


class NotMappable(Exception):
    """A value whose tensors can't lie in files; the message says which."""


@dataclass
class Pickled:
    """A value in memory: its pickle, and the storages that the pickle names by number."""

    text: bytes
    storages: list[torch.UntypedStorage]


def dumps(value: Any) -> Pickled:
    """Pickle `value`; raises what a part that can't be pickled raises, and `NotMappable`."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(value)
    return Pickled(buffer.getvalue(), [storage for storage, _ in pickler.storages.values()])


def write(pickled: Pickled, directory: Path) -> None:
    """Write it into a fresh directory, and let go of each storage as soon as it is in its file.

    So where nothing else holds them, no more than one of them is in memory twice.
    """
    _write_file(directory / _VALUE, pickled.text)
    with _opened(directory / _SMALL) as small:
        pickled.storages.reverse()
        number = 0
        while pickled.storages:
            storage = pickled.storages.pop()
            size = storage.nbytes()
            if size < _SMALLEST_MAPPED_BYTES:
                # Its length first: what is read back must know where the next one begins.
                small.write(size.to_bytes(8, "little"))
                small.write(_bytes_of(storage))
            else:
                _write_file(_file_of(directory, number), _bytes_of(storage))
            number += 1


def read(directory: Path) -> Any:
    """The value, with its large tensors mapped."""
    storages: list[torch.UntypedStorage] = []
    small = (directory / _SMALL).read_bytes()
    at = 0
    while True:
        path = _file_of(directory, len(storages))
        if path.exists():
            size = path.stat().st_size
            mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
            storages.append(mapped.untyped_storage())
        elif at < len(small):
            size = int.from_bytes(small[at : at + 8], "little")
            at += 8
            values = torch.empty(size, dtype=torch.uint8)
            if size:
                values.copy_(torch.frombuffer(bytearray(small[at : at + size]), dtype=torch.uint8))
            storages.append(values.untyped_storage())
            at += size
        else:
            break
    with (directory / _VALUE).open("rb") as file:
        return _Unpickler(file, storages).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Names storages by their number; the same storage is the same number."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        #: By address: a storage, and its number.
        self.storages: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.storage.TypedStorage):
            return ("typed", self._number(value._untyped_storage), value.dtype)
        if isinstance(value, torch.UntypedStorage):
            return ("untyped", self._number(value), None)
        return None

    def _number(self, storage: torch.UntypedStorage) -> int:
        if storage.device.type != "cpu":
            raise NotMappable(f"a tensor of it is on {storage.device}")
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = (storage, len(self.storages))
        return self.storages[storage._cdata][1]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, storages: Sequence[torch.UntypedStorage]) -> None:
        super().__init__(file)
        self._storages = storages

    def persistent_load(self, name: Any) -> Any:
        kind, number, dtype = name
        storage = self._storages[number]
        if kind == "untyped":
            return storage
        typed: Any = torch.storage.TypedStorage
        return typed(wrap_storage=storage, dtype=dtype, _internal=True)


def _file_of(directory: Path, number: int) -> Path:
    return directory / f"storage-{number}.bin"


def _bytes_of(storage: torch.UntypedStorage) -> memoryview:
    values: Any = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return memoryview(values)


def _write_file(path: Path, data: bytes | memoryview) -> None:
    with _opened(path) as file:
        file.write(data)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
