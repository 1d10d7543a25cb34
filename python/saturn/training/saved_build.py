"""A task's model as `get_model` made it, saved into the run: every rank of every attempt maps it.

The module is saved together with the task's definition: functions that the model and the definition
share stay shared, and so do their globals. The state of the random streams after the build is saved
too. So a rank that reads the build goes on as if it had called `get_model`.

The build is written under another name and renamed into place. It is valid for one boot of one
machine, as long as none of its files has been touched. So it need not be synced to disk or
digested. A build that is no longer valid is made anew.

If a model can't be saved, the reason is saved in its place, and every rank builds its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from saturn.data.seeds import RandomState, seed_all
from saturn.rank.malloc import return_freed
from saturn.tasks.definition import TaskDefinition
from saturn.training import mapped_pickle
from saturn.training.process_changes import ProcessChanges, loaded_modules
from saturn.training.stepper import build_model

_VERSION = 1
#: The saved build, relative to the task's directory.
_MODEL = Path("build", "model")
_MANIFEST = "manifest.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Built:
    """A task's model, and the definition whose functions go with it."""

    definition: TaskDefinition
    module: nn.Module
    #: Why the model is not saved; None if it is saved.
    unsaved: str | None = None


@dataclass(frozen=True)
class Unsaved:
    """A note that a task's model can't be saved, so every rank builds its own."""

    unsaved: str


def read(task_dir: Path, seed: int) -> Built | Unsaved | None:
    """The saved build of a task; None if there is none, or if it is no longer valid.

    Afterwards the random streams are in the state in which the build left them.
    """
    directory = task_dir / _MODEL
    manifest = _manifest(task_dir)
    if manifest is None:
        return None
    if (reason := manifest["unsaved"]) is not None:
        return Unsaved(reason)
    try:
        if manifest["files"] != _files(directory):
            return None
    except OSError:  # the build was removed meanwhile
        return None
    try:
        for name in manifest["imported"]:
            # Some modules are made in memory; they come with the modules that made them.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        saved = mapped_pickle.read(directory)
    except Exception as error:
        return Unsaved(f"it can't be read again: {type(error).__name__}: {error}")
    # Hooks have numbers: new hooks must not replace hooks that came with the module.
    RemovableHandle.next_id = max(RemovableHandle.next_id, saved["next_hook"])
    _tell_transformers(saved["module"])
    seed_all(seed)
    saved["random_state"].set()
    return Built(saved["definition"], saved["module"])


def _tell_transformers(module: nn.Module) -> None:
    """Register in this process what transformers' constructors register when they run.

    From that registry a model knows which outputs of its parts it can return: hidden states,
    attention weights, router logits of experts (which are part of a loss).
    """
    capturing = sys.modules.get("transformers.utils.output_capturing")
    known = getattr(capturing, "_CAN_RECORD_REGISTRY", None)  # from transformers 5 on
    if known is None:
        return
    for part in module.modules():
        if hasattr(part, "_can_record_outputs"):
            known[part] = part._can_record_outputs


def build(task_dir: Path, definition: TaskDefinition) -> Built:
    """Build a task's model and save it, replacing any earlier build.

    If the model can't be saved, it is as `build_model` made it, and later calls of `read` say why.
    """
    parent = (task_dir / _MODEL).parent
    parent.mkdir(mode=0o700, exist_ok=True)
    for leaving in parent.glob(".new-*"):
        shutil.rmtree(leaving, ignore_errors=True)
    scratch = parent / f".new-{os.getpid()}"
    scratch.mkdir(mode=0o700)
    try:
        return _built_and_saved(task_dir, definition, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove(task_dir: Path) -> None:
    """Remove the saved build of a finished task. Processes that have mapped it keep it."""
    shutil.rmtree(task_dir / _MODEL, ignore_errors=True)


def _built_and_saved(task_dir: Path, definition: TaskDefinition, scratch: Path) -> Built:
    changes, modules_before = ProcessChanges(), set(loaded_modules())
    module = build_model(definition)
    reason = _why_not(module, changes)
    if reason is None:
        try:
            pickled = mapped_pickle.dumps(
                {
                    "definition": definition,
                    "module": module,
                    "random_state": RandomState.now(torch.device("cpu")),
                    "next_hook": RemovableHandle.next_id,
                }
            )
        except Exception as error:  # a part that can't be pickled may raise anything
            reason = f"it can't be pickled: {type(error).__name__}: {error}"
    if reason is not None:
        _commit(scratch, task_dir, {"unsaved": reason})
        return Built(definition, module, reason)
    expected = _anatomy(module)
    del module
    gc.collect()
    try:
        mapped_pickle.write(pickled, scratch)
    except OSError as error:  # such as a full disk; a later build may be saved
        del pickled
        return Built(definition, build_model(definition), f"it can't be written: {error}")
    del pickled
    gc.collect()
    return_freed()
    imported = [name for name in loaded_modules() if name not in modules_before]
    _commit(scratch, task_dir, {"unsaved": None, "imported": imported, "files": _files(scratch)})
    found = read(task_dir, definition.seed)
    if isinstance(found, Built) and _anatomy(found.module) == expected:
        return found
    reason = found.unsaved if isinstance(found, Unsaved) else "it reads back as another model"
    scratch.mkdir(mode=0o700)
    _commit(scratch, task_dir, {"unsaved": reason})
    return Built(definition, build_model(definition), reason)


def _why_not(module: nn.Module, changes: ProcessChanges) -> str | None:
    """Why the saved model would differ from the built one; None if nothing is known against it."""
    for name, parameter in module.named_parameters():
        hooks = (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
        if any(hooks):
            return f"its parameter `{name}` has hooks of its own, which can't be pickled"
        if parameter.grad is not None:
            return f"its parameter `{name}` has a gradient"
    if (changed := changes.first()) is not None:
        return f"get_model changes {changed} for the process; do that outside of it"
    return None


def _anatomy(module: nn.Module) -> list[Any]:
    """The structure of a model, without values; equal models have equal structures."""
    numbers: dict[int, int] = {}

    def described(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
        number = numbers.setdefault(id(tensor), len(numbers))  # shared tensors share a number
        shape = (tuple(tensor.shape), tensor.dtype, str(tensor.device), type(tensor).__qualname__)
        return (name, number, *shape, tensor.requires_grad)

    found: list[Any] = []
    for name, part in module.named_modules(remove_duplicate=False):
        hooks = [
            sorted(value)
            for key, value in vars(part).items()
            # Some models keep the handles of their own hooks in a list, which is no mapping.
            if key.endswith("_hooks") and isinstance(value, Mapping) and value
        ]
        attributes = sorted(vars(part))
        found.append((name, type(part).__qualname__, part.training, hooks, attributes))
        found.append(sorted(part._non_persistent_buffers_set))
    found += [described(*one) for one in module.named_parameters(remove_duplicate=False)]
    found += [described(*one) for one in module.named_buffers(remove_duplicate=False)]
    return found


def _commit(scratch: Path, task_dir: Path, manifest: dict[str, Any]) -> None:
    """Put the content of `scratch`, with the manifest, into place."""
    manifest = {"made_in": _made_in(task_dir), **manifest}
    (scratch / _MANIFEST).write_text(json.dumps(manifest))
    remove(task_dir)
    scratch.rename(task_dir / _MODEL)


def _manifest(task_dir: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((task_dir / _MODEL / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("made_in") != _made_in(task_dir):
        return None
    return manifest


def _made_in(task_dir: Path) -> dict[str, Any]:
    """What must be equal for a build to be valid: boot, versions, and the task itself."""
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    return {
        "version": _VERSION,
        "boot": boot,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "task": _stamp(task_dir / "task.pkl"),
    }


def _files(directory: Path) -> dict[str, list[int]]:
    """Size and time of the last change of each file except the manifest."""
    found = {}
    for entry in os.scandir(directory):
        if entry.name != _MANIFEST:
            found[entry.name] = _stamp(Path(entry.path))
    return found


def _stamp(path: Path) -> list[int]:
    """Size and time of the last change of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
