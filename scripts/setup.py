"""Set-up of a checkout: checks what must be there, then makes `.venv` and builds Saturn into it.

Runs on a bare Python: standard library only. Each step is skipped where nothing that it depends on
has changed, so a second call takes a second. `--run COMMAND...` runs a command in the environment
that building needs (cmake and libclang come from PyPI, into `.venv`).

It installs nothing outside the checkout. uv and pip keep their downloads in caches of their own
(`uv cache dir`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMPS = VENV / "saturn-stamps"
EXTENSION = ROOT / "python" / "saturn" / "_core.abi3.so"
#: Installs the other packages; comes from PyPI into `.venv`, as cmake and libclang do.
INSTALLER = "uv>=0.9"
OLDEST_PYTHON = (3, 10)
OLDEST_RUST = (1, 91)  # as `rust-version` in Cargo.toml


def main() -> int:
    """Sets up, or runs one command in the build environment."""
    command = sys.argv[2:] if sys.argv[1:2] == ["--run"] else []
    if sys.argv[1:] and not command:
        print(__doc__, file=sys.stderr)
        return 2
    os.chdir(ROOT)
    problem = missing_prerequisite()
    if problem:
        print(problem, file=sys.stderr)
        return 1
    if command:
        return subprocess.call(command, env=build_environment())
    try:
        set_up()
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def missing_prerequisite() -> str | None:
    """What is missing and how to get it, in one line; None where all is there."""
    if sys.version_info < OLDEST_PYTHON:
        return (
            f"missing: Python 3.10 or later (this is {sys.version.split()[0]}); "
            "install one and call make with PYTHON=python3.12"
        )
    try:
        import ensurepip  # noqa: F401  (venv needs it; Debian splits it off)
        import venv  # noqa: F401
    except ImportError:
        return "missing: Python's venv module; get it with: apt install python3-venv"
    return missing_compiler()


def missing_compiler() -> str | None:
    """The same of what compiles."""
    rust = rust_version()
    if rust is None:
        return "missing: Rust; get it from https://rustup.rs, then open a new shell"
    if rust < OLDEST_RUST:
        have, need = (".".join(map(str, version)) for version in (rust, OLDEST_RUST))
        return f"missing: Rust {need} or later (this is {have}); get it with: rustup update"
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return "missing: a C++ compiler; get it with: apt install g++"
    return None


def rust_version() -> tuple[int, ...] | None:
    """Version of cargo; None where there is none, or only rustup's stand-in for one."""
    try:
        said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True)
        return tuple(int(part) for part in said.stdout.split()[1].split(".")[:2])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        return None


def set_up() -> None:
    """Brings `.venv` and what is built into it up to date."""
    if not STAMPS.exists():  # made last: an environment without it was interrupted
        step("virtual environment", [sys.executable, "-m", "venv", "--clear", str(VENV)])
        STAMPS.mkdir()
    tools = Stamp("build-tools", digest_of_text(INSTALLER, *listed("requires")))
    if not tools.is_current():
        pip = pip_of(BIN / "python")
        step("build tools (cmake, libclang)", [*pip, *listed("requires")])
        with contextlib.suppress(StepFailed):  # there is none for every platform
            step("uv", [*pip, INSTALLER])
        tools.set()
    needed = listed("dependencies", "dev")
    packages = Stamp("requirements", digest_of_text(*needed))
    build = Stamp("build", digest_of_files(sources()), [BIN / "saturn", EXTENSION])
    # The download waits for the network and the build for the processor: they go side by side.
    tasks = []
    if not packages.is_current():
        label = "Python packages (torch is large: a few minutes on a slow line)"
        tasks.append((label, installing(needed, BIN / "python")))
    if not build.is_current():
        label = "Rust build (the first one compiles HiGHS and SQLite: a few minutes)"
        tasks.append((label, ["cargo", "build", "--release", "--locked", "--workspace"]))
    if tasks:
        steps(tasks)
        install_build()
        packages.set()
        build.set()


def pip_of(python: Path) -> list[str]:
    """The command of an environment's pip that installs packages."""
    options = ["--disable-pip-version-check", "install", "--quiet", "--progress-bar", "off"]
    return [str(python), "-m", "pip", *options]


def pip_chooses(python: Path) -> bool:
    """Whether pip's settings, in files or the environment, say where packages come from."""
    command = [str(python), "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return any(f"{setting}=" in said for setting in ("index-url", "no-index", "constraint"))


def installing(packages: list[str], python: Path) -> list[str]:
    """The command that installs packages into an environment.

    It is uv, which takes a minute where pip takes several. It is pip where uv fails, and where
    pip's settings choose an index or versions: uv does not read these settings.
    """
    if pip_chooses(python):
        return [*pip_of(python), *packages]
    # Compiled now: where PYTHONDONTWRITEBYTECODE is set, each process would compile torch anew.
    options = ["--quiet", "--compile-bytecode", "--python", str(python)]
    uv = shlex.join([str(BIN / "uv"), "pip", "install", *options])
    pip = shlex.join(pip_of(python))
    return ["sh", "-c", f'{uv} "$@" || exec {pip} "$@"', "install", *packages]


def install_build() -> None:
    """Puts the `saturn` program and the Python package into the virtual environment."""
    release = ROOT / "target" / "release"
    put(release / "saturn", BIN / "saturn")
    put(release / "libsaturn_python.so", EXTENSION)
    show_package(VENV)


def show_package(environment: Path) -> None:
    """Has an environment import the package from the checkout.

    As `pip install --editable` would, without its build isolation.
    """
    site = next((environment / "lib").glob("python3.*")) / "site-packages"
    (site / "saturn.pth").write_text(f"{ROOT / 'python'}\n")


def put(source: Path, target: Path) -> None:
    """Copies a file in one piece: a process that uses the old one keeps it."""
    fresh = target.with_suffix(".new")
    shutil.copy2(source, fresh)
    fresh.replace(target)


def listed(*keys: str) -> list[str]:
    """The packages that these lists of `pyproject.toml` name."""
    # tomllib is newer than the oldest Python that is served, so the lists are read by hand.
    wanted = []
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        key, _, value = line.partition(" = ")
        if key in keys:
            wanted += [item.strip(' "') for item in _items(value)]
    return wanted


def _items(array: str) -> list[str]:
    """Splits a one-line TOML array of strings, in which a comma may stand within a string."""
    return [item for item in array.strip("[] ").split('"') if item.strip(", ")]


def sources() -> list[Path]:
    """The files that the Rust build depends on."""
    names = ["Cargo.toml", "Cargo.lock", *(ROOT / "crates").rglob("*")]
    suffixes = (".rs", ".toml", ".lock", ".html", ".css", ".js", ".json")
    files = [ROOT / name for name in names]
    return sorted(f for f in files if f.suffix in suffixes)


def build_environment() -> dict[str, str]:
    """The environment in which cargo finds cmake, libclang and this Python."""
    # Resolved, so that checkouts which share an environment by a link also share what cargo built
    # with it: bindgen and pyo3 build anew when these paths change.
    venv = VENV.resolve()
    environment = dict(os.environ)
    environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["PYO3_PYTHON"] = str(venv / "bin" / "python")
    for native in (venv / "lib").glob("python3.*/site-packages/clang/native"):
        environment["LIBCLANG_PATH"] = str(native)
    return environment


class Stamp:
    """Remembers the inputs of a step that has succeeded."""

    def __init__(self, name: str, digest: str, products: list[Path] | None = None) -> None:
        self.path, self.digest, self.products = STAMPS / name, digest, products or []

    def is_current(self) -> bool:
        """Whether the inputs are those of then, and all that the step made is still there."""
        is_known = self.path.exists() and self.path.read_text() == self.digest
        return is_known and all(product.exists() for product in self.products)

    def set(self) -> None:
        """The step has succeeded with these inputs."""
        self.path.write_text(self.digest)


def digest_of_text(*texts: str) -> str:
    """Names a list of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def digest_of_files(paths: list[Path]) -> str:
    """Names the content of files."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(f"{path}\0".encode() + path.read_bytes())
    return sha.hexdigest()


class StepFailed(Exception):
    """A step's command failed; the message ends with the end of its output."""


def step(label: str, command: list[str]) -> None:
    """Runs one command."""
    steps([(label, command)])


def steps(tasks: list[tuple[str, list[str]]]) -> None:
    """Runs labelled commands side by side, and shows that they are alive."""
    running = [Step(label, command) for label, command in tasks]
    for one in running:
        one.start()
    while any(one.is_alive() for one in running):
        time.sleep(0.1)
        show(running)
        if any(one.failure for one in running):
            for one in running:
                one.stop()
    show(running, is_last=True)
    for one in running:
        if one.failure:
            raise StepFailed(one.failure)


class Step(threading.Thread):
    """A command that runs, with its output kept for the case of failure."""

    def __init__(self, label: str, command: list[str]) -> None:
        super().__init__(daemon=True)
        self.label, self.command = label, command
        self.failure: str | None = None
        self.is_stopped = False
        self.started_s, self.told_s = time.monotonic(), 0.0
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=build_environment(),
        )

    def run(self) -> None:
        """Waits for its end."""
        code = self.process.wait()
        if code != 0 and not self.is_stopped:
            self.failure = f"{self.tail(4000)}\nfailed: {' '.join(self.command)} (exit code {code})"

    def stop(self) -> None:
        """Ends it: another step has failed."""
        if self.is_alive():
            self.is_stopped = True
            self.process.terminate()

    def tail(self, length: int) -> str:
        """The end of what its commands have printed."""
        fd = self.output.fileno()
        size = os.fstat(fd).st_size
        return os.pread(fd, length, max(0, size - length)).decode(errors="replace").strip()

    def line(self) -> str:
        """What it is doing, and since when."""
        last = self.tail(300).splitlines()[-1:] or [""]
        return f"[{time.monotonic() - self.started_s:4.0f} s] {self.label}  {last[0].strip()}"


def show(running: list[Step], *, is_last: bool = False) -> None:
    """On a terminal, one line that changes; elsewhere a line every ten seconds."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        width = shutil.get_terminal_size().columns - 1
        alive = [one for one in running if one.is_alive()]
        line = alive[int(time.monotonic() / 2) % len(alive)].line() if alive else ""
        print(f"\r\033[K{line[:width]}", end="\n" if is_last else "", file=sys.stderr, flush=True)
        return
    for one in running:
        if one.is_alive() and time.monotonic() - one.told_s > 10:
            one.told_s = time.monotonic()
            print(one.line(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
