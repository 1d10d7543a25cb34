"""Mutants of Rust source, and how a file is written out with all of its mutants.

cargo-mutants says which mutants there are. A function with some of them becomes

    fn f(a: u32) -> u32 {
        match crate::mutant_switch::chosen(3) { 17 => { a - 1 } 18 => { 0 } _ => { a + 1 } }
    }

where 3 is the function's number. Whole bodies are repeated, since their extent is known without
parsing Rust: cargo-mutants tells the function's lines and columns.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass

from setup import ROOT

TOOL = ROOT / "target" / "tools" / "bin" / "cargo-mutants"

SWITCH = """//! Which mutant runs (scripts/mutants.py).

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{{AtomicBool, Ordering}};

static CHOSEN: LazyLock<u32> = LazyLock::new(|| {{
    std::env::var("SATURN_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}});
static REACHED: [AtomicBool; {num}] = [const {{ AtomicBool::new(false) }}; {num}];

#[inline]
pub(crate) fn chosen(function: usize) -> u32 {{
    if !REACHED[function].load(Ordering::Relaxed) {{
        note(function);
    }}
    *CHOSEN
}}

#[cold]
fn note(function: usize) {{
    if !REACHED[function].swap(true, Ordering::Relaxed)
        && let Ok(path) = std::env::var("SATURN_MUTANT_REACHED")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {{
        let _ = file.write_all(format!("{{function}}\\n").as_bytes());
    }}
}}
"""


@dataclass(frozen=True)
class Mutant:
    """One change: `file[start:end]` becomes `replacement`, within the function's body."""

    key: str
    name: str
    file: str
    start: int
    end: int
    replacement: str
    body: tuple[int, int]


def listed(crate: str) -> list[Mutant]:
    """All mutants of a crate, in the order of their digests."""
    if not TOOL.exists():
        raise SystemExit(
            f"missing: {TOOL}; get it by `cargo install cargo-mutants --root target/tools`"
        )
    said = subprocess.run(
        [TOOL, "mutants", "--list", "--json", "-d", ROOT, "-p", crate],
        check=True,
        capture_output=True,
        text=True,
    )
    texts: dict[str, str] = {}
    found, seen = [], Counter[str]()
    for one in json.loads(said.stdout):
        if one["function"] is None:  # a constant
            continue
        text = texts.setdefault(one["file"], (ROOT / one["file"]).read_text())
        start, end = offsets(text, one["span"])
        around = offsets(text, one["function"]["span"])
        body = body_of(text, *around)
        if body is None or re.search(r"\bconst\s+fn\b", text[around[0] : body[0]]):
            continue
        change = re.sub(r"^[^:]*:\d+:\d+: ", "", one["name"])
        line = text.splitlines()[one["span"]["start"]["line"] - 1].strip()
        digest = "\0".join((one["file"], one["function"]["function_name"], change, line))
        seen[digest] += 1
        key = hashlib.sha256(f"{digest}\0{seen[digest]}".encode()).hexdigest()[:16]
        found.append(Mutant(key, one["name"], one["file"], start, end, one["replacement"], body))
    return sorted(found, key=lambda one: one.key)


def offsets(text: str, span: dict[str, dict[str, int]]) -> tuple[int, int]:
    """A span of lines and columns, both from 1 on, as offsets into a text."""
    lines = text.split("\n")

    def offset(at: dict[str, int]) -> int:
        return sum(len(line) + 1 for line in lines[: at["line"] - 1]) + at["column"] - 1

    return offset(span["start"]), offset(span["end"])


def body_of(text: str, start: int, end: int) -> tuple[int, int] | None:
    """What stands between the braces of the function's body."""
    depth = 0
    tokens = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{(\[\])]'
    for token in re.finditer(tokens, text[start:end], re.DOTALL):
        if token.group() == "{" and depth == 0:
            return start + token.end(), end - 1
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.group(), 0)
    return None


def weave(
    text: str, mutants: dict[int, Mutant], first_function: int
) -> tuple[str, list[tuple[int, int, tuple[int, ...]]], dict[int, int]]:
    """A file's text with its mutants; the lines of each, and of each function; the functions."""
    bodies = sorted({one.body for one in mutants.values()})
    outer = [one for one in bodies if not any(b[0] < one[0] and one[1] < b[1] for b in bodies)]
    spots: list[tuple[int, int, tuple[int, ...]]] = []
    functions: dict[int, int] = {}
    woven, done = "", 0
    for function, (start, end) in enumerate(outer, start=first_function):
        own = {number: one for number, one in mutants.items() if start <= one.start < end}
        woven += text[done:start]
        began = woven.count("\n") + 1
        woven += f"match crate::mutant_switch::chosen({function}) {{"
        for number, one in own.items():
            woven += "\n"
            top = woven.count("\n") + 1
            changed = text[start : one.start] + one.replacement + text[one.end : end]
            woven += f"{number} => {{ {changed} \n}}"
            spots.append((top, woven.count("\n") + 1, (number,)))
            functions[number] = function
        woven += f"\n_ => {{ {text[start:end]} \n}}\n}}"
        spots.append((began, woven.count("\n") + 1, tuple(own)))
        done = end
    return woven + text[done:], spots, functions
