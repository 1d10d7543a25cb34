"""Small models whose code is hard, or impossible, to cut into pipeline stages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from models import NUM_CLASSES, WIDTH, Mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Layered(nn.Module):
    """Four layers between `first` and `head`; kinds differ in what runs between them."""

    def __init__(self, layer: Callable[[], nn.Module] = lambda: nn.Linear(WIDTH, WIDTH)) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(layer() for _ in range(4))
        self.head = nn.Linear(WIDTH, NUM_CLASSES)


class PairLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, one: Tensor, *, other: Tensor) -> tuple[Tensor, Tensor]:
        return one + self.one(one).tanh(), other * self.other(one).sigmoid()


class TwoTensors(Layered):
    """Two tensors go from layer to layer, one of them by keyword."""

    def __init__(self) -> None:
        super().__init__(PairLayer)

    def forward(self, inputs: Tensor) -> Tensor:
        one = other = self.first(inputs)
        for layer in self.layers:
            one, other = layer(one, other=other)
        return self.head(one + other)


class MemoryLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.memory = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        return hidden + torch.tanh(self.linear(hidden) + self.memory(memory))


class GivenToAll(Layered):
    """Every layer gets what the first made of the inputs, as a decoder gets its encoder's."""

    def __init__(self) -> None:
        super().__init__(MemoryLayer)

    def forward(self, inputs: Tensor) -> Tensor:
        memory, hidden = self.first(inputs).relu(), inputs
        for layer in self.layers:
            hidden = layer(hidden, memory)
        return self.head(hidden)


class Shifted(Layered):
    """The first layer's output is added before each layer, where no layer sees it alone."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = first = self.first(inputs)
        for layer in self.layers:
            hidden = layer(hidden + first).tanh()
        return self.head(hidden)


class HeadFirst(nn.Module):
    """Its head and norm are registered before its layers, and used after them."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.norm = nn.Linear(WIDTH, NUM_CLASSES), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = inputs + layer(inputs).tanh()
        return self.head(self.norm(inputs))


class TiedByCode(nn.Module):
    """The head is the embedding's weight, used by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_CLASSES, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.embed((inputs.abs() * 3).long().clamp(max=NUM_CLASSES - 1)).mean(1)
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return functional.linear(hidden, self.embed.weight)


class Recurrent(Layered):
    """An LSTM before the layers, which keeps references of its own to its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(WIDTH, WIDTH, batch_first=True)  # type: ignore[assignment]

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs[:, None])[0][:, 0]
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return self.head(hidden)


class Checkpoints(Layered):
    """Runs its layers again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for layer in self.layers:
            hidden = hidden + checkpoint(layer, hidden, use_reentrant=self.reentrant).tanh()
        return self.head(hidden)


class SkipsAcross(Layered):
    """As a U-Net: the last layers get what the first have made."""

    def forward(self, inputs: Tensor) -> Tensor:
        one = self.layers[0](inputs).tanh()
        other = self.layers[1](one).tanh()
        hidden = self.layers[2](other).tanh()
        return self.head(self.layers[3](hidden + one) + other)


class CallsTwice(Mlp):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(super().forward(inputs) @ self.head.weight)


class Backwards(Layered):
    def forward(self, inputs: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            inputs = inputs + layer(inputs).tanh()
        return self.head(inputs)


class LeavesOut(Layered):
    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers[:3]:
            inputs = inputs + layer(inputs).tanh()
        return self.head(inputs)


class SideBySide(Layered):
    """The layers all get the inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(sum(layer(inputs).tanh() for layer in self.layers))  # type: ignore[arg-type]


class LooksBetween(Layered):
    """Asks for a value between its layers."""

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = inputs + layer(inputs).tanh()
            if inputs.abs().max() > 1e6:
                raise ValueError("diverged")
        return self.head(inputs)


class KeepingLayer(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        self.penalty = outputs.square().mean()
        return inputs + outputs.tanh()


class KeepsPenalty(Layered):
    """As some mixtures of experts: layers leave a penalty, which is summed at the end."""

    def __init__(self) -> None:
        super().__init__(lambda: KeepingLayer(WIDTH, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return self.head(inputs) * (1 + sum(layer.penalty for layer in self.layers))


class AppendingLayer(nn.Linear):
    def forward(self, inputs: Tensor, penalties: list[Tensor]) -> Tensor:  # type: ignore[override]
        outputs = super().forward(inputs)
        penalties.append(outputs.square().mean())
        return inputs + outputs.tanh()


class FillsList(Layered):
    """The same, in a list that every layer gets."""

    def __init__(self) -> None:
        super().__init__(lambda: AppendingLayer(WIDTH, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        penalties: list[Tensor] = []
        for layer in self.layers:
            inputs = layer(inputs, penalties)
        return self.head(inputs) * (1 + sum(penalties))


class MaskingLayer(nn.Linear):
    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        mask.mul_(0.5)
        return inputs + super().forward(inputs) * mask


class WritesMask(Layered):
    """Each layer changes the mask that the next one gets."""

    def __init__(self) -> None:
        super().__init__(lambda: MaskingLayer(WIDTH, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        mask = torch.ones(WIDTH)
        for layer in self.layers:
            inputs = layer(inputs, mask)
        return self.head(inputs)


class OverwritesBuffer(Layered):
    """Copies a hidden state into a tensor of its own between the layers."""

    def forward(self, inputs: Tensor) -> Tensor:
        kept = torch.zeros_like(inputs)
        for layer in self.layers:
            inputs = inputs + layer(inputs).tanh() + kept
            kept.copy_(inputs)
        return self.head(inputs)


class CountsForwards(Layered):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.count += 1
        for layer in self.layers:
            inputs = inputs + layer(inputs).tanh()
        return self.head(inputs)


class DrawsForAll(Layered):
    """Noise for every layer, drawn after a dropout that only the first stage runs."""

    def __init__(self) -> None:
        super().__init__(MemoryLayer)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.dropout(self.first(inputs), 0.1)
        noise = torch.randn(WIDTH)
        for layer in self.layers:
            hidden = layer(hidden, noise)
        return self.head(hidden)


class Penalises(Layered):
    """Adds something of all its parameters, which no stage alone has."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return self.head(hidden) + sum(parameter.pow(2).sum() for parameter in self.parameters())


class Follows(Layered):
    """Follows its head slowly with another, once a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.follower = nn.Linear(WIDTH, NUM_CLASSES).requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        with torch.no_grad():
            self.follower.bias.lerp_(self.head.bias, 0.1)
        return self.head(hidden) + self.follower(hidden)
