"""The floors of `python/saturn`: a module uses its own package and lower floors, never upwards.

Read from the source alone. An import counts wherever it stands: at the top, in a function, or for
the type checker.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import saturn
from warm_parent import PYTHON_DIR

ROOT = PYTHON_DIR.parent

Floors = Sequence[Mapping[str, str]]

#: From the ground up: packages on a floor, and what belongs to each. `name/` is a folder with all
#: that is in it, but for what is named elsewhere; other names are single modules, and `.` is
#: `saturn` itself. Packages of one floor don't use one another.
FLOORS: Floors = (
    {
        "plain": "_core plain/ errors loggers/ runs.result scripts scripts.command "
        "scripts.reporting stoppers/ tasks tasks.definition tasks.evaluation tasks.strategy "
        "tasks.directories tasks.importing tasks.sources tasks.surroundings runs"
    },
    {"rank": "rank/"},
    {
        "data": "data/",
        "parts of a model": "techniques.model.buffers techniques.model.layers "
        "techniques.model.modes",
        "interface": "techniques techniques.interface techniques.gradient_norm "
        "techniques.black_box techniques.built_in techniques.pinned",
    },
    {
        "training": "training/",
        "shared by techniques": "techniques.model/ techniques.data_parallel "
        "techniques.memory_bounds techniques.sharding techniques.nodes",
    },
    {
        "checkpoint": "checkpoint/",
        "trainers": "trainers/",
        "ddp": "techniques.ddp",
        "fsdp": "techniques.fsdp",
        "tensor": "techniques.tensor/",
        "offload": "techniques.offload/",
    },
    {"pipeline": "techniques.pipeline/", "fused": "fused/"},  # stages may be split and sharded
    {
        "worker": "worker/ trainers.rest",
        "face": ". cluster/ core/ library native notebook/ optuna runs/ scripts/ sweeps/ tasks/ "
        "trial_runner/ tuning/ pool_verbs verbs",
    },
)


def offences(root: Path, floors: Floors) -> list[str]:
    """What in the package at `root` is on no floor, or uses what it must not; and what in `floors`
    is named twice or isn't there."""
    modules = dict(_modules(root))
    places = {
        entry: (floor, package)
        for floor, packages in enumerate(floors)
        for package, entries in packages.items()
        for entry in entries.split()
    }
    counts = Counter(entry for row in floors for text in row.values() for entry in text.split())
    found = [f"{entry} is named {count} times" for entry, count in counts.items() if count > 1]
    place_of = {module: _place(module, places) for module in modules}
    found += [f"{module} is on no floor" for module, place in place_of.items() if place is None]
    used = {_entry(module, places) for module in modules}
    found += [f"nothing is called {entry}" for entry in places if entry not in used]
    for module, path in modules.items():
        place = place_of[module]
        for line, other in _imports(root.name, module, path, modules):
            other_place = place_of[other]
            if place is None or other_place is None or place == other_place:
                continue
            if other_place[0] >= place[0]:
                found.append(
                    f"{module}:{line} ({place[1]}, floor {place[0]}) imports {other} "
                    f"({other_place[1]}, floor {other_place[0]})"
                )
    return found


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module under `root` by its name without the package's; `.` is the package."""
    for path in sorted(root.rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):  # a stub stands for a compiled module
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__") or ".", path


def _entry(module: str, places: Mapping[str, object]) -> str | None:
    """The table's entry for a module: its own, or that of the nearest folder above it."""
    if module in places:
        return module
    parts = module.split(".")
    folders = (".".join(parts[:length]) + "/" for length in range(len(parts), 0, -1))
    return next((folder for folder in folders if folder in places), None)


def _place(module: str, places: Mapping[str, tuple[int, str]]) -> tuple[int, str] | None:
    entry = _entry(module, places)
    return None if entry is None else places[entry]


def _imports(
    package: str, module: str, path: Path, modules: Mapping[str, Path]
) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of the package's own modules in one file."""
    own = [] if module == "." else module.split(".")
    here = [package, *(own if path.name == "__init__.py" else own[:-1])]
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from saturn.rank import gang` imports a module, `from … import Gang` a name of one.
            inner = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if _own_name(package, name) in modules else base for name in inner]
        for name in (_own_name(package, target) for target in targets):
            if name in modules and name != module:
                yield node.lineno, name


def _own_name(package: str, dotted: str) -> str | None:
    """The module's name without the package's; None where it isn't the package's."""
    if dotted == package:
        return "."
    return dotted[len(package) + 1 :] if dotted.startswith(f"{package}.") else None


def test_no_module_uses_a_higher_floor_and_each_is_on_one() -> None:
    assert offences(Path(saturn.__file__).parent, FLOORS) == []


SMALL: Floors = (
    {"plain": "words"},
    {"left": "left/", "right": "right/ left.stray"},
    {"top": ". top"},
)


@pytest.mark.parametrize(
    ("file", "source", "offence"),
    [
        ("left/a.py", "from saturn.words import word", None),
        ("left/a.py", "from saturn.left import b", None),
        ("top.py", "from saturn.left.b import x\nimport saturn.right.c", None),
        ("left/a.py", "import json\nfrom saturnalia import top", None),
        ("words.py", "x = 1\nimport saturn.left.b", "words:2 (plain, floor 0) imports left.b"),
        ("left/a.py", "from saturn.top import x", "left.a:1 (left, floor 1) imports top"),
        ("left/a.py", "from saturn import top", "left.a:1 (left, floor 1) imports top"),
        ("left/a.py", "import saturn", "left.a:1 (left, floor 1) imports . (top"),
        ("left/a.py", "from .. import top", "left.a:1 (left, floor 1) imports top"),
        ("left/a.py", "from ..right.c import x", "left.a:1 (left, floor 1) imports right.c"),
        ("left/__init__.py", "from ..top import x", "left:1 (left, floor 1) imports top"),
        ("left/a.py", "from saturn.right import c", "imports right.c (right, floor 1)"),
        ("left/stray.py", "from . import b", "left.stray:1 (right, floor 1) imports left.b"),
        ("left/a.py", "def f():\n    import saturn.top", "left.a:2 (left, floor 1) imports top"),
        (
            "left/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from saturn.top import x",
            "left.a:3 (left, floor 1) imports top",
        ),
        ("fresh.py", "", "fresh is on no floor"),
        ("fresh/__init__.py", "", "fresh is on no floor"),
        ("words.py", None, "nothing is called words"),
    ],
)
def test_what_goes_up_or_stands_nowhere_is_seen(
    tmp_path: Path, file: str, source: str | None, offence: str | None
) -> None:
    root = tmp_path / "saturn"
    sound = ["__init__.py", "words.py", "top.py", "left/__init__.py", "left/b.py"]
    for name in [*sound, "left/stray.py", "right/__init__.py", "right/c.py"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    assert offences(root, SMALL) == []
    if source is None:
        (root / file).unlink()
    else:
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text(source)
    found = offences(root, SMALL)
    if offence is None:
        assert found == []
    else:
        assert len(found) == 1 and offence in found[0], found


def test_what_is_named_twice_is_seen(tmp_path: Path) -> None:
    (tmp_path / "saturn").mkdir()
    (tmp_path / "saturn" / "words.py").write_text("")
    assert offences(tmp_path / "saturn", ({"plain": "words"}, {"top": "words"})) == [
        "words is named 2 times"
    ]


def test_the_picture_and_the_table_of_the_crates_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import floors

    used = floors.uses()
    assert floors.PICTURE.read_text() == floors.draw(used), "run scripts/floors.py"
    rows = re.findall(r"^\| (\d) \| (`saturn-.*?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    told = {crate: int(floor) for floor, crates in rows for crate in re.findall(r"`(.*?)`", crates)}
    assert told == floors.floors(used)


def test_an_arrow_is_drawn_only_where_no_longer_way_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import floors

    used = {"top": {"middle", "low"}, "middle": {"low"}, "low": set()}
    assert floors.floors(used) == {"top": 2, "middle": 1, "low": 0}
    assert floors.arrows(used) == [("middle", "low"), ("top", "middle")]
    assert floors.draw(used).count("<line") == 2
