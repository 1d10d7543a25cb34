"""Compiles the two libraries, once a machine: the CUDA runtime with NCCL in it, and NVML."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fake_gpu.requirements import include_directories

SOURCES = Path(__file__).parent / "c"
#: Found instead of the driver's, by its soname; and before libcudart and libnccl, being preloaded.
CUDA = "libfakecuda.so"
NVML = "libnvidia-ml.so.1"
_NVML_SOURCES = ("devices.c", "nvml.c")


@dataclass(frozen=True)
class Libraries:
    """Where they lie."""

    directory: Path

    @property
    def cuda(self) -> Path:
        return self.directory / CUDA

    @property
    def nvml(self) -> Path:
        return self.directory / NVML


def libraries() -> Libraries:
    """The libraries, compiled where they aren't yet."""
    files = sorted(path for path in SOURCES.rglob("*") if path.is_file())
    headers = [str(directory) for directory in include_directories()]
    content = b"".join(path.read_bytes() for path in files) + "".join(headers).encode()
    name = f"saturn-fake-gpu-{os.getuid()}-{hashlib.sha256(content).hexdigest()[:12]}"
    made = Libraries(Path(tempfile.gettempdir()) / name)
    if not made.directory.exists():
        _make(made)
    return made


def _make(libraries: Libraries) -> None:
    """Compile into a directory beside, which then takes its name: others may do the same."""
    scratch = Libraries(Path(tempfile.mkdtemp(prefix="saturn-fake-gpu-")))
    includes = [f"-I{directory}" for directory in (SOURCES / "include", *include_directories())]
    cuda = [path for path in sorted(SOURCES.glob("*.c")) if path.name != "nvml.c"]
    _compile(
        scratch.cuda, cuda, ["-Wl,-soname,libcuda.so.1", "-lpthread", "-ldl", "-lrt"], includes
    )
    _compile(scratch.nvml, [SOURCES / name for name in _NVML_SOURCES], [f"-Wl,-soname,{NVML}"], [])
    try:
        scratch.directory.rename(libraries.directory)
    except OSError:  # another has made it meanwhile
        shutil.rmtree(scratch.directory)


def _compile(target: Path, sources: list[Path], link: list[str], includes: list[str]) -> None:
    command = ["cc", "-O1", "-shared", "-fPIC", *includes, "-o", target, *sources, *link]
    subprocess.run(command, check=True)
