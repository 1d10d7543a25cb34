"""Builds Saturn's wheel where pip asks for one (PEP 517): `pip install .`, `make wheel`.

maturin builds the package with its compiled part. The program `saturn` is built here first, and
lies where `pyproject.toml` has maturin look for what a wheel installs beside packages. cmake and
libclang, which the solver HiGHS is built with, come from PyPI with the other build requirements:
nothing of the machine's is needed but Rust and a C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)
from setup import ROOT, missing_compiler, put

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]


#: What the wheel holds beside packages, as `pyproject.toml` says it.
SCRIPTS = ROOT / "target" / "wheel" / "scripts"


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """The name of the metadata that were written into `metadata_directory`."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)  # maturin looks for it already
    return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The name of the wheel that was built into `wheel_directory`."""
    if problem := missing_compiler():
        sys.exit(problem)
    set_up_tools()
    subprocess.check_call(["cargo", "build", "--release", "--locked", "--workspace"], cwd=ROOT)
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    put(target_directory() / "release" / "saturn", SCRIPTS / "saturn")
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def set_up_tools() -> None:
    """Has cargo find this Python, and cmake and libclang in its packages unless told others."""
    os.environ.setdefault("PYO3_PYTHON", sys.executable)
    if (clang := find_spec("clang")) is not None and clang.origin:
        native = Path(clang.origin).parent / "native"
        os.environ.setdefault("LIBCLANG_PATH", str(native))


def target_directory() -> Path:
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
