"""The parts of the nightly form: what they run is there; the page and the workflow name them."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from saturn.plain.supported import FIRST_TORCH, NEXT_TORCH

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import nightly  # noqa: E402
import numerics_matrix  # noqa: E402

#: What a part may take, and what all may take together.
PART_MINUTES, ALL_MINUTES = 45, 210


def test_files_that_parts_name_are_there() -> None:
    named = {word for part in nightly.PARTS for command in part.commands for word in command}
    paths = [word for word in named if word.endswith(".py") and "/" in word]
    paths += nightly.files(numerics_matrix.FILES)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_targets_of_make_that_parts_name_are_there() -> None:
    commands = [command for part in nightly.PARTS for command in part.commands]
    targets = {command[1] for command in commands if command[0] == "make"}
    rules = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets and targets <= set(rules)


def test_parts_fit_into_the_night() -> None:
    assert max(part.minutes for part in nightly.PARTS) <= PART_MINUTES
    assert sum(part.minutes for part in nightly.PARTS) <= ALL_MINUTES


def test_each_supported_torch_has_its_night() -> None:
    first = date(2026, 11, 1).toordinal()
    six = [nightly.torch_of(date.fromordinal(first + day)) for day in range(6)]
    assert six.count(nightly.OLDEST_TORCH) == 3
    assert {torch for torch in six if torch != nightly.OLDEST_TORCH} == {*nightly.TORCHES_BETWEEN}
    # All supported ones but the newest, with which `make test` runs.
    torches = (nightly.OLDEST_TORCH, *nightly.TORCHES_BETWEEN)
    minors = [int(torch.split(".")[1]) for torch in torches]
    assert minors == list(range(FIRST_TORCH[1], NEXT_TORCH[1] - 1))


def test_tests_of_another_torch_are_there_and_have_those_of_gpus() -> None:
    line = re.search(r"^TORCH_TESTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    names = line[1].split()
    assert [path for path in nightly.files(names) if not (ROOT / path).is_file()] == []
    on_gpus = {"fake_gpu", "gpu_steps", "gpu_failures", "gpu_training", "peer_watch"}
    assert on_gpus | {"device_memory"} <= set(names)


def test_the_page_and_the_workflow_name_the_parts() -> None:
    assert nightly.table() in (ROOT / "docs" / "install.md").read_text()
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    listed = re.findall(r"^ {10}- ([a-z-]+)$", workflow, re.MULTILINE)
    assert listed == [part.name for part in nightly.PARTS]


def test_a_part_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tuple(
        nightly.Part(name, "nothing", 1, (("sh", "-c", f"exit {code}"),))
        for name, code in (("bad", 3), ("good", 0))
    )
    monkeypatch.setattr(nightly, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["nightly.py"])
    assert nightly.main() == 1
    shown = capsys.readouterr().out
    rows = r"\| bad \| FAILED \| [\d.]+ \| 1 \|\n\| good \| passed \| [\d.]+ \| 1 \|\n"
    assert re.search(rows, shown), shown
    monkeypatch.setattr(sys, "argv", ["nightly.py", "good"])
    assert nightly.main() == 0


def test_a_part_that_is_none_is_refused() -> None:
    command = [sys.executable, ROOT / "scripts" / "nightly.py", "bsuy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no part is named ['bsuy']" in done.stderr
