"""The gang as one rank sees it: which rank this is, and how the ranks agree.

The process group opens at its first use. Ranks meet over a file that the runtime makes for each
attempt. If the gang spans several nodes, they meet over a store that is already open, so no two
gangs ever race for a port. A gang of one rank opens a group only if its technique asks for a mesh.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from saturn.rank.connections import Connections
from saturn.rank.device_memory import DeviceMemory
from saturn.rank.exceptions import PeerLost
from saturn.rank.gpu_memory import OutsideTorch
from saturn.rank.peer_watch import PeerWatch, abort_groups

#: How long a rank waits for a peer in one collective. The time is long, because the runtime notices
#: a dead rank at once and ends the gang. It only ends hangs that nothing else notices.
_COLLECTIVE_TIMEOUT = timedelta(minutes=30)
#: Seconds between two looks at whether rank 0 has written; on one node, and across a network.
_LOOK_AGAIN_S, _LOOK_FAR_S = 0.005, 0.02
#: How long a store on another node may take for its first answer.
_CONNECT_TIMEOUT = timedelta(seconds=60)


class Gang:
    """One rank's place among its peers."""

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        device: torch.device,
        rendezvous: Path,
        device_memory_bytes: int | None = None,
        store: str | None = None,
        node_gpus: Sequence[int] = (),
        outside_torch: OutsideTorch | None = None,
    ) -> None:
        """`rendezvous` is the path of a new file; `store` is an open `host:port` instead.

        `node_gpus` has the number of ranks on each node; by default all are on one node.
        `outside_torch` counts what a limited GPU holds beside torch's memory.
        """
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.device_memory = DeviceMemory(device, device_memory_bytes, outside_torch)
        #: How many ranks each node has, in the order of nodes.
        self.node_gpus = tuple(node_gpus) or (world_size,)
        self._look_again_s = _LOOK_AGAIN_S if store is None else _LOOK_FAR_S
        self._store = _opened(rendezvous, store, world_size) if world_size > 1 else None
        #: Where this attempt may leave files: its own directory within the run's.
        self.scratch = rendezvous.parent
        #: The present or last block of `outliving`, and the number of groups opened in it.
        self._block, self._opened = "", 0
        self._second_group: dist.ProcessGroup | None = None
        self._meshes: list[DeviceMesh] = []
        self._connections = Connections()
        self._watch: PeerWatch | None = None
        #: Whether this rank failed while it opened a group. Nothing reaches peers that still wait
        #: in the opening.
        self.has_failed_opening = False

    def open(self) -> None:
        """Open the process group, if it isn't open yet. Every rank must call this."""
        if self._watch is not None and self._watch.has_lost_peer:
            raise PeerLost("another rank has failed")
        if dist.is_initialized():
            return
        if self._watch is not None:
            self._wait_for_peers(self._watch)
        store: Store = self._store or HashStore()
        # Each group has its own names in the store, because a trial opens several in a row.
        store = PrefixStore(f"{self._block}/group-{self._opened}", store)
        self._opened += 1
        is_cpu = self.device.type == "cpu"
        backend = "gloo"
        if not is_cpu:
            own = dist.get_default_backend_for_device(self.device)  # NCCL for CUDA
            backend = f"cpu:gloo,{self.device.type}:{own}"
            # torch asks for the first of those who abort groups themselves. Without both, its
            # watchdog may end the process before the process has told why it failed: where NCCL
            # fails, and, up to torch 2.14, where a kernel has made the device unusable.
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
            os.environ["TORCH_NCCL_RETHROW_CUDA_ERRORS"] = "0"
        with self._opening():
            dist.init_process_group(
                backend,
                store=store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=_COLLECTIVE_TIMEOUT,
                device_id=None if is_cpu else self.device,
            )

    def second_group(self) -> dist.ProcessGroup | None:
        """A group of the same ranks, for the CPU and another thread; None for a gang of one.

        Every rank must call this. The group is opened at the first call.
        """
        if self.world_size > 1 and self._second_group is None:
            self.open()
            with self._opening():
                opened = dist.new_group(backend="gloo", timeout=_COLLECTIVE_TIMEOUT)
            self._second_group = cast(dist.ProcessGroup, opened)  # non-members would get a number
        return self._second_group

    def close(self, *, is_broken: bool = False, has_failed: bool = False) -> None:
        """Close the process group; peers that wait in a collective see a lost connection.

        `is_broken` says that a peer has left the group after a failure, `has_failed` that this rank
        has: what it leaves behind may hold the group.
        """
        self._second_group = None
        # torch caches operators on sharded tensors for the life of the process. The cache holds
        # their mesh, and the mesh its groups.
        for mesh in self._meshes:
            getattr(mesh, "_pg_registry", {}).clear()
        self._meshes.clear()
        # Models and wrappers keep the group's connections open as long as they live.
        gc.collect()
        is_broken |= self._watch is not None and self._watch.is_broken
        if is_broken and self.device.type != "cpu":
            abort_groups()  # a normal shutdown waits for collectives that some rank left
        elif dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()
        if has_failed and self.device.type == "cpu":
            self._connections.shut_down()

    @contextlib.contextmanager
    def outliving(self, name: str) -> Iterator[PeerWatch | None]:
        """Within this context no rank waits for a failed rank (`PeerWatch.fail`).

        Every rank must enter it with the same `name`, which no other block has. It must `close` its
        group before the block ends. Gives None on CPU slots, where a lost connection is enough.
        """
        self._block, self._opened = name, 0
        self.has_failed_opening = False
        if self._store is None or self.device.type == "cpu":
            yield None
            return
        self._watch = PeerWatch(self.scratch / f"{name}-failed")
        try:
            yield self._watch
        finally:
            self._watch.end()
            self._watch = None

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._connections.noted():
                yield
        except Exception:
            self.has_failed_opening = True
            raise

    def _wait_for_peers(self, watch: PeerWatch) -> None:
        """Wait until all ranks are about to open a group; torch's own waits can then end."""
        assert self._store is not None  # a rank without peers has no watch
        name = f"{self._block}/opening-{self._opened}"
        self._store.set(f"{name}/{self.rank}", "")
        while not self._store.check([f"{name}/{rank}" for rank in range(self.world_size)]):
            if watch.has_lost_peer:
                raise PeerLost("another rank has failed")
            time.sleep(self._look_again_s)

    def mesh(self, shape: Sequence[int], *, names: Sequence[str]) -> DeviceMesh:
        """A device mesh of `shape` over all ranks, opening the process group."""
        self.open()
        with self._opening():
            mesh = init_device_mesh(self.device.type, tuple(shape), mesh_dim_names=tuple(names))
        self._meshes.append(mesh)
        return mesh

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the ranks, in float64. One collective; none for a gang of one."""
        return self.begin_sum(values)()

    def begin_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        """Begin to sum; returns a function that waits for the sums and returns them."""
        if self.world_size == 1:
            return lambda: list(values)
        self.open()
        tensor = torch.tensor(values, dtype=torch.float64)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None  # it would be None only outside the group

        def wait() -> list[float]:
            work.wait()
            return tensor.tolist()

        return wait

    def collect(self, value: Any) -> list[Any]:
        """Every rank's `value` (small, picklable), in rank order, on every rank."""
        if self.world_size == 1:
            return [value]
        self.open()
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (picklable), in rank order, on rank 0; an empty list elsewhere."""
        if self.world_size == 1:
            return [value]
        self.open()
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(value, values, dst=0)
        return values or []

    def told_by_first(self, key: str, text: str) -> str:
        """Rank 0's `text`, on every rank; other ranks wait until rank 0 comes here.

        Like `exchange`, it needs only the store. Other ranks' `text` is ignored.
        """
        if self._store is None:
            return text
        if self.rank == 0:
            self._store.set(key, text)
            return text
        # Polled, because the store's own waiting gives up after minutes.
        while not self._store.check([key]):
            time.sleep(self._look_again_s)
        return self._store.get(key).decode()

    def exchange(self, key: str, text: str, *, within_s: float | None = None) -> list[str]:
        """Every rank's `text`, in rank order, through the store alone.

        It works even if some ranks have lost their process group. It waits until every rank has
        come, or raises `PeerLost` if one hasn't come within `within_s` seconds.
        """
        if self._store is None:
            return [text]
        self._store.set(f"{key}/{self.rank}", text)
        keys = [f"{key}/{rank}" for rank in range(self.world_size)]
        until = None if within_s is None else time.monotonic() + within_s
        # Polled, because the store's own waiting gives up after minutes.
        while not self._store.check(keys):
            if until is not None and time.monotonic() > until:
                raise PeerLost(f"another rank did not reach this point within {within_s:.0f} s")
            time.sleep(self._look_again_s)
        return [self._store.get(each).decode() for each in keys]


def _opened(rendezvous: Path, address: str | None, world_size: int) -> Store:
    """The store where a gang's ranks meet. Its names are used by this attempt only."""
    if address is None:
        return FileStore(str(rendezvous), world_size)
    host, _, port = address.rpartition(":")
    store = TCPStore(
        host, int(port), is_master=False, wait_for_workers=False, timeout=_CONNECT_TIMEOUT
    )
    # Peers may take longer than the first timeout, because they build and load first.
    store.set_timeout(_COLLECTIVE_TIMEOUT)
    # One store serves all attempts of a node, so names get the attempt's prefix.
    return PrefixStore(str(rendezvous.parent), store)
