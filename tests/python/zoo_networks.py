"""Networks of plain torch for the zoo: convolutional nets, a diffusion U-Net, and a few others.

They are the well-known designs at a size at which a step takes milliseconds: blocks, batch norm,
shortcuts and concatenations as in the originals.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from zoo_data import NUM_CHANNELS, NUM_CLASSES


def _convolution(
    inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution, batch norm, and a rectifier."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, stride=stride)
        self.second = nn.Sequential(
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(inputs)) + self.shortcut(inputs))


class ResNet(nn.Module):
    """Residual blocks in stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(NUM_CHANNELS, 8)
        self.stages = nn.Sequential(
            *(ResidualBlock(8, 8, 1), ResidualBlock(8, 8, 1)),
            *(ResidualBlock(8, 16, 2), ResidualBlock(16, 16, 1)),
        )
        self.head = nn.Linear(16, NUM_CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(pixels)).mean((2, 3)))


def vgg() -> nn.Sequential:
    """Convolutions and pooling in a row, with batch norm, and a deep head."""
    features: list[nn.Module] = []
    width = NUM_CHANNELS
    for stage_width, depth in ((8, 1), (16, 2), (16, 2)):
        for _ in range(depth):
            features.append(_convolution(width, stage_width))
            width = stage_width
        features.append(nn.MaxPool2d(2))
    head = (nn.Linear(width * 4, 24), nn.ReLU(), nn.Linear(24, NUM_CLASSES))
    return nn.Sequential(*features, nn.Flatten(), *head)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = 4 * inputs
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            _convolution(inputs, inner, 1),
            _convolution(inner, inner, stride=stride, groups=inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return inputs + outputs if self.is_residual else outputs


def mobilenet() -> nn.Sequential:
    """Inverted residuals with depthwise convolutions, as in MobileNetV2."""
    return nn.Sequential(
        _convolution(NUM_CHANNELS, 8, stride=2),
        *(InvertedResidual(8, 8, 1), InvertedResidual(8, 12, 2), InvertedResidual(12, 12, 1)),
        _convolution(12, 24, 1),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, NUM_CLASSES)),
    )


class DenseLayer(nn.Module):
    """Gives its inputs and, beside them, what it makes of them."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.convolution = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, self.convolution(torch.relu(self.norm(inputs)))], dim=1)


def densenet() -> nn.Sequential:
    """Dense blocks with a transition between them."""
    block = [DenseLayer(8 + 4 * number, 4) for number in range(3)]
    transition = [nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2)]
    second = [DenseLayer(10 + 4 * number, 4) for number in range(3)]
    end = [nn.BatchNorm2d(22), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    stem = nn.Conv2d(NUM_CHANNELS, 8, 3, stride=2, padding=1, bias=False)
    return nn.Sequential(stem, *block, *transition, *second, *end, nn.Linear(22, NUM_CLASSES))


class TimedBlock(nn.Module):
    """Two convolutions with group norm, told the step of the diffusion."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)])
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, inputs: Tensor, time: Tensor) -> Tensor:
        silu = nn.functional.silu
        hidden = self.first(silu(self.norms[0](inputs))) + self.time(silu(time))[..., None, None]
        return self.second(silu(self.norms[1](hidden))) + self.shortcut(inputs)


class UNet(nn.Module):
    """A diffusion model's: down with a stack of what was seen, attention, and up again."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 16))
        self.stem = nn.Conv2d(NUM_CHANNELS, width, 3, padding=1)
        self.down = nn.ModuleList([TimedBlock(width, width, 16), TimedBlock(width, 2 * width, 16)])
        self.middle = TimedBlock(2 * width, 2 * width, 16)
        self.attention = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up = nn.ModuleList(
            [TimedBlock(4 * width, width, 16), TimedBlock(2 * width, width, 16)]
        )
        self.out = nn.Conv2d(width, NUM_CHANNELS, 3, padding=1)

    def forward(self, noisy: Tensor, steps: Tensor) -> Tensor:
        time = self.time(self._waves(steps))
        hidden, seen = self.stem(noisy), []
        for block in self.down:
            hidden = block(hidden, time)
            seen.append(hidden)
            hidden = nn.functional.avg_pool2d(hidden, 2)
        hidden = self.middle(hidden, time)
        rows = hidden.flatten(2).transpose(1, 2)
        hidden = hidden + self.attention(rows, rows, rows)[0].transpose(1, 2).view_as(hidden)
        for block in self.up:
            hidden = nn.functional.interpolate(hidden, scale_factor=2.0)
            hidden = block(torch.cat([hidden, seen.pop()], dim=1), time)
        return self.out(hidden)

    def _waves(self, steps: Tensor) -> Tensor:
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=steps.device) * (-math.log(1000.0) / half))
        angles = steps[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class PatchTransformer(nn.Module):
    """torch's own encoder layers, whose attention keeps its weights in one parameter."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(NUM_CHANNELS, width, 4, stride=4)
        layer = nn.TransformerEncoderLayer(width, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        rows = self.patches(pixels).flatten(2).transpose(1, 2)
        return self.head(self.encoder(rows).mean(1))


class MixerLayer(nn.Module):
    def __init__(self, num_patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across = _mlp(num_patches)
        self.along = _mlp(width)

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows + self.across(self.norms[0](rows).transpose(1, 2)).transpose(1, 2)
        return rows + self.along(self.norms[1](rows))


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Mixer(nn.Module):
    """An MLP-Mixer: nothing but linear layers over patches and over channels."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(NUM_CHANNELS, width, 4, stride=4)
        self.layers = nn.Sequential(*(MixerLayer(16, width) for _ in range(3)))
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(pixels).flatten(2).transpose(1, 2)).mean(1))


class Recurrent(nn.Module):
    """An LSTM that reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(NUM_CHANNELS * 16, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, NUM_CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.lstm(pixels.transpose(1, 2).flatten(2))[0][:, -1])
