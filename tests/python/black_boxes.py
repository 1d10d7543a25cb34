"""Black-box techniques for the tests, in every calling style."""

from __future__ import annotations

from typing import Any

import torch
from saturn.core.executors.Technique import BaseTechnique


def train(task: Any, batch_count: int, *, save: bool = True) -> None:
    """What users' executors do: model, optimizer, loop, save."""
    model = task.get_model()
    optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
    if (saved := task.saved()) is not None:
        optimizer.load_state_dict(saved["optimizer"])
    for inputs, labels in task.get_iterator():
        task.loss_function(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    if save:
        task.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


class Plain(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        assert gpus == [0, 1] and isinstance(task_id, int)
        assert task.selected_strategy.parameters in ({"chunks": 2}, {})
        train(task, batch_count)

    def search(task, gpus, task_id):  # noqa: N805
        return {"chunks": len(gpus)}


class Static(BaseTechnique):
    @staticmethod
    def execute(task, gpus, task_id, batch_count):
        train(task, batch_count)

    @staticmethod
    def search(task, gpus, task_id):
        return ["a", 1], 0.25


class OfClass(BaseTechnique):
    @classmethod
    def execute(cls, task, gpus, task_id, batch_count):
        train(task, batch_count)

    @classmethod
    def search(cls, task, gpus, task_id):
        return None, None


class OfInstance(BaseTechnique):
    def __init__(self):
        self.calls = 0

    def execute(self, task, gpus, task_id, batch_count):
        self.calls += 1
        train(task, batch_count)


class CountsItself(BaseTechnique):
    """Takes its batches by `next`, exactly as many as it was told."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        model = task.get_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=task.hparams.lr)
        batches = task.get_iterator()
        for _ in range(batch_count):
            inputs, labels = next(batches)
            task.loss_function(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        task.save(model.state_dict())


class OwnLoader(BaseTechnique):
    """Never asks Saturn for a batch."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import itertools
        import time

        model = task.get_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=task.hparams.lr)
        for inputs, labels in itertools.islice(itertools.cycle(task.internal_dl()), batch_count):
            task.loss_function(model(inputs), labels).backward()
            optimizer.step()
            time.sleep(0.01)
        task.save(torch.nn.DataParallel(model).state_dict())


class SavesOften(BaseTechnique):
    """Saves after every batch, and dies after the sixth the first time."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import os

        model = task.get_model()
        optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
        begun_afresh = not task.has_ckpt()
        if begun_afresh:
            assert task.saved() is None
        else:
            optimizer.load_state_dict(task.saved()["optimizer"])
        for number, (inputs, labels) in enumerate(task.get_iterator(), start=1):
            if begun_afresh and number == 7:
                os.kill(os.getpid(), 9)
            task.loss_function(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            task.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


class NeverSaves(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        train(task, batch_count, save=False)


class Lazy(BaseTechnique):
    """Gives up early."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        batches = task.get_iterator()
        next(batches)
        next(batches)


class Objects(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        train(task, batch_count)

    def search(task, gpus, task_id):  # noqa: N805
        return {"plan": object()}


class Crashes(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        raise RuntimeError("my own bug")


class Slow(BaseTechnique):
    """Long steps, for stop requests."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import time

        model = task.get_model()
        for _ in task.get_iterator():
            time.sleep(0.02)
        task.save(model.state_dict())


class TellsThreads(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        train(task, batch_count)

    def search(task, gpus, task_id):  # noqa: N805
        return {"threads": torch.get_num_threads()}, 0.25


def _child(rank: int, task: Any) -> None:
    torch.set_num_threads(1)
    if rank == 0:
        train(task, 0)


class Spawns(BaseTechnique):
    """Trains in processes of its own, as multi-device executors do."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        torch.multiprocessing.start_processes(
            _child, (task,), nprocs=len(gpus), start_method="fork"
        )


class ReadsFresh(BaseTechnique):
    """Looks at the data from its beginning while it searches."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        train(task, batch_count)

    def search(task, gpus, task_id):  # noqa: N805
        first = [labels.tolist() for _, labels in task.get_fresh_iterator()]
        again = [labels.tolist() for _, labels in task.get_fresh_iterator()]
        assert first == again and len(first) == 6
        return {"largest": max(map(len, first))}


class SavesBlindly(BaseTechnique):
    """Reads the loader itself, saves half-way, and dies the first time."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import os
        from pathlib import Path

        model = task.get_model()
        task.save(model.state_dict())
        marker = Path(task.hints["marker"])
        if not marker.exists():
            marker.touch()
            os._exit(3)
        assert not task.has_ckpt()
        task.save(model.state_dict())


class IteratesTwice(BaseTechnique):
    """Asks for the iterator again after each five batches, as loops over epochs do."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import itertools

        model = task.get_model()
        optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
        trained = 0
        while trained < batch_count:
            for inputs, labels in itertools.islice(task.get_iterator(), 5):
                task.loss_function(model(inputs), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
                trained += 1
        task.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


class SearchesThrough(BaseTechnique):
    """Tries two settings on all that the iterator gives."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        train(task, batch_count)

    def search(task, gpus, task_id):  # noqa: N805
        return {"batches": [sum(1 for _ in task.get_iterator()) for _ in range(2)]}


class SearchesTooFar(SearchesThrough):
    """Counts its own batches, more than there are."""

    def search(task, gpus, task_id):  # noqa: N805
        batches = task.get_iterator()
        return [next(batches) for _ in range(1000)]


class NeedsSpace(BaseTechnique):
    """Finds the disk full."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        raise OSError(28, "No space left on device")


class SavesEachBatch(BaseTechnique):
    """Dies at its fifth batch."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        model = task.get_model()
        for number, _ in enumerate(task.get_iterator(), 1):
            if number == 5:
                raise RuntimeError("enough")
            task.save(model.state_dict())

    def search(task, gpus, task_id):  # noqa: N805
        return {}


def _rank_of_own(rank: int, task: Any, directory: str, world_size: int) -> None:
    """A rank of `OwnRanks`: its share of every batch on a GPU of its own."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.cuda.set_device(rank)
    store = dist.FileStore(f"{directory}/{task.start}", world_size)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world_size)
    model = task.get_model().cuda()
    wrapped = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=task.hparams.lr)
    for inputs, labels in task.get_iterator():
        share = slice(rank, None, world_size)
        outputs = wrapped(inputs[share].cuda())
        task.loss_function(outputs, labels[share].cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        task.save({key: value.cpu() for key, value in model.state_dict().items()})
    dist.destroy_process_group()


class OwnRanks(BaseTechnique):
    """Trains on GPUs in ranks of its own."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.start_processes(
                _rank_of_own, (task, directory, len(gpus)), nprocs=len(gpus), start_method="fork"
            )


class Halves(torch.nn.Module):
    """A model in two parts, each on a GPU of its own, with dropout on both."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole
        whole.layers[0].to("cuda:0")
        for part in (*whole.layers[1:], whole.norm, whole.head):
            part.to("cuda:1")
        whole.scale = whole.scale.to("cuda:1")

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first, *others = self.whole.layers
        hidden = inputs.to("cuda:0")
        hidden = (hidden + self.whole.dropout(torch.tanh(first(hidden)))).to("cuda:1")
        for layer in others:
            hidden = hidden + self.whole.dropout(torch.tanh(layer(hidden)))
        return self.whole.head(self.whole.norm(hidden) * self.whole.scale)


class TwoDevices(BaseTechnique):
    """Trains `Halves`, with dropout on both devices."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        whole = task.get_model()
        model = Halves(whole)
        optimizer = torch.optim.SGD(model.parameters(), lr=task.hparams.lr)
        for inputs, labels in task.get_iterator():
            task.loss_function(model(inputs), labels.to("cuda:1")).backward()
            optimizer.step()
            optimizer.zero_grad()
        task.save({key: value.cpu() for key, value in whole.state_dict().items()})


class OnGpu(BaseTechnique):
    """Trains in its one process on its first GPU; saves the optimizer's state too."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        model = task.get_model().cuda()
        optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
        for inputs, labels in task.get_iterator():
            task.loss_function(model(inputs.cuda()), labels.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
        task.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
