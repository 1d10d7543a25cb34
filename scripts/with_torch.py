"""Runs Python with another version of torch than the checkout's own.

    python3 scripts/with_torch.py 2.11.0 -m pytest tests/python/test_walkthrough.py

That version comes from PyPI (some gigabytes) into `.venv-torch-VERSION`, with the packages that
the tests need. Saturn's program and package are those that `make setup` has built. A second call
installs nothing.
"""

from __future__ import annotations

import subprocess
import sys

from setup import BIN, ROOT, installing, listed, put, show_package


def main() -> int:
    """Installs what is missing, and runs the rest of the command line."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    version, *arguments = sys.argv[1:]
    environment = ROOT / f".venv-torch-{version}"
    python, is_ready = environment / "bin" / "python", environment / "saturn-ready"
    if not is_ready.exists():
        packages = [*listed("dependencies", "dev"), f"torch=={version}"]
        if code := subprocess.call([sys.executable, "-m", "venv", "--clear", environment]):
            return code
        # Only now: what installs depends on the settings of the environment's own pip.
        if code := subprocess.call(installing(packages, python)):
            return code
        show_package(environment)
        is_ready.touch()
    put(BIN / "saturn", python.with_name("saturn"))
    return subprocess.call([python, *arguments], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
