"""The report in a real browser: nothing overflows or overlaps, on wide windows, phones and paper.

Pictures are kept beside this file, in `report_pictures`, and compared from afar, so that other
fonts make no difference; SATURN_KEEP_PICTURES=1 keeps what is drawn now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import made_up_runs
import pytest

KEPT = Path(__file__).resolve().parent / "report_pictures"
#: Width and height in CSS pixels, and the medium. Paper is A4 less its margins.
WINDOWS = {"wide": (1280, 2400, ""), "phone": (360, 3600, ""), "print": (718, 3200, "print")}
PAGES = ("run", "runs", "many")
#: How far a page may be from its kept picture: a part of a chart that is gone is farther.
MOST_MEAN = 0.03
MOST_FAR = 0.06

pytestmark = pytest.mark.skipif(browser.found() is None, reason=browser.MISSING)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of made-up runs: one, two side by side, and one of a thousand tasks."""
    directory = tmp_path_factory.mktemp("pages")
    made_up_runs.write(directory)
    return directory


@pytest.fixture(scope="module")
def page() -> Iterator[browser.Page]:
    with browser.page() as opened:
        yield opened


#: Elements that stick out of the window, but for those inside of what scrolls by itself.
OVERFLOWING = """
[...document.querySelectorAll("body *")].filter((one) => {
  if (one.closest(".scroll, pre, #tip, .patterns")) return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map((one) => `${one.tagName} ${one.className.baseVal ?? one.className}`)"""

#: Labels of drawings that lie on one another: pairs of their texts.
OVERLAPPING = """
[...document.querySelectorAll("svg.gantt, svg.curves, svg.parallel")].flatMap((drawing) => {
  const named = "text.tick, text.device, text.node, text.axis, .bar text";
  const labels = [...drawing.querySelectorAll(named)]
    .filter((one) => one.textContent.trim())
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  return labels.flatMap(([text, box], index) => labels.slice(index + 1)
    .filter(([, other]) => Math.min(box.right, other.right) - Math.max(box.left, other.left) > 1
      && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 2)
    .map(([other]) => `${text} | ${other}`));
})"""

#: Labels of bars that are wider than their bar.
SPILLING = """
[...document.querySelectorAll(".bar")].filter((bar) => {
  const text = bar.querySelector("text");
  if (!text) return false;
  const boxes = [...bar.querySelectorAll("rect")].map((one) => one.getBoundingClientRect());
  const widest = Math.max(...boxes.map((box) => box.right));
  return text.getBoundingClientRect().right > widest + 2;
}).map((bar) => bar.textContent)"""


#: Parts that paper would cut off, as nobody can scroll it.
CUT_OFF = """
[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.scrollWidth} of ${one.clientWidth}: ${one.textContent.slice(0, 60)}`)"""

#: How much of what is folded is not to be seen.
HIDDEN = """
[...document.querySelectorAll("details.fold table, details.fold ul")]
  .filter((one) => !one.checkVisibility()).length"""


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_or_overlaps_and_it_looks_as_it_did(
    page: browser.Page, pages: Path, name: str, window: str
) -> None:
    width, height, media = WINDOWS[window]
    page.open(pages / f"{name}.html", width=width, height=height, media=media)
    drawn = page.picture(width, height)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    if name != "many":
        assert page.evaluate(OVERLAPPING) == []
    if window == "wide":
        assert page.evaluate(SPILLING) == []
    # What is folded is printed open, and nothing is cut off at the paper's edge.
    if media == "print":
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate(HIDDEN) == 0
    kept = KEPT / f"{name}-{window}.png"
    if os.environ.get("SATURN_KEEP_PICTURES"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(drawn)
    found = browser.difference(page, kept.read_bytes(), drawn)
    assert found["mean"] <= MOST_MEAN and found["far"] <= MOST_FAR, (found, kept)


def test_another_page_is_no_match(page: browser.Page) -> None:
    one, other = ((KEPT / f"{name}-wide.png").read_bytes() for name in ("run", "runs"))
    found = browser.difference(page, one, other)
    assert found["mean"] > MOST_MEAN or found["far"] > MOST_FAR, found
    assert browser.difference(page, one, one)["mean"] == 0


def test_a_task_that_is_pointed_at_is_lit_everywhere(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html", height=2400)
    box = page.evaluate(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        "(document.querySelector('.bar rect').getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.until("!document.getElementById('tip').hidden")
    lit: list[Any] = page.evaluate(
        "[...document.querySelectorAll('.on')].map((one) => one.dataset.task)"
    )
    assert len(lit) > 3 and len(set(lit)) == 1
    assert "planned" in page.evaluate("document.getElementById('tip').textContent")


def test_every_colour_is_on_the_page_as_it_was_chosen(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html", height=2400)
    fills = page.evaluate(
        "[...document.querySelectorAll('.bar .fill')].map((one) => getComputedStyle(one).fill)"
    )
    assert len(set(fills)) == 8 and all(fill.startswith("rgb(") for fill in fills)
    dashes = page.evaluate(
        "[...document.querySelectorAll('.curve .smooth')].slice(0, 4)"
        ".map((one) => getComputedStyle(one).strokeDasharray)"
    )
    assert len(set(dashes)) == 4


def test_paper_has_all_that_is_folded(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => !one.open)")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => !one.open)")
    assert len(page.call("Page.printToPDF")["data"]) > 10_000
