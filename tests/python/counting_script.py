"""A script that trains nothing: it counts steps, reports them, and saves and stops when asked.

Run as `python counting_script.py --help` says. Without torch, so that it starts at once.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import saturn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--step_s", type=float, default=0.01)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--checkpoints", type=Path)
parser.add_argument("--resume_from_checkpoint", type=Path)
parser.add_argument("--meet", type=Path, help="where ranks wait for each other, once a step")
parser.add_argument("--odd", default="", help="what it does that it should not, and at which step")
args = parser.parse_args()
odd, _, at = args.odd.partition("@")
rank = int(os.environ["RANK"])
by_term = []
if odd == "term":
    signal.signal(signal.SIGTERM, lambda number, frame: by_term.append(number))

first = 0
if args.resume_from_checkpoint and odd != "anew":
    first = json.loads((args.resume_from_checkpoint / "state.json").read_text())["step"]
print(
    "environment",
    *(os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")),
    len(os.sched_getaffinity(0)),
    flush=True,
)
if odd == "silent":
    time.sleep(60)
if odd == "wordless":
    sys.exit(0)
for step in range(first + 1, args.steps + 1):
    time.sleep(args.step_s)
    if args.meet:
        (args.meet / f"{step}-{rank}").touch()
        while len(list(args.meet.glob(f"{step}-*"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.002)
    here = at and step == int(at)
    if odd == "exit" and here:
        sys.exit(0)
    if odd == "crash" and here:
        raise ValueError(f"a bad batch at step {step}")
    if odd == "memory" and here:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    if odd == "hog" and here:
        held = bytearray(8 << 30)
    told = 1 if odd == "backwards" and here else step
    loss = float("nan") if odd == "nan" and here else args.lr / step
    if odd == "line" and here:
        with Path(os.environ["SATURN_REPORT"]).open("a") as file:
            file.write("step 3 of 20\n")
    length = {"total_steps": args.steps} if odd == "length" else {}
    stop = saturn.report(told, None if odd == "lossless" else loss, accuracy=0.5, **length)
    if odd == "term":
        stop = bool(by_term)
    if odd == "deaf":
        stop = False
    if stop and args.checkpoints:
        path = args.checkpoints / f"step-{step}"
        if rank == 0:
            path.mkdir(parents=True)
            (path / "state.json").write_text(json.dumps({"step": step}))
        saturn.report(step, checkpoint=path)
    if stop:
        print("stopped at", step, flush=True)
        break
