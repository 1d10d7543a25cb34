"""The fake GPUs themselves: what they do as real ones do, which the tests on them rest on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import closeness
import pytest
from fake_gpu import requirements
from fake_gpu.environment import device_uuid, environment

pytestmark = pytest.mark.usefixtures("fake_gpus")

ONE_PROCESS = """
import json, os, time
import torch

found = {"counted": torch.cuda.device_count(), "initialised": torch.cuda.is_initialized()}
device = torch.device("cuda", 1)

def error_of(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def trained(device):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    embedding, head = torch.nn.Embedding(20, 16), torch.nn.Linear(16, 20)
    model = torch.nn.Sequential(embedding, layer, head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tokens = torch.arange(24).remainder(20).view(3, 8).to(device)
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()

torch.set_num_threads(1)
found["losses"] = [trained(torch.device("cpu")), trained(device)]
found["names"] = [torch.cuda.get_device_name(n) for n in range(2)]
found["uuid"] = str(torch.cuda.get_device_properties(1).uuid)
found["mixed"] = error_of(lambda: torch.ones(2, device=device) + torch.ones(2))
other = torch.ones(2, device="cuda:0")
found["two devices"] = error_of(lambda: torch.ones(2, device=device) + other)
found["full"] = error_of(lambda: torch.empty(1 << 30, device=device))
torch.cuda.set_per_process_memory_fraction(0.01, device)
found["limited"] = error_of(lambda: torch.empty(20 << 20, device=device))
found["unwritten is NaN"] = bool(torch.empty(1 << 19, device="cuda:0").isnan().all())

def draws():
    torch.cuda.manual_seed(3)
    return [torch.rand(3, device="cuda:0").tolist() for _ in range(2)]

found["draws"] = [draws(), draws()]
child = os.fork()
if child == 0:
    os._exit("forked subprocess" in (error_of(lambda: torch.ones(1, device=device)) or ""))
found["forked child is refused"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
loss = torch.nn.functional.nll_loss(torch.ones(2, 3, device="cuda:0"), torch.tensor([0, 7]).cuda())
found["asserted"] = error_of(lambda: float(loss))
found["after it"] = error_of(lambda: torch.ones(1, device="cuda:0").item())
print(json.dumps(found))
"""


def run(script: str, gpus: Mapping[str, str], **env: str) -> dict[str, Any]:
    environ = {**os.environ, **gpus, **env}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["avx2", "default"])
def test_one_process(capability: str) -> None:
    gpus = environment(devices=3, names=("Fake A", "Fake B"))
    visible = f"{device_uuid(2)},{device_uuid(0)}"
    found = run(ONE_PROCESS, gpus, CUDA_VISIBLE_DEVICES=visible, ATEN_CPU_CAPABILITY=capability)
    assert (found["counted"], found["initialised"]) == (2, False)
    on_cpu, on_gpu = found["losses"]
    assert closeness.ulps(on_gpu, on_cpu) < closeness.ACROSS
    # In the order in which they were named.
    assert found["names"] == ["Fake B", "Fake A"] and found["uuid"] == device_uuid(0)[4:]
    for key in ("mixed", "two devices"):
        assert "Expected all tensors to be on the same device" in found[key]
    for key in ("full", "limited"):
        assert "CUDA out of memory" in found[key], found[key]
    assert found["unwritten is NaN"]
    first, second = found["draws"]
    assert first == second and first[0] != first[1]
    assert found["forked child is refused"]
    for key in ("asserted", "after it"):
        assert "device-side assert triggered" in found[key]


TWO_RANKS = """
import json, os, sys, threading, time
import torch
import torch.distributed as dist

rank, path = int(sys.argv[1]), sys.argv[2]
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
store = dist.FileStore(path, 2)
dist.init_process_group("nccl", store=store, rank=rank, world_size=2, device_id=device)
found = {}
for dtype in (torch.float32, torch.bfloat16, torch.int64):
    each = torch.tensor([1, 2, 300], device=device, dtype=dtype) * (rank + 1)
    dist.all_reduce(each)
    found[str(dtype)] = each.tolist()
parts = torch.arange(4.0, device=device) + rank
mine = torch.empty(2, device=device)
dist.reduce_scatter_tensor(mine, parts)
whole = torch.empty(4, device=device)
dist.all_gather_into_tensor(whole, mine)
found["scattered and gathered"] = whole.tolist()
large = torch.full((300_000,), float(rank), device=device)
other = torch.empty_like(large)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, large, 1 - rank),
                                    dist.P2POp(dist.irecv, other, 1 - rank)]):
    work.wait()
found["received"] = [other.min().item(), other.max().item()]
until = time.monotonic() + 30
if rank == 1:  # doesn't come
    while not os.path.exists(path + " given up") and time.monotonic() < until:
        time.sleep(0.01)
else:
    began = time.monotonic()
    dist.all_reduce(torch.ones(1, device=device), async_op=True)
    found["asked for it after"] = time.monotonic() - began
    threading.Timer(0.5, dist.distributed_c10d._abort_process_group).start()
    torch.cuda.synchronize()
    found["held until"] = time.monotonic() - began
    open(path + " given up", "w").close()
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_collectives_of_two_ranks(tmp_path: Path) -> None:
    environ = {**os.environ, **environment(devices=2)}
    command = [sys.executable, "-c", TWO_RANKS]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=120) for rank in ranks]
    found = [json.loads(stdout.splitlines()[-1]) for stdout, stderr in texts]
    for rank, each in enumerate(found):
        assert each["torch.float32"] == each["torch.int64"] == [3, 6, 900]
        assert each["torch.bfloat16"] == [3, 6, 900]
        assert each["scattered and gathered"] == [1, 3, 5, 7]
        assert each["received"] == [1 - rank, 1 - rank]
    # Whose peer does not come is free until it wants the result, and then held until it gives up.
    assert found[0]["asked for it after"] < 10, "its peer waits for half a minute"
    assert found[0]["held until"] - found[0]["asked for it after"] > 0.4


def test_what_does_not_fit_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "TORCH_VERSIONS", ("1.0",))
    assert "fake GPUs were tried with torch 1.0 alone, not" in str(requirements.why_not())
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "on Linux on x86-64 alone, not on aarch64" in str(requirements.why_not())
