"""Has the simulator's seeds judge mutants. Most mutants are killed after a few seeds.

Each seed runs alone and unmutated once, which tells its seconds and the functions that it reaches.
A mutant then meets the seeds that reach its function, the likeliest killers first: those that have
killed mutants of the same function, those that have killed others, and cheap ones.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from setup import build_environment

#: A program that takes so many times its own processor time is stopped, and has noticed the mutant.
TIMES = 5
#: At the least, seconds: short runs vary.
LEAST_S = 2
MEMORY_KB = 6_000_000
#: How many seeds each process in turn tries at most. The first processes try few seeds, since most
#: mutants are killed by one of the first seeds.
PARTS = (10, 40, 150, 800)


@dataclass
class Seeds:
    """The seeds, what is known of each, and what they have killed."""

    program: str
    #: Seconds of processor time, unmutated.
    seconds: dict[int, float] = field(default_factory=dict)
    #: Seeds that reach a function.
    reaching: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    kills: Counter[int] = field(default_factory=Counter)
    kills_of: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def measured(cls, program: str, num: int, kept: Path, jobs: int) -> Seeds:
        """Runs each of the first seeds alone, or reads from `kept` what that has told."""
        found = cls(program)
        known = json.loads(kept.read_text()) if kept.exists() else {}

        def look(seed: int) -> None:
            reached = kept.with_name(f"reached-{seed}")
            reached.unlink(missing_ok=True)
            code, taken_s, said = call([program, "--seeds", f"{seed}..{seed + 1}"], 0, 600, reached)
            if code:
                raise SystemExit(f"seed {seed} fails unmutated: {said}")
            known[str(seed)] = (taken_s, sorted(map(int, reached.read_text().split())))
            reached.unlink()

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(look, [seed for seed in range(num) if str(seed) not in known]))
        kept.write_text(json.dumps(known))
        for seed, (taken_s, functions) in known.items():
            if int(seed) < num:
                found.seconds[int(seed)] = taken_s
                for function in functions:
                    found.reaching[function].add(int(seed))
        return found

    def remember(self, killers: Mapping[int, list[int]]) -> None:
        """Takes in the seeds that have killed mutants of each function in earlier campaigns."""
        for function, seeds in killers.items():
            self.kills.update(seeds)
            self.kills_of[function].update(seeds)

    def fate(self, mutant: int, function: int) -> tuple[str, str]:
        """What became of a mutant, and the seed that told."""
        with self.lock:
            left = sorted(self.reaching[function], key=lambda seed: self._price_s(seed, function))
        for size in PARTS:
            part, left = left[:size], left[size:]
            if not part:
                break
            limit_s = LEAST_S + round(TIMES * sum(self.seconds[seed] for seed in part))
            wanted = ",".join(map(str, part))
            code, _, said = call([self.program, "--until-broken", wanted], mutant, limit_s)
            if code:
                # Seeds are named before they run: a program that never ends has named its last.
                last = re.findall(r"^seed (\d+)$", said, re.MULTILINE)
                if last:
                    with self.lock:
                        self.kills[int(last[-1])] += 1
                        self.kills_of[function][int(last[-1])] += 1
                by = f"seed {last[-1]}" if last else "seeds"
                return ("time-out" if code in (-1, -9, -24) else "killed"), by
        return "survived", ""

    def _price_s(self, seed: int, function: int) -> float:
        """Seconds that a kill by this seed may cost: an order, no more."""
        hope = 1 + 20 * self.kills_of[function][seed] + self.kills[seed]
        return (self.seconds[seed] + 0.01) / hope


def call(
    command: list[str], mutant: int, limit_s: int, reached: Path | None = None
) -> tuple[int, float, str]:
    """The exit code, seconds of processor time, and what was said.

    The code is negative where a signal ended the program, as the limit of processor time does.
    """
    environment = build_environment() | {"SATURN_MUTANT": str(mutant), "RUST_BACKTRACE": "0"}
    if reached:
        environment["SATURN_MUTANT_REACHED"] = str(reached)
    limits = f'ulimit -t {limit_s} && ulimit -v {MEMORY_KB} && exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", limits, "sh", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime, said
