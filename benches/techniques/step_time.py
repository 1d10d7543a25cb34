"""A step under Saturn beside the same technique written by hand in plain torch.

usage: step_time.py [--pairs N] [--only SUBSTRING] [--out JSON]

A Llama of 5M parameters with AdamW, batches of 8 sequences of 64 tokens, a core and a thread for
each rank; what needs more ranks than there are cores is left out. Both sides live in the same ranks
and take turns: blocks of steps, the order of the two changing from pair to pair. What is told is
the median over pairs of Saturn's time over that by hand, with the middle half of them; so a machine
that is slow for a while slows down both.

Saturn's side is what its training loop does in a step: samples of the task fetched and cut, seeds,
forward, backward, optimizer, the ranks' agreement on loss and stopping, a line of metrics. The
other is a loader, forward, backward, optimizer, and the loss as a number.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES.parents[1] / "python")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

SIDES = ("saturn", "by_hand")
STEPS_A_BLOCK = 3
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
    return DataLoader(rows, batch_size=BATCH_SIZE, collate_fn=collate)


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the model gets by keyword."""
    tokens = torch.stack(rows)
    return {"input_ids": tokens, "labels": tokens}


def saturn_side(
    technique_name: str, knobs: dict[str, Any], gang: Any, directory: Path
) -> Callable[[], float]:
    """One step of Saturn's, as its training loop takes it; returns the loss."""
    from saturn.data.slices import Position
    from saturn.definition import TaskDefinition
    from saturn.techniques import BUILT_IN
    from saturn.training.stepper import Stepper
    from saturn.worker import load_technique
    from saturn.worker.metrics import Metrics
    from saturn.worker.spec import TechniqueRef

    definition = TaskDefinition(
        name="bench",
        get_model=get_model,
        get_dataloader=get_dataloader,
        loss_function=None,
        loss_weight=None,
        lr=1e-3,
        epochs=None,
        batch_count=10**6,
        optimizer_cls=torch.optim.AdamW,
        kwargs={},
        hints={},
        seed=0,
    )
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
    number = 0

    def step() -> float:
        nonlocal number
        result = stepper.step(next(pieces), stop=False, save=False)
        number += 1
        if metrics is not None:
            metrics.add(number, result.loss)
        return result.loss

    return step


def side_by_hand(kind: str, arguments: dict[str, Any]) -> Callable[[], float]:
    """One step by hand; returns the loss of this rank's part."""
    import by_hand

    torch.manual_seed(0)
    model = get_model()
    model.train()
    trained = getattr(by_hand, kind)(model, **arguments)

    def batches() -> Iterator[Any]:
        while True:
            yield from get_dataloader()

    stream = batches()
    return lambda: trained.step(next(stream)["input_ids"])


def run_rank(case: int, rank: int, pairs: int, directory: Path) -> None:
    """What one rank does; rank 0 prints the seconds of each pair, and losses."""
    technique, ranks, knobs, kind, arguments = CASES[case]
    from saturn.rank.gang import Gang
    from saturn.rank.process import settle

    settle([sorted(os.sched_getaffinity(0))[rank]])
    gang = Gang(
        rank=rank,
        world_size=ranks,
        device=torch.device("cpu"),
        rendezvous=directory / "rendezvous",
    )
    gang.open()
    sides = dict(
        zip(
            SIDES,
            (
                saturn_side(technique, knobs, gang, directory),
                side_by_hand(kind, arguments),
            ),
            strict=True,
        )
    )
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, list[float]] = {name: [] for name in sides}
    for pair in range(-1, pairs):  # the first warms up
        for name in sorted(sides, reverse=pair % 2 == 0):
            dist.barrier()
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(STEPS_A_BLOCK):
                losses[name].append(sides[name]())
            computed = time.process_time() - cpu_began
            dist.barrier()
            if pair >= 0:
                seconds[name].append((time.perf_counter() - began) / STEPS_A_BLOCK)
                cpu[name].append(gang.sum([computed])[0] / STEPS_A_BLOCK)
    # Parts of the batch are equal, so its loss is the mean of theirs; stages that have none say 0.
    by_hand = gang.sum([losses["by_hand"][-1], losses["by_hand"][-1] != 0.0])
    difference = abs(by_hand[0] / by_hand[1] - losses["saturn"][-1])
    if rank == 0:
        print(json.dumps({"wall": seconds, "cpu": cpu, "loss_difference": difference}))
    gang.close()


def measure(case: int, pairs: int) -> dict[str, Any]:
    """Run the ranks of one case, and read what rank 0 found."""
    ranks = CASES[case][1]
    with tempfile.TemporaryDirectory(prefix="saturn-bench-") as directory:
        command = [sys.executable, __file__, "--pairs", str(pairs), "--rank-of", str(case)]
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


def row(case: int, pairs: int) -> dict[str, str]:
    """What is told of one case."""
    technique, ranks, knobs, _, _ = CASES[case]
    found = measure(case, pairs)
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
    parser.add_argument("--rank-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of is not None:
        run_rank(options.rank_of, options.rank, options.pairs, options.directory)
        return
    rows = []
    cores = len(os.sched_getaffinity(0))
    for case, (technique, ranks, *_) in enumerate(CASES):
        if options.only in technique and ranks <= cores:
            rows.append(row(case, options.pairs))
            print("  ".join(rows[-1].values()), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
