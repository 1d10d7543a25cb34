"""Proof that a run directory is the same one on every node, and does what a checkpoint needs.

The driver writes a word that nobody can guess, every node reads it and answers in a file of its
own, written as checkpoints are (synced, then renamed into place), and the driver reads all of
these.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from saturn import durable

_QUESTION = "question"


class Proof:
    """One proof, for nodes that then may use the directory; a context manager."""

    def __init__(self, run_dir: Path) -> None:
        self.word = secrets.token_hex(16)
        self.directory = run_dir / "nodes" / f"proof-{self.word[:8]}"

    def __enter__(self) -> Proof:
        """Write the word."""
        durable.make_directory(self.directory)
        _write(self.directory / _QUESTION, self.word)
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove what was written."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def wrong_with(self, node: str, said: str | None) -> str | None:
        """What is wrong, in words, after a node `answer`ed; None where all is well."""
        run_dir = self.directory.parent.parent
        if said is None:
            try:
                answer = (self.directory / node).read_text()
            except OSError as error:
                said = f"what it wrote is not to be seen here: {error.strerror}"
            else:
                if answer == self.word:
                    return None
                said = "what it wrote is not what is read here"
        return (
            f"node `{node}` does not share {run_dir} ({said}); choose a directory on storage that "
            "all nodes see, under the same path, with runs_dir"
        )


def answer(directory: str, word: str, node: str) -> str | None:
    """A node's part; what is wrong, in words, or None."""
    try:
        read = Path(directory, _QUESTION).read_text()
    except OSError as error:
        return f"it can't read it: {error.strerror}"
    if read != word:
        return "it reads another file there"
    try:
        _write(Path(directory, node), word)
    except OSError as error:
        return f"it can't write there: {error.strerror}"
    return None


def _write(path: Path, text: str) -> None:
    """As checkpoints are written: whole and durable before the name is there."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
    durable.sync(fresh)
    fresh.rename(path)
    durable.sync(path.parent)
