"""Measures how many mutants of a crate its tests kill, with one build for all of them.

    python3 scripts/mutants.py saturn-engine [--sample 300] [--by seeds] [--again survivors]
    python3 scripts/mutants.py page

A mutant is a small wrong change: a function that returns a default value, `<` in place of `<=`, a
condition that is always true. cargo-mutants would build the crate once for each. Here one program
holds them all (`schemata.py`), and `SATURN_MUTANT=17` chooses one when it runs. Mutants that do not
compile are left out: rustc names their lines. Each test runs alone and unmutated first, which tells
how long it takes and which functions it reaches. Then each mutant meets the tests that reach it,
until the first that fails. A test that takes five times its processor time has noticed the mutant.
Tests that are likely to kill for little time come first, so `--most-s 60`, which ends after tests
of 60 seconds, misses few kills.

The sample is the mutants with the smallest digests of file, function, change and line, so that a
change elsewhere leaves the sample as it is. The copy and its build are `mutant_tree.py`.

Each outcome is kept in `tests/mutants` once it is known, in the order of the digests. A run that
was cut goes on from there, and a smaller sample is the beginning of a larger one. `--again` forgets
the survivors, which new tests may kill, or all outcomes. `page` writes docs/mutants.md. With
`--by seeds` only the simulator judges, seed by seed (`mutant_seeds.py`). With `--by nightly` the
survivors of the quick gate meet its tests with more random cases, as at night.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mutants_rust_page
from mutant_outcomes import Outcome, is_killed, outcomes, tell, to_keep
from mutant_seeds import LEAST_S, MEMORY_KB, TIMES, Seeds
from mutant_tree import WORK, cargo, compiled, copy_checkout
from schemata import Mutant, listed
from setup import ROOT, build_environment

#: What became of each mutant that was tried.
OUTCOMES = ROOT / "tests" / "mutants"
#: How many of the simulator's seeds may be tried.
SEEDS = (10, 30, 100, 300, 1000)
#: With `--by nightly`, tests draw so many times as many random cases. The nightly form draws 40
#: times as many, which would take a day here; the gate did two to three times as many before it was
#: made quick.
NIGHTLY_TIMES = 3
#: What `--by seeds` mutates: the engine's files that decide when something fails, waits or is full.
DECIDING = re.compile(r"/health/|host_memory|judgement|queues|order\.rs|dispatch")

# The forms of the quick gate (`make test-rust`): other flags would build all dependencies anew.
WAITING = ["test", "--no-run", "--profile", "bench", "--workspace", "--lib", "--test", "all"]
COMPUTING = ["test", "--no-run", "--release", "--workspace"]
#: Of each crate: the test programs (crate, name) that the gate runs because of it.
PROGRAMS = {
    "saturn-core": [("saturn-core", "lib"), ("saturn-core", "all"), ("saturn-engine", "all")],
    # The simulator's seeds come as well.
    "saturn-engine": [("saturn-engine", "lib"), ("saturn-engine", "all")],
    "saturn-solver": [("saturn-solver", "lib"), ("saturn-solver", "plans")],
}


@dataclass
class Test:
    """One test that can run alone, and what its unmutated run showed."""

    name: str
    command: list[str]
    folder: Path
    seconds: float = 0.0
    reached: set[int] = field(default_factory=set)
    kills: int = 0
    runs: int = 0

    def price_s(self) -> float:
        """Seconds until it kills a mutant, as far as is known."""
        return (self.seconds + 0.02) * (self.runs + 2) / (self.kills + 1)


def main() -> int:
    """Measures, and prints a row of a table and the survivors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("crate", choices=[*PROGRAMS, "page"])
    parser.add_argument("--sample", type=int, default=300, help="mutants that compile, at most")
    parser.add_argument(
        "--by",
        choices=["tests", "own", "seeds", "nightly"],
        default="tests",
        help="the quick gate's tests of the crate, the crate's own among them, the simulator, or "
        "the quick gate's tests with more cases",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        choices=SEEDS,
        default=SEEDS[-1],
        help="how many of the simulator's seeds are tried; a later run tries more on survivors",
    )
    parser.add_argument(
        "--most-s",
        type=int,
        help="a mutant survives if tests of so many seconds of processor time don't kill it",
    )
    parser.add_argument("--again", choices=["nothing", "survivors", "all"], default="nothing")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.crate == "page":
        mutants_rust_page.write(OUTCOMES, ROOT / "docs" / "mutants.md")
        return 0
    copy_checkout(options.crate)
    wanted = DECIDING if options.by == "seeds" else re.compile("")
    found = [one for one in listed(options.crate) if wanted.search(one.file)]
    mutants, functions = compiled(options.crate, found, options.sample)
    if options.by == "nightly":
        os.environ["SATURN_TEST_CASES"] = str(NIGHTLY_TIMES)
        quick = outcomes(OUTCOMES / f"{options.crate}-tests.jsonl")
        left = {key for key, one in quick.items() if not is_killed(one)}
        mutants = {number: one for number, one in mutants.items() if one.key in left}
    own = outcomes(OUTCOMES / f"{options.crate}-own.jsonl")
    meets_seeds = options.by == "seeds" or (options.by, options.crate) == ("tests", "saturn-engine")
    tests: list[Test] = []
    # Mutants of the engine that have met its own tests need only meet the seeds.
    has_met_own = meets_seeds and all(one.key in own for one in mutants.values())
    if options.by != "seeds" and not has_met_own:
        tests += programs(options.crate, is_own=options.by == "own")
    judges = seeds(options.seeds, options.jobs) if meets_seeds else None
    tests = [test for test in tests if runs_unmutated(test)]
    kept = OUTCOMES / f"{options.crate}-{options.by}.jsonl"
    before = outcomes(kept)
    known = to_keep(before, options.again, options.seeds)
    sampled = {one.key for one in mutants.values()}
    if options.by == "tests":
        # The crate's own tests are among them: what those kill is killed.
        known |= {key: own[key] for key in sampled & own.keys() if is_killed(own[key])}
    open_ones = [number for number, one in mutants.items() if one.key not in known]
    print(f"{len(mutants)} mutants, {len(open_ones)} to run, {len(tests)} tests", flush=True)
    if judges:
        judges.remember(killers(before, mutants, functions))
    OUTCOMES.mkdir(exist_ok=True)
    # What is asked again stays until it is answered.
    lines = sorted(((before if options.again != "all" else {}) | known).items())
    kept.write_text("".join(json.dumps(one) + "\n" for _, one in lines))
    lock = threading.Lock()

    def meet(number: int) -> None:
        began = time.monotonic()
        outcome, by = fate(number, functions[number], tests, options.most_s)
        if judges and outcome == "survived":
            outcome, by = judges.fate(number, functions[number])
        said: Outcome = {
            "key": mutants[number].key,
            "name": mutants[number].name,
            "outcome": outcome,
            "by": by,
            "seconds": round(time.monotonic() - began, 2),
        }
        if meets_seeds:
            said["seeds"] = options.seeds
        if outcome == "survived" and options.most_s is not None:
            said["most_s"] = options.most_s
        with lock, kept.open("a") as out:
            out.write(json.dumps(said) + "\n")

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for one in [pool.submit(meet, number) for number in sorted(open_ones)]:
            one.result()
    tell(options.crate, outcomes(kept), sampled)
    return 0


def programs(crate: str, *, is_own: bool) -> Iterator[Test]:
    """Each test of the gate's programs for this crate, or of the crate's own alone."""
    wanted = [one for one in PROGRAMS[crate] if one[0] == crate or not is_own]
    computing = [name for _, name in wanted if name not in ("lib", "all")]
    calls = [WAITING] if len(computing) < len(wanted) else []
    calls += [[*COMPUTING, "--test", name] for name in computing]
    for call in calls:
        for folder, target, program in built(call):
            name = "lib" if "lib" in target["kind"] else target["name"]
            if (folder.name, name) not in wanted:
                continue
            listing = [program, "--list", "--format", "terse"]
            said = subprocess.run(listing, cwd=folder, check=True, capture_output=True, text=True)
            for line in said.stdout.splitlines():
                if line.endswith(": test"):
                    test = line.removesuffix(": test")
                    alone = [program, "--exact", test, "--test-threads", "1"]
                    yield Test(f"{folder.name} {name} {test}", alone, folder)


def seeds(num: int, jobs: int) -> Seeds:
    """The simulator's first seeds, and what each reaches."""
    build = ["build", "--release", "--workspace", "--bin", "saturn-fuzz"]
    program = next(one[2] for one in built(build) if one[1]["name"] == "saturn-fuzz")
    digest = hashlib.sha256(Path(program).read_bytes()).hexdigest()[:16]
    return Seeds.measured(program, num, WORK / f"seeds-{digest}.json", jobs)


def killers(
    known: dict[str, Outcome], mutants: dict[int, Mutant], functions: dict[int, int]
) -> dict[int, list[int]]:
    """The seeds that have killed mutants of each function."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, one in mutants.items():
        by = known.get(one.key, {}).get("by", "")
        if by.startswith("seed "):
            found[functions[number]].append(int(by.removeprefix("seed ")))
    return found


def built(call: list[str]) -> list[tuple[Path, dict[str, str], str]]:
    """Builds; of each program its crate's folder, its target and its path."""
    messages = list(cargo(*call))
    if messages[-1].get("success") is not True:
        raise SystemExit(f"failed: cargo {' '.join(call)}")
    return [
        (Path(str(one["manifest_path"])).parent, one["target"], str(one["executable"]))
        for one in messages
        if one.get("executable") and isinstance(one["target"], dict)
    ]


def run(test: Test, mutant: int, limit_s: int, reached: Path | None = None) -> int:
    """The exit code; negative where a signal ended it, as the limit of processor time does."""
    environment = build_environment() | {
        "SATURN_MUTANT": str(mutant),
        "PROPTEST_RNG_SEED": "1",
        "PROPTEST_MAX_SHRINK_ITERS": "0",
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
        "INSTA_UPDATE": "no",
        "RUST_BACKTRACE": "0",
    }
    if reached:
        environment["SATURN_MUTANT_REACHED"] = str(reached)
    limits = f'ulimit -t {limit_s} && ulimit -v {MEMORY_KB} && exec "$@"'
    command = ["sh", "-c", limits, "sh", *test.command]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=test.folder, env=environment, stdout=quiet, stderr=quiet
    )
    try:
        return process.wait(timeout=60 + 20 * limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -1


def runs_unmutated(test: Test) -> bool:
    """Whether it passes; notes its seconds of processor time and the functions that it reaches."""
    reached = WORK / "reached"
    reached.unlink(missing_ok=True)
    before_s = processor_s()
    code = run(test, 0, 600, reached)
    test.seconds = processor_s() - before_s
    if reached.exists():
        test.reached = set(map(int, reached.read_text().split()))
    if code:
        print(f"left out, for it fails unmutated: {test.name}", flush=True)
    return code == 0


def processor_s() -> float:
    """Seconds of processor time that ended children took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fate(
    mutant: int, function: int, tests: Iterable[Test], most_s: float | None
) -> tuple[str, str]:
    """What became of a mutant, and the test that told."""
    left_s = math.inf if most_s is None else most_s
    for test in sorted((one for one in tests if function in one.reached), key=Test.price_s):
        if test.seconds > left_s:
            continue
        left_s -= test.seconds
        code = run(test, mutant, LEAST_S + round(TIMES * test.seconds))
        test.runs += 1
        if code:
            test.kills += 1
            # A program out of memory, or one that computes for ever, ends by a signal or aborts.
            return ("time-out" if code in (-1, -9, -24) else "killed"), test.name
    return "survived", ""


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
