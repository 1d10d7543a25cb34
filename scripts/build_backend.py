"""Builds Saturn's wheel where pip asks for one (PEP 517): `pip install .`, `make wheel`.

cargo builds all, as in a checkout's set-up, and what it has built there already is not built
again; then the package, its compiled part and the program `saturn` are packed. cmake and libclang,
which the solver HiGHS is built with, come from PyPI as build requirements: nothing of the
machine's is needed but Rust and a C++ compiler. The wheel is for machines like this one: no
symbols are looked through for an older C library's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setup import ROOT, missing_compiler

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The distribution's name and version as files are called.
STEM = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}"
ABOUT = f"{STEM}.dist-info"
#: Python 3.10's stable interface, as pyo3 is told in `Cargo.toml`.
TAG = "cp310-abi3-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
#: What a source distribution needs to be built.
SOURCES = ("Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "pyproject.toml")
SOURCE_TREES = {"crates": (".rs", ".toml", ".html", ".css", ".js"), "python": (".py", ".pyi")}


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata: Any = None) -> str:
    """The name of the wheel that was built into `wheel_directory`."""
    if problem := missing_compiler():
        sys.exit(problem)
    set_up_tools()
    subprocess.check_call(["cargo", "build", "--release", "--locked", "--workspace"], cwd=ROOT)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    package = ROOT / "python" / "saturn"
    files = {
        f"saturn/{path.relative_to(package)}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    }
    files["saturn/_core.abi3.so"] = (built / "libsaturn_python.so").read_bytes()
    files[f"{STEM}.data/scripts/saturn"] = (built / "saturn").read_bytes()
    files |= {f"{ABOUT}/{name}": text.encode() for name, text in about().items()}
    files[f"{ABOUT}/RECORD"] = record(files)
    name = f"{STEM}-{TAG}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if "/scripts/" in path else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, content)
    return name


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """The name of the metadata that were written into `directory`."""
    for name, text in about().items():
        path = Path(directory) / ABOUT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ABOUT


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """The name of the source distribution that was written into `sdist_directory`."""
    paths = [ROOT / name for name in SOURCES] + sorted((ROOT / "scripts").glob("*.py"))
    for tree, suffixes in SOURCE_TREES.items():
        found = sorted((ROOT / tree).rglob("*"))
        paths += [path for path in found if path.suffix in suffixes or path.name == "py.typed"]
    name = f"{STEM}.tar.gz"
    information = Path(sdist_directory) / "PKG-INFO"
    information.write_text(about()["METADATA"])
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path in paths:
            archive.add(path, f"{STEM}/{path.relative_to(ROOT)}")
        archive.add(information, f"{STEM}/PKG-INFO")
    information.unlink()
    return name


def set_up_tools() -> None:
    """Has cargo find this Python, and libclang in its packages, unless told others.

    cmake is on the path that pip sets.
    """
    os.environ.setdefault("PYO3_PYTHON", sys.executable)
    if (clang := find_spec("clang")) is not None and clang.origin:
        os.environ.setdefault("LIBCLANG_PATH", str(Path(clang.origin).parent / "native"))


def about() -> dict[str, str]:
    """The files that tell pip of the wheel, but for the list of them all."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {PROJECT['name']}",
        f"Version: {PROJECT['version']}",
        f"Summary: {PROJECT['description']}",
        f"License-Expression: {PROJECT['license']}",
        *(f"License-File: {name}" for name in PROJECT["license-files"]),
        *(f"Classifier: {name}" for name in PROJECT["classifiers"]),
        f"Requires-Python: {PROJECT['requires-python']}",
        *(f"Requires-Dist: {name}" for name in PROJECT["dependencies"]),
    ]
    for extra, names in PROJECT["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        for requirement, _, marker in (name.partition(";") for name in names):
            condition = f"({marker.strip()}) and " if marker else ""
            lines.append(f'Requires-Dist: {requirement}; {condition}extra == "{extra}"')
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    wheel = ["Wheel-Version: 1.0", "Generator: saturn", "Root-Is-Purelib: false", f"Tag: {TAG}"]
    licenses = {f"licenses/{name}": (ROOT / name).read_text() for name in PROJECT["license-files"]}
    return {"METADATA": "\n".join(lines), "WHEEL": "\n".join([*wheel, ""]), **licenses}


def record(files: dict[str, bytes]) -> bytes:
    """The list of a wheel's files with their digests, as pip checks them."""
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(content)}")
    return "\n".join([*lines, f"{ABOUT}/RECORD,,", ""]).encode()
