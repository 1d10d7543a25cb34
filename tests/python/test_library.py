"""The library: what is remembered, what travels by pickle, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import black_boxes
import pytest
import saturn
import techniques_of_tests as techniques
from faces import local_class
from models import Mlp
from saturn import library
from saturn.techniques import BUILT_IN


def test_importable_classes_are_remembered_by_path_alone(home: Path) -> None:
    saturn.register("mine", black_boxes.Plain)
    content = json.loads((home / "library.json").read_text())
    assert content == {"version": 1, "techniques": {"mine": "black_boxes:Plain"}}
    library._registered.clear()  # as in another process
    assert saturn.retrieve("mine") is black_boxes.Plain
    levels = [entry.level for entry in library.select(None)]
    assert levels == [*["managed"] * len(BUILT_IN), "black_box"]
    saturn.deregister("mine")
    assert library.known() == list(BUILT_IN)


def test_local_classes_live_in_the_process_and_travel_by_pickle(home: Path) -> None:
    saturn.register("local", local_class())
    assert not (home / "library.json").exists()
    (entry,) = library.select(["local"])
    assert entry.import_path is None and entry.technique is saturn.retrieve("local")
    # A class without a path takes the place of one with.
    saturn.register("local", black_boxes.Plain)
    saturn.register("local", local_class())
    assert json.loads((home / "library.json").read_text())["techniques"] == {}


def test_what_cannot_be_imported_here_is_left_out_with_a_word(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    techniques = {"gone": "no_such_module:Technique"}
    (home / "library.json").write_text(json.dumps({"version": 1, "techniques": techniques}))
    assert [entry.name for entry in library.select(None)] == list(BUILT_IN)
    assert "saturn.deregister('gone') forgets it" in capsys.readouterr().err
    with pytest.raises(saturn.InvalidInput, match="can't be imported here"):
        library.select(["gone"])


class NoExecute(black_boxes.BaseTechnique):
    pass


class WrongArguments(black_boxes.BaseTechnique):
    def execute(task, gpus):  # type: ignore[no-untyped-def,override] # noqa: N805
        pass


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: saturn.register("ddp", black_boxes.Plain), ValueError, "built-in technique"),
        (lambda: saturn.register("a b", black_boxes.Plain), ValueError, "must be letters, digits"),
        (
            lambda: saturn.register("x", Mlp),
            TypeError,
            "Mlp is no technique; it must be a subclass",
        ),
        (lambda: saturn.register("x", black_boxes.Plain()), TypeError, "Plain is no technique"),
        (
            lambda: saturn.register("x", NoExecute),
            TypeError,
            "NoExecute has no execute(task, gpus,",
        ),
        (
            lambda: saturn.register("x", WrongArguments),
            TypeError,
            "WrongArguments.execute(task, gpus) must accept (task, gpus, task_id, batch_count)",
        ),
        (lambda: saturn.deregister("fsdp"), ValueError, "always there"),
        (
            lambda: saturn.deregister("x"),
            saturn.UnknownTechnique,
            "no technique is called `x`; the library holds `ddp`, `fsdp`",
        ),
        (lambda: saturn.retrieve("x"), saturn.UnknownTechnique, "the library holds `ddp`, `fsdp`"),
        (lambda: library.select("ddp"), TypeError, "such as ['ddp']"),
        (lambda: library.select([]), saturn.InvalidInput, "techniques is empty"),
        (lambda: library.select(["ddp", "pp"]), saturn.UnknownTechnique, "`pp`"),
    ],
)
def test_the_library_refuses(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "techniques": {}}'])
def test_a_spoilt_library_file_is_named(home: Path, content: str) -> None:
    home.mkdir()
    (home / "library.json").write_text(content)
    with pytest.raises(saturn.InvalidInput, match=r"library\.json"):
        library.known()


def test_managed_techniques_can_be_registered() -> None:
    saturn.register("many", techniques.ManyKnobs)
    (entry,) = library.select(["many"])
    assert (entry.level, entry.import_path) == ("managed", "techniques_of_tests:ManyKnobs")
