"""This process: its cores, its threads, its device, and its age.

Other modules of this folder limit its memory (`device_memory`) and connect it with its gang
(`gang`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

#: NVIDIA's driver has a directory here for each GPU of the machine, or of the container.
MACHINES_GPUS = "/proc/driver/nvidia/gpus"
#: Linux tells here which NUMA node a device of the PCI bus is at, and which cores a node has.
PCI_DEVICES = "/sys/bus/pci/devices"
NUMA_NODES = "/sys/devices/system/node"

#: torch's setting of the size, in MiB, from which pinned sizes are not rounded.
_PINNED_ROUNDING = "pinned_max_round_threshold_mb"


def settle(cores: Sequence[int], *, num_threads: int = 1) -> None:
    """Run only on these cores, with a thread for each; without cores, with `num_threads` threads.

    The number of threads decides the order of sums, and so their last bits. Every process that
    trains sets it here, not by the environment: the warm parent's torch read the environment long
    before a rank knows its devices.
    """
    if cores:
        os.sched_setaffinity(0, set(cores))
    torch.set_num_threads(len(cores) or num_threads)


def keep_pinned_sizes() -> bool:
    """Have torch pin as many bytes as large tensors take, without rounding to a power of two.

    Rounding suits small sizes, which come back. A user's own setting stays. Returns whether torch
    took the setting; torch 2.11 doesn't have it, and rounds.
    """
    settings = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if _PINNED_ROUNDING in settings:
        return False
    try:
        torch._C._accelerator_setAllocatorSettings(f"{_PINNED_ROUNDING}:1")
    except (AttributeError, RuntimeError, ValueError):
        return False
    return True


def bind_to_numa_node(device: torch.device) -> None:
    """Run only on the cores near this GPU, and so take host memory near it, if the kernel says.

    Only cores that the process may use already are chosen. Nothing changes without such cores.
    """
    about: Any = torch.cuda.get_device_properties(device)  # torch's types lack the address
    try:
        address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
        node = int((Path(PCI_DEVICES) / address / "numa_node").read_text())
        text = (Path(NUMA_NODES) / f"node{node}" / "cpulist").read_text()
    except (AttributeError, OSError, ValueError):
        # An older torch, a machine of one node (the kernel then says -1), or no /sys.
        return
    if near := _cores_in(text) & os.sched_getaffinity(0):
        # Threads that run already keep their cores: their work is not the device's.
        os.sched_setaffinity(0, near)


def bind_to_numa_node_when_used() -> None:
    """Do so for the only visible GPU once CUDA is initialised in this process, and not before.

    A black-box technique needs this, because it may first fork processes of its own.
    """

    def bind() -> None:
        bind_to_numa_node(torch.device("cuda", 0))

    torch.cuda._lazy_call(bind)  # type: ignore[no-untyped-call]


def _cores_in(text: str) -> set[int]:
    """The numbers in a list as the kernel writes it: `0-3,8`."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return cores


def cores_a_gpu(at_least: int) -> int:
    """This process's cores for each GPU of the machine, which has at least `at_least` GPUs."""
    # torch sees only this rank's GPUs, so they are counted elsewhere.
    gpus = Path(MACHINES_GPUS)
    found = len(list(gpus.iterdir())) if gpus.is_dir() else 0
    return max(1, len(os.sched_getaffinity(0)) // max(found, at_least))


def renew_threads_after_fork() -> None:
    """Let processes that this one forks begin with threads of their own.

    torch makes its threads at their first use. With two visible GPUs, autograd's threads (one for
    each device) all do so at once, and one fails ("Invalid thread pool!"), which ends the process.
    """
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(torch.get_num_threads()))


def device_of(device_kind: str, local_rank: int) -> torch.device:
    """A rank's device: the only one that it sees, or the one with its local number."""
    if device_kind == "cpu":
        return torch.device("cpu")
    device = torch.device(device_kind, local_rank if torch.accelerator.device_count() > 1 else 0)
    torch.accelerator.set_device_index(device)
    return device


def accelerator_is_in_use() -> bool:
    """Whether torch has initialised a GPU's driver in this process; this call doesn't."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and torch.get_device_module(accelerator).is_initialized()


def now_when_idle() -> float:
    """The monotonic clock in seconds, after all launched work on this process's devices is done.

    Devices that the process has not used stay untouched.
    """
    if accelerator_is_in_use():
        for index in range(torch.accelerator.device_count()):
            torch.accelerator.synchronize(index)
    return time.monotonic()


def seconds_alive() -> float:
    """Seconds since this process was forked or started, to about 10 ms."""
    # The name in parentheses may contain spaces; the field after it has number 3.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[22 - 3]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
