"""What pages get on the site beside their text: the navigation, and the generated references.

A list in a page stands for what is generated, so the page reads well in the repository too:

- docs/index.md: each section with a list of links is a part of the navigation; a list before the
  first section comes before all parts; pages of docs/clusters, if any, are below docs/cluster.md;
- docs/python.md: a line ``- `saturn.Task` `` becomes the documentation of that name;
- docs/commands.md: a line ``- `saturn plan` `` becomes the help text of that verb.

Whatever is public and missing there, or there and not public, ends the build.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

#: Modules whose `__all__` is public; of `saturn.optuna` it is what its own functions are called.
MODULES = ("saturn", "saturn.stoppers", "saturn.loggers", "saturn.techniques")
FUNCTIONS_OF = ("saturn.optuna",)
PLAIN = {"BUILT_IN", "GO_ON", "HOLD", "STOP", "Knobs"}

#: A link within the repository: its text, and the file without an anchor.
LINK = re.compile(r"\[([^]]+)\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
ITEM = re.compile(r"^- `([^`]+)`\n", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers itself with Sphinx."""
    app.connect("source-read", fill)
    # Made of more than their own text: read each time, also where a build before this one has.
    app.connect("env-get-outdated", lambda *_: ["docs/python", "docs/commands"])
    return {"parallel_read_safe": True}


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds to the text of a page what is made for the site."""
    text = source[0]
    # An anchor within a text, as GitHub understands it, in MyST's words.
    text = re.sub(r'<a id="([\w-]+)"></a>', r"[]{#\1}", text)
    folder = Path(app.env.doc2path(page)).parent
    text = LINK.sub(lambda link: linked(app, folder, link), text)
    below = folder / f"{Path(page).name}s"
    if page == app.config.root_doc:
        text += navigation(text)
    elif below.is_dir():
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{below.name}/*\n```\n"
    elif page == "docs/python":
        check(page, set(ITEM.findall(text)), public_names())
        text = ITEM.sub(lambda line: documented(line[1]), text)
    elif page == "docs/commands":
        check(page, set(ITEM.findall(text)), set(verbs()))
        text = ITEM.sub(lambda line: helped(line[1]), text)
    source[0] = text


def linked(app: Sphinx, folder: Path, link: re.Match[str]) -> str:
    """A link as it is on the site: by the page's title where the text is the file's name."""
    whole, text, target = link[0], link[1], link[2]
    if not is_on_site(app, folder / target):
        return text
    is_name = text.endswith(".md") and target.endswith(text)
    return whole.replace(f"[{text}]", "[]", 1) if is_name else whole


def is_on_site(app: Sphinx, target: Path) -> bool:
    """Whether a link may stay: not to a folder, nor to a page that is none of the site's.

    One to what isn't there at all stays, and ends the build.
    """
    target = target.resolve()
    if target.is_dir():
        return False
    is_page = app.env.path2doc(target) in app.env.found_docs
    return not target.is_file() or target.suffix != ".md" or is_page


def navigation(index: str) -> str:
    """The parts of the navigation, in the order of the index."""
    parts = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE):
        kind = section.partition("\n")[0]
        links = re.findall(r"^- \[([^]]+)\]\(([^)]+)\.md\)", section, re.MULTILINE)
        entries = "\n".join(f"{title} <{target}>" for title, target in links)
        caption = "" if kind.startswith("# ") else f":caption: {kind}\n"
        parts.append(f"\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n")
    return "".join(parts)


def check(page: str, listed: set[str], there: set[str]) -> None:
    """Refuses a page that lists other things than there are."""
    missing, gone = sorted(there - listed), sorted(listed - there)
    if missing or gone:
        raise ExtensionError(
            f"{page}.md lists other names than there are: not listed {missing}, not there {gone}"
        )


def public_names() -> set[str]:
    """Every public name, with its module."""
    names = {f"{module}.{name}" for module in MODULES for name in exported(module)}
    for module in FUNCTIONS_OF:
        members = inspect.getmembers(importlib.import_module(module), inspect.isfunction)
        own = [name for name, it in members if it.__module__ == module and name[0] != "_"]
        names |= {f"{module}.{name}" for name in own}
    return names


def exported(module: str) -> list[str]:
    """What a module exports, its constants left out."""
    return [name for name in importlib.import_module(module).__all__ if name not in PLAIN]


def documented(name: str) -> str:
    """The directive that documents a name from its docstrings."""
    module, _, attribute = name.rpartition(".")
    it = getattr(importlib.import_module(module), attribute)
    lines = [f".. autofunction:: {name}"]
    if inspect.isclass(it):
        kind = "exception" if issubclass(it, Exception) else "class"
        lines = [f".. auto{kind}:: {name}", "   :members:"]
        if issubclass(it, Exception):
            lines.append("   :show-inheritance:")
        elif dataclasses.is_dataclass(it):
            lines.append("   :undoc-members:")  # fields whose names say all
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def verbs() -> list[str]:
    """The program's verbs, `saturn profile list` like `saturn plan`."""
    found = []
    for verb in verbs_of("saturn"):
        inner = verbs_of(verb)
        found += inner or [verb]
    return found


def verbs_of(command: str) -> list[str]:
    """The verbs that a help text lists; none where the command has none."""
    _, _, listed = told(command).partition("\nCommands:\n")
    names = re.findall(r"^  ([a-z-]+) ", listed.partition("\n\n")[0], re.MULTILINE)
    return [f"{command} {name}" for name in names if name != "help"]


def helped(command: str) -> str:
    """A section with the help text of a verb."""
    return f"### {command}\n\n```text\n{told(command)}```\n\n"


def told(command: str) -> str:
    """What the program beside this Python says of itself."""
    program, *verb = command.split()
    beside = Path(sys.executable).with_name(program)
    return subprocess.run(
        [beside, *verb, "--help"],
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
