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
change elsewhere leaves the sample as it is. The copy and its build stay in `target/mutants`.

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
import shutil
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
from schemata import SWITCH, Mutant, listed, weave
from setup import ROOT, build_environment

#: Two campaigns at the same time need two folders.
WORK = Path(os.environ.get("SATURN_MUTANTS_FOLDER", ROOT / "target" / "mutants"))
TREE = WORK / "tree"
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


def copy_checkout(crate: str) -> None:
    """Brings the copy up to date, but for the crate's own source, which `write` writes.

    What did not change keeps its time, and so its build.
    """
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = {name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()}
    for old in [*(TREE / "crates").rglob("*.rs")]:
        if str(old.relative_to(TREE)) not in names and old.name != "mutant_switch.rs":
            old.unlink()
    for name in (one for one in names if not one.startswith(f"crates/{crate}/src/")):
        put(TREE / name, (ROOT / name).read_bytes())
    if not (TREE / "target").exists():
        # HiGHS and SQLite are built there already.
        (TREE / "target" / "release").mkdir(parents=True)
        for part in ("build", "deps", ".fingerprint"):
            shutil.copytree(
                ROOT / "target" / "release" / part,
                TREE / "target" / "release" / part,
                symlinks=True,
            )


def put(path: Path, content: bytes) -> None:
    """Writes a file if that changes it."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def compiled(
    crate: str, found: list[Mutant], most: int
) -> tuple[dict[int, Mutant], dict[int, int]]:
    """Those of the sample that compile together, by their numbers, and the function of each.

    The copy holds them afterwards.
    """
    # Some will not compile; the sample is the first `most` of those that do.
    pool = dict(enumerate(found[: most + most // 4 + 5], start=1))
    # Told again only when something of it has changed.
    text = "".join(path.read_text() for path in sources(crate))
    text += "".join(one.key for one in pool.values())
    stamp = WORK / f"refused-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if stamp.exists():
        bad = set(json.loads(stamp.read_text()))
    else:
        bad = all_refused(crate, pool)
        stamp.write_text(json.dumps(sorted(bad)))
    good = [number for number in pool if number not in bad]
    pool = {number: pool[number] for number in good[:most]}
    functions, _ = write(crate, pool)
    return pool, functions


def all_refused(crate: str, pool: dict[int, Mutant]) -> set[int]:
    """The mutants that do not compile: of what is left without them, rustc says more."""
    bad: set[int] = set()
    while True:
        _, places = write(crate, {number: pool[number] for number in pool if number not in bad})
        more = refused(crate, places)
        print(f"{len(more)} mutants do not compile", flush=True)
        if not more:
            return bad
        bad |= more


def sources(crate: str) -> list[Path]:
    """The crate's source in the checkout."""
    return sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))


@dataclass(frozen=True)
class Place:
    """Lines of a written file that belong to these mutants."""

    file: str
    first: int
    last: int
    numbers: tuple[int, ...]


def write(crate: str, mutants: dict[int, Mutant]) -> tuple[dict[int, int], list[Place]]:
    """Writes the crate with its mutants into the copy, narrow places first."""
    by_file: dict[str, dict[int, Mutant]] = defaultdict(dict)
    for number, one in mutants.items():
        by_file[one.file][number] = one
    functions: dict[int, int] = {}
    places: list[Place] = []
    num_functions = 0
    source = Path("crates") / crate / "src"
    for path in sources(crate):
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        woven, spots, own = weave(text, by_file[name], num_functions)
        num_functions += len(set(own.values()))
        functions |= own
        places += [Place(name, *spot) for spot in spots]
        if path == ROOT / source / "lib.rs":
            # `1 - 2` in a mutant is found when it runs.
            allowed = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]"
            woven = f"{allowed} {woven}\nmod mutant_switch;\n"
        put(TREE / name, woven.encode())
    put(TREE / source / "mutant_switch.rs", SWITCH.format(num=max(1, num_functions)).encode())
    return functions, sorted(places, key=lambda one: one.last - one.first)


def cargo(*arguments: str) -> Iterator[dict[str, object]]:
    """What cargo says in the copy, message by message."""
    said = subprocess.run(
        ["cargo", *arguments, "--message-format", "json"],
        cwd=TREE,
        env=build_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    yield from map(json.loads, said.stdout.splitlines())


def refused(crate: str, places: list[Place]) -> set[int]:
    """The mutants in whose lines rustc finds errors."""
    bad: set[int] = set()
    for one in cargo("check", "--release", "--workspace", "--lib"):
        message = one.get("message")
        if not isinstance(message, dict) or message["level"] != "error" or not message["spans"]:
            continue
        spans = [span for span in message["spans"] if span["is_primary"]]
        hit = [place.numbers for span in spans for place in places if is_at(place, span)]
        if not hit:
            raise SystemExit(message["rendered"])
        bad.update(hit[0])
    return bad


def is_at(place: Place, span: dict[str, object]) -> bool:
    """Whether an error's span lies in these lines."""
    first, last = span["line_start"], span["line_end"]
    assert isinstance(first, int) and isinstance(last, int)
    return place.file == span["file_name"] and place.first <= first and last <= place.last


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
