"""Drives a Chromium without a window: opens a page, asks it what it shows, takes its picture.

It speaks the DevTools protocol over two pipes, so it needs no package and opens no port. A browser
has a profile of its own that is removed with it, and fetches nothing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: What a browser is called on PATH.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: What to do where there is none.
MISSING = "no Chromium on PATH; get it with: apt-get install chromium"
#: Longest that one answer may take.
LIMIT_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """The browser's path, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser did not do what it was asked to."""


class Page:
    """A browser with one page."""

    def __init__(self, profile: Path) -> None:
        path = found()
        if path is None:
            raise BrowserError(MISSING)
        command = (path, *FLAGS, f"--user-data-dir={profile}", "about:blank")
        # The browser reads commands from its descriptor 3 and answers on 4.
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._received = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        [target] = [one["targetId"] for one in targets if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Calls a method of the protocol; returns its result.

        Raises:
            BrowserError: The browser refused, is gone, or did not answer in time.
        """
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\0")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise BrowserError(f"the browser is gone, before {method}") from error
        while True:
            answer = self._next(f"an answer to {method}")
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def wait_for(self, event: str) -> None:
        """Waits until the page tells of an event that it has not told of since the last `open`."""
        while not any(one.get("method") == event for one in self._events):
            self._events.append(self._next(event))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, media: str = "") -> None:
        """Opens a file in a window of that size in CSS pixels, in light colours."""
        self.visit(path.resolve().as_uri(), width=width, height=height, media=media)

    def visit(
        self,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        media: str = "",
        look: str = "light",
    ) -> None:
        """Opens an address in a window of that size in CSS pixels, in light or dark colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        colours = [{"name": "prefers-color-scheme", "value": look}]
        self.call("Emulation.setEmulatedMedia", media=media, features=colours)
        self._events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """What an expression of JavaScript is worth on the page, promises awaited."""
        told = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise BrowserError(told["exceptionDetails"]["exception"].get("description", "raised"))
        return told["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression holds; raises `BrowserError` where it doesn't in time."""
        ends_s = time.monotonic() + LIMIT_S
        while not self.evaluate(expression):
            if time.monotonic() > ends_s:
                raise BrowserError(f"not within {LIMIT_S:.0f} s: {expression}")
            time.sleep(0.05)

    def picture(self, width: int, height: int) -> bytes:
        """A PNG of so much of the page, in CSS pixels, shrunk: small enough to be kept."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 0.4}
        taken = self.call("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        """Ends the browser and all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _next(self, wanted: str) -> dict[str, Any]:
        """The next message of the browser."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        ends_s = time.monotonic() + LIMIT_S
        while b"\0" not in self._received:
            if not select.select([pipe], [], [], max(0.0, ends_s - time.monotonic()))[0]:
                raise BrowserError(f"no {wanted} within {LIMIT_S:.0f} s")
            more = os.read(pipe, 1 << 20)
            if not more:
                raise BrowserError(f"the browser ended before {wanted}")
            self._received += more
        message, self._received = self._received.split(b"\0", 1)
        read: dict[str, Any] = json.loads(message)
        return read


@contextlib.contextmanager
def page() -> Iterator[Page]:
    """A browser for a while, with an empty profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        opened = Page(Path(profile))
        try:
            yield opened
        finally:
            opened.close()


#: Of two pictures, as much as a person would see of them from afar: both are drawn this small.
DIFFERENCE = """
(async ([one, other]) => {
  const columns = 64;
  const shrunk = async (png) => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const rows = Math.round(columns * image.height / image.width);
    const canvas = new OffscreenCanvas(columns, rows).getContext("2d");
    canvas.imageSmoothingQuality = "high";
    canvas.drawImage(image, 0, 0, columns, rows);
    return { rows, pixels: canvas.getImageData(0, 0, columns, rows).data };
  };
  const [left, right] = [await shrunk(one), await shrunk(other)];
  if (left.rows !== right.rows) return { rows: [left.rows, right.rows], mean: 1, far: 1 };
  let sum = 0, far = 0;
  for (let at = 0; at < left.pixels.length; at += 4) {
    let away = 0;
    for (let i = 0; i < 3; i++) away += Math.abs(left.pixels[at + i] - right.pixels[at + i]) / 765;
    sum += away;
    far += away > 0.15 ? 1 : 0;
  }
  const count = left.pixels.length / 4;
  return { rows: left.rows, mean: sum / count, far: far / count };
})"""


def difference(page: Page, one: bytes, other: bytes) -> Mapping[str, float]:
    """How far two PNGs are apart, both shrunk to 64 columns.

    `mean` is the mean distance of colours, 0 to 1; `far` the share of pixels of another colour.
    Letters of another font are a little grey in another place; a chart that is gone is `far`.
    """
    page.call("Page.navigate", url="about:blank")
    pair = [base64.b64encode(picture).decode() for picture in (one, other)]
    found: Mapping[str, float] = page.evaluate(f"{DIFFERENCE}({json.dumps(pair)})")
    return found
