"""A script for torchrun, as a task: `saturn run torchrun_ddp.py --gpus 1,2`.

It runs by itself too: `torchrun --nproc-per-node 2 torchrun_ddp.py`. What Saturn needs is the call
of `saturn.report` and the flag `--resume_from_checkpoint`.
"""

import argparse
import os
from pathlib import Path

import saturn
import torch
import torch.distributed as dist
import torch.distributed.nn  # see below, at the end
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=32, help="of all devices together")
parser.add_argument("--output_dir", type=Path, default=Path("out"))
parser.add_argument("--resume_from_checkpoint", type=Path)
args = parser.parse_args()


def train() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    labels = inputs[:, :4].argmax(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    done = 0
    if args.resume_from_checkpoint:
        saved = torch.load(args.resume_from_checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    for step in range(done + 1, args.steps + 1):
        own = torch.arange(rank, args.batch, ranks) + (step - 1) * args.batch  # one batch, cut
        own %= len(inputs)
        logits = model(inputs[own].to(device))
        loss = torch.nn.functional.cross_entropy(logits, labels[own].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean)
        if saturn.report(step, mean.item() / ranks, total_steps=args.steps):  # true: save and end
            checkpoint = args.output_dir / f"step-{step}.pt"
            if rank == 0:
                args.output_dir.mkdir(parents=True, exist_ok=True)
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, checkpoint)
            saturn.report(step, checkpoint=checkpoint)
            break


dist.init_process_group()  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are torchrun's
train()
dist.barrier()  # a rank that leaves while another still talks to it may end that with an abort
# A thread of gloo that still works when Python ends aborts the process. The group ends its threads
# here, since nothing holds the group any more: the model is gone with `train`, and functions of
# torch.distributed.nn would hold a group that is there when torch imports them by itself.
dist.destroy_process_group()
