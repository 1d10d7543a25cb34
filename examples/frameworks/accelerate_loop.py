"""A loop with Hugging Face Accelerate, as a task: `saturn run accelerate_loop.py --gpus 1,2`.

It runs by itself too: `python accelerate_loop.py` or `accelerate launch accelerate_loop.py`. What
Saturn needs is the call of `saturn.report` and the flag `--resume_from_checkpoint`.
"""

import argparse
import itertools
from pathlib import Path

import saturn
import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=32, help="of all devices together")
parser.add_argument("--output_dir", type=Path, default=Path("out"))
parser.add_argument("--resume_from_checkpoint", type=Path)
args = parser.parse_args()

# What `accelerate config` would ask about precision and accumulation is said here: the environment
# that Saturn starts it in is torchrun's, and has no ACCELERATE_ variables.
accelerator = Accelerator(gradient_accumulation_steps=1)
torch.manual_seed(0)
inputs = torch.randn(512, 16)
data = torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))
# Accelerate's batch size is that of one device: divided, so that a plan changes no losses.
loader = torch.utils.data.DataLoader(data, batch_size=args.batch // accelerator.num_processes)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

done = 0
if args.resume_from_checkpoint:
    accelerator.load_state(args.resume_from_checkpoint)
    done = int(args.resume_from_checkpoint.name.removeprefix("step-"))
batches = itertools.chain.from_iterable(itertools.repeat(loader))
for step, (features, labels) in enumerate(itertools.islice(batches, done, args.steps), done + 1):
    loss = torch.nn.functional.cross_entropy(model(features), labels)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    mean = accelerator.reduce(loss.detach(), reduction="mean").item()
    if saturn.report(step, mean, total_steps=args.steps):  # true: save and end
        checkpoint = args.output_dir / f"step-{step}"
        accelerator.save_state(checkpoint)
        accelerator.wait_for_everyone()
        saturn.report(step, checkpoint=checkpoint)
        break
accelerator.end_training()
