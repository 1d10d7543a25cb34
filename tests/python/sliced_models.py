"""Tasks whose losses are no plain mean over samples: what is made of slices shows on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import model_kinds
import torch
from models import WIDTH, definition
from saturn.tasks.definition import TaskDefinition
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def padded_rows(
    batch_size: int = 5, *, ignored: int = -100, with_blanks: bool = False
) -> DataLoader[Any]:
    """Rows of 4 to 15 tokens, padded to the longest of those that are fetched together.

    Of blank ones no label counts.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1, model_kinds.VOCABULARY, (22, model_kinds.LENGTH), generator=generator)

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        lengths = [4 + int(row[0]) % 12 for row in samples]
        tokens = torch.stack(samples)[:, : max(lengths)].clone()
        labels = tokens.clone()
        for row, length in zip(labels, lengths, strict=True):
            row[0 if with_blanks and length % 4 == 0 else length :] = ignored
        return {"input_ids": tokens, "labels": labels}

    return DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=collate)


def padded_late(batch_size: int = 5) -> DataLoader[Any]:
    """Rows of one length; from the third batch on some of their labels don't count."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1, model_kinds.VOCABULARY, (15, model_kinds.LENGTH), generator=generator)

    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        tokens, labels = rows[samples], rows[samples].clone()
        for row, sample in zip(labels, samples, strict=True):
            if sample >= 2 * batch_size:
                row[1 + sample % 7 :] = -100
        return {"input_ids": tokens, "labels": labels}

    return DataLoader(range(15), batch_size=batch_size, collate_fn=collate)


class Clip(nn.Module):
    """transformers' CLIP with its own loss: each text beside all images of the batch."""

    def __init__(self) -> None:
        from transformers import CLIPConfig, CLIPModel

        super().__init__()
        size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
        size |= {"num_attention_heads": 2}
        ends = {"bos_token_id": 0, "eos_token_id": 31, "pad_token_id": 1}
        text = {"vocab_size": 32, "max_position_embeddings": 16, **ends}
        image = {"image_size": 8, "patch_size": 4, "num_channels": 1}
        self.clip = CLIPModel(
            CLIPConfig(text_config=size | text, vision_config=size | image, projection_dim=16)
        )

    def forward(self, **batch: torch.Tensor) -> Any:
        return self.clip(**batch, return_loss=True)


def texts_and_images(batch_size: int = 6) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(2, 31, (24, 10), generator=generator)
    images = torch.randn(24, 1, 8, 8, generator=generator)

    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        return {"input_ids": texts[samples], "pixel_values": images[samples]}

    return DataLoader(range(24), batch_size=batch_size, shuffle=True, collate_fn=collate)


def experts(*, balanced: bool) -> nn.Module:
    """A mixture of experts; balanced by a loss over all tokens of the batch."""
    from transformers import MixtralConfig, MixtralForCausalLM

    size = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 4}
    return MixtralForCausalLM(MixtralConfig(**size, **heads, output_router_logits=balanced))


def contrastive(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    outputs = nn.functional.normalize(outputs)
    return nn.functional.cross_entropy(outputs @ outputs.T / 0.1, torch.arange(len(outputs)))


def mean_of_squares(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(outputs[:, 0], labels.float())


def weighted_by_class(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, weight=torch.arange(1.0, 6.0))


def class_weight(batch: Any) -> float:
    return float((batch[1] + 1).sum())


def one_class_first(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *, marks: bool = False
) -> TaskDefinition:
    """A task whose first eight samples are all of class 1, later ones of classes 1 to 3.

    With `marks`, labels are floats: 0 for the first eight, later 0 or 1.
    """

    def loader() -> DataLoader[Any]:
        inputs = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(7))
        labels = torch.arange(32) % 3 + 1
        labels[:8] = 1
        if marks:
            labels = (labels > 1).float()
        return DataLoader(TensorDataset(inputs, labels), batch_size=8)

    return definition(get_dataloader=loader, loss_function=loss)


def ignoring(label: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return partial(nn.functional.cross_entropy, ignore_index=label)


class Positions(nn.Module):
    """Predicts a class for each of six positions of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.head(self.embed(tokens).cumsum(1))


def rows_padded_late(*, with_mask: bool) -> DataLoader[Any]:
    """Rows without padding in the first two batches; later half of a row is, by token 0."""
    tokens = torch.randint(1, 9, (24, 6), generator=torch.Generator().manual_seed(3))
    tokens[17::3, 3:] = 0

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        rows = torch.stack(samples)
        return {"tokens": rows, "mask": (rows != 0).long()} if with_mask else {"tokens": rows}

    return DataLoader(tokens, batch_size=8, collate_fn=collate)


def of_next_token(outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    labels = batch["tokens"][:, 1:].flatten()
    return nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), labels, ignore_index=0)


def of_masked(outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    labels, mask = batch["tokens"].flatten(), batch["mask"].flatten()
    each = nn.functional.cross_entropy(outputs.flatten(0, 1), labels, reduction="none")
    return (each * mask).sum() / mask.sum()


def padded_late_task(loss: Callable[..., torch.Tensor], **changes: Any) -> TaskDefinition:
    loader = partial(rows_padded_late, with_mask=loss is of_masked)
    return definition(get_model=Positions, get_dataloader=loader, loss_function=loss, **changes)


def of_hardest_pairs(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The triplet loss with the hardest pairs of the batch; without two classes it is zero."""
    apart, same = torch.cdist(outputs, outputs), labels[:, None] == labels
    nearest_other = apart.masked_fill(same, 1e9).min(1).values
    return nn.functional.relu((apart * same).max(1).values - nearest_other + 1.0).mean()


def balanced_marks(outputs: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    weights = 1 + 7 * marks
    each = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], marks, reduction="none")
    return (weights * each).sum() / weights.sum()


def of_largest_losses(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean of a batch's four largest losses, as in online mining of hard examples."""
    each = nn.functional.cross_entropy(outputs, labels, reduction="none")
    return each.topk(min(4, len(each))).values.mean()


class Noisy(nn.Module):
    """Draws whatever a model may draw in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.4, batch_first=True) for _ in range(2)
        )
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 5)
        self.drops = nn.Sequential(nn.Dropout1d(0.3), nn.AlphaDropout(0.2), nn.RReLU())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.into(inputs + 0.1 * torch.randn_like(inputs))[:, None]
        for layer in self.layers:
            if float(torch.rand(())) > 0.1:  # a layer may be skipped
                hidden = layer(hidden)
        hidden = self.norm(hidden[:, 0])
        keep = torch.bernoulli(torch.full((len(hidden), 1), 0.7))
        noise = torch.empty_like(hidden).normal_() + torch.randint(1, 3, (len(hidden), 1))
        return self.out(self.drops(hidden * keep + 0.01 * noise))


class ZeroHead(nn.Module):
    """All samples have one loss, as the model is built."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 8)
        self.head = nn.Linear(8, 5, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(inputs))


class OnlyFloat32(nn.Linear):
    """Insists on its type."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.dtype != torch.float32:
            raise TypeError(f"inputs are {inputs.dtype}")
        return super().forward(inputs)


def own_loss(name: str, loader: Callable[..., Any], model: Any, **changes: Any) -> TaskDefinition:
    fields = {"get_model": model, "get_dataloader": loader, "loss_function": None}
    return definition(name, **{**fields, **changes})


def clip_task(**changes: Any) -> TaskDefinition:
    return own_loss("clip", texts_and_images, Clip, **changes)


def padded_task(name: str = "padded", **changes: Any) -> TaskDefinition:
    return own_loss(name, padded_rows, model_kinds.gpt2, **changes)


def sum_task(**changes: Any) -> TaskDefinition:
    return definition("sum", loss_function=nn.CrossEntropyLoss(reduction="sum"), **changes)


def experts_task(*, balanced: bool) -> TaskDefinition:
    name = "balanced" if balanced else "experts"
    return own_loss(name, model_kinds.token_rows, partial(experts, balanced=balanced))
