"""What a machine's first GPU says of memory and cores, as JSON; a part of `make gpu-check`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from saturn.rank.gpu_memory import OutsideTorch
from saturn.rank.process import bind_to_numa_node, keep_pinned_sizes

MIB = 1 << 20
#: A size that is far from a power of two.
PINNED_BYTES = 5 * MIB


def local_cores(device: torch.device) -> set[int]:
    """Near a GPU, by another file of the kernel's than the one that Saturn reads; empty if none."""
    about = torch.cuda.get_device_properties(device)
    address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
    try:
        text = Path(f"/sys/bus/pci/devices/{address}/local_cpulist").read_text().strip()
    except OSError:
        return set()
    parts = [part.split("-") for part in text.split(",") if part]
    return {core for part in parts for core in range(int(part[0]), int(part[-1]) + 1)}


def main() -> None:
    device = torch.device("cuda", 0)
    cores = os.sched_getaffinity(0)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", sys.argv[1])
    outside = OutsideTorch(0)
    layer = torch.nn.Linear(256, 256, device=device)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(torch.ones(8, 256, device=device)).relu().sum().backward()
    optimizer.step()
    torch.cuda.synchronize(device)
    total = torch.cuda.mem_get_info(device)[1]
    can_keep = keep_pinned_sizes()
    pinned = torch.empty(PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    taken = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    bind_to_numa_node(device)
    found = {
        "total_bytes": total,
        # What `device_memory` counts beside torch's memory: the context, after a step.
        "outside_torch_bytes": outside.bytes_on(device),
        "can_keep_pinned_sizes": can_keep,
        "pinned_asked_bytes": pinned.nbytes,
        "pinned_taken_bytes": taken,
        "cores": len(cores),
        "cores_that_the_kernel_calls_local": sorted(local_cores(device) & cores),
        "cores_near_the_gpu": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
