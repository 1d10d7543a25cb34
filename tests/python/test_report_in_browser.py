"""The report in a real browser: nothing overflows or overlaps, on wide windows, phones and paper.

Pictures are kept beside this file, in `report_pictures`, and compared from afar, so that other
fonts make no difference; SATURN_KEEP_PICTURES=1 keeps what is drawn now.
"""

from __future__ import annotations

import json
import os
import re
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
  const named = "text.tick, text.device, text.node, text.axis, text.kind, .bar text";
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


@pytest.mark.slow(
    quick=["run-wide", "run-phone", "run-print", "runs-phone", "many-wide"],
)
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


def test_the_bars_are_told_to_keyboards_and_screen_readers(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html", height=2400)

    def press(key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    chart = "document.querySelector('svg.gantt')"
    bars = f"[...{chart}.querySelectorAll('g[aria-label]')]"
    assert page.evaluate(f"{chart}.getAttribute('role')") == "group"
    labels = page.evaluate(f"{bars}.map((one) => one.getAttribute('aria-label'))")
    assert len(labels) > 3 and all("\n" in label for label in labels[:3])
    # One stop of the Tab key, whatever the number of bars.
    assert page.evaluate(f"{bars}.filter((one) => one.tabIndex === 0).length") == 1
    page.call("Emulation.setFocusEmulationEnabled", enabled=True)  # the page has no window
    page.evaluate(f"{bars}[0].focus()")
    told = "[document.activeElement.getAttribute('aria-label'), tip.hidden ? '' : tip.textContent]"
    assert page.evaluate(told) == [labels[0]] * 2
    for key, number in (("ArrowRight", 1), ("ArrowDown", 2), ("ArrowLeft", 1), ("Home", 0)):
        press(key)
        assert page.evaluate(told) == [labels[number]] * 2, key
    press("ArrowLeft")
    assert page.evaluate(told) == [labels[0]] * 2
    press("End")
    assert page.evaluate(told) == [labels[-1]] * 2
    assert page.evaluate(f"{bars}.filter((one) => one.tabIndex === 0).length") == 1
    lit = page.evaluate("[...document.querySelectorAll('.on')].map((one) => one.dataset.task)")
    assert len(set(lit)) <= 1
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate("document.getElementById('tip').hidden")


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


#: The rectangles and the tip of each bar of a chart, in the order of the data.
BARS = """
[...document.querySelectorAll("svg.gantt")].map((chart) => [...chart.querySelectorAll(".bar")]
  .map((bar) => [bar.dataset.task, bar.querySelectorAll(".fill").length,
    bar.querySelector("title").textContent]))"""


def charts(path: Path, kind: str) -> list[Any]:
    """The data of a page's charts of a kind, as its script reads them."""
    place = rf'data-chart="{kind}".*?<script type="application/json">(.*?)</script>'
    return [json.loads(data) for data in re.findall(place, path.read_text(), re.DOTALL)]


def test_every_bar_and_time_of_the_data_is_drawn(page: browser.Page, pages: Path) -> None:
    page.open(pages / "runs.html")
    given = charts(pages / "runs.html", "gantt")
    assert len(given) == 2 and all(len(chart["bars"]) >= 12 for chart in given)
    assert page.evaluate(BARS) == [
        [
            [str(bar["task"]), len(bar["blocks"]), f"{bar['label']}\n{bar['tip']}"]
            for bar in chart["bars"]
        ]
        for chart in given
    ]
    # A time stands at the same place in the charts of a section.
    one, other = page.evaluate(
        "[...document.querySelectorAll('svg.gantt')].map((chart) =>"
        "[...chart.querySelectorAll('.tick')].map((tick) =>"
        "[tick.textContent, tick.getAttribute('x')]))"
    )
    assert one == other and len(one) > 3 and one[0][0] == "0"
    # A bar's width is its share of the time, less a line of the page between neighbours.
    left, end = (float(one[index][1]) for index in (0, -1))
    assert left > 30 and end <= 1106
    bar = given[0]["bars"][-1]
    drawn = page.evaluate(
        "[...document.querySelectorAll('svg.gantt')[0].querySelectorAll('.bar')].at(-1)"
        ".querySelector('.fill').getAttribute('width')"
    )
    share = (min(bar["end_s"], given[0]["to_s"]) - bar["start_s"]) / given[0]["to_s"]
    assert abs(float(drawn) + 1 - share * (1106 - left)) < 0.5


def test_ticks_of_time_are_round_and_few(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    for span_s in (0.5, 3, 31, 200, 4000, 90_000, 3e6):
        ticks = page.evaluate(f"timeTicks({span_s})")
        assert 4 <= len(ticks) <= 11, (span_s, ticks)
        assert len({text for _, text in ticks}) == len(ticks), ticks
    for at_s, step_s, text in (
        (0, 15, "0"),
        (0.5, 0.1, "0.5 s"),
        (45, 15, "45 s"),
        (75, 15, "1:15"),
        (180, 60, "3 min"),
        (5400, 1800, "1:30 h"),
        (7200, 3600, "2 h"),
        (216_000, 43_200, "2 d 12 h"),
        (259_200, 86_400, "3 d"),
    ):
        assert page.evaluate(f"tickLabel({at_s}, {step_s})") == text


def test_every_curve_of_the_data_is_drawn(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    given = charts(pages / "run.html", "curves")
    assert [len(chart["curves"]) for chart in given] == [12, 12, 12]
    # How many points a curve has, and whether each has a dot or is smoothed.
    drawn = page.evaluate(
        "[...document.querySelectorAll('svg.curves')].map((chart) =>"
        "[...chart.querySelectorAll('.curve')].map((curve) => [curve.dataset.task,"
        "curve.querySelector('.smooth').points.length, curve.querySelector('.raw')?.points.length,"
        "curve.querySelector('.dots')?.getAttribute('d').split('M').length - 1]))"
    )
    for chart, curves in zip(given, drawn, strict=True):
        for curve, (key, smoothed, raw, dots) in zip(chart["curves"], curves, strict=True):
            assert (key, smoothed) == (curve["key"], len(curve["points"]))
            assert (raw, dots) == ((smoothed, None) if chart["is_noisy"] else (None, smoothed))
    # The least and the greatest evaluation stand at their places between the lines of two ticks.
    places = page.evaluate(
        "[...document.querySelector('svg.curves.small').querySelectorAll('.tick.value')]"
        ".map((tick) => [+tick.textContent, +tick.getAttribute('y') - 4])"
    )
    (low, low_y), (high, high_y) = places[0], places[-1]
    points = given[1]["curves"][0]["points"]
    expected = [low_y + (value - low) / (high - low) * (high_y - low_y) for _, value in points]
    found = page.evaluate(
        "[...document.querySelector('svg.curves.small .smooth').points].map((point) => point.y)"
    )
    assert max(abs(one - other) for one, other in zip(expected, found, strict=True)) < 0.3
    # A row's small curve has the shape of the task's losses.
    sparks = page.evaluate(
        "[...document.querySelectorAll('.spark polyline')].map((line) => line.points.length)"
    )
    assert len(sparks) == 24 and sparks[0] == 6 and sparks[-1] == 60
    assert page.evaluate("document.querySelectorAll('.chip .key line').length") == 36


def test_every_task_has_a_line_through_its_parameters(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    [given] = charts(pages / "run.html", "parallel")
    assert [axis["name"] for axis in given["axes"]] == ["family", "lr", "width", "loss"]
    drawn = page.evaluate(
        "[...document.querySelectorAll('svg.parallel g')].map((line) => [line.dataset.task,"
        "line.querySelector('title').textContent,"
        "[...line.querySelector('polyline').points].map((point) => (280 - point.y) / 246)])"
    )
    # The best is drawn last, on top of the others.
    drawn.reverse()
    assert len(drawn) == len(given["lines"]) == 12
    for line, (task, tip, shares) in zip(given["lines"], drawn, strict=True):
        assert (task, tip) == (str(line["task"]), line["tip"])
        assert all(abs(a - b) < 0.001 for a, b in zip(line["shares"], shares, strict=True))
    strokes = page.evaluate(
        "[...document.querySelectorAll('svg.parallel polyline')].map((one) => one.style.stroke)"
    )
    assert len(set(strokes)) == 12 and "100%" in strokes[-1], strokes


def test_smoothing_follows_without_a_lag_and_any_values_have_a_scale(
    page: browser.Page, pages: Path
) -> None:
    page.open(pages / "run.html")
    falling = [[step, 400 - step] for step in range(400)]
    smoothed = page.evaluate(f"smooth({falling}, 10)")
    assert len(smoothed) == 400 and smoothed[10:390] == falling[10:390]
    assert page.evaluate("smooth([[0, 400]], 1)") == [[0, 400]]
    flat = ([[1, 2], [2, 2]], [[1, 1e8], [2, 1e8]], [[1, 0], [2, 0]])
    for points in (*flat, [[1, -1], [2, 0]], [[0, 1e9], [1, 1e-9]]):
        places, ticks = page.evaluate(
            f"((points) => {{ const scale = curveScale(points, 1120, 380);"
            "return [points.map(scale.at), scale.isLog ? logTicks(scale) : linearTicks(scale)]; })"
            f"({points})"
        )
        assert all(y is not None and 0 <= y <= 380 for _, y in places), (points, places)
        labels = page.evaluate(f"{ticks}.map(tickNumber)")
        assert 1 <= len(set(labels)) == len(ticks) < 12, (points, labels)
    assert page.evaluate("[niceStep(0.3), niceStep(60)]") == [0.5, 100]
    for value, text in ((0.5, "0.5"), (20, "20"), (1e9, "1e9"), (2e-5, "2e-5"), (0, "0")):
        assert page.evaluate(f"tickNumber({value})") == text


def test_no_name_in_the_data_is_obeyed(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    name = "<img src=x onerror=document.title='obeyed'></script>"
    data = {
        "rows": [{"node": 0, "name": name, "ids": "0-7"}],
        "bars": [
            {"task": 9, "label": name, "detail": "", "tip": name, "blocks": [[0, 0]]}
            | {"start_s": 1, "end_s": 5, "ready_s": 2}
        ],
        "marks": [{"at_s": 3, "label": name, "tip": name, "class": "bound"}],
        "to_s": 6,
    }
    page.evaluate(
        "((data) => { const place = document.querySelector('[data-chart=gantt]');"
        "const given = document.createElement('script'); given.type = 'application/json';"
        "given.textContent = data; place.replaceChildren(given);"
        "drawCharts(place.parentElement); })"
        f"({json.dumps(json.dumps(data))})"
    )
    drawn = page.evaluate(
        "(({textContent, children}) => [textContent.split('<img').length - 1, children.length])"
        "(document.querySelector('svg.gantt'))"
    )
    # The node, the two lines of the bar's tip, its label, and the mark's tip and label.
    assert drawn[0] == 6 and drawn[1] > 10
    assert page.evaluate("document.querySelector('svg.gantt .bar').childElementCount") == 5
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.title") != "obeyed"


def test_without_scripts_a_sentence_stands_for_each_chart(page: browser.Page, pages: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(pages / "run.html", width=360)
        told, num, drawn, rows = page.evaluate(
            "[[...document.querySelectorAll('[data-chart] > p')].map((one) =>"
            "one.checkVisibility() && one.textContent),"
            "document.querySelectorAll('[data-chart]:not([data-chart=spark])').length,"
            "document.querySelectorAll('svg.gantt').length, document.querySelectorAll('tr').length]"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert drawn == 0 and rows > 30
    assert len(told) == num >= 6 and all("No script ran here" in str(one) for one in told)


def test_paper_has_all_that_is_folded(page: browser.Page, pages: Path) -> None:
    page.open(pages / "run.html")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => !one.open)")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => !one.open)")
    assert len(page.call("Page.printToPDF")["data"]) > 10_000
