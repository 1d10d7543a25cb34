"""How fast the report of many tasks opens, scrolls and answers a pointer, in Chromium.

usage: bench.py [--tasks N] [--repetitions N]

Prints a line a figure: the median of the repetitions, and the worst. A frame of 50 ms and more is
what people call a stutter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "python"))

import browser  # noqa: E402
import made_up_runs  # noqa: E402

#: From the navigation until the first picture, and until all is loaded, ms.
OPENED = """
new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const [page] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  done([paint.startTime, page.loadEventEnd]);
})))"""

#: Scrolls from top to bottom, a third of a window each frame; ms of each frame.
SCROLLED = """
new Promise((done) => {
  const frames = [];
  let before;
  const next = (now) => {
    if (before !== undefined) frames.push(now - before);
    before = now;
    const at = scrollY;
    scrollBy(0, innerHeight / 3);
    if (scrollY === at) done(frames);
    else requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})"""

#: Points at one bar after the other; ms until the next frame.
POINTED = """
(async () => {
  scrollTo(0, 0);
  const bars = [...document.querySelectorAll(".bar rect")].slice(0, 40);
  const taken = [];
  for (const bar of bars) {
    const begun = performance.now();
    bar.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    taken.push(performance.now() - begun);
  }
  return taken;
})()"""


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    if browser.found() is None:
        sys.exit(browser.MISSING)
    with tempfile.TemporaryDirectory() as directory, browser.page() as page:
        made_up_runs.write(Path(directory), arguments.tasks)
        path = Path(directory) / "many.html"
        figures: dict[str, list[float]] = {}
        for _ in range(arguments.repetitions):
            page.open(path)
            paint, loaded = page.evaluate(OPENED)
            frames, pointed = page.evaluate(SCROLLED), page.evaluate(POINTED)
            for name, value in {
                "first picture": paint,
                "all loaded": loaded,
                "a frame while scrolling, median": statistics.median(frames),
                "a frame while scrolling, longest": max(frames),
                "a task pointed at, median": statistics.median(pointed),
                "a task pointed at, longest": max(pointed),
            }.items():
                figures.setdefault(name, []).append(value)
        kilobytes = path.stat().st_size / 1e3
    print(
        f"a report of {arguments.tasks} tasks, {kilobytes:.0f} kB, {arguments.repetitions} times "
        f"on {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}"
    )
    for name, values in figures.items():
        print(f"{name:34} {statistics.median(values):7.0f} ms, at worst {max(values):.0f} ms")


if __name__ == "__main__":
    main()
