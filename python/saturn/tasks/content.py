"""A digest of a value's content: equal in every process that builds an equal value.

A function counts by its code and by everything that the code refers to: closed-over variables,
defaults, and the globals that it names. Things that workers would import by name count too. For an
installed package, its name and version count. For the user's own modules, their text counts, and
the text of the modules that they import. These don't count: places (files, lines, addresses), the
names of things, the order of sets and hashes, and comments.

The digest follows what cloudpickle sends to workers. cloudpickle's own bytes would not do: they
contain paths, line numbers and random ids, and depend on which equal objects are identical.
"""

from __future__ import annotations

import array
import copyreg
import dis
import functools
import hashlib
import marshal
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from saturn.tasks.sources import imports_of, is_own, module_texts, version_of

#: Types whose values `marshal` writes the same way, whichever equal object it gets.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: Attributes of a class that say where it was made or its name, or that follow from others.
_NOT_CONTENT = {
    "__abstractmethods__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__parameters__",
    "__qualname__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}
#: The bit in `__flags__` of classes that a class statement has made.
_MADE_BY_PYTHON = 1 << 9
#: Globals that say where a function's module is.
_PLACES = {"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__spec__"}


class Content:
    """Digests of values that belong together; a value that was digested once is recognised.

    `buffers` keeps the digests of tensors and arrays by identity, and may be shared: other objects
    may hold the same tensors, which may be large.
    """

    def __init__(self, buffers: dict[int, tuple[Any, bytes]] | None = None) -> None:
        self._buffers = {} if buffers is None else buffers
        self._seen: dict[int, tuple[Any, bytes]] = {}
        self._open: dict[int, int] = {}
        self._variable = ""
        #: Bytes, type and variable name of the largest tensor, array or text so far.
        self.largest: tuple[int, str, str] = (0, "", "")

    def digest(self, value: Any) -> bytes:
        """The digest of a value; never raises for a value that can be pickled."""
        if type(value) in _PLAIN:
            return self._plain(value)
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if (depth := self._open.get(id(value))) is not None:
            return _hash("again", str(len(self._open) - depth).encode())
        self._open[id(value)] = len(self._open)
        try:
            found = self._digest(value)
        finally:
            del self._open[id(value)]
        # The value is kept alive, so that no other value gets its address.
        self._seen[id(value)] = (value, found)
        return found

    def _digest(self, value: Any) -> bytes:
        if isinstance(value, types.ModuleType):
            return self._module(value.__name__)
        if isinstance(value, types.FunctionType | type):
            if _is_importable(value):
                return self._named(value.__module__, value.__qualname__)
            return self._class(value) if isinstance(value, type) else self._function(value)
        if (found := self._container(value)) is not None:
            return found
        if (found := self._buffer(value)) is not None:
            return found
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, functools.partial):
            keywords = sorted(value.keywords.items())
            return self._all("partial", value.func, value.args, *self._named_values(keywords))
        if isinstance(value, types.MethodType):
            return self._all("method", value.__func__, value.__self__)
        if isinstance(value, staticmethod | classmethod):
            return self._all(type(value).__name__, value.__func__)
        if isinstance(value, property):
            return self._all("property", value.fget, value.fset, value.fdel)
        if isinstance(value, types.BuiltinFunctionType):
            if isinstance(value.__self__, types.ModuleType | types.NoneType):
                return self._named(value.__module__ or "builtins", value.__qualname__)
            return self._all("builtin", value.__self__, value.__name__)
        return self._object(value)

    def _plain(self, value: Any) -> bytes:
        # Version 2 of marshal has no back references and doesn't ask whether a string is interned.
        data = marshal.dumps(value, 2)
        self._weigh(len(data), value)
        return _hash("plain", data)

    def _all(self, kind: str, *parts: Any) -> bytes:
        return _hash(kind, *(self.digest(part) for part in parts))

    def _named_values(self, items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The items; each is digested while its variable's name is known."""
        for name, value in items:
            outer, self._variable = self._variable, self._variable or name
            self.digest(value)
            self._variable = outer
            yield name, value

    def _container(self, value: Any) -> bytes | None:
        kind = type(value)
        if kind in (list, tuple):
            if len(value) > 16 and set(map(type, value)) <= set(_PLAIN):
                data = marshal.dumps(list(value), 2)
                self._weigh(len(data), value)
                return _hash(kind.__name__, data)
            return self._all(kind.__name__, *value)
        if kind is dict:
            return self._all("dict", *(part for item in value.items() for part in item))
        if kind in (set, frozenset):
            return _hash(kind.__name__, *sorted(map(self.digest, value)))
        return None

    def _buffer(self, value: Any) -> bytes | None:
        """The digest of shape and bytes, for a value that holds one block of memory."""
        known = self._buffers.get(id(value))
        if known is None:
            described = _described_buffer(value)
            if described is None:
                return None
            kind, memory = described
            known = (value, _hash(kind, memory))
            self._buffers[id(value)] = known
            size = memory.nbytes
        else:
            size = int(getattr(value, "nbytes", 0))
        self._weigh(size, value)
        return known[1]

    def _weigh(self, size: int, value: Any) -> None:
        if size > self.largest[0]:
            self.largest = (size, type(value).__name__, self._variable)

    def _function(self, function: types.FunctionType) -> bytes:
        code = function.__code__
        names = sorted(_globals_of(code) - _PLACES)
        used = [
            (name, function.__globals__[name]) for name in names if name in function.__globals__
        ]
        closed = list(zip(code.co_freevars, map(_held, function.__closure__ or ()), strict=True))
        package = function.__globals__.get("__package__") or ""
        imported = sorted({self._module(name) for name in imports_of(code, package)})
        return _hash(
            "function",
            self.digest(code),
            # The name of a closed-over variable doesn't count; its order in the code does.
            *(self.digest(value) for _, value in self._named_values(closed)),
            *(self._all("global", *item) for item in self._named_values(used)),
            self.digest(function.__defaults__),
            self.digest(function.__kwdefaults__),
            self.digest(function.__dict__),
            *imported,
        )

    def _code(self, code: types.CodeType) -> bytes:
        num_arguments = code.co_argcount + code.co_kwonlyargcount
        return self._all(
            "code",
            code.co_code,
            code.co_consts,
            code.co_names,
            # Arguments may be passed by name, so their names count; other variables' don't.
            code.co_varnames[:num_arguments],
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
            (code.co_nlocals, len(code.co_cellvars), len(code.co_freevars)),
            getattr(code, "co_exceptiontable", b""),
        )

    def _class(self, cls: type[Any]) -> bytes:
        body = sorted((name, vars(cls)[name]) for name in vars(cls).keys() - _NOT_CONTENT)
        parts = (part for item in body for part in item)
        return self._all("class", type(cls), cls.__bases__, *parts)

    def _object(self, value: Any) -> bytes:
        """The digest of an instance, by its reduced form for pickling."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:
            # It can't be pickled, so no worker gets it: perhaps a lock that a module holds.
            return self._all("opaque", type(value))
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or type(value).__module__
            return self._named(module, reduced)
        make, arguments, *rest = reduced
        state, items, pairs = [*rest[:3], None, None, None][:3]
        return self._all(
            "object",
            make,
            tuple(arguments or ()),
            state,
            list(items or ()),
            list(pairs or ()),
        )

    def _named(self, module: str, qualified_name: str) -> bytes:
        return _hash("named", self._module(module), qualified_name.encode())

    def _module(self, name: str) -> bytes:
        if not is_own(name):
            return _hash("installed", name.encode(), version_of(name).encode())
        return _hash("own", *(text.encode() for text in module_texts(name)))


def _hash(kind: str, *parts: Any) -> bytes:
    made = hashlib.sha256(kind.encode())
    for part in parts:
        size = part.nbytes if isinstance(part, memoryview) else len(part)
        made.update(size.to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def _is_importable(value: Any) -> bool:
    """Whether workers find the value by its name, as pickle would."""
    if isinstance(value, type) and not value.__flags__ & _MADE_BY_PYTHON:
        return True
    module = sys.modules.get(value.__module__)
    if module is None or value.__module__ == "__main__":
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _globals_of(code: types.CodeType) -> set[str]:
    """Names that a function's code may look up in its module, nested functions included."""
    looks_up = ("LOAD_GLOBAL", "LOAD_NAME")
    instructions = dis.get_instructions(code)
    names = {str(each.argval) for each in instructions if each.opname in looks_up}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_of(constant)
    return names


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None


def _described_buffer(value: Any) -> tuple[str, memoryview] | None:
    if isinstance(value, bytearray | memoryview):
        return "bytes", memoryview(value).cast("B")
    if isinstance(value, array.array):
        return f"array {value.typecode}", memoryview(value).cast("B")
    for name, cls, describe in (("torch", "Tensor", _of_tensor), ("numpy", "ndarray", _of_array)):
        made_by = getattr(sys.modules.get(name), cls, None)
        if made_by is not None and isinstance(value, made_by):
            return describe(value)
    return None


def _of_tensor(tensor: Any) -> tuple[str, memoryview]:
    kind = f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)} {tensor.requires_grad}"
    described = _quietly(
        lambda: tensor.detach().cpu().contiguous().reshape(-1).view(_torch().uint8).numpy()
    )
    # Tensors without plain memory (sparse, meta) count by their shape.
    return kind, memoryview(b"") if described is None else memoryview(described)


def _of_array(values: Any) -> tuple[str, memoryview] | None:
    if values.dtype.hasobject:
        return None
    kind = f"ndarray {values.dtype.descr} {values.shape}"
    numpy = sys.modules["numpy"]
    return kind, memoryview(numpy.ascontiguousarray(values).reshape(-1).view(numpy.uint8))


def _torch() -> Any:
    return sys.modules["torch"]


def _quietly(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (RuntimeError, TypeError, NotImplementedError):
        return None
