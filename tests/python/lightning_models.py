"""LightningModules for the tests, and Lightning's own training of them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import lightning.pytorch as pl
import reference
import torch
from models import NUM_SAMPLES, Mlp, dataset
from saturn.data.seeds import batch_seed
from torch import nn
from torch.utils.data import DataLoader, Subset

BATCH = 8
AN_EPOCH = -(-NUM_SAMPLES // BATCH)
#: Arguments of a Trainer that writes nothing.
QUIET = dict.fromkeys(
    ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
)


class Classifier(pl.LightningModule):
    """Logs, returns a mapping, and calls parts of itself beside its forward."""

    def __init__(self, lr: float = 0.05, dropout: float = 0.0, schedule: str = "none") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = Mlp(dropout=dropout)
        self.skip = nn.Linear(12, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs) + self.skip(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        inputs, labels = batch
        logits = self(inputs)
        loss_of = nn.functional.cross_entropy
        loss = loss_of(logits, labels) + 0.1 * loss_of(self.skip(inputs), labels)
        self.log("train_loss", loss, prog_bar=True)
        return {"loss": loss, "logits": logits.detach()}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        logits = self(batch[0])
        right = (logits.argmax(-1) == batch[1]).float().mean()
        self.log_dict({"val_loss": nn.functional.cross_entropy(logits, batch[1]), "right": right})

    def configure_optimizers(self) -> Any:
        decayed = [p for p in self.parameters() if p.ndim > 1]
        plain = [p for p in self.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=self.hparams.lr, momentum=0.9)
        if self.hparams.schedule == "none":
            return optimizer
        if self.hparams.schedule == "epoch":
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]
        total = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr * 2, total)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        self.data = dataset()

    def train_dataloader(self) -> Any:
        return DataLoader(self.data, batch_size=BATCH, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(Subset(self.data, range(20)), batch_size=8)


class Ordered:
    """The batches of a task as Saturn orders them, an epoch at a time."""

    def __init__(self, seed: int) -> None:
        data = Data()
        data.setup("fit")
        self._batches = reference.batches(data.train_dataloader(), seed)

    def __len__(self) -> int:
        return AN_EPOCH

    def __iter__(self) -> Iterator[Any]:
        # What fetching draws is not what the forward draws.
        return (next(self._batches) for _ in range(AN_EPOCH))


class Watch(pl.Callback):
    """Seeds each batch as Saturn does, and keeps losses."""

    def __init__(self, seed: int) -> None:
        self.seed, self.losses = seed, list[float]()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        torch.manual_seed(batch_seed(self.seed, len(self.losses), 0))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


def fit(
    make: Callable[[], Any], steps: int, *, seed: int = 0, **options: Any
) -> tuple[dict[int, float], Any]:
    """(loss by step, the trained module) of `Trainer.fit` on one core, by Saturn's seeds."""
    torch.manual_seed(seed)
    module = make()
    watch = Watch(seed)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_steps=steps,
            accelerator="cpu",
            devices=1,
            callbacks=[watch],
            limit_val_batches=0,
            **QUIET,
            **options,
        )
        trainer.fit(module, train_dataloaders=Ordered(seed))
    return dict(enumerate(watch.losses, 1)), module


def validate(module: Any) -> dict[str, float]:
    """What `Trainer.validate` finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(accelerator="cpu", devices=1, **QUIET)
        (found,) = trainer.validate(module, datamodule=Data(), verbose=False)
    return dict(found)


KINDS: dict[str, Callable[..., Any]] = {
    "plain": Classifier,
    "dropout": partial(Classifier, dropout=0.3),
    "by steps": partial(Classifier, schedule="step"),
    "by epochs": partial(Classifier, schedule="epoch"),
}
