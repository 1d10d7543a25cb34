"""Which modules the warm parent should import for a workload, so that its ranks don't have to.

Only installed packages are chosen to which the tasks' functions refer. A user's own module is left
out: importing it twice could do anything, and importing it is quick anyway.
"""

from __future__ import annotations

import dis
import pickletools
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

from saturn.plain.installed import is_installed, is_of_package

#: Packages that the warm parent imports in any case.
_ALWAYS_THERE = ("saturn", "torch", "cloudpickle")
#: A limit that only an error in this module would exceed.
_MAX_ENTRIES = 200


def preload_entries(pickles: Iterable[bytes], functions: Iterable[Any]) -> list[str]:
    """Modules, and `module:name` for names that a package loads lazily, in a fixed order.

    `pickles` are the pickled tasks: every module that they name was imported in this process.
    `functions` are the tasks' functions, whose own import statements may not have run yet.
    """
    entries: dict[str, None] = {}
    for data in pickles:
        for name in pickled_strings(data):
            if is_of_package(getattr(sys.modules.get(name), "__file__", None)):
                entries[name] = None
    for function in functions:
        for module_name, attribute in _imports(getattr(function, "__code__", None)):
            if is_of_package(_origin(module_name)):
                entries[f"{module_name}:{attribute}" if attribute else module_name] = None
    chosen = [name for name in sorted(entries) if name.partition(".")[0] not in _ALWAYS_THERE]
    return chosen[:_MAX_ENTRIES]


def pickled_strings(data: bytes) -> Iterator[str]:
    """Every string in a pickle; names of modules are among them."""
    for _, argument, _ in pickletools.genops(data):
        if isinstance(argument, str):
            yield argument


def _imports(code: Any) -> Iterator[tuple[str, str | None]]:
    """(module, name or None) of every import statement in a function, but for relative imports."""
    if not isinstance(code, CodeType):
        return
    module = ""
    level, names = None, None  # the two values that an import takes from the stack
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = "" if level else str(instruction.argval)
            if module:
                yield module, None
        elif instruction.opname == "IMPORT_FROM" and module:
            yield module, str(instruction.argval)
        level, names = names, instruction.argval
    for constant in code.co_consts:
        yield from _imports(constant)


def _origin(module_name: str) -> str | None:
    """The file of a module's top-level package, located without importing it."""
    try:
        spec = find_spec(module_name.partition(".")[0])
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin


def functions_of(*values: Any) -> Iterator[FunctionType]:
    """The plain functions among `values`, and all functions to which they refer."""
    seen: set[int] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        value = getattr(value, "func", value)  # the function of a partial
        if not isinstance(value, FunctionType) or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        for cell in value.__closure__ or ():
            try:
                pending.append(cell.cell_contents)
            except ValueError:  # the cell is still empty
                continue
        if not is_installed(value.__code__.co_filename):
            names = value.__code__.co_names
            pending.extend(value.__globals__[name] for name in names if name in value.__globals__)
