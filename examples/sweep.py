"""A sweep of twelve models on one machine: language models, image classifiers, and wide readers.

Saturn measures each kind of model for a few steps, plans which runs where, with which technique and
on how many devices, then trains them all. A CPU slot holds 200 MB here, as if it were a small
device: the readers don't fit, and must be split over devices or streamed through one. The largest
must be split, so a slot that is alone holds 300 MB. A GPU holds all it has. No downloads: the text
is Python's own standard library, and the images are scikit-learn's handwritten digits. A second run
measures nothing: what the first has found is kept in SATURN_HOME (see `saturn profile list`).

    python examples/sweep.py [--short] [--devices N] [--device-memory SIZE] [--name NAME]
"""

import argparse
import os
import re
import sys
import sysconfig
import warnings
import zlib
from functools import partial
from pathlib import Path

from saturn import HParams, RunInterrupted, RunResult, SaturnError, Task, orchestrate

#: What a CPU slot may hold, unless the command line says otherwise. On a GPU, CUDA's own context
#: takes more than that.
DEVICE_MEMORY = "200MB"
#: The same for a slot that is alone: the largest reader can't be split there, and needs 250 MB.
LONE_DEVICE_MEMORY = "300MB"
#: Symbols that a reader looks at to tell the next.
CONTEXT = 16

# The functions below run in Saturn's workers, on the devices that the plan gives them. Each imports
# what it needs, so this script itself starts at once.


def language_model(layers: int):
    """A small GPT-2 that reads and writes bytes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=128, n_embd=128, n_layer=layers, n_head=4)
    )


def source_text(most_files: int | None = None) -> bytes:
    """The standard library's modules, one after the other."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return b"".join(file.read_bytes() for file in files[:most_files])


def corpus(batch_size: int):
    """Nine tenths of the standard library's source text, in windows of 128 bytes.

    The batch size is the global one: on two devices, each gets half of every batch.
    """
    import torch
    from torch.utils.data import DataLoader

    text = bytearray(source_text())
    train = torch.frombuffer(text, dtype=torch.uint8)[: len(text) * 9 // 10]
    windows = train[: len(train) // 128 * 128].view(-1, 128)

    def collate(rows):
        tokens = torch.stack(rows).long()
        return {"input_ids": tokens, "labels": tokens}  # keywords of the model's forward

    return DataLoader(windows, batch_size=batch_size, shuffle=True, collate_fn=collate)


def image_classifier(layers: int):
    """A small vision transformer for images of 8 by 8 pixels."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=2,
            num_channels=1,
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_labels=10,
        )
    )


def digits(*, train: bool):
    """Handwritten digits with their labels: three quarters to train on, the others to test."""
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import TensorDataset

    data = load_digits()
    chosen = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    end = len(chosen) * 3 // 4
    chosen = chosen[:end] if train else chosen[end:]
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    return TensorDataset(images[chosen], torch.tensor(data.target)[chosen])


def digit_batches(batch_size: int):
    """Batches of (images, labels)."""
    from torch.utils.data import DataLoader

    return DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)


def classification_loss(outputs, labels):
    """Mean cross entropy."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs.logits, labels)


def reader(vocabulary: int, layers: int):
    """A wide network that tells the next symbol from the last few: many parameters, little work.

    A log-bilinear model (Mnih and Hinton, 2007) with residual layers on top.
    """
    import torch
    from torch import nn

    class Layer(nn.Sequential):
        def forward(self, hidden):
            return hidden + super().forward(hidden)

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, 512)
            self.places = nn.Parameter(torch.randn(CONTEXT, 512) / CONTEXT**0.5)
            self.layers = nn.ModuleList(
                Layer(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
                for _ in range(layers)
            )
            self.head = nn.Linear(512, vocabulary)

        def forward(self, symbols):
            hidden = (self.embedding(symbols) * self.places).sum(dim=1)
            for layer in self.layers:
                hidden = layer(hidden)
            return self.head(hidden)

    return Reader()


def excerpts(vocabulary: int, batch_size: int):
    """Batches of (symbols, the next symbol): bytes, or words where the vocabulary is large."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    text = source_text(most_files=40)
    if vocabulary > 256:
        words = re.findall(rb"\w+|[^\w ]", text)
        symbols = torch.tensor([zlib.crc32(word) % vocabulary for word in words])
    else:
        symbols = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    rows = symbols[: len(symbols) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    data = TensorDataset(rows[:, :-1], rows[:, -1])
    return DataLoader(data, batch_size=batch_size, shuffle=True)


def next_symbol_loss(logits, symbols):
    """Mean cross entropy."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits, symbols)


def plain_descent(parameters, lr: float):
    """An optimizer that keeps nothing beside the parameters."""
    from torch.optim import SGD

    return SGD(parameters, lr=lr)


def sweep(*, short: bool) -> list[Task]:
    """Three families over grids of batch sizes, vocabularies and learning rates.

    Tasks that differ in nothing but the learning rate take the same time: Saturn measures one.
    """
    share = 0.2 if short else 1.0
    tasks = []
    for batch_size, batches in ((2, 1200), (4, 800)):
        for lr in (2e-4, 8e-4):
            tasks.append(
                Task(
                    language_model,
                    partial(corpus, batch_size),
                    None,  # the model computes its own loss
                    # Keywords that HParams doesn't know go to the function that makes the model.
                    HParams(lr=lr, batch_count=round(share * batches), layers=4),
                    name=f"gpt2-b{batch_size}-lr{lr:g}",
                )
            )
    for batch_size, batches in ((16, 2000), (32, 1500)):
        for lr in (5e-4, 2e-3):
            tasks.append(
                Task(
                    image_classifier,
                    partial(digit_batches, batch_size),
                    classification_loss,
                    HParams(lr=lr, batch_count=round(share * batches), layers=3),
                    name=f"vit-b{batch_size}-lr{lr:g}",
                )
            )
    for lr in (3e-4, 1e-3):
        tasks.append(
            Task(
                reader,
                partial(excerpts, 256, 64),
                next_symbol_loss,
                HParams(lr=lr, batch_count=round(share * 200), vocabulary=256, layers=6),
                name=f"bytes-lr{lr:g}",
            )
        )
    for lr in (0.1, 0.3):
        tasks.append(
            Task(
                reader,
                partial(excerpts, 24576, 64),
                next_symbol_loss,
                HParams(
                    lr=lr,
                    batch_count=round(share * 80),
                    optimizer_cls=plain_descent,
                    vocabulary=24576,
                    layers=2,
                ),
                name=f"words-lr{lr:g}",
            )
        )
    return tasks


def accuracy(checkpoint: Path) -> float:
    """The share of the digits held out of training that a trained classifier gets right."""
    import torch
    from torch.distributed.checkpoint import load

    # Whatever technique wrote it, a checkpoint holds the model's own parameter names.
    model = image_classifier(layers=3)
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    state = {"model": model.state_dict()}
    load(state, checkpoint_id=checkpoint, no_dist=True)
    model.load_state_dict(state["model"])
    images, labels = digits(train=False).tensors
    with torch.inference_mode():
        return (model.eval()(images).logits.argmax(-1) == labels).float().mean().item()


def device_memory(asked: str | None, devices: int | None) -> str | None:
    """What a device may hold, by the command line; None: all it has."""
    import torch

    if asked is not None:
        return None if asked == "none" else asked
    if torch.cuda.device_count() > 0:
        return None
    is_alone = (devices or len(os.sched_getaffinity(0))) == 1
    return LONE_DEVICE_MEMORY if is_alone else DEVICE_MEMORY


def show(result: RunResult) -> None:
    """What came of it, on standard output."""
    for task in result.tasks:
        line = f"{task.name:18} loss {task.final_loss:.3f}"
        if task.name.startswith("vit"):
            checkpoint = max((result.run_dir / "tasks" / task.name / "checkpoints").glob("step-*"))
            line += f"   {accuracy(checkpoint):.1%} of unseen digits right"
        print(line)
    print(f"\nIn {result.total_s:.0f} s from start to end, trials included.")
    planned = f"planned {result.planned_makespan_s:.0f} s"
    print(f"From the plan on it took {result.makespan_s:.0f} s; {planned}.")
    if (
        result.current_practice_total_s is not None
        and result.did_all_that_was_planned
        and not result.current_practice_is_estimate  # such an estimate may be far off
    ):
        practice = f"{result.current_practice_total_s:.0f} s"
        print(f"By the same profile, one task at a time would take {practice} from start to end.")
    print(f"To see what happened, open {result.report_path}")


def main() -> None:
    """Parse the arguments, train, show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="train for about a minute in all")
    parser.add_argument("--devices", type=int, help="GPUs, or CPU cores without any (default: all)")
    parser.add_argument(
        "--device-memory",
        metavar="SIZE",
        help="what each may hold, such as 600MB or 2GiB, enforced; none: all it has "
        f"(default: a CPU slot {DEVICE_MEMORY}, or {LONE_DEVICE_MEMORY} if it is alone; a GPU all)",
    )
    parser.add_argument("--name", help="name of the run directory in saturn_runs/")
    args = parser.parse_args()
    result = orchestrate(
        sweep(short=args.short),
        interval=60,
        devices=args.devices,
        device_memory=device_memory(args.device_memory, args.devices),
        name=args.name,
    )
    show(result)


if __name__ == "__main__":
    try:
        main()
    except RunInterrupted as stop:
        sys.exit(stop.exit_code)  # the last lines on the screen say how to go on
    except SaturnError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
