"""Makes the tables of `docs/evaluation` anew, or compares them with the pages.

    .venv/bin/python benches/evaluation/tables.py [TABLE …]
    .venv/bin/python benches/evaluation/tables.py --check [--quick] [TABLE …]

`make evaluate` makes all of them, in about an hour on two cores. A table that is done is in
its page at once, so Ctrl-C loses one table at most. `--check` writes nothing; with `--quick` it
makes only those rows that take a second or so. Workloads are files beside this one, which
`workloads.py` writes.
"""

from __future__ import annotations

import argparse
import sys
import time

import ablations
import errors
import limits
import measured
import published
import troubles
import workloads

TABLES = [
    *(*published.TABLES, *limits.TABLES, *measured.TABLES, *errors.TABLES),
    *(*troubles.TABLES, *ablations.TABLES),
]


def main() -> int:
    """1 if a page has other numbers, 130 if stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {table.name: table for table in TABLES}
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(known))
    parser.add_argument("--check", action="store_true", help="compare with the pages")
    parser.add_argument("--quick", action="store_true", help="only rows that take a second")
    given = parser.parse_args()
    if unknown := sorted(set(given.tables) - set(known)):
        parser.error(f"no table is named {unknown}; there are {list(known)}")
    if given.quick and not given.check:
        parser.error("--quick goes with --check: a page has whole tables")
    wrong = other_workloads() if given.check else []
    chosen = given.tables or list(known)
    for place, name in enumerate(chosen, start=1):
        began = time.monotonic()
        table = known[name]
        print(f"[{place}/{len(chosen)}] {name}", end=" ", file=sys.stderr, flush=True)
        if not given.check:
            table.write()
        elif not table.is_timed:
            wrong += table.differences(quick=given.quick)
        print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


def other_workloads() -> list[str]:
    """Files that `workloads.py` would write otherwise."""
    return [
        f"{path.name}: benches/evaluation/workloads.py would write it otherwise"
        for path, text in workloads.files()
        if not path.exists() or path.read_text() != text
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
