"""Prove that a run directory is the same on every node, and supports what a checkpoint needs.

The driver writes a random word. Every node reads the word, and answers in a file of its own, which
is written as checkpoints are (synced, then renamed into place). The driver reads all answers. If
checkpoints are in an object store, every node also reads the word from there, and writes to it.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

from saturn.checkpoint import place
from saturn.checkpoint.folder import Folder
from saturn.errors import InvalidInput
from saturn.plain import durable

_QUESTION = "question"
#: The prefix of a node's answer if its trouble is with the object store, not the run directory.
_OF_STORE = "store: "


class Proof:
    """One proof, after which nodes may use the directory; a context manager."""

    def __init__(self, run_dir: Path) -> None:
        self.word = secrets.token_hex(16)
        self.directory = run_dir / "nodes" / f"proof-{self.word[:8]}"

    def __enter__(self) -> Proof:
        """Write the word."""
        durable.make_directory(self.directory)
        _write(self.directory / _QUESTION, self.word)
        if (store := _store_of(self.directory)) is not None:
            (store / _QUESTION).write_bytes(self.word.encode())
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove all files of the proof."""
        if (store := _store_of(self.directory)) is not None:
            with contextlib.suppress(OSError):
                store.remove(_QUESTION)
        shutil.rmtree(self.directory, ignore_errors=True)

    def wrong_with(self, node: str, said: str | None) -> str | None:
        """What is wrong, in words, after a node's `answer`; None if nothing is."""
        run_dir = self.directory.parent.parent
        if said is not None and said.startswith(_OF_STORE):
            return (
                f"node `{node}` can't keep checkpoints in {place.store_of(run_dir)} "
                f"({said.removeprefix(_OF_STORE)}); give it the same packages and keys as this "
                "machine (docs/storage.md)"
            )
        if said is None:
            try:
                answer = (self.directory / node).read_text()
            except OSError as error:
                said = f"this machine can't read the file that it wrote: {error.strerror}"
            else:
                if answer == self.word:
                    return None
                said = "this machine reads other content than it wrote"
        return (
            f"node `{node}` does not share {run_dir} ({said}); choose a directory on storage that "
            "all nodes see, under the same path, with runs_dir"
        )


def answer(directory: str, word: str, node: str) -> str | None:
    """Answer for a node; returns what is wrong, in words, or None."""
    try:
        read = Path(directory, _QUESTION).read_text()
    except OSError as error:
        return f"it can't read the test file of this machine: {error.strerror}"
    if read != word:
        return "it reads other content in the test file"
    try:
        _write(Path(directory, node), word)
    except OSError as error:
        return f"it can't write there: {error.strerror}"
    store = _store_of(Path(directory))
    if store is None:
        return None
    try:
        if (store / _QUESTION).read_text() != word:
            return f"{_OF_STORE}this address is another store on that node"
        (store / node).write_bytes(word.encode())
        store.remove(node)
    except (OSError, InvalidInput) as error:
        return _OF_STORE + str(error).partition("\n")[0]
    return None


def _store_of(directory: Path) -> Folder | None:
    """The proof's folder in the run's object store; None if the run has no store."""
    store = place.store_of(directory.parent.parent)
    return None if store is None else store / directory.name


def _write(path: Path, text: str) -> None:
    """Write as checkpoints are written: complete and durable before the name exists."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
    durable.sync(fresh)
    fresh.rename(path)
    durable.sync(path.parent)
