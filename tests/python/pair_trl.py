"""What a TRL case trains: a tiny language model of transformers, by an SFTTrainer.

Importing this file does not import TRL; making a trainer does.
"""

from __future__ import annotations

import math
from typing import Any

import pair_models as models
import torch
import trainer_models
import trl_models
from pairs import Case
from torch import nn

#: A word that no tokenizer knows, and its token.
UNKNOWN, TOKEN = "spoilt", 2


class Spoilt(nn.Embedding):
    """Makes everything NaN that has the unknown word in it."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = super().forward(inputs)
        return found.masked_fill((inputs == TOKEN)[..., None], math.nan)


class OneRaises(torch.utils.data.Dataset[Any]):
    """A data set that a trainer has prepared; one of its rows raises when it is fetched."""

    def __init__(self, prepared: Any) -> None:
        self.prepared = prepared

    def __getitem__(self, index: int) -> Any:
        if index == models.BAD:
            raise ValueError("row 35 is bad")
        return self.prepared[index]

    def __len__(self) -> int:
        return len(self.prepared)


def trainer_of(case: Case, arguments: dict[str, Any]) -> Any:
    """An SFTTrainer of the case."""
    from trl import SFTConfig, SFTTrainer

    rows = [*trl_models.sentences(), *trl_models.sentences(2)]
    assert len(rows) == models.SAMPLES
    evaluates = not case.has("not evaluated")
    given = {}
    if evaluates:
        given = {"eval_dataset": trl_models.dataset(text=rows), "compute_metrics": accuracy}
    if case.has("nan"):
        rows = [*rows]
        rows[models.BAD] = f"{UNKNOWN} {rows[models.BAD]}"
    made = SFTTrainer(
        model_of(case),
        SFTConfig(**arguments, max_length=24),
        train_dataset=trl_models.dataset(text=rows),
        processing_class=trl_models.tokenizer(),
        peft_config=trl_models.lora() if case.has("lora") else None,
        **given,
    )
    if case.has("exception"):
        made.train_dataset = OneRaises(made.train_dataset)
    return made


def model_of(case: Case) -> nn.Module:
    model = trainer_models.llama(
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=case.has("tied"),
        attention_dropout=0.2 if case.has("dropout") else 0.0,
    )
    if case.has("frozen"):
        model.model.layers[0].requires_grad_(False)
    if case.has("nan"):
        model.get_input_embeddings().__class__ = Spoilt
    return model  # type: ignore[no-any-return]


def accuracy(prediction: Any) -> dict[str, float]:
    """Of all tokens that count."""
    counts = prediction.label_ids != -100
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": float(right[counts].mean())}
