"""Code that makes data finds no process group, and gives whole batches on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import closeness
import pytest
import reference
import torch
import torch.distributed as dist
from harness import Runtime
from models import NUM_CLASSES, WIDTH, dataset, definition
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
