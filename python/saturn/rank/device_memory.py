"""The limit of a device's memory: what a rank's part of a model may take, and no more.

On a GPU it is a limit of torch's allocator, which leaves room for what the process takes there
beside it: CUDA's context and communicators (`gpu_memory`). On a CPU slot it is the kernel's
`RLIMIT_DATA`, which counts a process's private writable memory. An allocation beyond it fails as it
would on a full device. Memory that would be host memory beside a GPU doesn't count on a slot
either: the interpreter and the process group, the model while it is built, the loader's data when
training begins, the copies of saving and loading, and memory mapped to shared files.

A limit belongs to one process. Without a limit, nearly nothing here does anything.
"""

from __future__ import annotations

import contextlib
import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import torch

from saturn.plain.sizes import size_text
from saturn.rank import malloc
from saturn.rank.gpu_memory import OutsideTorch
from saturn.rank.memory import PeakMemory

#: Allowed beyond the limit, for threads that start later and small allocations of the heap.
#: Measured: a gang's own needs stay below 13 MiB.
_ALLOWANCE_BYTES = 16 << 20
#: Freed memory is kept for the next step if the first step needs at most this share of the limit:
#: a process then holds up to 3.4 times as much.
_KEEP_BELOW = 0.25
#: The same share if a step that runs out because of kept memory can be repeated without it. Most
#: steps then hold half as much again, and few are repeated.
_KEEP_BELOW_REPEATABLE = 0.6
#: Kept memory is given back once the process holds more than this share.
_KEEP_UNTIL = 0.9


class DeviceMemory:
    """The memory of one rank's device, or of all devices of a black-box technique's process.

    A rank passes through three phases, in this order and as often as it builds a model:
    `building`, `spreading`, `training`.
    """

    def __init__(
        self,
        device: torch.device,
        limit_bytes: int | None,
        outside_torch: OutsideTorch | None = None,
    ) -> None:
        """`outside_torch` counts what a limited GPU holds beside torch's memory."""
        self._device = device
        self._limit_bytes = limit_bytes
        self._outside_torch = outside_torch
        self._is_slot = device.type == "cpu" and limit_bytes is not None
        self._at_start = 0  # bytes held when the building began
        self._apart: int | None = None  # bytes that don't count; None while nothing is limited
        self._in_host = 0  # bytes left behind by work in host memory
        self._before_step: int | None = None  # bytes held before the first step; None after it
        self._holes = 0  # bytes of free addresses that kept memory left in the heap
        #: Whether freed memory is kept for later.
        self.keeps_freed = False
        self._peak: PeakMemory | None = None
        if self._is_slot:
            malloc.have_threads_take_little()
            malloc.give_back()
        elif limit_bytes is not None:
            _limit_gpu(device, limit_bytes)

    @property
    def total_bytes(self) -> int | None:
        """The memory of the device; None for a CPU slot without a limit."""
        total = None
        if self._device.type == "cuda":
            total = int(torch.cuda.get_device_properties(self._device).total_memory)
        known = [size for size in (self._limit_bytes, total) if size is not None]
        return min(known, default=None)

    def building(self) -> None:
        """Begin to build a model in host memory; memory held before is not counted as its own."""
        if self._is_slot:
            self._apart, self._in_host = None, 0
            lift()
            self.give_back()
            gc.collect()
            self._holes = 0
            self._at_start = _data_bytes()

    def spreading(self) -> None:
        """The model is built: memory beyond it must from here on fit the device.

        The model itself may not fit: a technique moves it to the device part by part.
        """
        if self._is_slot:
            self._apart = _data_bytes()
            self._apply()

    def training(self, *, saves_memory: bool = False) -> None:
        """The model is on its device: from here on all memory that it holds counts.

        A technique that `saves_memory` keeps no freed memory, even without a limit. Raises
        `MemoryError` if the model is already too large for a CPU slot.
        """
        if self._is_slot:
            gc.collect()  # frees what the technique has replaced
            self._apart = self._at_start
            limit, held = self._apply(), _data_bytes()
            if held > limit:
                counted = held - self._apart - self._in_host
                raise MemoryError(
                    f"the model takes {size_text(counted)} of {size_text(self._limit_bytes or 0)} "
                    "a device before its first step"
                )
            self._before_step = held
            self._peak = PeakMemory("cpu")
            self._peak.restart()
        elif self._limit_bytes is not None:
            self._leave_room()  # the technique has opened its communicators
            self._before_step = 0
        elif self._device.type == "cpu" and not saves_memory:
            # glibc learns only slowly which sizes come back. If batches differ in size, the first
            # steps would take a tenth longer, and a trial sees only first steps.
            malloc.keep_all()

    def stepped(self, *, is_repeatable: bool) -> None:
        """A step has ended; if it needed little of the limit, later steps keep freed memory.

        The first step shows what a step needs, except for what it leaves behind (optimizer state),
        which later steps need in addition. If a later step makes the process too large, kept memory
        is given back. If a step that `is_repeatable` runs out nevertheless, it is repeated after
        `give_back`.
        """
        if self._limit_bytes is None:
            return
        if not self._is_slot:
            if self._before_step is not None:
                # CUDA has loaded the step's kernels, and NCCL has made buffers for its collectives.
                self._before_step = None
                self._leave_room()
            return
        if self._apart is None:
            return
        if self._before_step is not None and self._peak is not None:
            left = max(0, _data_bytes() - self._before_step)
            peak = self._before_step + self._peak.peak_bytes() + left
            self._before_step = None
            share = _KEEP_BELOW_REPEATABLE if is_repeatable else _KEEP_BELOW
            if peak - self._apart - self._in_host <= share * self._limit_bytes:
                self.keeps_freed = True
                malloc.keep(self._limit_bytes)
        elif self.keeps_freed and (
            _data_bytes() - self._apart - self._in_host > _KEEP_UNTIL * self._limit_bytes
        ):
            self.give_back()

    def give_back(self) -> None:
        """From here on, keep no freed memory."""
        if self.keeps_freed:
            self.keeps_freed = False
            gc.collect()
            malloc.give_back()
            malloc.return_freed()
            # The heap keeps free addresses between used blocks, and the limit counts them.
            self._holes = malloc.free_bytes()
            if self._apart is not None:
                self._apply()

    @contextlib.contextmanager
    def host(self) -> Iterator[None]:
        """The context of work in host memory: no limit, and what it leaves behind doesn't count."""
        if not self._is_slot:
            yield
            return
        before = _data_bytes()
        lift()
        try:
            yield
        finally:
            self._in_host = max(self._in_host, self._in_host_after(before))
            if self._apart is not None:
                self._apply()

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """The context of work without a limit; what it leaves behind counts as the device's."""
        if not self._is_slot:
            yield
            return
        lift()
        try:
            yield
        finally:
            if self._apart is not None:
                self._apply()

    def _leave_room(self) -> None:
        """Limit torch's memory on a GPU to the device's limit less CUDA's own memory, in bytes.

        CUDA's own memory is its context and the communicators. Raises `torch.OutOfMemoryError` if
        torch holds more than is left.
        """
        if self._outside_torch is None or self._limit_bytes is None:
            return
        outside = self._outside_torch.bytes_on(self._device)
        held = int(torch.cuda.memory_allocated(self._device))
        if outside and held + outside >= self._limit_bytes:
            raise torch.OutOfMemoryError(
                f"CUDA's context and communicators take {size_text(outside)} of "
                f"{size_text(self._limit_bytes)} a device, and the model {size_text(held)}"
            )
        _limit_gpu(self._device, self._limit_bytes - outside)

    def _in_host_after(self, before: int) -> int:
        return max(0, _data_bytes() - before)

    def _apply(self) -> int:
        """Set the limit that holds now; returns it, in bytes of the whole process."""
        assert self._limit_bytes is not None and self._apart is not None
        apart = self._apart + self._in_host + self._holes
        limit = apart + self._limit_bytes + _ALLOWANCE_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        return limit


def lift() -> None:
    """Remove the limit of this process, for work that must not fail or is not the model's."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def is_limited() -> bool:
    """Whether this process has a limit of its data."""
    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY


def limit_gpus_when_used(limit_bytes: int) -> None:
    """Limit every visible GPU once CUDA is initialised in this process, and not before.

    A black-box technique needs this, because it may first fork processes of its own.
    """

    def limit_all() -> None:
        for index in range(torch.cuda.device_count()):
            _limit_gpu(torch.device("cuda", index), limit_bytes)

    torch.cuda._lazy_call(limit_all)  # type: ignore[no-untyped-call]


def _limit_gpu(device: torch.device, limit_bytes: int) -> None:
    total = int(torch.cuda.get_device_properties(device).total_memory)
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def _data_bytes() -> int:
    """This process's private writable memory, which `RLIMIT_DATA` counts."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # raised below, as for a missing line
    raise RuntimeError("device_memory can't be enforced on CPU slots here: it needs Linux's /proc")
