"""How many devices go to each kind of parallelism: the shapes that a gang's mesh can have.

Of all factorings of a number of devices, few are worth a trial, so a rule picks them. The smallest
tensor groups come first, because they communicate within every layer; pipelines and FSDP2 only do
so between layers. Then the fewest stages come first: each further stage adds waiting time and saves
memory, so more stages are only wanted if fewer don't fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from saturn.techniques.pipeline.line import STAGE

#: The names of the mesh's other dimensions.
DATA, TENSOR = "data", "tensor"


@dataclass(frozen=True)
class Shape:
    """A gang's mesh: `data` times `tensor` devices hold each of its stages."""

    stages: int
    data: int = 1
    tensor: int = 1

    @property
    def dimensions(self) -> dict[str, int]:
        """The mesh's dimensions by name. Tensor groups are neighbours: they communicate most."""
        others = {DATA: self.data, TENSOR: self.tensor}
        return {STAGE: self.stages} | {name: size for name, size in others.items() if size > 1}

    def __str__(self) -> str:
        counts = {"stages": self.stages, "FSDP2 ranks": self.data, "tensor ranks": self.tensor}
        return " x ".join(f"{number} {name}" for name, number in counts.items())


def shapes_of(gpus: int, *, data: bool, tensor: bool) -> list[Shape]:
    """The shapes of `gpus` devices with these dimensions, the most promising first."""
    return [
        Shape(stages, gpus // (stages * size), size)
        for size in (range(2, gpus) if tensor else (1,))
        for stages in range(2, gpus + 1)
        if gpus % (stages * size) == 0 and (gpus // (stages * size) > 1) == data
    ]
