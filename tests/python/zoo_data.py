"""Batches for the models of the zoo: few, small, and drawn from a seed.

Each loader gives 20 samples six at a time, so that the last batch of an epoch has two, and slices
are uneven.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

NUM_SAMPLES, BATCH_SIZE = 20, 6
VOCABULARY, LENGTH, NUM_CLASSES = 32, 10, 4
IMAGE_SIZE, NUM_CHANNELS = 16, 3


def loader(collate: Callable[[list[int]], Any]) -> DataLoader[Any]:
    return DataLoader(
        range(NUM_SAMPLES),  # type: ignore[arg-type]
        batch_size=BATCH_SIZE,
        shuffle=True,
        collate_fn=collate,
    )


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _rows(length: int = LENGTH) -> Tensor:
    # 0 to 2 stand for the begin, the end and the padding, here and there.
    return torch.randint(3, VOCABULARY, (NUM_SAMPLES, length), generator=_generator())


def _pixels() -> Tensor:
    shape = (NUM_SAMPLES, NUM_CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
    return torch.randn(shape, generator=_generator())


def _classes(samples: list[int]) -> Tensor:
    return torch.tensor(samples) % NUM_CLASSES


def tokens() -> DataLoader[Any]:
    """For language models: the labels are the tokens."""
    rows = _rows()
    return loader(lambda samples: {"input_ids": rows[samples], "labels": rows[samples]})


def pairs_of_sequences() -> DataLoader[Any]:
    """For encoders with a decoder: the target is shorter."""
    rows = _rows()
    targets = rows.flip(1)[:, 3:].contiguous()
    return loader(lambda samples: {"input_ids": rows[samples], "labels": targets[samples]})


def labelled_tokens() -> DataLoader[Any]:
    rows = _rows()
    return loader(lambda samples: {"input_ids": rows[samples], "labels": _classes(samples)})


def images() -> DataLoader[Any]:
    """For image classifiers of transformers."""
    pixels = _pixels()
    return loader(lambda samples: {"pixel_values": pixels[samples], "labels": _classes(samples)})


def pairs_of_images_and_classes() -> DataLoader[Any]:
    """For classifiers of plain torch, whose loss is the task's."""
    pixels = _pixels()
    return loader(lambda samples: (pixels[samples], _classes(samples)))


def noisy_images() -> DataLoader[Any]:
    """For a diffusion model: an image with noise, at which step, and the noise."""
    pixels, generator = _pixels(), _generator().manual_seed(6)
    noise = torch.randn(pixels.shape, generator=generator)
    steps = torch.randint(0, 100, (NUM_SAMPLES,), generator=generator)
    strength = (steps / 100).view(-1, 1, 1, 1)
    noisy = pixels * (1 - strength).sqrt() + noise * strength.sqrt()
    return loader(lambda samples: ((noisy[samples], steps[samples]), noise[samples]))


def texts_and_images() -> DataLoader[Any]:
    rows, pixels = _rows(), _pixels()
    return loader(lambda samples: {"input_ids": rows[samples], "pixel_values": pixels[samples]})


def captions() -> DataLoader[Any]:
    """Images with a text to give them."""
    rows, pixels = _rows(), _pixels()
    return loader(
        lambda samples: {
            "input_ids": rows[samples],
            "pixel_values": pixels[samples],
            "labels": rows[samples],
        }
    )


def spectrograms_to_text() -> DataLoader[Any]:
    rows = _rows()
    features = torch.randn(NUM_SAMPLES, 8, 16, generator=_generator())
    return loader(lambda samples: {"input_features": features[samples], "labels": rows[samples]})


def spectrograms() -> DataLoader[Any]:
    values = torch.randn(NUM_SAMPLES, 16, 16, generator=_generator())
    return loader(lambda samples: {"input_values": values[samples], "labels": _classes(samples)})


def waves() -> DataLoader[Any]:
    values = torch.randn(NUM_SAMPLES, 200, generator=_generator())
    return loader(lambda samples: {"input_values": values[samples], "labels": _classes(samples)})
