"""Builds Saturn's wheel where pip asks for one (PEP 517): `pip install .`, `make wheel`.

cargo builds all, as in a checkout's set-up, and what it has built there already is not built
again; then the package, its compiled part and the program `saturn` are packed. cmake and libclang,
which the solver HiGHS is built with, come from PyPI as build requirements: nothing of the
machine's is needed but Rust and a C++ compiler. The wheel is for machines like this one;
`release.py` packs wheels for older C libraries and other processors, of what it builds itself.
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

import third_party
from setup import ROOT, missing_compiler

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: As a file's name has it: `linux_x86_64`.
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
#: Python 3.10's stable interface, as pyo3 is told in `Cargo.toml`.
INTERFACE = "cp310-abi3"
#: Licences of what is compiled in.
THIRD_PARTY = "THIRD-PARTY.txt"
#: What a source distribution needs to be built.
SOURCES = ("Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "pyproject.toml")
SOURCE_TREES = {
    "crates": (".rs", ".toml", ".html", ".css", ".js", ".json"),
    "python": (".py", ".pyi", ".json"),
}


def version() -> str:
    """The version of all crates, which is the distribution's too."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    return str(workspace["package"]["version"])


def stem() -> str:
    """The distribution's name and version as files are called."""
    return f"{PROJECT['name'].replace('-', '_')}-{version()}"


def about_folder() -> str:
    """The folder of a wheel that tells pip of it."""
    return f"{stem()}.dist-info"


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata: Any = None) -> str:
    """The name of the wheel that was built into `wheel_directory`."""
    if problem := missing_compiler():
        sys.exit(problem)
    set_up_tools()
    subprocess.check_call(["cargo", "build", "--release", "--locked", "--workspace"], cwd=ROOT)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    return packed(Path(wheel_directory), built, PLATFORM)


def packed(wheel_directory: Path, built: Path, platform: str) -> str:
    """Packs the wheel for `platform` from the binaries in the folder `built`; returns its name."""
    package = ROOT / "python" / "saturn"
    files = {
        f"saturn/{path.relative_to(package)}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.suffix in SOURCE_TREES["python"] or path.name == "py.typed"
    }
    files["saturn/_core.abi3.so"] = (built / "libsaturn_python.so").read_bytes()
    files[f"{stem()}.data/scripts/saturn"] = (built / "saturn").read_bytes()
    files |= {f"{about_folder()}/{name}": text.encode() for name, text in about(platform).items()}
    files[f"{about_folder()}/RECORD"] = record(files)
    name = f"{stem()}-{INTERFACE}-{platform}.whl"
    with zipfile.ZipFile(wheel_directory / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if "/scripts/" in path else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, content)
    return name


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """The name of the metadata that were written into `directory`."""
    for name, text in about(PLATFORM).items():
        path = Path(directory) / about_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return about_folder()


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """The name of the source distribution that was written into `sdist_directory`."""
    paths = [ROOT / name for name in SOURCES] + sorted((ROOT / "scripts").glob("*.py"))
    for tree, suffixes in SOURCE_TREES.items():
        found = sorted((ROOT / tree).rglob("*"))
        paths += [path for path in found if path.suffix in suffixes or path.name == "py.typed"]
    name = f"{stem()}.tar.gz"
    information = Path(sdist_directory) / "PKG-INFO"
    information.write_text(about(PLATFORM)["METADATA"])
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path in paths:
            archive.add(path, f"{stem()}/{path.relative_to(ROOT)}")
        archive.add(information, f"{stem()}/PKG-INFO")
    information.unlink()
    return name


def set_up_tools() -> None:
    """Has cargo find this Python, and libclang in its packages, unless told others.

    cmake is on the path that pip sets.
    """
    os.environ.setdefault("PYO3_PYTHON", sys.executable)
    if (clang := find_spec("clang")) is not None and clang.origin:
        os.environ.setdefault("LIBCLANG_PATH", str(Path(clang.origin).parent / "native"))


def about(platform: str) -> dict[str, str]:
    """The files that tell pip of the wheel, but for the list of them all."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {PROJECT['name']}",
        f"Version: {version()}",
        f"Summary: {PROJECT['description']}",
        f"License-Expression: {PROJECT['license']}",
        *(f"License-File: {name}" for name in [*PROJECT["license-files"], THIRD_PARTY]),
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
    wheel = [
        "Wheel-Version: 1.0",
        "Generator: saturn",
        "Root-Is-Purelib: false",
        f"Tag: {INTERFACE}-{platform}",
    ]
    licenses = {f"licenses/{name}": (ROOT / name).read_text() for name in PROJECT["license-files"]}
    licenses[f"licenses/{THIRD_PARTY}"] = third_party.notices()
    return {"METADATA": "\n".join(lines), "WHEEL": "\n".join([*wheel, ""]), **licenses}


def record(files: dict[str, bytes]) -> bytes:
    """The list of a wheel's files with their digests, as pip checks them."""
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(content)}")
    return "\n".join([*lines, f"{about_folder()}/RECORD,,", ""]).encode()
