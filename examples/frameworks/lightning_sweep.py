"""LightningModules as tasks: `python lightning_sweep.py`.

Needs `pip install lightning`.
"""

import lightning.pytorch as pl
import torch
from saturn import HParams, Task, orchestrate


class Classifier(pl.LightningModule):
    """Any module with a training_step, and an optimizer of its own."""

    def __init__(self, lr: float, width: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, width), torch.nn.Tanh(), torch.nn.Linear(width, 4)
        )

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)]


class Data(pl.LightningDataModule):
    """The batch size is the global one, whatever the number of devices."""

    def setup(self, stage):
        inputs = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
        data = torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))
        self.train, self.val = torch.utils.data.random_split(data, [512, 128])

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(self.val, batch_size=64)


tasks = [
    Task.from_lightning(
        *(Classifier, Data, HParams(lr=lr, epochs=4, width=width)),
        name=f"width{width}-lr{lr}",
        evaluate_every=16,
        best=("val_loss", "min"),
    )
    for width in (32, 128)
    for lr in (1e-3, 1e-2)
]
if __name__ == "__main__":
    result = orchestrate(tasks)
    print(result.report_path)
