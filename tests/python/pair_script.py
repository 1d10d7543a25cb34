"""A script of the pairs' cases: the loop of `pair_models`, which saves, reports and goes on.

`python pair_script.py --case JSON --out DIRECTORY` trains it by itself. It writes a line for each
step into `history.jsonl` of that directory, and its state after each step beside it. On several
ranks each takes its slice of a batch, and gradients are summed.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import saturn
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later it would keep the group, whose threads abort at exit
from pair_models import EVERY, SEED, STEPS, Loop
from pair_strikes import STRUCK
from pairs import Case
from plain_loops import documented_seed, seed_all

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Spread(Loop):
    """The loop on several ranks."""

    def _backward(self, group: list[Any], ranks: int) -> float:
        total = torch.zeros(())
        samples = sum(len(labels) for _, labels in group)
        scale = self.scale if self.case.has("fp16") else 1.0
        for offset, (inputs, labels) in enumerate(group):
            seed_all(documented_seed(SEED, "batch", self.number + offset, RANK))
            own = slice(len(labels) * RANK // WORLD_SIZE, len(labels) * (RANK + 1) // WORLD_SIZE)
            loss, _ = self._loss(inputs[own], labels[own])
            weight = len(labels[own]) / samples
            (loss * (weight * scale)).backward()
            total += loss.detach() * weight
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad)
        dist.all_reduce(total)
        return float(total)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True, help="a case's values, as JSON")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume_from_checkpoint", type=Path)
    args = parser.parse_args()
    if struck := os.environ.get(STRUCK):
        pickle.loads(base64.b64decode(struck))()
    warnings.simplefilter("ignore")
    case = Case(tuple(json.loads(args.case)))
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    loop = Loop(case) if WORLD_SIZE == 1 else Spread(case)
    if args.resume_from_checkpoint:
        loop.load(torch.load(args.resume_from_checkpoint))
        for _ in range(loop.number):
            next(loop.batches)
    args.out.mkdir(parents=True, exist_ok=True)
    for step in range(loop.steps + 1, STEPS + 1):
        loss = loop.step()
        due = step % EVERY == 0 or step == STEPS
        metrics = loop.evaluate() if due and not case.has("not evaluated") else {}
        if RANK == 0:
            with (args.out / "history.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "loss": loss, **metrics}) + "\n")
        stop = saturn.report(step, loss, total_steps=STEPS, **metrics)
        state = args.out / f"step-{step}.pt"
        if RANK == 0:
            torch.save(loop.state(), state)
        saturn.report(step, checkpoint=state)
        if stop:
            break
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
