"""Runs the nightly tests: parts of at most 45 minutes on two cores, each of which may run alone.

    .venv/bin/python scripts/nightly.py [PART …]
    .venv/bin/python scripts/nightly.py --list

Without a name all parts run, in about three and a half hours; with names it is what
`make test-nightly PARTS="kills busy"` runs. A part that fails stops no other. Each prints how long
it took, and the end is a table; the exit code is 1 if a part failed. The parts don't repeat what
`make test` runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date

from setup import ROOT, build_environment

PYTEST = [
    *(sys.executable, "-m", "pytest", "--nightly", "--durations=10"),
    *("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
]
#: Files whose tests wait for real processes, and have limits of time.
WAITING = [
    *("background_saves", "black_box", "checkpoint_kills", "checkpoints", "cluster_faults"),
    *("cluster_saves", "device_memory", "failures", "full_disk", "gpu_failures", "live_control"),
    *("live_face", "notebook", "object_store", "pairs_run", "peer_watch", "random_kills"),
    *("replanning", "scripts", "signs_of_life", "survival", "told_at_once", "trainer_ends"),
    *("trial", "until", "warm_parent"),
]
OLDEST_TORCH = "2.11.0"
#: The last release of each version between the oldest torch and the newest.
TORCHES_BETWEEN = ("2.12.1", "2.13.0", "2.14.1")


@dataclass(frozen=True)
class Part:
    """Commands that run one after the other, as long as none fails."""

    name: str
    #: What no other part, nor `make test`, shows.
    shows: str
    #: About how long it takes on two cores.
    minutes: int
    commands: tuple[tuple[str, ...], ...]


def torch_of(day: date) -> str:
    """The version that the part `torch` takes: every second day the oldest.

    The oldest differs most, and has fake GPUs, which those between it and the newest don't have.
    """
    turn, is_between = divmod(day.toordinal(), 2)
    return TORCHES_BETWEEN[turn % len(TORCHES_BETWEEN)] if is_between else OLDEST_TORCH


def files(names: list[str]) -> list[str]:
    """Paths of files of Python tests."""
    return [f"tests/python/test_{name}.py" for name in names]


def with_variables(*variables: str) -> tuple[str, ...]:
    """The beginning of a command that runs with these variables."""
    return ("env", *variables)


CARGO = ("cargo", "test", "--release", "--workspace")
PYTHON = (sys.executable,)
MATRIX = "scripts/numerics_matrix.py"
TORCH = torch_of(date.today())

PARTS = (
    Part(
        "rust",
        "compared with `make test`: three times as many simulated runs, four times as many "
        "replays, ten times as many random problems for the solver and four times as many for the "
        "policies; 5,000 cases of each property; each operation on a run's files fails once; half "
        "of the tables of `docs/evaluation`",
        16,
        (
            (
                *with_variables("PROMISES_NUM=300", "REPLAY_NUM=40"),
                *(*CARGO, "--test", "simulations", "--", "promises", "replay"),
            ),
            (*with_variables("SATURN_TEST_CASES=4"), *CARGO, "--test", "simulations"),
            (*with_variables("SATURN_TEST_CASES=10"), *CARGO, "--test", "plans"),
            (
                *with_variables("PROPTEST_CASES=5000", "SATURN_TEST_OPERATIONS=all"),
                *(*CARGO, "--lib", "--test", "all", "--"),
                *("fuzz", "records", "properties", "conditioned", "durability"),
            ),
            # `errors` takes a quarter of an hour; it is made by `make evaluate` alone.
            (
                *(*PYTHON, "benches/evaluation/tables.py", "--check", "printed", "fastest"),
                *(
                    "habit",
                    "columns",
                    "peak",
                    "numbers",
                    "lengths",
                    "perfect",
                    "verdict",
                    "policies",
                    "ends",
                    "parts",
                ),
            ),
        ),
    ),
    Part(
        "python",
        "the slow Python tests",
        25,
        ((*PYTEST, "-m", "slow"),),
    ),
    Part(
        "gpus",
        "the demo on eight fake GPUs, `make gpu-check` on one and on four, and 40 chains of "
        "techniques there",
        35,
        (
            ("make", "demo-fake-gpus"),
            ("make", "gpu-check-fake"),
            ("make", "gpu-check-fake", "GPUS=4"),
            (
                *with_variables("SATURN_GPU_CHAIN_SEEDS=40"),
                *(*PYTEST, *files(["gpu_training"])),
            ),
        ),
    ),
    Part(
        "kills",
        "a hundred kills of a run's processes, at random moments",
        11,
        ((*with_variables("SATURN_TEST_KILLS=100"), *PYTEST, *files(["random_kills"])),),
    ),
    Part(
        "numerics",
        "the quick tests of numbers under each instruction set, mode of MKL, number of threads and "
        "size of pages",
        25,
        ((*PYTHON, MATRIX, "--quick"),),
    ),
    Part(
        "numerics-of-today",
        "the slow numerical tests under one of these settings (a different setting each day), and "
        "tests of `torch.compile` with its default back end",
        15,
        (
            (*PYTHON, MATRIX, "--only", "today"),
            (*with_variables("SATURN_TEST_INDUCTOR=1"), *PYTEST, *files(["compile"])),
        ),
    ),
    Part(
        "busy",
        "tests of processes that have limits of time, while other programs keep every core busy, "
        "with more threads than cores",
        29,
        (
            (
                *(*PYTHON, "scripts/busy.py"),
                *with_variables("ATEN_CPU_CAPABILITY=avx2", "OMP_NUM_THREADS=4"),
                *(*PYTEST, *files(WAITING)),
            ),
        ),
    ),
    Part(
        "torch",
        f"Python tests of numbers and more, with torch {OLDEST_TORCH} every second day, and GPU "
        f"paths there; on the days between with {', '.join(TORCHES_BETWEEN)}, one after the other",
        22,
        (
            ("make", "test-torch", f"TORCH={TORCH}"),
            (
                *(*PYTHON, "scripts/with_torch.py", TORCH, MATRIX),
                *("--quick", "--only", "as it is+plain"),
            ),
        ),
    ),
    Part("loggers", "the trackers' own packages", 4, (("make", "test-loggers"),)),
    Part("fuzz", "10,000 simulated runs with faults", 6, (("make", "fuzz"),)),
    Part(
        "readers",
        "a minute of fuzzing for every reader of files and messages",
        12,
        (("make", "fuzz-readers", "FUZZ_S=60"),),
    ),
    Part(
        "zoo",
        "half of the 78 architectures under every technique; the other half on the next day",
        10,
        (("make", "zoo", "ZOO=today"),),
    ),
)


def table() -> str:
    """Which parts there are, as Markdown."""
    rows = [f"| `{part.name}` | {part.shows} | {part.minutes} |" for part in PARTS]
    return "\n".join(["| part | what it shows | minutes, about |", "|---|---|---|", *rows])


def run(part: Part) -> bool:
    """Whether all of its commands ended well."""
    environment = build_environment()
    for command in part.commands:
        print(f"$ {' '.join(command)}", flush=True)
        if subprocess.call(command, cwd=ROOT, env=environment):
            return False
    return True


def main() -> int:
    """1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    known = {part.name: part for part in PARTS}
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--list", action="store_true", help="print the table of parts")
    given = parser.parse_args()
    if given.list:
        print(table())
        return 0
    if unknown := sorted(set(given.parts) - set(known)):
        parser.error(f"no part is named {unknown}; there are {list(known)}")
    rows = []
    all_passed = True
    for name in given.parts or known:
        began = time.monotonic()
        print(f"\n=== {name}: {known[name].shows}", flush=True)
        has_passed = run(known[name])
        all_passed = all_passed and has_passed
        minutes = (time.monotonic() - began) / 60
        result = "passed" if has_passed else "FAILED"
        print(f"=== {name}: {result} in {minutes:.1f} minutes", flush=True)
        rows.append(f"| {name} | {result} | {minutes:.1f} | {known[name].minutes} |")
    print("\n| part | result | minutes | about |\n|---|---|---|---|")
    print("\n".join(rows))
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
