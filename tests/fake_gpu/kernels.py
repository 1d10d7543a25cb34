"""torch's CUDA kernels, done by the CPU's on the same memory.

A fake device's memory is the host's, so a CPU tensor can be laid over a CUDA tensor's storage. Each
operation that torch has a CUDA kernel for gets one that lowers its arguments so, calls the same
operation, and puts what is new on the device. What only allocates, or looks, stays torch's own.

As on a GPU, tensors of two devices in one operation are refused, random numbers follow the device's
generator, and an index out of range is found out by the kernel: the process can't use its devices
after that, and is told at its next synchronisation. What makes the host wait for a real device, as
a copy from memory does that isn't pinned, is told as `torch.cuda.set_sync_debug_mode` says.

Not here: sparse tensors, LSTM's fused kernels, fused attention (plain arithmetic is used).
"""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fake_gpu.environment import is_here

#: Work on the fake runtime as they are: allocation, metadata, memcpy.
_NATIVE = {
    *("empty.memory_format", "empty_strided", "resize_", "record_stream", "is_pinned"),
    *("_pin_memory", "_local_scalar_dense", "set_.source_Storage_storage_offset"),
    *("set_.source_Tensor", "set_", "set_.source_Storage", "is_set_to"),
    *("_has_compatible_shallow_copy_type", "_version"),
}
#: Registered for all back ends at once, with a kernel of each behind it.
_COPY = "copy_"
#: Between devices, that is their purpose.
_MOVES = {"copy_", "_foreach_copy_"}
#: Take CPU tensors beside those of a GPU: the indices, or a value.
_INDEXES = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
#: Look into a table at places that data says. Their kernels assert that the place is there.
_ASSERTS = _INDEXES | {
    *("embedding", "embedding_dense_backward", "gather", "scatter", "scatter_", "scatter_add"),
    *("scatter_add_", "index_select", "index_add", "index_add_", "take", "nll_loss_forward"),
    *("nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
}
#: Their results are as large as data says: the host waits to hear.
_SIZED_BY_DATA = {
    *("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive"),
    *("unique_dim_consecutive", "repeat_interleave", "bincount", "equal"),
}
#: Count whole numbers too on a GPU, and only others on a CPU.
_COUNT_WHOLE = {"histc"}
#: What an offset of a CUDA generator counts in.
_OFFSETS_A_DRAW = 4

_CPU = torch.device("cpu")
#: Of `torch.cuda.get_sync_debug_mode`.
_SYNC_WARN, _SYNC_ERROR = 1, 2
_libraries: list[torch.library.Library] = []  # registrations last as long as these


class _Runtime:
    """The fake CUDA runtime in this process."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._pending = ctypes.c_int.in_dll(library, "fake_pending")
        self._drain = library.fake_drain
        self._drain.argtypes, self._drain.restype = [ctypes.c_void_p], None
        #: Has every further use of a device fail in this process, as a kernel's assertion does.
        self.fail: Callable[[], None] = library.fake_assert

    def wait(self, device: torch.device) -> None:
        """Wait for what the device's current stream still holds."""
        if self._pending.value:
            self._drain(torch._C._cuda_getCurrentRawStream(device.index))


def install() -> None:
    """Replace the kernels of this process. torch calls it when it is imported (`environment`)."""
    if _libraries or not is_here():
        return
    runtime = _Runtime()
    torch.backends.cudnn.enabled = False
    for kind in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kind}_sdp")(False)
    library = torch.library.Library("aten", "IMPL")
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is the purpose
        for full in [name.removeprefix("aten::") for name in names if name.startswith("aten::")]:
            _replace(library, full, runtime)
        _replace(library, _COPY, runtime)
    _libraries.append(library)


def _replace(library: torch.library.Library, full: str, runtime: _Runtime) -> None:
    base, _, overload = full.partition(".")
    operation = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    if full in _NATIVE or operation is None:
        return
    returns = [each.alias_info for each in operation._schema.returns]
    if any(alias is not None and not alias.is_write for alias in returns):
        return  # a view: nothing is computed
    library.impl(full, _Kernel(operation, runtime), "CUDA", allow_override=True)


class _Kernel:
    """One operation on CUDA tensors."""

    def __init__(self, operation: Any, runtime: _Runtime) -> None:
        schema = operation._schema
        self._operation = operation
        self._runtime = runtime
        self._name = schema.name.removeprefix("aten::")
        self._arguments = [each.name for each in schema.arguments]
        self._outs = {each.name for each in schema.arguments if each.is_out}
        #: For each thing that is returned, the argument that it is, written to; None for new ones.
        self._returned = [_argument_of(each, schema.arguments) for each in schema.returns]
        self._draws = torch.Tag.nondeterministic_seeded in operation.tags
        self._asserts = self._name in _ASSERTS

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._arguments, args, strict=False)) | kwargs
        device = self._device(given)
        if self._makes_host_wait(given):
            _tell_of_waiting(self._name)
        self._runtime.wait(device)
        # An output may have any shape: a CPU tensor of the operation's own is copied into it.
        fresh = {
            name: torch.empty(0, dtype=value.dtype)
            for name, value in given.items()
            if name in self._outs and isinstance(value, torch.Tensor)
        }
        lowered = {name: fresh.get(name, _lowered(value)) for name, value in given.items()}
        lowered.pop("pin_memory", None)
        positional = [lowered.pop(name) for name in self._arguments[: len(args)]]
        whole: torch.dtype | None = None
        if self._name in _COUNT_WHOLE and not positional[0].is_floating_point():
            whole, positional[0] = positional[0].dtype, positional[0].double()
        generator = next((g for g in given.values() if isinstance(g, torch.Generator)), None)
        with _drawing_from(generator, device) if self._draws else contextlib.nullcontext():
            try:
                result = self._operation(*positional, **lowered)
            except IndexError:
                if not self._asserts:
                    raise
                return self._asserted(given, positional, lowered, device)
        if whole is not None:
            result = result.to(whole)
        for name, value in fresh.items():
            target = given[name]
            if target.shape != value.shape:
                target.resize_(value.shape)
            if value.numel():
                on_cpu(target).copy_(value)
        return self._raised(result, given, device)

    def _device(self, given: dict[str, Any]) -> torch.device:
        """The device that it runs on. Refuses tensors of several."""
        devices: list[torch.device] = []
        asked: torch.device | None = None
        may_mix = self._name in _MOVES or self._name in _INDEXES
        for tensor in _tensors(list(given.values())):
            # A CPU tensor without dimensions may stand for a number.
            counts = tensor.is_cuda or (tensor.dim() and not may_mix)
            if counts and tensor.device not in devices:
                devices.append(tensor.device)
        for value in given.values():
            if isinstance(value, torch.device) and value.type == "cuda":
                asked = value
        if len(devices) > 1 and self._name not in _MOVES:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{devices[0]} and {devices[1]}! (fake GPU, in aten::{self._name})"
            )
        if self._name in _INDEXES and not given["self"].is_cuda:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu) "
                f"(fake GPU, in aten::{self._name})"
            )
        found = next((each for each in devices if each.type == "cuda"), asked)
        if found is None or found.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return found

    def _makes_host_wait(self, given: dict[str, Any]) -> bool:
        """Whether a real device's host would wait in it until the device has come there."""
        if self._name in _MOVES:
            first, second = list(given.values())[:2]
            pairs = [(first, second)] if self._name == _COPY else zip(first, second, strict=True)
            between = [pair for pair in pairs if any(each.is_cuda for each in pair)]
            in_host = [each for pair in between for each in pair if not each.is_cuda]
            return any(
                each.numel() and not (given.get("non_blocking") and each.is_pinned())
                for each in in_host
            )
        if self._name in _INDEXES:
            masks = [each for each in given["indices"] if each is not None]
            by_mask = any(each.dtype in (torch.bool, torch.uint8) for each in masks)
            # To put one number where a mask says takes no list of places.
            return by_mask and ("values" not in given or given["values"].numel() > 1)
        return self._name in _SIZED_BY_DATA

    def _raised(self, result: Any, given: dict[str, Any], device: torch.device) -> Any:
        """What the operation returned, on the device; what it wrote to, as it was given."""
        if not self._returned:
            return None
        is_several = isinstance(result, tuple) and len(self._returned) > 1
        results = result if is_several else (result,)
        raised = tuple(
            given[name] if name is not None else _on_cuda(each, device)
            for each, name in zip(results, self._returned, strict=True)
        )
        return raised if len(raised) > 1 else raised[0]

    def _asserted(
        self, given: dict[str, Any], positional: list[Any], lowered: dict[str, Any], device: Any
    ) -> Any:
        """What the kernel leaves behind whose assertion fails: outputs that hold anything."""
        shapes = self._operation(
            *[_on_meta(value) for value in positional],
            **{name: _on_meta(value) for name, value in lowered.items()},
        )
        raised = self._raised(shapes, given, device)
        self._runtime.fail()
        return raised


def _argument_of(returned: Any, arguments: list[Any]) -> str | None:
    alias = returned.alias_info
    if alias is None:
        return None
    for argument in arguments:
        own = argument.alias_info
        if own is not None and own.is_write and own.before_set & alias.before_set:
            return str(argument.name)
    return None


def _tell_of_waiting(name: str) -> None:
    """As torch does, where it was asked to: for a value that is read it does so by itself."""
    mode = torch.cuda.get_sync_debug_mode()
    text = f"called a synchronizing CUDA operation (fake GPU, in aten::{name})"
    if mode == _SYNC_ERROR:
        raise RuntimeError(text)
    if mode == _SYNC_WARN:
        warnings.warn(text, stacklevel=2)


@contextlib.contextmanager
def _drawing_from(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Have the CPU's generator follow the device's, whose state counts on."""
    source = generator or torch.cuda.default_generators[device.index]
    before, offset = torch.get_rng_state(), source.get_offset()
    seed = source.initial_seed() * 1_000_003 + offset
    torch.default_generator.manual_seed(seed % (1 << 63))
    source.set_offset(offset + _OFFSETS_A_DRAW)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of the same memory."""
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"the fake GPU has no {tensor.layout} tensors")
    storage = tensor.untyped_storage()
    bare = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), _CPU, storage.nbytes())
    found = torch.empty(0, dtype=tensor.dtype)
    found.set_(bare, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_conj():
        found = found.conj()
    return torch._neg_view(found) if tensor.is_neg() else found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _lowered(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return on_cpu(value) if value.is_cuda else value
    if isinstance(value, list | tuple):
        return type(value)(map(_lowered, value))
    if isinstance(value, torch.device):
        return _CPU
    return None if isinstance(value, torch.Generator) else value


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, list | tuple):
        return type(value)(map(_on_meta, value))
    return torch.device("meta") if isinstance(value, torch.device) else value


def _on_cuda(value: Any, device: torch.device) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_on_cuda(each, device) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    moved = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
    if value.numel() and not value.is_meta:
        on_cpu(moved).copy_(value)
    return moved
