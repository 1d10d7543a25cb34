"""What building a model once saves: host memory, and seconds to the first step.

usage: bench.py [--parameters N] [--repetitions N] [--out FILE]

Beside each figure stands the same where every rank calls `get_model` itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(REPOSITORY / "python"),
    str(REPOSITORY / "tests" / "python"),
    str(REPOSITORY / "benches" / "techniques"),
]

import cloudpickle  # type: ignore[import-untyped]  # noqa: E402
import switch  # noqa: E402
import torch  # noqa: E402
from harness import Runtime, runtime  # noqa: E402
from saturn.tasks.definition import TaskDefinition  # noqa: E402
from saturn.training import saved_build  # noqa: E402
from saturn.training.saved_build import Built  # noqa: E402
from saturn.training.stepper import build_model  # noqa: E402
from warm_parent import Warm  # noqa: E402

# Workers don't find it by its name.
cloudpickle.register_pickle_by_value(switch)

RANKS = (1, 2, 4)
WIDTH = 2048


def get_layers(parameters: int) -> torch.nn.Module:
    """A synthetic model of about so many parameters."""
    count = max(1, parameters // WIDTH**2)
    return torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count))


def definition(parameters: int) -> TaskDefinition:
    """A task of which only the model matters."""
    return TaskDefinition(
        name="synthetic",
        get_model=partial(get_layers, parameters),
        get_dataloader=list,
        loss_function=None,
        loss_weight=None,
        lr=1e-3,
        epochs=None,
        batch_count=1,
        optimizer_cls=None,
        kwargs={},
        hints={},
        seed=0,
    )


def pss_bytes() -> int:
    """This process's memory, each shared page divided among those that share it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def build(task_dir: Path, parameters: int) -> None:
    """Build and save, in a process of its own."""
    assert saved_build.build(task_dir, definition(parameters)).unsaved is None


def rank(task_dir: Path, parameters: int, maps: bool, line: Connection) -> None:
    """Have the model and read all of it; then say what memory that takes, while all others do."""
    task = definition(parameters)
    line.send("up")
    line.recv()  # all are: what they share of this program is shared by as many to the end
    before = pss_bytes()
    if maps:
        found = saved_build.read(task_dir, task.seed)
        assert isinstance(found, Built), found
        module = found.module
    else:
        module = build_model(task)
    total = sum(float(parameter.detach().sum()) for parameter in module.parameters())
    size = sum(parameter.nbytes for parameter in module.parameters())
    line.send(total)
    line.recv()
    line.send((pss_bytes() - before, size))
    line.recv()


def host_memory(parameters: int, maps: bool) -> list[float]:
    """Host memory of all ranks together over the model's size, for each number of ranks."""
    processes = multiprocessing.get_context("fork")  # nothing has been computed here
    found = []
    with tempfile.TemporaryDirectory(prefix="saturn-build-") as directory:
        task_dir = Path(directory)
        (task_dir / "task.pkl").touch()
        if maps:
            builder = processes.Process(target=build, args=(task_dir, parameters))
            builder.start()
            builder.join()
        for num_ranks in RANKS:
            lines, ranks = [], []
            for _ in range(num_ranks):
                line, theirs = processes.Pipe()
                ranks.append(
                    processes.Process(target=rank, args=(task_dir, parameters, maps, theirs))
                )
                ranks[-1].start()
                lines.append(line)
            answers: list[Any] = []
            for kind in ("begin", "measure", "end"):
                answers = [line.recv() for line in lines]
                for line in lines:
                    line.send(kind)
            for process in ranks:
                process.join()
            found.append(sum(taken for taken, _ in answers) / answers[0][1])
    return found


def forbid_saving(run: Runtime) -> None:
    """Have each rank build the model by itself."""
    task_dir = run.task_dir(switch.definition().name)
    scratch = task_dir / "build" / ".new-0"
    scratch.mkdir(parents=True)
    saved_build._commit(scratch, task_dir, {"unsaved": "it is measured without"})


def first_steps(repetitions: int, maps: bool) -> dict[str, list[float]]:
    """Seconds to the end of the first step, and those of them in which the model was built.

    From a first launch, and from the last step before a switch.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="saturn-build-") as directory:
        warm = Warm(Path(directory) / "workers.lock", preload="transformers:GPT2LMHeadModel")
        for number in range(repetitions):
            path = Path(directory) / str(number)
            path.mkdir()
            with runtime(path, warm) as run:
                run.write_task(switch.definition())
                if not maps:
                    forbid_saving(run)
                found.setdefault("cold, ddp x 2", []).append(cold(run))
                for name, parts in switch.measure(run, 1).items():
                    both = [(one["total_s"], one["build_s"]) for one in parts]
                    found.setdefault(name, []).extend(both)
        warm.close()
    return {
        name: [statistics.median(column) for column in zip(*both, strict=True)]
        for name, both in found.items()
    }


def cold(run: Runtime) -> tuple[float, float]:
    """Seconds from a first launch to the end of its first step, and those of its building."""
    launched = time.time()
    gang = run.launch(switch.definition().name, "ddp", ranks=2, steps=10**6)
    gang.wait_for("progress", step=1)
    gang.stop()
    result = gang.wait()
    assert not any(result.codes), result.logs
    seconds = switch.times(run)[1] - launched
    return seconds, result.one("started")["parts"]["build_s"]


def table(rows: Sequence[Iterable[str]]) -> str:
    """Rows, the first of them the header."""
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([lines[0], "|" + "---|" * (lines[0].count("|") - 1), *lines[1:]])


def main() -> None:
    """Print the page, and write it to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--parameters", type=int, default=200_000_000, help="of the synthetic model"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="of each first step")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun, load = time.perf_counter(), os.getloadavg()[0]
    memory = [host_memory(options.parameters, maps) for maps in (True, False)]
    print(f"host memory over model size: {memory}", file=sys.stderr)
    seconds = [first_steps(options.repetitions, maps) for maps in (True, False)]
    in_memory = [
        (str(ranks), f"{one:.2f}", f"{other:.2f}")
        for ranks, one, other in zip(RANKS, *memory, strict=True)
    ]
    in_seconds = [
        (name, f"{one:.2f} ({building:.2f})", "{:.2f} ({:.2f})".format(*seconds[1][name]))
        for name, (one, building) in seconds[0].items()
    ]
    header = ("built once", "built by each rank")
    command = "python benches/build/bench.py " + " ".join(sys.argv[1:])
    text = f"""# A model built once

*What does it save to build a model once for all ranks of a gang?*

`{command}` ({time.perf_counter() - begun:.0f} s), on {os.cpu_count()} cores with a load of
{load:.1f} from other work when it began. If that load is not near 0, seconds mean little.

## Host memory over model size

Host memory that all ranks of a gang hold together, for a synthetic model of
{options.parameters / 1e6:.0f}M parameters. The ranks have read the model, and have not yet moved
it to a device or written to it. Shared pages count once. The goal is 1.1.

{table([("ranks", *header), *in_memory])}

## Seconds to the first step

A GPT-2 of 50M parameters with AdamW (0.6 GB of state). The time ends with the first step. It
begins with the launch of the first attempt, whose rank 0 builds the model, or with the last step
before a switch, checkpoint included. In brackets, building alone. The goal is 2 s for a switch.

{table([("", *header), *in_seconds])}
"""
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
