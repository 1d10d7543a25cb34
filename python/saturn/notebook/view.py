"""Show a run in a notebook: an output of the cell, replaced every second.

A thread makes it, so it still follows the run after the cell has ended (`saturn.start`). An error
in the view ends only the view: from then on, the run's messages go to the cell as lines.
"""

from __future__ import annotations

import contextvars
import json
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saturn import native
from saturn.notebook.page import Curve, render
from saturn.plain.measures import number

#: Seconds between two updates, and for how many seconds a cell's end waits for the last one.
_EVERY_S, _END_S = 1.0, 5.0
#: Most points that are kept of a curve: if there are more, every other one is dropped.
_MOST_POINTS = 400


def display_of_kernel() -> Any:
    """IPython's `display` in a notebook's kernel; None elsewhere."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    shell = get_ipython()
    return display if getattr(shell, "kernel", None) is not None else None


class View:
    """One run in one cell."""

    def __init__(
        self, run_dir: Path, directories: Mapping[str, str], write: Callable[[str], None]
    ) -> None:
        """`directories` are the tasks' directories by name, relative to the run's; more may come.

        `write` gets the run's messages once the view has failed.
        """
        self._run_dir, self._directories, self._write = run_dir, directories, write
        self._said = ""
        self._handle: Any = None
        self._curves: dict[str, _Losses] = {}
        self._ended = threading.Event()
        self._has_failed = False
        # With the cell's context, the thread's output goes to the cell that began it.
        self._context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=self._context.run, args=(self._follow,), name="saturn notebook", daemon=True
        )

    def write(self, text: str) -> None:
        """Take a message of the run."""
        if self._has_failed:
            self._write(text)
        else:
            self._said += text

    def begin(self, display: Any) -> None:
        """Show the run in the present cell."""
        self._handle = display(_Page(self._page()), display_id=True)
        self._thread.start()

    def over(self) -> None:
        """Note that the run is over: the next update is the last."""
        self._ended.set()

    def wait(self) -> None:
        """Wait until the last update, but not long for a browser that doesn't answer."""
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _follow(self) -> None:
        try:
            while not self._ended.wait(_EVERY_S):
                self._handle.update(_Page(self._page()))
            self._handle.update(_Page(self._page()))
        except Exception as error:
            self._has_failed = True
            self._write(f"{self._said}\nsaturn: the table can't be shown: {error}\n")

    def _page(self) -> str:
        try:
            status = json.loads(native.status(self._run_dir))
        except Exception:
            status = None  # the run has not begun, or is just ending
        for name, directory in list(self._directories.items()):
            if name not in self._curves:
                self._curves[name] = _Losses(self._run_dir / directory / "metrics.jsonl")
        curves: dict[str, Curve] = {name: each.read() for name, each in self._curves.items()}
        return render(status, curves, self._said)


class _Page:
    """HTML in the form that IPython asks for; text if no HTML is shown."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return "a run of Saturn (its table is HTML)"


class _Losses:
    """The losses in a `metrics.jsonl`, read while it grows, and thinned out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._stride = 1
        self._points: list[tuple[int, float]] = []

    def read(self) -> Curve:
        """The losses so far; if a step was trained again, its later loss."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return self._points
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for text in whole.splitlines():
            try:
                line = json.loads(text)
                step, loss = line["step"], number(line["loss"])
            except (ValueError, KeyError, TypeError):
                continue
            while self._points and self._points[-1][0] >= step:
                self._points.pop()
            if loss is None or not math.isfinite(loss):
                continue
            if step % self._stride == 0 or not self._points:
                self._points.append((step, loss))
            if len(self._points) > _MOST_POINTS:
                self._stride *= 2
                self._points = [p for p in self._points if p[0] % self._stride == 0]
        return self._points
