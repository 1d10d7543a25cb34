"""A sample of the zoo, and its page; `make zoo` trains all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zoo
from harness import Runtime
from zoo import COLUMNS, Cell, Column
from zoo_models import ZOO

ARCHITECTURES = {each.name: each for each in ZOO}
EVERYTHING = {column.technique for column in COLUMNS}
#: By architecture, the techniques that train it.
SAMPLE = {
    "GPT-2": EVERYTHING,
    "ViT": EVERYTHING,
    "Mamba": EVERYTHING - {"tensor", "tensor+fsdp"},
    "CLIP": {"tensor", "offload"},
    "DenseNet": {"ddp", "fsdp"},
    "U-Net": EVERYTHING - {"tensor", "tensor+fsdp"},
}


@pytest.fixture(scope="module")
def run() -> Iterator[Runtime]:
    with zoo.ready([ARCHITECTURES[name] for name in SAMPLE]) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_every_technique_trains_it_alike_or_says_why_not(run: Runtime, name: str) -> None:
    cells = zoo.cells_of(run, ARCHITECTURES[name])
    assert all(cell.is_right for cell in cells.values()), cells
    trained = {column.technique for column, cell in cells.items() if cell.difference is not None}
    assert trained == SAMPLE[name], cells
    assert all(cell.reason for cell in cells.values() if cell.difference is None)


def test_there_are_forty_architectures_and_more_of_every_family() -> None:
    assert len(ARCHITECTURES) == len(ZOO) >= 40
    families = {each.family for each in ZOO}
    assert {"decoder", "encoder", "encoder and decoder", "vision", "audio"} <= families
    assert {"contrastive", "mixture of experts", "state space"} <= families
    assert {"convolutional", "diffusion", "adapters"} <= families


def test_what_is_wrong_is_told_from_what_is_refused() -> None:
    assert Cell(difference=8.0).is_right and Cell(reason="it has batch norm").is_right
    assert not Cell(difference=32.0).is_right and not Cell(failure="it crashed").is_right
    assert not Cell(difference=float("nan")).is_right


def test_the_page_shows_each_reason_once_and_marks_what_is_wrong() -> None:
    refused = Cell(reason="it has\n batch norm")
    cells: dict[Column, Cell] = dict.fromkeys(COLUMNS, refused)
    cells[COLUMNS[0]] = Cell(difference=5e6)
    cells[COLUMNS[1]] = Cell(failure="it crashed")
    cells[COLUMNS[2]] = Cell(difference=1.0, knobs=(("only", "mlp"),))
    page = zoo.page({"ViT": (ARCHITECTURES["ViT"], cells)})
    assert "| ViT | vision | **5000000** | **fails** | 1 (`only=mlp`) | A | A | A |" in page
    assert page.count("it has batch norm") == 1
    assert "- **A** it has batch norm" in page
