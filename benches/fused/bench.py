"""What it gains to train adapters of one base together on one device, beside each alone.

usage: bench.py [--models NAME …] [--seconds S] [--precision P] [--device cpu|cuda] [--out FILE]

On a CPU core, times are processor seconds of this process; on a GPU, seconds from an idle device to
an idle device. They are the least of many steps. Alone and fused alternate, so other programs
disturb both alike.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "python")]

import peft  # noqa: E402
import torch  # noqa: E402
from saturn.data import seeds  # noqa: E402
from saturn.data.slices import Position  # noqa: E402
from saturn.fused.group import Group  # noqa: E402
from saturn.rank import malloc  # noqa: E402
from saturn.rank.gang import Gang  # noqa: E402
from saturn.tasks.definition import TaskDefinition  # noqa: E402
from saturn.techniques.ddp import Ddp  # noqa: E402
from saturn.techniques.interface import Technique  # noqa: E402
from saturn.training.stepper import Stepper  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

MEMBERS = (2, 4, 8)
#: Samples of a step, and tokens of a sample.
SHAPES = {
    "cpu": ((1, 32), (1, 64), (1, 128), (4, 64), (8, 64)),
    "cuda": ((1, 128), (1, 512), (4, 512)),
}
RANKS = (8, 16, 32, 4)
VOCABULARY = 8000


def gpt2() -> torch.nn.Module:
    """14M parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"n_embd": 384, "n_layer": 6, "n_head": 12, "n_positions": 512}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **size, **drops))


def llama() -> torch.nn.Module:
    """32M parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1408}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **size, **heads))


def llama_1b() -> torch.nn.Module:
    """1.1 billion parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32_000, **size, **heads))


LLAMA_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], list[str]]] = {
    "gpt2": (gpt2, ["c_attn", "c_proj", "c_fc"]),
    "llama": (llama, LLAMA_LAYERS),
    "llama-1b": (llama_1b, LLAMA_LAYERS),
}


@cache
def built(model: str, device: str) -> torch.nn.Module:
    """A base, which nobody trains."""
    with seeds.forked(), torch.device(device):
        torch.manual_seed(0)
        return MODELS[model][0]()


def adapted(model: str, device: str, rank: int) -> torch.nn.Module:
    """The same base in each task, with adapters around all linear layers of its blocks."""
    layers = MODELS[model][1]
    base = copy.deepcopy(built(model, device))
    return peft.get_peft_model(base, peft.LoraConfig(r=rank, target_modules=layers))  # type: ignore[arg-type]


def rows(samples: int, length: int) -> DataLoader[Any]:
    """Batches of random tokens."""
    tokens = torch.randint(VOCABULARY, (64, length))

    def collate(each: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.stack(each), "labels": torch.stack(each)}

    return DataLoader(tokens, batch_size=samples, collate_fn=collate)  # type: ignore[arg-type]


def task(
    model: str, number: int, shape: tuple[int, int], precision: str, device: str
) -> TaskDefinition:
    """Member `number` of a sweep."""
    return TaskDefinition(
        name=f"adapter-{number}",
        get_model=partial(adapted, model, device, RANKS[number % len(RANKS)]),
        get_dataloader=partial(rows, *shape),
        loss_function=None,
        loss_weight=None,
        lr=1e-4,
        epochs=None,
        batch_count=1_000_000,
        optimizer_cls=None,
        kwargs={},
        hints={},
        seed=number,
        precision=precision,
        max_grad_norm=1.0,
    )


def steps(definition: TaskDefinition, technique: Technique, gang: Gang) -> Iterator[None]:
    """Take one step after another."""
    stepper = Stepper(definition, technique, gang, {}, note=lambda text: None)
    for slices in stepper.pieces(Position()):
        stepper.step(stepper.stage(slices), stop=False, save=False).result()
        yield


def now(device: str) -> float:
    """Seconds of this process, or of a GPU that has done all it was told."""
    if device == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def cell(
    model: str, shape: tuple[int, int], members: int, precision: str, seconds: float, device: str
) -> tuple[float, float]:
    """(seconds of a step alone, of a step of the whole group): the least of many."""
    with tempfile.TemporaryDirectory() as directory:
        gang = Gang(
            rank=0,
            world_size=1,
            device=torch.device(device),
            rendezvous=Path(directory) / "rendezvous",
        )
        tasks = [task(model, number, shape, precision, device) for number in range(members)]
        group = Group(gang.device)
        for each in tasks:
            group.add(each.name, lambda technique, each=each: list(steps(each, technique, gang)))
        # Members have different ranks, so alone is the mean over them.
        alone = [steps(each, Ddp(), gang) for each in tasks[: len(RANKS)]]
        best: dict[int, float] = {}
        until = time.perf_counter() + seconds
        takes: list[Callable[[], Any]] = [group.round, *(each.__next__ for each in alone)]
        for take in takes:
            take()
        while time.perf_counter() < until or not best:
            for number, take in enumerate(takes):
                began = now(device)
                take()
                best[number] = min(best.get(number, 1e9), now(device) - began)
        group.close()
        fused = best.pop(0)
        return sum(best.values()) / len(best), fused


def main() -> None:
    """Print the page, and write it to `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["gpt2", "llama"], choices=list(MODELS))
    parser.add_argument("--device", default="cpu", choices=list(SHAPES))
    parser.add_argument("--precision", default="float32", choices=["float32", "bf16"])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each cell")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    malloc.keep_all()
    begun, load = time.perf_counter(), os.getloadavg()[0]
    how = (options.precision, options.seconds, options.device)
    tables = []
    for model in options.models:
        lines = [
            "| samples x tokens | tokens | alone, ms | "
            + " | ".join(f"{number} fused" for number in MEMBERS)
            + " |",
            "|" + "---|" * (3 + len(MEMBERS)),
        ]
        for shape in SHAPES[options.device]:
            found = [cell(model, shape, members, *how) for members in MEMBERS]
            gains = [
                members * alone / fused
                for members, (alone, fused) in zip(MEMBERS, found, strict=True)
            ]
            cells = [f"{shape[0]} x {shape[1]}", str(shape[0] * shape[1])]
            cells += [f"{1e3 * min(alone for alone, _ in found):.1f}"]
            lines.append("| " + " | ".join([*cells, *(f"{gain:.2f}" for gain in gains)]) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
        about = (MODELS[model][0].__doc__ or "").rstrip(".")
        tables.append(f"## {model}, {about}, {options.precision}\n\n" + "\n".join(lines) + "\n")
    is_cpu = options.device == "cpu"
    device = "one core" if is_cpu else torch.cuda.get_device_name()
    times = "processor time" if is_cpu else "from an idle GPU to an idle GPU"
    command = " ".join(["python benches/fused/bench.py", *sys.argv[1:]])
    text = f"""# Adapters trained together

*How much faster do adapters of one base train together than each alone?*

`{command}` ({time.perf_counter() - begun:.0f} s), on {device},
with a load of {load:.1f} from other
work when it began. [Fused training](../fused.md) says what this is; no plan chooses it yet.

Columns of fused members say how many times as fast a step of all of them is as their steps alone,
one after another: 1.00 gains nothing. Members adapt all linear layers of the blocks, with ranks of
4 to 32. Optimizer, clipping and data are part of a step. Times are {times}, the least of
many steps. Beside other work, ratios scatter by some tenths, and single ones mean little.

""" + "\n".join(tables)
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
