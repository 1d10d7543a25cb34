"""The documentation's site: it builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from warm_parent import PYTHON_DIR, worker_env

pytestmark = pytest.mark.timeout(600)
ROOT = PYTHON_DIR.parent
DOCS = ROOT / "docs"


def build(sources: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-c", str(sources / "docs"), "-d", str(out / "read"), str(sources), str(out)]
    return subprocess.run(
        command, env=worker_env(), capture_output=True, text=True, timeout=550, check=False
    )


# In the gate, `.ci/run` builds the whole site: a warning ends it. What the site looks like is slow.
@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    built = build(ROOT, out)
    assert built.returncode == 0, built.stderr
    return out


def page(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text()


@pytest.mark.slow
def test_its_parts_are_the_four_kinds(site: Path) -> None:
    navigation = page(site, "docs/index")
    parts = re.findall(r'class="caption".*?<span class="caption-text">(.*?)</span>', navigation)
    assert parts == ["Tutorial", "How-to", "Reference", "Explanation"]


@pytest.mark.slow
def test_the_references_are_made_of_what_they_are_about(site: Path) -> None:
    python, commands = page(site, "docs/python"), page(site, "docs/commands")
    for name in ("Task", "stoppers.ASHA", "optuna.optimize", "loggers.WandB", "Run.submit"):
        assert f'id="saturn.{name}"' in python, name
    assert "passes over the loader" in python  # of an argument of HParams
    assert "saturn plan [OPTIONS] &lt;FILE&gt;" in commands
    assert "--older-than" in commands  # of a verb's verb


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text()
        sources = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]*)"', text)
        sources += re.findall(r'<link[^>]* href="([^"]*)"', text)
        for source in sources:
            assert not re.match(r"(https?:)?//", source), (file.name, source)
    for file in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", file.read_text()), file.name


def test_broken_links_end_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copytree(DOCS / "site", docs / "site", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DOCS / "conf.py", docs)
    text = "# Documentation\n\n## Tutorial\n\n- [Other](other.md)\n\n"
    (docs / "other.md").write_text("# Other\n\n## Here\n")
    (docs / "index.md").write_text(text + "[here](other.md#here), [there](#tutorial)\n")
    whole = build(tmp_path, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    targets = ["nowhere.md", "other.md#nowhere", "#nowhere"]
    (docs / "index.md").write_text(text + ", ".join(f"[broken]({one})" for one in targets))
    broken = build(tmp_path, tmp_path / "broken")
    assert broken.returncode != 0
    assert broken.stderr.count("[myst.xref_missing]") == len(targets), broken.stderr


def test_a_reference_that_leaves_out_a_name_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    import pages
    from sphinx.errors import ExtensionError

    listed = set(pages.ITEM.findall((DOCS / "python.md").read_text()))
    pages.check("python", listed, pages.public_names())
    with pytest.raises(ExtensionError, match=r"not listed \['saturn.Task'\]"):
        pages.check("python", listed - {"saturn.Task"}, pages.public_names())
    with pytest.raises(ExtensionError, match=r"not there \['saturn.gone'\]"):
        pages.check("python", {*listed, "saturn.gone"}, pages.public_names())
