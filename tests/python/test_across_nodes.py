"""Gangs wider than a node, as techniques see them: what goes across, and what it comes to.

Nodes are as it were: ranks of one machine that meet at a store, each node's with a spec of its own.
"""

from __future__ import annotations

import closeness
import pytest
import reference
from harness import Runtime
from model_kinds import BUILD, loss_of, task_of
from models import Mlp
from saturn.techniques import Setting
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.nodes import spread
from saturn.techniques.pinned import Pinned
from saturn.techniques.pipeline.technique import Pipeline, PipelineTensor
from saturn.techniques.tensor.technique import TensorFsdp, TensorParallel

pytestmark = pytest.mark.slow

REPLICATED = {"replicate_across_nodes": True}


def setting(*node_gpus: int) -> Setting:
    return Setting(gpus=sum(node_gpus), device_kind="cuda", hints={}, node_gpus=node_gpus)


def test_ranks_fill_the_largest_nodes_first() -> None:
    assert spread(3, [2, 2]) == (2, 1)
    assert spread(8, [5, 5, 5]) == (5, 3)
    assert spread(2, [1, 4, 2]) == (2,)
    assert spread(7, [1, 4, 2]) == (4, 2, 1)
    assert spread(4, []) == spread(9, [4, 4]) == ()


def test_a_tensor_group_stays_within_a_node() -> None:
    model = BUILD["llama"](0.0)
    assert TensorParallel().not_applicable(model, setting(2)) is None
    assert "must not lie across nodes" in (
        TensorParallel().not_applicable(model, setting(1, 1)) or ""
    )
    assert TensorFsdp().knob_sets(model, setting(2, 2)) == [{"tensor": 2}]
    assert "must not lie across" in (TensorFsdp().not_applicable(model, setting(3, 1)) or "")
    assert PipelineTensor().not_applicable(model, setting(2, 2)) is None
    assert "must not lie across" in (PipelineTensor().not_applicable(model, setting(3, 1)) or "")
    assert Pipeline().not_applicable(model, setting(1, 1)) is None


def test_copies_over_nodes_are_tried_where_nodes_are_alike() -> None:
    fsdp, model = Fsdp(), Mlp()
    assert REPLICATED in fsdp.knob_sets(model, setting(2, 2))
    for one in (setting(4), setting(2, 1)):
        assert REPLICATED not in fsdp.knob_sets(model, one)
    for only in (True, False):
        pinned = Pinned(fsdp, {"replicate_across_nodes": [only]}).knob_sets(model, setting(2, 2))
        assert {knobs["replicate_across_nodes"] for knobs in pinned} == {only}
    within = fsdp.least_memory_bytes(model, setting(2), {})
    assert fsdp.least_memory_bytes(model, setting(2, 2), REPLICATED) == within
    assert fsdp.least_memory_bytes(model, setting(2, 2), {}) < within


def test_copies_over_nodes_train_as_plain_torch_does(run: Runtime) -> None:
    task = task_of("mlp", max_grad_norm=0.5)
    run.write_task(task)
    within = run.run(task.name, "fsdp", ranks=2, steps=2)
    assert within.codes == [0, 0], within.logs
    both = run.run(task.name, "fsdp", ranks=4, steps=4, knobs=REPLICATED, node_gpus=(2, 2))
    assert both.codes == [0] * 4, both.logs
    odd = run.run(task.name, "ddp", ranks=3, steps=6, node_gpus=(2, 1))
    assert odd.codes == [0] * 3, odd.logs
    expected, _ = reference.train(task, 6, loss_of=loss_of(task))
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def test_nodes_that_are_not_alike_can_not_be_copies(run: Runtime) -> None:
    task = task_of("mlp")
    run.write_task(task)
    knobs = {"knobs": REPLICATED, "node_gpus": (2, 1)}
    refused = run.run(task.name, "fsdp", ranks=3, steps=2, **knobs)
    assert any(message["kind"] == "not_applicable" for message in refused.of("failed"))
