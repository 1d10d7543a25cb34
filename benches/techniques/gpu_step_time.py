"""A step on a GPU under Saturn beside plain torch, for GPT-2 of 124M to 1.5B parameters.

usage: gpu_step_time.py [--pairs N] [--small] [--out JSON]

bf16 autocast, AdamW, 1024 tokens a sequence. Both sides live in one process and take turns, blocks
of steps each; seconds are those of a block, from a device that has nothing to do to one that has
done all. By hand reads no loss, and copies its batches from pinned memory without waiting. A size
that doesn't fit is told as that.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES.parents[1] / "python")]

import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

#: Layers, width, heads, and sequences a batch.
SIZES = {
    "124M": (12, 768, 12, 8),
    "355M": (24, 1024, 16, 8),
    "774M": (36, 1280, 20, 4),
    "1.5B": (48, 1600, 25, 2),
}
SMALL = {"small": (2, 64, 2, 2)}
LENGTH, VOCABULARY = 1024, 50_257
SMALL_LENGTH, SMALL_VOCABULARY = 32, 512
STEPS_A_BLOCK = 5


def get_model(layers: int, width: int, heads: int, length: int, vocabulary: int) -> torch.nn.Module:
    """A GPT-2 without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    size = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": length}
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, use_cache=False, **size, **drops))


def get_dataloader(batch_size: int, length: int, vocabulary: int) -> DataLoader[Any]:
    """Random tokens, in order."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, vocabulary, (64, length), generator=generator)
    return DataLoader(rows, batch_size=batch_size, collate_fn=collate)


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the model gets by keyword."""
    tokens = torch.stack(rows)
    return {"input_ids": tokens, "labels": tokens}


def saturn_side(make: Callable[[], Any], load: Callable[[], Any], directory: Path) -> Any:
    """Saturn's step, as its training loop takes it."""
    import tasks
    from saturn.data.slices import Position
    from saturn.rank.gang import Gang
    from saturn.techniques.ddp import Ddp
    from saturn.training.stepper import Stepper

    definition = tasks.definition("bench", make, load, precision="bf16")
    gang = Gang(rank=0, world_size=1, device=torch.device("cuda", 0), rendezvous=directory / "r")
    stepper = Stepper(definition, Ddp(), gang, {}, note=print)
    pieces = stepper.pieces(Position())
    staged = stepper.stage(next(pieces))
    unread: deque[Any] = deque()

    def step() -> None:
        nonlocal staged
        unread.append(stepper.step(staged, stop=False, save=False))
        staged = stepper.stage(next(pieces))
        if len(unread) > stepper.steps_behind:
            unread.popleft().result()

    return step


def side_by_hand(make: Callable[[], Any], load: Callable[[], Any]) -> Callable[[], Any]:
    """The same in plain torch."""
    device = torch.device("cuda", 0)
    torch.manual_seed(0)
    model = make().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def batches() -> Iterator[Any]:
        while True:
            for batch in load():
                yield {k: v.pin_memory().to(device, non_blocking=True) for k, v in batch.items()}

    stream = batches()

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**next(stream)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def measure(size: tuple[int, int, int, int], pairs: int, *, small: bool) -> dict[str, Any]:
    """Milliseconds a step of both sides, and the ratios of pairs of blocks."""
    layers, width, heads, batch_size = size
    length, vocabulary = (SMALL_LENGTH, SMALL_VOCABULARY) if small else (LENGTH, VOCABULARY)

    def make() -> torch.nn.Module:
        return get_model(layers, width, heads, length, vocabulary)

    def load() -> DataLoader[Any]:
        return get_dataloader(batch_size, length, vocabulary)

    seconds: dict[str, list[float]] = {"saturn": [], "by hand": []}
    with tempfile.TemporaryDirectory(prefix="saturn-bench-") as directory:
        sides = {
            "saturn": saturn_side(make, load, Path(directory)),
            "by hand": side_by_hand(make, load),
        }
        for pair in range(-1, pairs):  # the first warms up
            for name in sorted(sides, reverse=pair % 2 == 0):
                torch.accelerator.synchronize()
                began = time.perf_counter()
                for _ in range(STEPS_A_BLOCK):
                    sides[name]()
                torch.accelerator.synchronize()
                if pair >= 0:
                    seconds[name].append((time.perf_counter() - began) / STEPS_A_BLOCK)
    ratios = [ours / theirs for ours, theirs in zip(*seconds.values(), strict=True)]
    told = {f"{name}_ms": 1e3 * statistics.median(each) for name, each in seconds.items()}
    return {**told, "ratio": statistics.median(ratios), "ratios": ratios}


def main() -> None:
    """Print a line a size; `--out` also writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--small", action="store_true", help="one small model, for a trial")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, size in (SMALL if options.small else SIZES).items():
        try:
            found[name] = measure(size, options.pairs, small=options.small)
        except torch.OutOfMemoryError as error:
            found[name] = {"does_not_fit": str(error).splitlines()[0]}
        gc.collect()
        torch.cuda.empty_cache()
        print(name, {k: v for k, v in found[name].items() if k != "ratios"}, flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
