"""The text of the user's modules, and the versions of installed packages.

Nothing is imported here: a module that has not been imported yet is only located.
"""

from __future__ import annotations

import ast
import dis
import functools
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType

from saturn.plain.installed import is_installed

#: Packages whose versions are left out: Python's and Saturn's own, and torch, whose version every
#: trial states itself.
_UNVERSIONED = {*sys.stdlib_module_names, "saturn", "torch", "__main__"}


def is_own(name: str) -> bool:
    """Whether a module is the user's own: a file that is not installed.

    `__main__` doesn't count as one, because its definitions travel whole.
    """
    path = _path_of(name)
    return name != "__main__" and path is not None and not is_installed(str(path))


def version_of(name: str) -> str:
    """The version of the installed package that a module belongs to; empty if it has none."""
    top = name.partition(".")[0]
    return "" if top in _UNVERSIONED else _version(top)


def imports_of(code: CodeType, package: str) -> list[str]:
    """The modules that a function of `package` imports when called, nested functions included."""
    found: list[str] = []
    constants: list[object] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, names = constants[-2:]
            found += _meant(str(instruction.argval), level, names, package)
        elif instruction.opname.startswith("LOAD_"):
            constants.append(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += imports_of(constant, package)
    return sorted(set(found))


def module_texts(name: str) -> list[str]:
    """The texts, without comments, of one of the user's modules and of all that it imports.

    The versions of the packages that any of them imports come with the texts.
    """
    return _texts_from([name], None)


def script_texts(path: Path) -> list[str]:
    """The same for a program, which first finds modules beside itself."""
    text, imported = _parsed(path, "__main__")
    return [text, *_texts_from(list(imported), path.parent)]


def _texts_from(pending: list[str], beside: Path | None) -> list[str]:
    """Texts and versions of these modules, and of all modules that they import."""
    texts: dict[str, str] = {}
    versions: set[str] = set()
    while pending:
        module = pending.pop()
        if module in texts:
            continue
        near = None if beside is None else _path_below(beside, module)
        if near is None and not is_own(module):
            versions.add(f"{module.partition('.')[0]} {version_of(module)}")
            continue
        path = near or _path_of(module)
        texts[module], imported = _parsed(path, module) if path else ("", ())
        # A package's own code runs before the code of any module in it.
        parents = module.split(".")[:-1]
        pending += [".".join(parents[: end + 1]) for end in range(len(parents))]
        pending += imported
    return [texts[module] for module in sorted(texts)] + sorted(versions)


def _parsed(path: Path, module: str) -> tuple[str, tuple[str, ...]]:
    """(a file's text without comments and positions, the modules that it imports)."""
    try:
        return _parse(path, path.stat().st_mtime_ns, module)
    except (OSError, SyntaxError, ValueError):
        # A compiled file, or not Python: its bytes are its text.
        return path.read_bytes().hex() if path.is_file() else "", ()


@functools.lru_cache(maxsize=1024)
def _parse(path: Path, changed_ns: int, module: str) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(path.read_bytes())
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            imported += _meant(node.module or "", node.level, names, package)
    return ast.dump(tree), tuple(imported)


def _meant(name: str, level: object, names: object, package: str) -> Iterator[str]:
    """The modules that an import statement may mean."""
    if isinstance(level, int) and level > 0:
        try:
            name = resolve_name("." * level + name, package)
        except ImportError:  # beyond the top package: the import would also fail when it runs
            return
    yield name
    for each in names if isinstance(names, tuple) else ():
        if _path_of(f"{name}.{each}") is not None:
            yield f"{name}.{each}"


def _path_of(name: str) -> Path | None:
    """The file of a module, located without importing the module or its parents."""
    if (loaded := getattr(sys.modules.get(name), "__file__", None)) is not None:
        return Path(loaded)
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    for location in spec.submodule_search_locations or ():
        if (path := _path_below(Path(location), ".".join(rest))) is not None:
            return path
    return None


def _path_below(directory: Path, name: str) -> Path | None:
    """The file of a module that is located relative to a directory."""
    within = Path(directory, *name.split("."))
    for path in (within.with_name(f"{within.name}.py"), within / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def _version(top: str) -> str:
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        pass
    # The distribution has another name: look for the one whose list of files has this package.
    path = _path_of(top)
    if path is None:
        return ""
    is_package = path.name == "__init__.py"
    line = f"{top}/__init__.py," if is_package else f"{path.name},"
    found = [
        record.parent.name.removesuffix(".dist-info")
        for record in (path.parent.parent if is_package else path.parent).glob("*.dist-info/RECORD")
        if f"\n{line}" in "\n" + record.read_text(errors="replace")
    ]
    return ", ".join(sorted(found))
