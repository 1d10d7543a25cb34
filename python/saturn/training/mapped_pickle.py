"""A pickled value whose tensors lie in files of their own, which every reader maps.

All processes that read a mapped file share its pages, so host memory holds one copy. A process that
writes to such a tensor gets its own copy of the written pages: the files never change. Each storage
has its own file, so its memory is freed with the last tensor on it, whatever else is still in use.
Small storages are read whole from one shared file.

Reading runs the code in the pickle: read only files that this run has written.
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

#: Smaller storages are read, not mapped: a mapping takes whole pages, and the kernel limits the
#: number of mappings of a process.
_SMALLEST_MAPPED_BYTES = 64 << 10

_VALUE, _SMALL = "value.pickle", "small.bin"


class NotMappable(Exception):
    """A value whose tensors can't lie in files; the message says which tensor and why."""


@dataclass
class Pickled:
    """A value in memory: its pickle, and the storages that the pickle names by number."""

    text: bytes
    storages: list[torch.UntypedStorage]


def dumps(value: Any) -> Pickled:
    """Pickle `value`; raises `NotMappable`, or the error of a part that can't be pickled."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(value)
    return Pickled(buffer.getvalue(), [storage for storage, _ in pickler.storages.values()])


def write(pickled: Pickled, directory: Path) -> None:
    """Write a pickled value into a fresh directory, and free each storage once it is written.

    So if nothing else holds the storages, at most one of them is in memory twice.
    """
    _write_file(directory / _VALUE, pickled.text)
    with _opened(directory / _SMALL) as small:
        pickled.storages.reverse()
        number = 0
        while pickled.storages:
            storage = pickled.storages.pop()
            size = storage.nbytes()
            if size < _SMALLEST_MAPPED_BYTES:
                # The length comes first, so that the reader knows where the next one begins.
                small.write(size.to_bytes(8, "little"))
                small.write(_bytes_of(storage))
            else:
                _write_file(_file_of(directory, number), _bytes_of(storage))
            number += 1


def read(directory: Path) -> Any:
    """Read the value, with its large tensors mapped."""
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
    """Replaces storages by numbers; the same storage always gets the same number."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        #: (storage, its number) by the storage's address.
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
