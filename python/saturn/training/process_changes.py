"""What a task's `get_model` changes in its process besides making a model.

A model that is read from a file brings none of these changes along. So if `get_model` changes
anything, every rank must call it. The following changes are seen: torch's settings, hooks on all
modules, functions and classes that replace others in modules or in classes of modules, and new
values of globals in the user's own modules. Functions and values of `__main__` travel with the
task. Changes inside a list or the like are not seen.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from saturn._core import Namespaces
from saturn.plain.installed import is_installed

_TORCH = str(Path(torch.__file__).parent)

#: torch's settings, by their names in messages.
_SETTINGS: dict[str, Callable[[], Any]] = {
    "torch.set_default_dtype": torch.get_default_dtype,
    "torch.set_default_device": torch.get_default_device,
    "torch.set_float32_matmul_precision": torch.get_float32_matmul_precision,
    "torch.set_grad_enabled": torch.is_grad_enabled,
    "torch.set_num_threads": torch.get_num_threads,
    "torch.use_deterministic_algorithms": lambda: (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ),
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.backends.cudnn": lambda: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
    ),
    "torch.backends.cuda's attention": lambda: [
        getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        for name in ("flash", "mem_efficient", "math", "cudnn")
    ],
    "hooks on all modules": lambda: [
        len(hooks)
        for name, hooks in vars(torch_module).items()
        if name.startswith("_global_") and isinstance(hooks, dict)
    ],
}


class ProcessChanges:
    """A snapshot made before `get_model` is called; afterwards it says what has changed."""

    def __init__(self) -> None:
        self._settings = {name: _value(read) for name, read in _SETTINGS.items()}
        #: Of each class and module: its title, the module (None for a class), and its names.
        self._spaces = [*_class_spaces(), *((name, one, vars(one)) for name, one in _modules())]
        self._names = Namespaces([names for *_, names in self._spaces])

    def first(self) -> str | None:
        """The first change found, in words; None if there is none."""
        for name, read in _SETTINGS.items():
            if _value(read) != self._settings[name]:
                return name
        for number, changed, address, was_code in self._names.changed():
            title, module, names = self._spaces[number]
            if changed is None:
                if was_code or _is_own(module):
                    return f"{title}, which has lost a name,"
            elif not changed.startswith("__") and (
                _is_own(module) or (was_code and not _wraps(names[changed], address))
            ):
                return f"{title}.{changed}"
        before = {title: module for title, module, _ in self._spaces if module is not None}
        for name, module in _modules():
            if before.get(name, module) is not module:
                return f"sys.modules[{name!r}]"
        return None


def loaded_modules() -> list[str]:
    """The names of all imported modules, in the order of their import."""
    return [name for name, _ in _modules()]


def _modules() -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        # In a worker, `__main__` is Saturn's own.
        if isinstance(module, types.ModuleType) and name != "__main__":
            yield name, module


def _class_spaces() -> Iterator[tuple[str, None, dict[str, Any]]]:
    """The names of `nn.Module` and of all classes that derive from it."""
    found = {nn.Module}
    pending = [nn.Module]
    while pending:
        fresh = set(pending.pop().__subclasses__()) - found
        found |= fresh
        pending += fresh
    for cls in found:
        (names,) = gc.get_referents(vars(cls))  # `vars` gives a view, which is no dictionary
        yield f"{cls.__module__}.{cls.__qualname__}", None, names


def _wraps(new: Any, address: int) -> bool:
    """Whether `new` is torch's wrapper of the object at an address, as imports of torch make it."""
    of_torch = getattr(getattr(new, "__code__", None), "co_filename", "").startswith(_TORCH)
    return of_torch and id(getattr(new, "__wrapped__", None)) == address


def _is_own(module: types.ModuleType | None) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and not is_installed(path)


def _value(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (RuntimeError, AttributeError):  # contradictory settings can't be read
        return None
