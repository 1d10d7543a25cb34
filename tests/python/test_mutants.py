"""Mutants of a Rust file stand in one text: each in an arm of its own, found again by its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import mutant_tree  # noqa: E402
import mutants  # noqa: E402
import schemata  # noqa: E402
from mutant_seeds import Seeds  # noqa: E402

SOURCE = """/// Whether `{` opens a brace.
#[must_use]
fn is_less(a: [u32; 2], b: u32) -> bool {
    a[0] < b
}

fn other() -> u32 {
    1
}
"""


def mutant(old: str, new: str) -> schemata.Mutant:
    function = SOURCE.index("/// Whether"), SOURCE.index("}\n\nfn other") + 1
    body = schemata.body_of(SOURCE, *function)
    assert body is not None
    at = SOURCE.index(old, body[0])
    return schemata.Mutant(f"{old} {new}", "", "a.rs", at, at + len(old), new, body)


def test_a_body_begins_at_its_own_brace() -> None:
    start, end = mutant("<", "<=").body
    assert SOURCE[start:end] == "\n    a[0] < b\n"


def test_each_mutant_is_an_arm_and_the_function_itself_is_the_last() -> None:
    both = {4: mutant("<", "<="), 7: mutant("a[0] < b", "true")}
    woven, spots, functions = schemata.weave(SOURCE, both, 11)
    assert functions == {4: 11, 7: 11}
    assert woven.count("match crate::mutant_switch::chosen(11) {") == 1
    arms = woven.replace("\n", " ")
    assert "4 => {      a[0] <= b   }" in arms
    assert "7 => {      true   }" in arms
    assert "_ => {      a[0] < b   } }}  fn other() -> u32 {     1 }" in arms
    lines = woven.splitlines()
    for number, text in ((4, "<="), (7, "true")):
        first, last = next((one[0], one[1]) for one in spots if one[2] == (number,))
        assert text in " ".join(lines[first - 1 : last])
    first, last, numbers = spots[-1]
    assert numbers == (4, 7)
    assert "chosen(11)" in lines[first - 1]
    assert lines[last - 1] == "}}"


def test_an_error_is_the_narrowest_mutants_whose_lines_hold_it() -> None:
    arm, function = mutant_tree.Place("a.rs", 4, 6, (4,)), mutant_tree.Place("a.rs", 3, 12, (4, 7))
    span = {"file_name": "a.rs", "line_start": 5, "line_end": 5}
    assert mutant_tree.is_at(arm, span) and mutant_tree.is_at(function, span)
    assert not mutant_tree.is_at(arm, span | {"line_end": 9})
    assert not mutant_tree.is_at(arm, span | {"file_name": "b.rs"})


def test_the_test_that_kills_soonest_is_tried_first() -> None:
    slow = mutants.Test("slow", [], ROOT, seconds=2.0)
    quick = mutants.Test("quick", [], ROOT, seconds=0.01)
    assert quick.price_s() < slow.price_s()
    slow.runs = slow.kills = 10
    quick.runs = 1000
    assert slow.price_s() < quick.price_s()


def test_a_mutant_survives_once_its_tests_have_had_their_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs_s = {"first": 1.0, "second": 5.0, "third": 20.0, "fourth": 40.0}
    tests = [mutants.Test(name, [], ROOT, seconds, {7}) for name, seconds in costs_s.items()]
    ran: list[str] = []

    def never_fails(test: mutants.Test, *_: object) -> int:
        ran.append(test.name)
        return 0

    monkeypatch.setattr(mutants, "run", never_fails)
    assert mutants.fate(1, 7, tests, 30.0) == ("survived", "")
    assert ran == ["first", "second", "third"]
    assert mutants.fate(1, 7, tests, None) == ("survived", "")
    assert set(ran) == set(costs_s)


def test_the_seed_that_killed_a_mutant_is_told_and_comes_first_the_next_time(
    tmp_path: Path,
) -> None:
    program = tmp_path / "fuzz"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$2" >> {tmp_path}/asked\n'
        'for seed in $(echo "$2" | tr , " "); do\n'
        '  echo "seed $seed"; [ "$SATURN_MUTANT $seed" = "4 7" ] && exit 1\n'
        "done\n"
        "exit 0\n"
    )
    program.chmod(0o755)
    seeds = Seeds(str(program), seconds={3: 0.0, 7: 0.1, 9: 0.2, 11: 0.0})
    seeds.reaching[5] = {3, 7, 9}
    assert seeds.fate(4, 5) == ("killed", "seed 7")
    assert seeds.fate(6, 5) == ("survived", "")
    # Seed 11 does not reach the function, and the seed that killed comes first.
    assert (tmp_path / "asked").read_text().split() == ["3,7,9", "7,3,9"]
