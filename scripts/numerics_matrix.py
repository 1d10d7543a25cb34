"""Runs the tests of numbers under each setting that chooses kernels or the order of sums.

    .venv/bin/python scripts/numerics_matrix.py [--quick] [--only avx2+mkl-compatible] [ARGUMENT …]

Ends with a table of settings and results, and with 1 if a setting failed. `make test-numerics` runs
it; with the oldest torch it is `scripts/with_torch.py 2.11.0 scripts/numerics_matrix.py`. `--quick`
leaves out the tests that are marked `slow`, and `--only today` takes one setting, another each day.
Arguments after `--` go to pytest, in place of the files.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: What each setting adds to the environment, which else has none of these variables.
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "plain": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "mkl-avx2": {"MKL_CBWR": "AVX2,STRICT"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "threads": {"OMP_NUM_THREADS": "4", "SATURN_TEST_THREADS": "4"},
    "huge-pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"},
    "avx2, mkl-avx2, threads": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2,STRICT",
        "OMP_NUM_THREADS": "4",
        "SATURN_TEST_THREADS": "4",
    },
}
FILES = [
    *("attention", "balance", "batch_norm", "black_box", "checkpoints", "closeness", "compile"),
    *("derived_plans", "evaluated_training", "evaluation", "frozen_weights", "fsdp_knobs"),
    *("fused", "mesh", "offload", "optimizer_groups", "pipeline", "precision", "random_chains"),
    *("same_training", "scalar_parameters", "slices", "stages", "tensor", "trainers"),
    *("training_options", "training_step", "trl_trainers"),
]


def main() -> int:
    """1 if a setting failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="names of settings, separated by `+`, or `today`")
    parser.add_argument("--quick", action="store_true", help="only the quick tests")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, in place of the files")
    given = parser.parse_args()
    names = given.only.split("+") if given.only else list(SETTINGS)
    if names == ["today"]:
        names = [list(SETTINGS)[date.today().toordinal() % len(SETTINGS)]]
    if unknown := sorted(set(names) - set(SETTINGS)):
        parser.error(f"no setting is named {unknown}; there are {list(SETTINGS)}")
    variables = {name for setting in SETTINGS.values() for name in setting}
    plain = {name: value for name, value in os.environ.items() if name not in variables}
    tests = given.pytest or [f"tests/python/test_{name}.py" for name in FILES]
    form = [] if given.quick else ["--nightly"]
    rows = []
    for name in names:
        setting = SETTINGS[name]
        print(f"== {name}: {_told(setting)}", flush=True)
        passed, outcome, seconds = _run([*form, *tests], {**plain, **setting})
        rows.append((passed, f"| {name} | {_told(setting)} | {outcome} | {seconds:.0f} |"))
    print("\n| setting | variables | result | seconds |\n|---|---|---|---|")
    print("\n".join(row for _, row in rows))
    return 0 if all(passed for passed, _ in rows) else 1


def _run(arguments: list[str], environment: dict[str, str]) -> tuple[bool, str, float]:
    """(whether all passed, pytest's summary, seconds)."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    outcome = "no summary"
    for line in process.stdout:
        print(line, end="", flush=True)
        if re.search(r"\d+ (passed|failed|error)", line):
            outcome = re.sub(r" in .*", "", line.strip("= \n"))
    return process.wait() == 0, outcome, time.monotonic() - began


def _told(setting: dict[str, str]) -> str:
    return " ".join(f"`{name}={value}`" for name, value in setting.items()) or "none"


if __name__ == "__main__":
    sys.exit(main())
