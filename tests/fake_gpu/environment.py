"""What a program needs in its environment so that it, and all that it starts, finds fake GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fake_gpu.libraries import CUDA, libraries

#: The directory that this package is imported from.
_PACKAGES = Path(__file__).resolve().parents[1]
#: torch imports what is installed under this name once it has been imported itself.
_ENTRY_POINT = "[torch.backends]\nfake_gpu = fake_gpu.kernels:install\n"


def environment(
    *,
    devices: int = 4,
    device_bytes: int = 1 << 30,
    names: Sequence[str] = ("Fake GPU",),
    capability: str = "9.0",
    log: Path | None = None,
) -> dict[str, str]:
    """Variables for a machine of so many GPUs, each of so many bytes.

    The last of `names` is that of all further GPUs. `log` is told who initialises CUDA, and who
    uses it after a fork.
    """
    made = libraries()
    site = made.directory / "site"
    metadata = site / "fake_gpu-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_gpu\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT)
    path = [os.environ.get("PYTHONPATH", ""), str(_PACKAGES), str(site)]
    found = {
        "LD_PRELOAD": f"{made.cuda}:{made.nvml}",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "FAKE_GPU_DEVICES": str(devices),
        "FAKE_GPU_BYTES": str(device_bytes),
        "FAKE_GPU_NAMES": ",".join(names),
        "FAKE_GPU_CAPABILITY": capability,
    }
    return found if log is None else {**found, "FAKE_GPU_LOG": str(log)}


def is_here() -> bool:
    """Whether this process was started in such an environment."""
    return CUDA in os.environ.get("LD_PRELOAD", "")


def device_uuid(number: int) -> str:
    """The UUID of a device of the machine."""
    return f"GPU-fa6e0000-0000-4000-8000-{number + 1:012x}"
