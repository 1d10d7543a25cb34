"""How long an 8-rank gang takes from its launch to its first word, by both launchers.

Real: ranks with torch, a Ray node with its token, the agent. All ranks share this machine's cores,
on which most of that time is spent, so launches by turns are compared, and the least of each.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import saturn
import torch
from saturn import HParams, Task

NUM_RANKS = 8


def _get_model() -> torch.nn.Module:
    return torch.nn.Linear(4, 1)


def _get_dataloader() -> Any:
    data = torch.utils.data.TensorDataset(torch.zeros(64, 4), torch.zeros(64, 1))
    return torch.utils.data.DataLoader(data, batch_size=8)


def _task(number: int) -> Task:
    loss = torch.nn.functional.mse_loss
    hparams = HParams(lr=1e-3 * (1 + number), batch_count=3)
    return Task(
        *(_get_model, _get_dataloader, loss, hparams),
        name=f"t{number}",
        gpu_range=[NUM_RANKS],
        techniques=["ddp"],
    )


def _launches(journal: Path) -> list[float]:
    """Seconds from each launch of a training gang to its first word."""
    connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    rows = connection.execute("SELECT at_s, record FROM record ORDER BY seq").fetchall()
    launched: dict[int, float] = {}
    found = []
    for at_s, text in rows:
        record = json.loads(text)
        if record["record"] == "launched" and record.get("purpose") == "train":
            launched[record["attempt"]] = at_s
        if record["record"] == "started" and record["attempt"] in launched:
            found.append(at_s - launched[record["attempt"]])
    return found


def measure(turns: int, tasks: int) -> dict[str, Any]:
    """Launch gangs by turns, here and through an agent."""
    from ray.cluster_utils import Cluster

    taken: dict[str, list[float]] = {"local": [], "agent": []}
    with tempfile.TemporaryDirectory() as directory:
        locks = str(Path(directory) / "locks")
        made = Cluster()
        made.add_node(
            num_cpus=NUM_RANKS, include_dashboard=False, env_vars={"SATURN_LOCKS_DIR": locks}
        )
        try:
            for _ in range(turns):
                for where, given in (
                    ("local", {"devices": NUM_RANKS}),
                    ("agent", {"cluster": str(made.address)}),
                ):
                    result = saturn.orchestrate(
                        [_task(number) for number in range(tasks)],
                        runs_dir=directory,
                        log=False,
                        **given,
                    )
                    taken[where] += _launches(result.run_dir / "journal.db")
        finally:
            made.shutdown()
    return {
        where: {
            "num": len(all_s),
            "least_s": min(all_s),
            "median_s": statistics.median(all_s),
            "most_s": max(all_s),
        }
        for where, all_s in taken.items()
    }


if __name__ == "__main__":
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
