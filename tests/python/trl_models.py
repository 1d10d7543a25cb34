"""Tiny trainers of TRL's for the tests, on data that they tokenize themselves.

Importing this file does not import TRL; making a trainer does.
"""

from __future__ import annotations

import itertools
from typing import Any

import trainer_models
from trainer_models import MakeTrainer

WORDS = ("the", "red", "blue", "cat", "dog", "runs", "sleeps", "and", "then", "sings")
ROWS = 22


def tokenizer() -> Any:
    """A token for each word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    special = ("<pad>", "<eos>", "<unk>")
    words = {word: number for number, word in enumerate((*special, *WORDS))}
    made = Tokenizer(WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def sentences(shift: int = 0) -> list[str]:
    """Of different lengths."""
    found = []
    for row in range(ROWS):
        words = itertools.islice(itertools.cycle(WORDS), row + shift, 2 * row + shift + 4 - row % 5)
        found.append(" ".join(words) or "cat")
    return found


def dataset(**columns: list[Any]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(columns)


def lora() -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )


def arguments(**changes: Any) -> dict[str, Any]:
    return trainer_models.arguments(bf16=False, **changes)


def sft(*, kind: str = "text", with_lora: bool = False, **changes: Any) -> MakeTrainer:
    def make() -> Any:
        from trl import SFTConfig, SFTTrainer

        if kind == "completion":
            data = dataset(prompt=sentences(), completion=sentences(3))
        else:
            data = dataset(text=sentences())
        config = SFTConfig(**arguments(max_length=24, **changes))
        return SFTTrainer(
            trainer_models.llama(pad_token_id=0, eos_token_id=1),
            config,
            train_dataset=data,
            processing_class=tokenizer(),
            peft_config=lora() if with_lora else None,
        )

    return make


def dpo(*, with_lora: bool = False, **changes: Any) -> MakeTrainer:
    def make() -> Any:
        from trl import DPOConfig, DPOTrainer

        model, reference = (trainer_models.llama(pad_token_id=0, eos_token_id=1) for _ in range(2))
        return DPOTrainer(
            model,
            None if with_lora else reference,
            DPOConfig(**arguments(max_length=24, **changes)),
            train_dataset=dataset(prompt=sentences(), chosen=sentences(3), rejected=sentences(5)),
            processing_class=tokenizer(),
            peft_config=lora() if with_lora else None,
        )

    return make


def reward(**changes: Any) -> MakeTrainer:
    def make() -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForSequenceClassification
        from trl import RewardConfig, RewardTrainer

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=trainer_models.VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
            pad_token_id=0,
            num_labels=1,
        )
        return RewardTrainer(
            LlamaForSequenceClassification(config),
            RewardConfig(**arguments(max_length=24, **changes)),
            train_dataset=dataset(chosen=sentences(3), rejected=sentences(5)),
            processing_class=tokenizer(),
        )

    return make


def grpo() -> Any:
    from trl import GRPOConfig, GRPOTrainer

    return GRPOTrainer(
        trainer_models.llama(pad_token_id=0, eos_token_id=1),
        lambda completions, **_: [0.0 for _ in completions],
        GRPOConfig(**arguments(num_generations=2)),
        train_dataset=dataset(prompt=sentences()),
        processing_class=tokenizer(),
    )
