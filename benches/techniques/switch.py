"""What a switch of technique costs, part by part.

usage: switch.py [--repetitions N] [--gpus UUID,…] [--out JSON]

A GPT-2 of 50M parameters with AdamW (0.6 GB of state) is moved from gang to gang, each switch from
the last step of the old gang to the end of the first step of the new one. The ranks are those of a
run, forked from a warm parent; the runtime is played by the tests' harness, which launches the new
gang as soon as all ranks of the old one have ended. Figures are medians over the repetitions.

What the runtime's own decisions take (a millisecond or two) is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(REPOSITORY / "python"), str(REPOSITORY / "tests" / "python")]

import tasks  # noqa: E402
import torch  # noqa: E402
from harness import Runtime, runtime  # noqa: E402
from live_gangs import Gang  # noqa: E402
from saturn.tasks.definition import TaskDefinition  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from warm_parent import Warm  # noqa: E402

#: From each of these gangs to the next, and back to the first.
CHAIN = (("ddp", 1), ("ddp", 2), ("fsdp", 2))
#: The same where there is one GPU.
CHAIN_ON_ONE = (("ddp", 1), ("fsdp", 1), ("offload", 1))
STEPS_A_GANG = 3
PARTS = ("stop_s", "save_s", "end_s", "launch_s", "build_s", "load_s", "data_s", "step_s")


def get_model() -> torch.nn.Module:
    """49.6M parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=8192, n_positions=128, n_embd=640, n_layer=9, n_head=10, **dropout)
    )


def get_dataloader() -> DataLoader[Any]:
    """Sequences of 32 tokens, two a step, so that steps are short beside the switch."""
    tokens = torch.randint(0, 8192, (64, 32), generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(tokens, tokens), batch_size=2)


def loss_function(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next token."""
    logits = outputs.logits[:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten())


def definition() -> TaskDefinition:
    """The task that is moved."""
    return tasks.definition("gpt2-50m", get_model, get_dataloader, loss_function=loss_function)


def message(gang: Gang, kind: str) -> dict[str, Any]:
    """The first message of that kind."""
    return next(content for _, content in gang.messages if content["type"] == kind)


def times(run: Runtime) -> dict[int, float]:
    """When each step ended, Unix time."""
    lines = (run.task_dir(definition().name) / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry["t"] for entry in map(json.loads, lines)}


def measure(
    run: Runtime, chain: Sequence[tuple[str, int]], repetitions: int
) -> dict[str, list[dict[str, float]]]:
    """The parts of each switch of the chain, by its name, once a repetition."""
    found: dict[str, list[dict[str, float]]] = {}
    task = definition().name
    old: tuple[str, float, float, dict[str, Any]] | None = None
    for technique, ranks in [*chain] * repetitions + [*chain[:1]]:
        launched = time.time()
        gang = run.launch(task, technique, ranks=ranks, steps=10**6)
        gang.wait_for("started")
        started = message(gang, "started")
        start = started["step"]
        gang.wait_for("progress", step=start + 1)
        name = f"{technique} x {ranks}"
        if old is not None:
            before, last_step, ended, checkpoint = old
            first_step = times(run)[start + 1]
            parts = started["parts"]
            seconds = {
                "stop_s": 0.0,
                "save_s": checkpoint["save_s"],
                "end_s": ended - last_step - checkpoint["save_s"],
                "launch_s": launched - ended + parts["launch_s"],
                **{key: parts[key] for key in ("build_s", "load_s", "data_s")},
            }
            seconds["step_s"] = first_step - launched - sum(parts.values())
            seconds["total_s"] = first_step - last_step
            found.setdefault(f"{before} to {name}", []).append(seconds)
        gang.wait_for("progress", step=start + STEPS_A_GANG)
        gang.stop()
        result = gang.wait()
        assert not any(result.codes), result.logs
        done = result.one("stopped")["step"]
        old = (name, times(run)[done], time.time(), result.of("checkpoint")[-1])
    return found


def main() -> None:
    """Print a line a switch; `--out` also writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--gpus", default="", help="UUIDs of GPUs; on CPU slots without")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saturn-switch-") as directory:
        path = Path(directory)
        uuids = [uuid for uuid in arguments.gpus.split(",") if uuid]
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} if uuids else None
        preload = "transformers:GPT2LMHeadModel"
        warm = Warm(path / "workers.lock", preload, environment, uuids)
        with runtime(path, warm) as run:
            run.write_task(definition())
            chain = CHAIN_ON_ONE if len(uuids) == 1 else CHAIN
            found = measure(run, chain, arguments.repetitions)
        warm.close()
    print(f"{'switch':<22}" + "".join(f"{part[:-2]:>8}" for part in (*PARTS, "total_s")))
    for name, all_seconds in found.items():
        medians = {
            part: statistics.median(seconds[part] for seconds in all_seconds)
            for part in (*PARTS, "total_s")
        }
        print(f"{name:<22}" + "".join(f"{seconds:8.2f}" for seconds in medians.values()))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
