"""Calls of the program `saturn`, with its answers as data. Equal calls are made once."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("saturn")


@functools.cache
def answer(*arguments: str) -> Any:
    """What a verb prints with `--json`. Paths are relative to the repository's root."""
    command = [str(PROGRAM), *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def simulated(workload: Path, policies: list[str], *options: str) -> dict[str, Any]:
    """Each policy's mean over the seeds, by its name, and the bound as `bound_s`."""
    path = str(workload.relative_to(ROOT))
    found = answer("simulate", path, "--policy", ",".join(policies), *options)
    means = {policy["name"]: policy["mean"] for policy in found["policies"]}
    return means | {"bound_s": found["lower_bound_s"]}
