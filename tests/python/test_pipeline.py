"""`pipeline` trains as plain torch does, and says so where it can't."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import reference
import torch
from harness import Runtime
from models import definition
from saturn.definition import TaskDefinition
from torch import nn
from torch.utils.data import DataLoader

TOLERANCE = 1e-5
VOCABULARY = 32
SIZE = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}


def gpt2(**changes: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 16, "n_layer": 4, "n_head": 2}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(
        GPT2Config(**{**size, **off, "bos_token_id": 0, "eos_token_id": 0, **changes})
    )


def llama(*, tied: bool = False) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        intermediate_size=32,
        max_position_embeddings=16,
        tie_word_embeddings=tied,
        **SIZE,
    )
    return LlamaForCausalLM(config)


def qwen2() -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(vocab_size=VOCABULARY, intermediate_size=32, num_key_value_heads=1, **SIZE)
    return Qwen2ForCausalLM(config)


def opt() -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=VOCABULARY,
        ffn_dim=32,
        max_position_embeddings=16,
        word_embed_proj_dim=16,
        dropout=0.0,
        **SIZE,
    )
    return OPTForCausalLM(config)


def neox() -> nn.Module:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(vocab_size=VOCABULARY, intermediate_size=32, **SIZE)
    return GPTNeoXForCausalLM(config)


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=8, patch_size=4, num_labels=5, intermediate_size=32, **SIZE)
    return ViTForImageClassification(config)


def rows_of_tokens() -> DataLoader[Any]:
    rows = torch.randint(0, VOCABULARY, (20, 12), generator=torch.Generator().manual_seed(0))

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    # 20 rows in batches of 7: the last of an epoch has 6.
    return DataLoader(rows, batch_size=7, shuffle=True, collate_fn=collate)


def images() -> DataLoader[Any]:
    pixels = torch.randn(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    samples = [{"pixel_values": p, "labels": torch.tensor(i % 5)} for i, p in enumerate(pixels)]
    return DataLoader(samples, batch_size=7, shuffle=True)


def language_model(get_model: Any, **changes: Any) -> TaskDefinition:
    return definition(
        **{"get_model": get_model, "get_dataloader": rows_of_tokens, "loss_function": None}
        | changes
    )


def own_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(**batch).loss


def chain(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int, dict[str, Any]]]
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps, knobs in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
        assert result.one("finished")["step"] == steps
    return run.losses(task.name)


def pipeline(ranks: int, steps: int, microbatches: int = 4, schedule: str = "1f1b") -> Any:
    return "pipeline", ranks, steps, {"microbatches": microbatches, "schedule": schedule}


@pytest.mark.parametrize(
    "get_model",
    [
        pytest.param(gpt2, id="gpt2"),
        pytest.param(llama, id="llama"),
        pytest.param(partial(llama, tied=True), id="llama-tied"),
        pytest.param(qwen2, id="qwen2"),
        pytest.param(opt, id="opt"),
        pytest.param(neox, id="gpt-neox"),
    ],
)
def test_language_models_train_as_in_plain_torch(run: Runtime, get_model: Any) -> None:
    pytest.importorskip("transformers")
    task = language_model(get_model)
    expected, _ = reference.train(task, 7, loss_of=own_loss)
    moves = [
        pipeline(2, 2),
        ("ddp", 2, 3, {}),
        pipeline(4, 4, 3, "gpipe"),
        ("fsdp", 2, 5, {}),
        pipeline(3, 7),
    ]
    assert reference.largest_difference(chain(run, task, moves), expected) < TOLERANCE
