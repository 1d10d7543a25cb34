"""`make gpu-check`: what only real GPUs can show, in under ten minutes, into one folder.

    python tests/python/gpu_check.py [--out gpu-check] [--only PART,…] [--techniques T,…] [--small]

Parts: the same training under every technique (on one GPU several ranks share it, over gloo where
that can do what a technique needs; on more, over NCCL), memory that runs out, what contexts and
pinning take, the lines of `gpu_lines`, a step beside plain torch, a switch, and the demo with its
profile. Each writes a file; `report.md` sums them up, and the program ends with 1 where a part
fails. It runs on fake GPUs too (`tests/fake_gpu`), where `--small` keeps models small; times mean
nothing there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parents[1]
sys.path[:0] = [str(REPOSITORY / "python"), str(TESTS), str(TESTS.parent)]

import memory_models  # noqa: E402
import model_kinds  # noqa: E402
import torch  # noqa: E402
from gpu_lines import LINES, context_bytes, facts  # noqa: E402
from gpu_machine import MB, Machine, ranks_on  # noqa: E402
from random_chains import (  # noqa: E402
    OPTIMIZERS,
    Chain,
    Move,
    Strategy,
    covering,
    departures,
    strategies_of,
)
from saturn.techniques import BUILT_IN  # noqa: E402

#: Most ulps from plain torch on a CPU, in float32: kernels add in other orders.
TOLERANCE = 1024.0


def same_training(machine: Machine) -> dict[str, Any]:
    """Every technique, at every width and with every knob, beside plain torch on a CPU."""
    rows = []
    with ranks_on(machine) as run:
        for technique in machine.techniques:
            if (reason := machine.reason_against(technique)) is not None:
                print(f"  {technique} with several ranks is refused: {reason}", flush=True)
                rows.append({"technique": technique, "refused": reason})
            offered = covering(
                strategies_of(technique, model_kinds.DIVISIBLE(), "cuda", machine.widths(technique))
            )
            if not offered:
                if reason is None:
                    rows.append({"technique": technique, "left_out": "it needs more GPUs"})
                continue
            cpu = Strategy("ddp", 1)  # a move to a CPU and back loses nothing either
            moves = tuple(Move(one, 2 * (n + 1)) for n, one in enumerate([*offered, cpu]))
            task = model_kinds.task_of(
                *("llama", technique),
                get_model=model_kinds.DIVISIBLE,
                optimizer_cls=OPTIMIZERS["adamw"][0],
                batch_size=7,
                batch_count=moves[-1].until,
                max_grad_norm=1.0,
            )
            losses, weights, _ = departures(run, Chain(0, "llama", 7, {}, task, moves, None))
            rows.append({"technique": technique, "moves": len(moves), "losses": losses})
            rows[-1]["weights"] = weights
            print(f"  {rows[-1]}", flush=True)
            if max(losses, weights) > TOLERANCE:
                raise AssertionError(f"{technique} trains otherwise: {rows[-1]}")
    return {"tolerance": TOLERANCE, "rows": rows}


def out_of_memory(machine: Machine) -> dict[str, Any]:
    """A limit that training breaks is told as that, and one that it keeps is kept."""
    found = {}
    context = context_bytes(machine)
    with ranks_on(machine) as run:
        # 42 MB of weights: 168 MB with gradients and AdamW's state.
        run.write_task(memory_models.task())
        for technique, limit, expected in (
            ("ddp", 100 * MB, "out_of_memory"),
            ("ddp", 600 * MB, "measured"),
            # It holds 71 MB, and the allocator of a real GPU 21 MB in blocks that are not used.
            ("ddp", 140 * MB, "out_of_memory"),
            ("offload", 140 * MB, "measured"),
        ):
            options = {"kind": "trial", "device_memory_bytes": limit + context}
            result = run.run("deep", technique, **options)
            outcome = result.one("trial")["outcome"]
            found[f"{technique} in {limit // MB} MB"] = outcome
            if outcome["outcome"] != expected:
                raise AssertionError(f"{technique} in {limit} bytes: {outcome}\n{result.logs}")
    return found


def host_and_memory(machine: Machine) -> dict[str, Any]:
    """What a context takes beside torch's memory, what pinning takes, and the cores near a GPU."""
    found = facts(machine)
    is_rounded = found["pinned_taken_bytes"] != found["pinned_asked_bytes"]
    if found["can_keep_pinned_sizes"] and is_rounded:
        raise AssertionError(f"pinned memory is rounded: {found}")
    near = found["cores_that_the_kernel_calls_local"]
    if near and found["cores_near_the_gpu"] != near:
        raise AssertionError(f"a rank is not on the cores of its GPU's NUMA node: {found}")
    return found


def step_time(machine: Machine) -> dict[str, Any]:
    """Saturn's step beside plain torch's."""
    return _found_by(machine, "gpu_step_time.py", *(["--small"] if machine.small else []))


def switch(machine: Machine) -> dict[str, Any]:
    """What a switch costs, part by part."""
    uuids = ",".join(machine.uuids)
    return _found_by(machine, "switch.py", "--repetitions", "1", "--gpus", uuids)


def _found_by(machine: Machine, program: str, *arguments: str) -> dict[str, Any]:
    path = machine.out / f"{Path(program).stem}-found.json"
    bench = REPOSITORY / "benches" / "techniques" / program
    subprocess.run([sys.executable, bench, *arguments, "--out", path], check=True)
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return found


def demo(machine: Machine) -> dict[str, Any]:
    """The short demo, from nothing; its profile is kept."""
    # The largest models can't be split on one GPU. Communicators may take as much as a context.
    context = context_bytes(machine)
    limit = 300 * MB + context if machine.shares else 200 * MB + 2 * context
    sweep = [sys.executable, REPOSITORY / "examples" / "sweep.py", "--short", "--name", "demo"]
    sweep += ["--device-memory", str(limit)]
    environment = {**os.environ, "SATURN_HOME": str(machine.out / "home")}
    began = time.monotonic()
    with (machine.out / "demo.log").open("w") as log:
        ended = subprocess.run(
            sweep, cwd=machine.out, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    if ended.returncode:
        raise AssertionError((machine.out / "demo.log").read_text()[-3000:])
    (run,) = machine.out.glob("saturn_runs/demo")
    report = json.loads((run / "report.json").read_text())
    (machine.out / "profile.json").write_text((run / "profile.json").read_text())
    tasks = {task["name"]: task["status"] for task in report["tasks"]}
    techniques = sorted({f"{task['technique']} x {task['gpus']}" for task in report["tasks"]})
    return {
        "wall_s": time.monotonic() - began,
        "device_memory_bytes": report["device_memory_bytes"],
        "techniques": techniques,
        "tasks": tasks,
    }


PARTS: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "same-training": same_training,
    "out-of-memory": out_of_memory,
    "host-and-memory": host_and_memory,
    **LINES,
    "step-time": step_time,
    "switch": switch,
    "demo": demo,
}


def versions() -> dict[str, Any]:
    """What the findings hold for."""
    query = ["nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total", "--format=csv"]
    commit = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "saturn": _said(commit),
        "gpus": _said(query),
        "cores": os.cpu_count(),
    }


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{command[0]}: {error}"


def gpus() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(UUIDs, names); asked for in a process of its own, since CUDA doesn't survive a fork."""
    ask = (
        "import json, torch; "
        "each = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]; "
        "print(json.dumps([[f'GPU-{one.uuid}' for one in each], [one.name for one in each]]))"
    )
    uuids, names = json.loads(_said([sys.executable, "-c", ask]).splitlines()[-1])
    return tuple(uuids), tuple(names)


def report(machine: Machine, found: dict[str, Any], failures: dict[str, str]) -> str:
    """The page."""
    lines = [
        "# GPU check",
        "",
        f"{len(machine.uuids)} x {machine.names[0]}, torch {torch.__version__}; "
        "`python tests/python/gpu_check.py`.",
        "",
    ]
    for part in found:
        lines += [f"## {part}: " + ("**failed**" if part in failures else "ok"), ""]
        body = failures.get(part) or json.dumps(found[part], indent=1)
        lines += ["```", body.strip(), "```", ""]
    return "\n".join(lines)


def main() -> int:
    """Run the parts; 1 where one fails, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by commas")
    parser.add_argument("--techniques", default=",".join(BUILT_IN), help="of `same-training`")
    parser.add_argument("--small", action="store_true", help="small models, for fake GPUs")
    options = parser.parse_args()
    parts = options.only.split(",")
    for part in parts:
        if part not in PARTS:
            parser.error(f"no part `{part}`; there are {', '.join(PARTS)}")
    uuids, names = gpus()
    if not uuids:
        print("gpu-check: torch finds no GPU on this machine", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    techniques = tuple(options.techniques.split(","))
    if unknown := sorted(set(techniques) - set(BUILT_IN)):
        parser.error(f"no technique {unknown}; there are {', '.join(BUILT_IN)}")
    machine = Machine(uuids, names, options.out.resolve(), options.small, techniques)
    (machine.out / "versions.json").write_text(json.dumps(versions(), indent=1))
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for part in parts:
        began = time.monotonic()
        print(f"{part} …", flush=True)
        try:
            found[part] = PARTS[part](machine)
        except Exception:
            failures[part] = traceback.format_exc()
            found[part] = {"failed": failures[part]}
            print(failures[part], flush=True)
        (machine.out / f"{part}.json").write_text(json.dumps(found[part], indent=1))
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
    (machine.out / "report.md").write_text(report(machine, found, failures))
    print(f"{machine.out / 'report.md'}: " + ("failed" if failures else "all is well"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
