"""The limit of a device's memory: what a rank's part of a model may take, and no more.

On a GPU it is a limit of torch's allocator. On a CPU slot it is the kernel's `RLIMIT_DATA`, which
counts a process's private writable memory: an allocation beyond it fails as it would on a full
device. What would lie in host memory beside a GPU doesn't count there either: the interpreter and
the process group, the model while it is being built, what the loader holds when training begins,
the copies of saving and loading, and memory mapped to shared files.

A limit belongs to one process. Where nothing is limited, nothing here does anything.
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
from saturn.rank.memory import PeakMemory

#: Let through besides the limit, for threads that start later and the heap's small change.
#: Measured: a gang's own needs stay below 13 MiB.
_ALLOWANCE_BYTES = 16 << 20
#: Freed memory is kept for the next step where the first step needs at most this share of the
#: limit: what is then held is up to 3.4 times as much.
_KEEP_BELOW = 0.25
#: The same where a step that runs out for what is kept can be taken again without it: most steps
#: hold half as much again, and few are taken twice.
_KEEP_BELOW_REPEATABLE = 0.6
#: No more is kept once the process holds this share.
_KEEP_UNTIL = 0.9


class DeviceMemory:
    """The memory of one rank's device, or of all devices of a black-box technique's process.

    A rank passes through three phases, in this order and as often as it builds a model:
    `building`, `spreading`, `training`.
    """

    def __init__(self, device: torch.device, limit_bytes: int | None) -> None:
        self._device = device
        self._limit_bytes = limit_bytes
        self._is_slot = device.type == "cpu" and limit_bytes is not None
        self._at_start = 0  # held when the building began, bytes
        self._apart: int | None = None  # held without counting; None while nothing is limited
        self._in_host = 0  # left behind by work in host memory
        self._before_step: int | None = None  # held then; None where no step is to come or watch
        self._holes = 0  # addresses without memory, left by what was kept and given back, bytes
        #: Whether what is freed is kept for what comes next.
        self.keeps_freed = False
        self._peak: PeakMemory | None = None
        if self._is_slot:
            malloc.have_threads_take_little()
            malloc.give_back()
        elif limit_bytes is not None:
            _limit_gpu(device, limit_bytes)

    @property
    def total_bytes(self) -> int | None:
        """What the device holds; None for a CPU slot without a limit."""
        total = None
        if self._device.type == "cuda":
            total = int(torch.cuda.get_device_properties(self._device).total_memory)
        known = [size for size in (self._limit_bytes, total) if size is not None]
        return min(known, default=None)

    def building(self) -> None:
        """A model is built from here on, in host memory; what is held now is no part of it."""
        if self._is_slot:
            self._apart, self._in_host = None, 0
            lift()
            self.give_back()
            gc.collect()
            self._holes = 0
            self._at_start = _data_bytes()

    def spreading(self) -> None:
        """The model is built: what comes beyond it from here on must fit the device.

        It itself may not fit: a technique moves it there part by part.
        """
        if self._is_slot:
            self._apart = _data_bytes()
            self._apply()

    def training(self, *, saves_memory: bool = False) -> None:
        """The model is where its technique wants it: all that is held of it counts from here on.

        A technique that `saves_memory` keeps none without need, though nothing may be limited.
        Raises `MemoryError` where that is too much already.
        """
        if self._is_slot:
            gc.collect()  # what the technique has replaced goes now
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
        elif self._device.type == "cpu" and not saves_memory:
            # glibc learns by and by which sizes come back. Where batches differ in size the first
            # steps would take a tenth longer for it, and trials see no others.
            malloc.keep_all()

    def stepped(self, *, is_repeatable: bool) -> None:
        """A step has ended: where it needs little of the limit, later ones may keep what they free.

        The first step shows what one needs, but for what it leaves behind (optimizer state), which
        comes on top of the next. A later step that needs more than is kept free has it given back;
        one that `is_repeatable` and runs out all the same is taken again, after `give_back`.
        """
        if not self._is_slot or self._apart is None or self._limit_bytes is None:
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
        """Keep nothing that is freed from here on."""
        if self.keeps_freed:
            self.keeps_freed = False
            gc.collect()
            malloc.give_back()
            malloc.return_freed()
            # The heap keeps free addresses between blocks in use, and the limit counts them.
            self._holes = malloc.free_bytes()
            if self._apart is not None:
                self._apply()

    @contextlib.contextmanager
    def host(self) -> Iterator[None]:
        """Work in host memory: nothing is limited, and what it leaves behind doesn't count."""
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
        """Work that needs host memory for a while; what it leaves behind is the device's."""
        if not self._is_slot:
            yield
            return
        lift()
        try:
            yield
        finally:
            if self._apart is not None:
                self._apply()

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
    """Limit nothing in this process: for what must not fail, and for what is no model's."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def is_limited() -> bool:
    """Whether this process may run into a limit of its data."""
    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY


def limit_gpus_when_used(limit_bytes: int) -> None:
    """Limit every visible GPU as soon as CUDA is initialised here, and not before.

    For a black-box technique, which may want to fork processes of its own first.
    """

    def limit_all() -> None:
        for index in range(torch.cuda.device_count()):
            _limit_gpu(torch.device("cuda", index), limit_bytes)

    torch.cuda._lazy_call(limit_all)  # type: ignore[no-untyped-call]


def _limit_gpu(device: torch.device, limit_bytes: int) -> None:
    total = int(torch.cuda.get_device_properties(device).total_memory)
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def _data_bytes() -> int:
    """What `RLIMIT_DATA` counts: this process's private writable memory."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # said below, as where the line is missing
    raise RuntimeError("device_memory can't be enforced on CPU slots here: it needs Linux's /proc")
