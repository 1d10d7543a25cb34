"""The techniques measured: steps beside plain torch, and what a switch costs.

usage: bench.py [--pairs N] [--repetitions N] [--out FILE]

Runs `step_time.py` and `switch.py`, and writes what they found as a page.
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent


def found_by(program: str, *arguments: str) -> Any:
    """What a program of this directory writes with `--out`."""
    with tempfile.TemporaryDirectory(prefix="saturn-bench-") as directory:
        out = Path(directory) / "found.json"
        command = [sys.executable, str(BENCHES / program), *arguments, "--out", str(out)]
        subprocess.run(command, check=True)
        return json.loads(out.read_text())


def table(rows: Sequence[Iterable[str]]) -> str:
    """Rows, the first of them the header."""
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([lines[0], "|" + "---|" * (lines[0].count("|") - 1), *lines[1:]])


def switches(found: dict[str, list[dict[str, float]]]) -> str:
    """The parts of each switch: medians, in seconds."""
    # Ranks are asked to stop while they step: that costs a step nothing.
    parts = [part for part in next(iter(found.values()))[0] if part != "stop_s"]
    header = ["switch", *(part.removesuffix("_s") for part in parts)]
    rows = [
        [name, *(f"{statistics.median(one[part] for one in measured):.2f}" for part in parts)]
        for name, measured in found.items()
    ]
    return table([header, *rows])


def main() -> None:
    """Print the page, and write it to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", default="20", help="of blocks of steps, a technique")
    parser.add_argument("--repetitions", default="3", help="of each switch")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun, load = time.perf_counter(), os.getloadavg()[0]
    steps = found_by("step_time.py", "--pairs", options.pairs)
    costs = found_by("switch.py", "--repetitions", options.repetitions)
    command = "python benches/techniques/bench.py " + " ".join(sys.argv[1:])
    text = f"""# The techniques measured

*How long does a step take beside plain torch, and what does a move between techniques cost?*

`{command}` ({time.perf_counter() - begun:.0f} s), on {os.cpu_count()} cores with a load of
{load:.1f} from other work when it began. If that load is not near 0, seconds mean little, ratios
more.

## A step, beside plain torch

A Llama of 5M parameters with AdamW, batches of 8 sequences of 64 tokens. *By hand* is the code
that one would write for this model alone ([by_hand.py](../../benches/techniques/by_hand.py)). Both
sides live in the same ranks and take turns, three steps at a time. A ratio is Saturn's time over
that by hand: the median over {options.pairs} pairs, and the middle half of them. The ratio of CPU
time, summed over the ranks, is less disturbed by other processes, and leaves out waiting for
another rank. The goal is 1.02. `offload` has no counterpart in plain torch. Techniques that need
more ranks than there are cores are left out.

{table([steps[0], *(row.values() for row in steps)])}

## A switch

A GPT-2 of 50M parameters with AdamW (0.6 GB of state) moves from gang to gang. Times are medians
of {options.repetitions}, in seconds, from the last step of the old gang to the end of the first
step of the new gang. `save` blocks the old gang, `end` is until its last rank has gone. The new
gang is launched, builds the model and its technique, loads the checkpoint, fetches data and takes
a first step. The goal is 3 s in all, 0.3 s for the launch.

{switches(costs)}
"""
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
