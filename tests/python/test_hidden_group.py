"""Code that makes data finds no process group, and gives whole batches on all ranks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import closeness
import pytest
import reference
import torch
import torch.distributed as dist
from harness import Runtime
from models import NUM_CLASSES, WIDTH, dataset, definition
from saturn.rank.hidden_group import hidden_group
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset


def by_distributed_sampler() -> DataLoader[Any]:
    """As many scripts have it that also run under torchrun."""
    data = dataset()
    sampler = DistributedSampler(data) if dist.is_initialized() else None
    return DataLoader(data, batch_size=8, sampler=sampler)


class OwnPart(IterableDataset[Any]):
    """A stream of which each rank of a process group reads its part, as litdata's."""

    def __iter__(self) -> Iterator[Any]:
        has_group = torch.distributed.distributed_c10d.is_initialized()
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if has_group else (1, 0)
        generator = torch.Generator().manual_seed(2)
        for number in range(48):
            sample = torch.randn(WIDTH, generator=generator)
            if number % ranks == rank:
                yield sample, number % NUM_CLASSES


def as_stream() -> DataLoader[Any]:
    return DataLoader(OwnPart(), batch_size=8)


def as_stream_of_worker() -> DataLoader[Any]:
    return DataLoader(OwnPart(), batch_size=8, num_workers=1)


@pytest.mark.parametrize("loader", [by_distributed_sampler, as_stream, as_stream_of_worker])
def test_every_rank_reads_whole_batches(loader: Any, run: Runtime) -> None:
    task = definition(get_dataloader=loader)
    run.write_task(task)
    result = run.run(task.name, "ddp", ranks=2, steps=4)
    assert result.codes == [0, 0], result.logs
    if loader is by_distributed_sampler:
        expected, _ = reference.train(task, 4)
    else:
        run.write_task(definition("alone", get_dataloader=loader))
        assert run.run("alone", "ddp", steps=4).codes == [0]
        expected = run.losses("alone")
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def test_threads_hide_the_group_one_beside_the_other(tmp_path: Path) -> None:
    own = dist.is_initialized
    init_method = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=init_method, rank=0, world_size=1)
    try:
        is_in, may_leave = threading.Event(), threading.Event()
        found: list[bool] = []

        def other() -> None:
            with hidden_group():
                is_in.set()
                may_leave.wait()
                found.append(dist.is_initialized())
            found.append(dist.is_initialized())

        thread = threading.Thread(target=other)
        with hidden_group():
            thread.start()
            is_in.wait()
            with hidden_group():
                pass
            found.append(dist.is_initialized())
        # This thread has left before the other, which entered later.
        found.append(dist.is_initialized())
        may_leave.set()
        thread.join()
        assert found == [False, True, False, True]
        assert dist.is_initialized is own
    finally:
        dist.destroy_process_group()
