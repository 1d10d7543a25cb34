"""A step under Saturn beside the same technique written by hand in plain torch.

usage: step_time.py [--pairs N] [--only SUBSTRING] [--device cpu|cuda] [--out JSON]

A Llama of 5M parameters with AdamW, batches of 8 sequences of 64 tokens, a core and a thread for
each rank; what needs more ranks than there are cores, or GPUs, is left out. Both sides live in the
same ranks and take turns: blocks of steps, the order of the two changing from pair to pair. What is
told is the median over pairs of Saturn's time over that by hand, with the middle half of them; so a
machine that is slow for a while slows down both.

Saturn's side is what its training loop does in a step: samples of the task fetched and cut, seeds,
forward, backward, optimizer, the ranks' agreement on loss and stopping, a line of metrics. The
other is a loader, forward, backward, optimizer, and a loss that nobody reads but the last.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES.parents[1] / "python")]

import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

SIDES = ("saturn", "by_hand")
#: Steps of a block: many on a GPU, whose work is waited for at a block's end.
STEPS_A_BLOCK = {"cpu": 3, "cuda": 20}
BATCH_SIZE, LENGTH, VOCABULARY = 8, 64, 4096
#: Technique and ranks, Saturn's knobs, and the class by hand with its arguments.
CASES: tuple[tuple[str, int, dict[str, Any], str, dict[str, Any]], ...] = (
    ("ddp", 1, {}, "OneDevice", {}),
    ("ddp", 2, {}, "Ddp", {}),
    ("fsdp", 2, {}, "Fsdp", {}),
    ("tensor", 2, {}, "TensorParallel", {}),
    ("tensor+fsdp", 4, {"tensor": 2}, "TensorFsdp", {}),
    (
        *("pipeline", 2, {"schedule": "1f1b", "microbatches": 4}),
        *("Pipeline", {"schedule": "1f1b", "micro_batches": 4}),
    ),
)


def get_model() -> torch.nn.Module:
    """5.3M parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=LENGTH,
            use_cache=False,
        )
    )


def get_dataloader() -> DataLoader[Any]:
    """As many batches as will ever be asked for, in order."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, VOCABULARY, (512, LENGTH), generator=generator)
    pinned = torch.accelerator.is_available()
    return DataLoader(rows, batch_size=BATCH_SIZE, collate_fn=collate, pin_memory=pinned)


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the model gets by keyword."""
    tokens = torch.stack(rows)
    return {"input_ids": tokens, "labels": tokens}


@dataclass(frozen=True)
class Side:
    """One of the two that take turns."""

    step: Callable[[], None]
    #: The last step's loss, once it is known.
    loss: Callable[[], float]


def saturn_side(technique_name: str, knobs: dict[str, Any], gang: Any, directory: Path) -> Side:
    """One step of Saturn's, as its training loop takes it."""
    import tasks
    from saturn.data.slices import Position
    from saturn.techniques import BUILT_IN
    from saturn.training.stepper import Stepper
    from saturn.worker import load_technique
    from saturn.worker.metrics import Metrics
    from saturn.worker.spec import TechniqueRef

    definition = tasks.definition("bench", get_model, get_dataloader, lr=1e-3)
    technique = load_technique.managed(
        TechniqueRef(
            name=technique_name,
            level="managed",
            import_path=BUILT_IN[technique_name],
            pickle_path=None,
        )
    )
    stepper = Stepper(definition, technique, gang, knobs, note=print)
    pieces = stepper.pieces(Position())
    metrics = Metrics(directory) if gang.rank == 0 else None
    number, loss = 0, math.nan
    unread: deque[Any] = deque()
    staged: Any = None

    def read(behind: int) -> float:
        nonlocal number, loss
        while len(unread) > behind:
            number, loss = number + 1, unread.popleft().result().loss
            if metrics is not None:
                metrics.add(number, loss)
        return loss

    def step() -> None:
        nonlocal staged
        own = staged or stepper.stage(next(pieces))
        unread.append(stepper.step(own, stop=False, save=False))
        staged = stepper.stage(next(pieces)) if stepper.steps_behind else None
        read(stepper.steps_behind)

    return Side(step, lambda: read(0))


def side_by_hand(kind: str, arguments: dict[str, Any], device: torch.device) -> Side:
    """One step by hand; the loss is that of this rank's part, 0 where it has none."""
    import by_hand

    torch.manual_seed(0)
    model = get_model().to(device)
    model.train()
    trained = getattr(by_hand, kind)(model, **arguments)

    def batches() -> Iterator[Any]:
        while True:
            yield from get_dataloader()

    stream = batches()
    loss: torch.Tensor | None = None

    def step() -> None:
        nonlocal loss
        loss = trained.step(next(stream)["input_ids"])

    return Side(step, lambda: 0.0 if loss is None else float(loss))


def run_rank(case: int, rank: int, pairs: int, kind_of_device: str, directory: Path) -> None:
    """What one rank does; rank 0 prints the seconds of each pair, and losses."""
    technique, ranks, knobs, kind, arguments = CASES[case]
    from saturn.rank.gang import Gang
    from saturn.rank.process import cores_a_gpu, device_of, settle

    is_cpu = kind_of_device == "cpu"
    cores = [sorted(os.sched_getaffinity(0))[rank]] if is_cpu else []
    settle(cores, num_threads=cores_a_gpu(ranks))
    gang = Gang(
        rank=rank,
        world_size=ranks,
        device=device_of(kind_of_device, rank),
        rendezvous=directory / "rendezvous",
    )
    gang.open()
    sides = dict(
        zip(
            SIDES,
            (
                saturn_side(technique, knobs, gang, directory),
                side_by_hand(kind, arguments, gang.device),
            ),
            strict=True,
        )
    )
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, float] = {}
    num_steps = STEPS_A_BLOCK[kind_of_device]
    for pair in range(-1, pairs):  # the first warms up
        for name in sorted(sides, reverse=pair % 2 == 0):
            gang.sum([0.0])
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(num_steps):
                sides[name].step()
            losses[name] = sides[name].loss()
            if not is_cpu:
                torch.accelerator.synchronize()
            computed = time.process_time() - cpu_began
            gang.sum([0.0])
            if pair >= 0:
                seconds[name].append((time.perf_counter() - began) / num_steps)
                cpu[name].append(gang.sum([computed])[0] / num_steps)
    # Parts of the batch are equal, so its loss is the mean of theirs; stages that have none say 0.
    by_hand = gang.sum([losses["by_hand"], losses["by_hand"] != 0.0])
    difference = abs(by_hand[0] / by_hand[1] - losses["saturn"])
    if rank == 0:
        print(json.dumps({"wall": seconds, "cpu": cpu, "loss_difference": difference}))
    gang.close()


def measure(case: int, pairs: int, kind_of_device: str) -> dict[str, Any]:
    """Run the ranks of one case, and read what rank 0 found."""
    ranks = CASES[case][1]
    with tempfile.TemporaryDirectory(prefix="saturn-bench-") as directory:
        command = [sys.executable, __file__, "--pairs", str(pairs), "--rank-of", str(case)]
        command += ["--device", kind_of_device]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--directory", directory],
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(ranks)
        ]
        outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"case {CASES[case][:2]} failed")
    found: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    if found["loss_difference"] > 1e-4:
        raise SystemExit(f"the two sides of {CASES[case][:2]} train differently: {found}")
    return found


def row(case: int, pairs: int, kind_of_device: str) -> dict[str, str]:
    """What is told of one case."""
    technique, ranks, knobs, _, _ = CASES[case]
    found = measure(case, pairs, kind_of_device)
    told = {
        "technique": technique,
        "slots": str(ranks),
        "knobs": ", ".join(f"{key} {value}" for key, value in knobs.items()) or "-",
    }
    for side, name in zip(SIDES, ("Saturn", "by hand"), strict=True):
        told[name] = f"{1e3 * statistics.median(found['wall'][side]):.0f} ms"
    for clock, name in (("wall", "ratio"), ("cpu", "ratio of CPU time")):
        pairs_of = zip(*(found[clock][side] for side in SIDES), strict=True)
        low, middle, high = statistics.quantiles([ours / theirs for ours, theirs in pairs_of], n=4)
        told[name] = f"{middle:.3f} ({low:.3f} to {high:.3f})"
    return told


def main() -> None:
    """Print a line a case; `--out` also writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", default="", help="only techniques whose name contains this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rank-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of is not None:
        run_rank(options.rank_of, options.rank, options.pairs, options.device, options.directory)
        return
    rows = []
    most = len(os.sched_getaffinity(0))
    if options.device != "cpu":
        most = torch.accelerator.device_count()
    for case, (technique, ranks, *_) in enumerate(CASES):
        if options.only in technique and ranks <= most:
            rows.append(row(case, options.pairs, options.device))
            print("  ".join(rows[-1].values()), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
