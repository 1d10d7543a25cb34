"""`offload`: the same training to the last bit, with little in the device's memory."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import reference
import torch
from harness import Runtime
from model_kinds import gpt2, sequential, task_of
from models import Mlp, definition
from saturn.data.slices import Position
from saturn.techniques import Setting
from saturn.techniques.ddp import Ddp
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.offload import Offload
from saturn.techniques.offload.courier import Courier, StreamCourier
from saturn.techniques.offload.slow_tier import SlowTier
from torch import nn

ONE = Setting(gpus=1, device_kind="cpu", hints={})


def same_as_resident(task: Any, directory: Path, steps: int = 4, *, within: float = 0.0) -> None:
    """`within` so many ulps: for kernels whose last bits depend on where in memory numbers lie."""
    losses, weights = in_process.train(task, Ddp(), directory, steps=steps)
    streamed, same = in_process.train(task, Offload(), directory, steps=steps)
    assert closeness.ulps(streamed, losses) <= within
    assert same.keys() == weights.keys()
    apart = {name: closeness.ulps(same[name], weights[name]) for name in weights}
    assert {name: by for name, by in apart.items() if by > within} == {}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit", "sequential", "mlp"])
def test_every_kind_trains_bit_for_bit_as_resident(tmp_path: Path, kind: str) -> None:
    same_as_resident(task_of(kind), tmp_path)


@pytest.mark.parametrize("kind", ["gpt2", "sequential", "mlp"])
def test_dropout_draws_the_same_numbers_twice(tmp_path: Path, kind: str) -> None:
    changes: dict[str, Any] = {}
    if kind == "gpt2":
        # Without the cache: with it, resident training lays keys out otherwise in memory.
        changes["get_model"] = partial(gpt2, 0.2, use_cache=False)
    same_as_resident(task_of(kind, dropout=0.2, **changes), tmp_path)


class Peculiar(nn.Module):
    """Takes keywords, a tuple and None; returns a tuple; trains a scale, and freezes another."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.inner = nn.LSTM(12, 12, batch_first=True)  # keeps references to its parameters
        self.scale = nn.Parameter(torch.ones(12))
        self.inner.requires_grad_(not frozen)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(
        self, hidden: torch.Tensor, *, pair: tuple[torch.Tensor, Any], skip: None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        assert skip is None and pair[1] is None
        output, _ = self.inner((hidden * pair[0])[:, None])
        return output[:, 0] * self.scale, {"gate": output.mean(), "name": "peculiar"}


class PeculiarNet(nn.Module):
    """Two of them, one called twice; what they return beside the output counts in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Peculiar(frozen=True), Peculiar(frozen=False)])
        self.head = nn.Linear(12, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden, gates = inputs, []
        for layer in [*self.layers, self.layers[1]]:
            hidden, more = layer(hidden, pair=(inputs.tanh(), None))
            gates.append(more["gate"])
        return self.head(hidden) * torch.stack(gates).sum().exp()


def test_arguments_and_outputs_of_every_shape(tmp_path: Path) -> None:
    # oneDNN's LSTM, on CPUs without AVX-512.
    same_as_resident(definition(get_model=PeculiarNet), tmp_path, within=closeness.ACROSS)


def test_encoder_and_decoder_are_both_streamed(tmp_path: Path) -> None:
    def get_model() -> nn.Module:
        from transformers import T5Config, T5ForConditionalGeneration

        size = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2}
        depth = {"num_layers": 3, "num_decoder_layers": 2, "decoder_start_token_id": 0}
        return T5ForConditionalGeneration(T5Config(**size, **depth, dropout_rate=0.0))

    model = get_model()
    names = {id(part): name for name, part in model.named_modules()}
    assert [names[id(layer)] for layer in repeated_layers(model)] == [
        *(f"encoder.block.{number}" for number in range(3)),
        *(f"decoder.block.{number}" for number in range(2)),
    ]
    task = task_of("gpt2", get_model=get_model)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=3)
    streamed, _ = in_process.train(task, Offload(), tmp_path, steps=3)
    # Not to the bit: the encoder's output goes to every layer, and its gradients are added in
    # another order.
    assert closeness.ulps(streamed, losses) < closeness.ACROSS


class Scored(nn.Linear):
    """Keeps what needs no gradient."""

    def __init__(self) -> None:
        super().__init__(12, 12)
        self.positions: torch.Tensor | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.positions is None:
            self.positions = torch.arange(12.0).cos()
        return super().forward(inputs * self.positions)


def test_a_cache_of_what_needs_no_gradient_is_no_matter(tmp_path: Path) -> None:
    def get_model() -> nn.Module:
        return nn.Sequential(Scored(), nn.Tanh(), Scored(), nn.Linear(12, 5))

    same_as_resident(definition(get_model=get_model), tmp_path)


class TiedSparse(nn.Module):
    """Embeddings shared with the head, others with sparse gradients; a convolution's strides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 12)
        self.sparse = nn.Embedding(5, 12, sparse=True)
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        self.layers.to(memory_format=torch.channels_last)
        self.head = nn.Linear(12, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        tokens = (inputs[:, :4].abs() * 3).long().clamp(max=4)
        hidden = (self.embed(tokens) + self.sparse(tokens)).mean(1)
        for layer in self.layers:
            hidden = hidden + layer(hidden.view(-1, 3, 2, 2)).tanh().flatten(1)
        return self.head(hidden)


def test_tied_weights_sparse_gradients_and_strides(tmp_path: Path) -> None:
    sgd = partial(torch.optim.SGD)
    same_as_resident(definition(get_model=TiedSparse, optimizer_cls=sgd, lr=0.1), tmp_path)


@pytest.mark.parametrize("technique", [Ddp, Offload])
def test_parts_of_a_step_add_up_to_it(tmp_path: Path, technique: Any) -> None:
    """Gradients of three unequal parts are those of the whole batch, and so is their norm."""
    task = task_of("mlp")
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, technique(), gang)
        parallel = stepper.parallel
        inputs, labels = next(iter(task.get_dataloader()))
        whole = Mlp()
        whole.load_state_dict(parallel.module.state_dict())
        nn.functional.cross_entropy(whole(inputs), labels).backward()
        for begin, end in ((0, 3), (3, 4), (4, 8)):
            part = (inputs[begin:end], labels[begin:end])
            parallel.forward_backward(part, stepper._objective, (end - begin) / 8)
        for (name, ours), theirs in zip(
            parallel.module.named_parameters(), whole.parameters(), strict=True
        ):
            assert closeness.ulps(ours.grad, theirs.grad) < closeness.ACROSS, name
        norm = torch.nn.utils.get_total_norm([p.grad for p in whole.parameters()])
        assert closeness.ulps(parallel.gradient_norm(), norm) < closeness.ACROSS


def test_bf16_autocast_is_the_same_in_the_backward_pass(tmp_path: Path) -> None:
    task = task_of("gpt2", precision="bf16")
    same_as_resident(task, tmp_path)
    in_float32, _ = in_process.train(task_of("gpt2"), Ddp(), tmp_path, steps=2)
    in_bf16, _ = in_process.train(task, Offload(), tmp_path, steps=2)
    assert in_bf16 != in_float32


def test_accumulation_clipping_and_a_schedule_are_the_tasks(tmp_path: Path) -> None:
    same_as_resident(
        task_of(
            "mlp",
            dropout=0.2,
            gradient_accumulation_steps=3,
            max_grad_norm=0.1,
            lr_scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5),
        ),
        tmp_path,
    )


OPTIMIZERS = [
    torch.optim.AdamW,
    partial(torch.optim.AdamW, amsgrad=True, fused=True),
    partial(torch.optim.Adam, foreach=True),
    partial(torch.optim.SGD, momentum=0.9),
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.NAdam,
    torch.optim.Adamax,
    torch.optim.ASGD,
]


def file_backed() -> list[tuple[int, int]]:
    """The address ranges of this process that lie in mapped files of the slow tier."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/slow-" in line:
            begin, _, end = line.split()[0].partition("-")
            ranges.append((int(begin, 16), int(end, 16)))
    return ranges


@pytest.mark.parametrize("optimizer_cls", OPTIMIZERS)
def test_state_of_any_optimizer_is_in_the_slow_tier(tmp_path: Path, optimizer_cls: Any) -> None:
    def get_model() -> nn.Module:  # two layers and a head of 64 KiB and more
        middle = [nn.Linear(128, 128, bias=False), nn.Linear(128, 128, bias=False)]
        return nn.Sequential(nn.Linear(12, 128), *middle, nn.Linear(128, 5))

    task = definition(get_model=get_model, optimizer_cls=optimizer_cls)
    same_as_resident(task, tmp_path, steps=3)
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Offload(), gang)
        pieces = stepper.pieces(Position())
        stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        pieces.close()
        ranges = file_backed()
        large = [
            (name, tensor.data_ptr())
            for parameter, state in stepper.optimizer.state.items()
            for name, tensor in [*state.items(), ("parameter", parameter)]
            if isinstance(tensor, torch.Tensor) and tensor.nbytes >= 64 * 1024
        ]
        assert len(large) >= 4
        for name, address in large:
            assert any(begin <= address < end for begin, end in ranges), name
        assert not list(tmp_path.glob("slow-*"))


def anonymous_bytes() -> int:
    """What this process holds that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


@pytest.mark.slow
def test_training_takes_less_memory_than_the_parameters(run: Runtime) -> None:
    num_layers, width = 10, 1024  # layers of 4 MiB

    def grown_bytes(technique: str) -> int:
        sizes = run.run_dir / f"{technique}.sizes"

        def get_model() -> nn.Module:
            sizes.write_text(f"{anonymous_bytes()}\n")
            middle = [nn.Linear(width, width, bias=False) for _ in range(num_layers)]
            return nn.Sequential(nn.Linear(12, width), *middle, nn.Linear(width, 5))

        def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            with sizes.open("a") as file:
                file.write(f"{anonymous_bytes()}\n")
            return nn.functional.cross_entropy(outputs, labels)

        run.write_task(definition(technique, get_model=get_model, loss_function=loss))
        result = run.run(technique, technique, steps=2)
        assert result.codes == [0], result.logs
        # A second attempt loads a checkpoint: that too goes to the slow tier.
        result = run.run(technique, technique, steps=4)
        assert result.codes == [0], result.logs
        before, *after = map(int, sizes.read_text().split())
        return max(after[1:]) - before

    parameters = num_layers * width * width * 4
    assert grown_bytes("ddp") > 2.5 * parameters
    assert grown_bytes("offload") < 0.5 * parameters


class FakeCuda:
    """Streams and events that only keep a diary; the device's memory is this process's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.diary: list[str] = []
        fake, numbers = self, itertools.count()
        names = itertools.chain(["side", "back"], itertools.repeat("further"))

        class Event:
            def __init__(self, device: Any = None) -> None:
                self.number = next(numbers)

            def record(self, stream: Any) -> None:
                fake.diary.append(f"record on {stream.name} {self.number}")

            def synchronize(self) -> None:
                fake.diary.append(f"wait for {self.number}")

        class Stream:
            def __init__(self, device: Any, name: str | None = None) -> None:
                self.name = name or next(names)

            def wait_event(self, event: Event) -> None:
                fake.diary.append(f"{self.name} waits {event.number}")

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(torch, "Event", Event)
        monkeypatch.setattr(torch, "Stream", Stream)
        replaced = {
            "current_stream": lambda device: Stream(device, "main"),
            "synchronize": lambda _: fake.diary.append("finish"),
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.accelerator, name, value)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)


def test_on_a_gpu_the_next_layer_is_fetched_while_one_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda(monkeypatch)
    monkeypatch.setattr(Courier, "to", StreamCourier)
    same_as_resident(task_of("mlp"), tmp_path, steps=2)
    # One step: the rest of the model, then three layers there and back; the last is fetched anew
    # for its way back. A layer is ordered when the one before it has its work and the one before
    # that has run. A layer's gradients leave beside the computation, and those of two layers before
    # have then arrived.
    assert cuda.diary[: cuda.diary.index("finish") + 1] == [
        *("record on side 0", "main waits 0"),
        *("record on side 1", "main waits 1", "record on main 2", "record on back 3"),
        *("record on side 4", "main waits 4", "record on main 5", "wait for 2"),
        *("record on back 6", "wait for 3"),
        *("record on side 7", "main waits 7", "record on main 8", "wait for 5"),
        *("record on back 9", "wait for 6"),
        *("record on side 10", "main waits 10", "record on main 11", "wait for 8"),
        *("record on back 12", "wait for 9"),
        *("record on side 13", "record on main 14", "back waits 14"),
        *("main waits 13", "record on main 15", "wait for 11"),
        *("record on back 16", "wait for 12"),
        *("record on side 17", "record on main 18", "back waits 18"),
        *("main waits 17", "record on main 19", "wait for 15"),
        *("record on back 20", "wait for 16"),
        *("record on main 21", "back waits 21"),
        *("record on main 22", "back waits 22"),
        "finish",
    ]


def test_stop_resume_and_moves_keep_the_training(run: Runtime) -> None:
    task = definition(get_model=partial(Mlp, dropout=0.3))
    whole = {**task.__dict__, "name": "whole"}
    run.write_task(task)
    run.write_task(type(task)(**whole))
    for name, stops in (("whole", [7]), ("mlp", [2, 3, 7])):
        for steps in stops:
            result = run.run(name, "offload", steps=steps)
            assert result.codes == [0], result.logs
    assert run.losses("mlp") == run.losses("whole")


def test_a_trial_measures_it_where_memory_is_short(run: Runtime) -> None:
    run.write_task(definition())
    for memory, outcome in (
        (10_000, "measured"),
        (1_000, "out_of_memory"),
        (None, "not_applicable"),
    ):
        result = run.run("mlp", "offload", kind="trial", device_memory_bytes=memory)
        assert result.codes == [0], result.logs
        assert result.one("trial")["outcome"]["outcome"] == outcome


def sequential_of_seven() -> nn.Module:
    return sequential()


def test_moves_to_and_from_other_techniques_reproduce_plain_torch(run: Runtime) -> None:
    task = definition(get_model=sequential_of_seven)
    run.write_task(task)
    moves: list[tuple[str, int, dict[str, Any]]] = [
        ("offload", 1, {}),
        ("ddp", 2, {"activation_checkpointing": True}),
        ("offload", 1, {}),
        ("fsdp", 2, {"cpu_offload": True}),
        ("offload", 1, {}),
    ]
    for number, (technique, ranks, knobs) in enumerate(moves, start=1):
        result = run.run("mlp", technique, ranks=ranks, steps=2 * number, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 2 * len(moves))
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    tier = SlowTier(torch.device("cpu"), tmp_path)
    with pytest.raises(OSError, match=r"no 400000 bytes for a tensor of the model") as raised:
        tier.copy_of(torch.zeros(100_000))
    assert raised.value.filename == str(tmp_path)
    assert not list(tmp_path.iterdir())
