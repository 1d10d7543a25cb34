"""The licences of what is compiled into the program and the package: Rust crates, HiGHS, SQLite.

Licences ask that their texts go along with a binary. The texts are read from the sources that cargo
has fetched for this build; equal texts stand once, after the names of all that have them.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from setup import ROOT

#: What is shipped; crates that only tests or builds use are not in it.
SHIPPED = ("saturn-cli", "saturn-python")
#: C and C++ that a crate brings along: crate, its name, texts below the crate's folder.
BUNDLED = {
    "highs-sys": ("HiGHS", ("HiGHS/LICENSE.txt", "HiGHS/THIRD_PARTY_NOTICES.md")),
    "libsqlite3-sys": ("SQLite", ()),
}
#: Of SQLite, whose sources carry no file of a licence: https://sqlite.org/copyright.html
PUBLIC_DOMAIN = "SQLite has been dedicated to the public domain by its authors."
_TEXT = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)


def notices() -> str:
    """The whole text, as `THIRD-PARTY.txt` of a wheel."""
    names_of = defaultdict(list)
    for package in linked():
        name = f"{package['name']} {package['version']} ({package['license'] or 'see below'})"
        folder = Path(package["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and _TEXT.match(path.name):
                names_of[_text(path)].append(name)
        if not any(name in names for names in names_of.values()):
            names_of["No text comes with it; its licence is the one named."].append(name)
        if (bundled := BUNDLED.get(package["name"])) is not None:
            title, paths = bundled
            texts = [_text(folder / path) for path in paths] or [PUBLIC_DOMAIN]
            names_of["\n\n".join(texts)].append(f"{title}, in {name}")
    parts = ["Compiled into Saturn's program and package, with their licences.\n"]
    for text, names in sorted(names_of.items(), key=lambda item: item[1]):
        parts.append("\n".join([*sorted(set(names)), "", text, "", "-" * 80, ""]))
    return "\n".join(parts)


def linked() -> list[dict[str, Any]]:
    """What `cargo metadata` says of each package from a registry that is compiled in."""
    about = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    (platform,) = re.findall(r"^host: (.*)$", about, re.MULTILINE)
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    command += ["--filter-platform", platform]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    metadata = json.loads(said.stdout)
    package_of = {package["id"]: package for package in metadata["packages"]}
    node_of = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [key for key, package in package_of.items() if package["name"] in SHIPPED]
    seen = set(waiting)
    while waiting:
        for dependency in node_of[waiting.pop()]["deps"]:
            is_compiled_in = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_compiled_in and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    found = (package_of[key] for key in seen)
    return sorted(
        (one for one in found if one["source"]), key=lambda one: (one["name"], one["version"])
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()
