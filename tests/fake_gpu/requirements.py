"""Whether fake GPUs work here: they need torch's CUDA wheel, of a version that was tried."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from pathlib import Path

#: Versions of torch that it was tried with. Which functions of the runtime torch calls, and which
#: kernels it has, changes from one to the next: run the tests, then add the new one.
TORCH_VERSIONS = ("2.11", "2.15")


def why_not() -> str | None:
    """Why there can be no fake GPUs here; None where there can. Imports no torch."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"fake GPUs were tried on Linux on x86-64 alone, not on {platform.machine()}"
    version = importlib.metadata.version("torch")
    if not version.startswith(tuple(f"{tried}." for tried in TORCH_VERSIONS)):
        return f"fake GPUs were tried with torch {', '.join(TORCH_VERSIONS)} alone, not {version}"
    if not (package("torch") / "lib" / "libtorch_cuda.so").exists():
        return "fake GPUs need a build of torch for CUDA, and this one is for the CPU alone"
    if shutil.which("cc") is None:
        return "fake GPUs need a C compiler (Debian: apt install gcc)"
    for header in ("cuda_runtime_api.h", "nccl.h"):
        if not any((directory / header).exists() for directory in include_directories()):
            return f"fake GPUs need NVIDIA's header {header}, which torch's CUDA wheel brings"
    return None


def package(name: str) -> Path:
    """Where a package lies; a directory that doesn't exist where it is not installed."""
    spec = importlib.util.find_spec(name)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return Path(places[0]) if places else Path("/nonexistent")


def include_directories() -> list[Path]:
    """Where NVIDIA's wheels keep their headers."""
    nvidia = package("nvidia")
    return [*nvidia.glob("cu1*/include"), nvidia / "nccl" / "include"]
