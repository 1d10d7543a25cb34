"""Find, check and load the weights that a task starts from (`Task(start_from=…)`).

The weights lie in a file of `torch.save` or safetensors, in a checkpoint of a Saturn run, or in a
directory of transformers. They belong to the task, like its model: every build of the model loads
them. Training never overwrites them. No pickle runs code: tensors and plain containers are read,
anything else is refused.

The files must not change after the task was made. Names and shapes (the *layout*) are read without
the tensors, so that a wrong task is refused before anything is built for real.
"""

from __future__ import annotations

import functools
import json
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

from saturn.checkpoint import manifest
from saturn.checkpoint.black_box_state import FILE as BLACK_BOX_FILE
from saturn.errors import InvalidInput
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function

#: Shapes by the names of a state dict.
Layout = Mapping[str, tuple[int, ...]]

#: Keys under which a file may hold the state dict beside other data.
_WITHIN = ("model", "state_dict", "model_state_dict")
#: Prefixes that `DistributedDataParallel` and `torch.compile` put before every name.
_WRAPPERS = ("module.", "_orig_mod.")
#: transformers' names for weights in a directory: an index of several files, or a single file.
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
#: Prefix of the model's tensors in the index of a Saturn checkpoint.
_MODEL = "model."
#: The classes that a checkpoint's index consists of, besides torch's dtypes, by their modules.
_METADATA = "torch.distributed.checkpoint.metadata"
_OF_INDEX = {
    *((_METADATA, name) for name in ("Metadata", "MetadataIndex", "StorageMeta")),
    *((_METADATA, name) for name in ("TensorStorageMetadata", "BytesStorageMetadata")),
    *((_METADATA, name) for name in ("ChunkStorageMetadata", "TensorProperties")),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),
}


@dataclass(frozen=True)
class StartingWeights:
    """The place of a task's first weights; it travels with the task's definition."""

    path: Path  # absolute
    #: Name, size and time of the last change of each file that determines the weights.
    stamp: tuple[tuple[str, int, int], ...]

    @classmethod
    def at(cls, path: Path) -> StartingWeights:
        """The weights at `path` now; raises `InvalidInput` if there are none."""
        path = path.absolute()
        return cls(path, _stamp(path))

    def layout(self) -> Layout:
        """Names and shapes of the weights; raises `InvalidInput` if they can't be read."""
        return _layout(self)

    def load_into(self, module: nn.Module) -> None:
        """Load the weights into a freshly built model; a model on `meta` is only compared.

        Raises `TaskError` if the weights don't fit, have changed, or can't be read.
        """
        with task_function("start_from"):
            try:
                if _stamp(self.path) != self.stamp:
                    raise InvalidInput(
                        f"start_from {self.path} has changed since the task was made; put back "
                        "what was there, or start another run"
                    )
                self._load(module)
            except InvalidInput as error:
                raise TaskError(str(error)) from error

    def _load(self, module: nn.Module) -> None:
        layout = self.layout()
        own = _tensors(module.state_dict(keep_vars=True))
        if (wrong := _what_differs(layout, own)) is not None:
            raise InvalidInput(
                f"start_from {self.path} does not fit the model that get_model makes: {wrong}; it "
                "must have the names and shapes of the model's own state_dict()"
            )
        if any(tensor.is_meta for tensor in own.values()):
            return
        content = manifest.read(self.path)
        if content is not None and (damage := manifest.verify(self.path, content)) is not None:
            raise InvalidInput(f"start_from is a damaged checkpoint: {damage}")
        if (checkpoint := self._checkpoint()) is None:
            module.load_state_dict(_read(self.path), strict=False)
            return
        state = {name: value for name, value in module.state_dict().items() if name in layout}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load_distributed({"model": state}, storage_reader=checkpoint, no_dist=True)
        module.load_state_dict(state, strict=False)

    def _checkpoint(self) -> _Reader | None:
        """A reader of the checkpoint; None if no managed technique of Saturn wrote one here."""
        content = manifest.read(self.path)
        return None if content is None or content["format"] == "torch" else _Reader(self.path)


class _Unpickler(pickle.Unpickler):
    """Reads a checkpoint's index; refuses any class that an index doesn't consist of."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OF_INDEX:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise InvalidInput(f"the checkpoint's index holds a {module}.{name}, which is none of it")


class _Reader(FileSystemReader):
    """DCP's reader with a safe reader of the index, a pickle; tensors use `weights_only`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        try:
            with Path(self.path, ".metadata").open("rb") as file:
                metadata = _Unpickler(file).load()
        except (pickle.UnpicklingError, EOFError, OSError) as error:
            raise InvalidInput(
                f"start_from {self.path} has no index that can be read: {error}"
            ) from error
        if not isinstance(metadata, Metadata):
            raise InvalidInput(f"start_from {self.path} has something else for an index")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


@functools.lru_cache(maxsize=64)
def _layout(weights: StartingWeights) -> Layout:
    # Cached, because many tasks may start from the same weights.
    if (checkpoint := weights._checkpoint()) is None:
        return _shapes(_read(weights.path, only_layout=True))
    entries = checkpoint.read_metadata().state_dict_metadata
    return {
        name.removeprefix(_MODEL): tuple(entry.size)
        for name, entry in entries.items()
        if name.startswith(_MODEL) and isinstance(entry, TensorStorageMetadata)
    }


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    stamps = []
    for file in _files(path):
        try:
            status = file.stat()
        except OSError as error:
            raise InvalidInput(f"start_from {file} can't be read: {error.strerror}") from None
        stamps.append((file.name, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _files(path: Path) -> list[Path]:
    """The files of the weights; for a Saturn checkpoint the manifest, which has all digests."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidInput(f"start_from {path} is not there: neither a file nor a directory")
    if manifest.read(path) is not None:
        return [path / manifest.NAME]
    for name in _INDEXES:
        if (index := path / name).is_file():
            shards = json.loads(index.read_text())["weight_map"].values()
            return [index, *(path / shard for shard in sorted(set(shards)))]
    for name in _SINGLE:
        if (path / name).is_file():
            return [path / name]
    if (path / "adapter_config.json").is_file():
        raise InvalidInput(
            f"start_from {path} holds PEFT's adapters alone; have get_model load them, by "
            "PeftModel.from_pretrained(base, path, is_trainable=True)"
        )
    wanted = ", ".join((manifest.NAME, *_SINGLE))
    raise InvalidInput(
        f"start_from {path} is a directory without weights: it holds none of {wanted}. Of a run, "
        "give one checkpoint: saturn_runs/<run>/tasks/<task>/checkpoints/step-<n>"
    )


def _read(path: Path, *, only_layout: bool = False) -> dict[str, Any]:
    """The state dict at `path`; with `only_layout`, its tensors are on `meta`."""
    files = [file for file in _files(path) if file.suffix != ".json"]
    if not files:  # a black box's checkpoint
        files = [path / BLACK_BOX_FILE]
    state: dict[str, Any] = {}
    for file in files:
        reads = _read_safetensors if file.suffix == ".safetensors" else _read_torch
        state |= reads(file, only_layout)
    for wrapper in _WRAPPERS:
        if state and all(name.startswith(wrapper) for name in state):
            state = {name.removeprefix(wrapper): value for name, value in state.items()}
    if not _tensors(state):
        raise InvalidInput(f"start_from {path} holds no tensors by name")
    return state


def _read_torch(file: Path, only_layout: bool) -> Mapping[str, Any]:
    try:
        found = torch.load(
            file,
            map_location="meta" if only_layout else "cpu",
            weights_only=True,
            mmap=zipfile.is_zipfile(file),
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(
            f"start_from {file} can't be read as weights: {reason}. It must be what "
            "torch.save(model.state_dict(), file) writes: tensors by name, and no other objects"
        ) from error
    if isinstance(found, Mapping):
        found = next((found[k] for k in _WITHIN if isinstance(found.get(k), Mapping)), found)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise InvalidInput(
            f"start_from {file} holds a {type(found).__name__}; it must be a state dict, or hold "
            f"one under {', '.join(f'`{name}`' for name in _WITHIN)}"
        )
    return found


def _read_safetensors(file: Path, only_layout: bool) -> Mapping[str, Any]:
    try:
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_file
    except ImportError:
        raise InvalidInput(
            f"start_from {file} needs the package safetensors: pip install safetensors"
        ) from None
    try:
        if not only_layout:
            return load_file(file)
        with safe_open(file, "pt") as opened:
            return {
                name: torch.empty(opened.get_slice(name).get_shape(), device="meta")
                for name in opened.keys()  # noqa: SIM118
            }
    except SafetensorError as error:
        raise InvalidInput(f"start_from {file} can't be read as safetensors: {error}") from error


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _shapes(state: Mapping[str, Any]) -> Layout:
    return {name: tuple(value.shape) for name, value in _tensors(state).items()}


def _what_differs(layout: Layout, own: Mapping[str, Tensor]) -> str | None:
    """The first names that are missing, unexpected or of another shape; None if all fit."""
    # A tensor with several names needs to be present under only one of them.
    there = {id(own[name]) for name in layout if name in own}
    missing = [name for name, value in own.items() if id(value) not in there]
    unexpected = [name for name in layout if name not in own]
    other = [
        f"`{name}` is {shape_text(layout[name])} there and {shape_text(value.shape)} in the model"
        for name, value in own.items()
        if layout.get(name, tuple(value.shape)) != tuple(value.shape)
    ]
    said = [
        _first("it lacks", [f"`{name}`" for name in missing]),
        _first("it has", [f"`{name}`, which the model has not" for name in unexpected]),
        _first("", other),
    ]
    return "; ".join(filter(None, said)) or None


def _first(verb: str, each: Iterable[str]) -> str:
    first, *others = [*each] or [""]
    more = f" (and {len(others)} more)" if others else ""
    return f"{verb} {first}{more}".strip() if first else ""


def shape_text(shape: Iterable[int]) -> str:
    """A tensor's shape in words: `16 x 8`."""
    return " x ".join(map(str, shape)) or "a single number"
