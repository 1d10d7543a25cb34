"""`make release` refuses what can't be released, and leaves the version as it was if it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

build_backend = pytest.importorskip("build_backend", reason="needs tomllib or tomli")
release = pytest.importorskip("release")
setup = pytest.importorskip("setup")

NEWS = "# Changelog\n\n## Unreleased\n\n- News.\n"
CARGO = '[workspace.package]\nversion = "0.1.0"\n'


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    # Nothing of the settings of who runs the tests, nor of a hook that does.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in (("Cargo.toml", CARGO), ("Cargo.lock", ""), ("CHANGELOG.md", NEWS)):
        (tmp_path / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path


@pytest.mark.parametrize("version", ["0.1.0", "0.1.1", "1.0.0"])
def test_the_first_release_and_later_versions_are_fine(checkout: Path, version: str) -> None:
    release.check(version)


@pytest.mark.parametrize(
    ("version", "file", "text", "words"),
    [
        ("v1", "", "", "three numbers, like 0.2.0"),
        ("0.0.9", "", "", "does not come after 0.1.0"),
        ("0.1.0", "CHANGELOG.md", NEWS + "\n## 0.1.0 (2026-01-01)\n\n- Old.\n", "does not come"),
        (
            "0.2.0",
            "CHANGELOG.md",
            "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- Old.\n",
            "nothing",
        ),
        ("0.2.0", "stray.txt", "", "not committed:\n?? stray.txt"),
        ("0.2.0", "Cargo.toml", "[workspace]\n", "no version"),
    ],
)
def test_others_are_refused(checkout: Path, version: str, file: str, text: str, words: str) -> None:
    if file:
        (checkout / file).write_text(text)
    with pytest.raises(release.NotReleased, match=words.replace("?", r"\?")):
        release.check(version)


def test_what_fails_leaves_the_version_as_it_was(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release.subprocess, "check_call", lambda *_, **__: 0)
    with pytest.raises(RuntimeError), release.written_version("0.2.0"):
        assert 'version = "0.2.0"' in (checkout / "Cargo.toml").read_text()
        assert "## Unreleased\n\n## 0.2.0 (20" in (checkout / "CHANGELOG.md").read_text()
        raise RuntimeError
    assert (checkout / "Cargo.toml").read_text() == CARGO
    assert (checkout / "CHANGELOG.md").read_text() == NEWS


def test_the_texts_of_what_is_compiled_in_are_there() -> None:
    text = build_backend.third_party.notices()
    for words in ("HiGHS, in highs-sys", "SQLite, in libsqlite3-sys", "Apache License", "pyo3 "):
        assert words in text
    assert "proptest" not in text and "saturn-" not in text


def test_what_is_compiled_in_is_in_the_source_distribution_and_has_the_build_made_anew(
    tmp_path: Path,
) -> None:
    name = build_backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        packed = {path.partition("/")[2] for path in archive.getnames()}
    watched = {str(path.relative_to(ROOT)) for path in setup.sources()}
    for source in (ROOT / "crates").glob("*/src/**/*.rs"):
        for included in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
            path = str((source.parent / included).resolve().relative_to(ROOT))
            assert path in packed and path in watched, f"{source}: {path}"
