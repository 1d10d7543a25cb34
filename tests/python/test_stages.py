"""The splitter of `pipeline`: stages together are the model, or a reason says why they can't be.

All stages run in this process, one after the other, without a schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import closeness
import model_kinds
import odd_models
import pytest
import torch
from models import NUM_CLASSES, WIDTH, Mlp
from saturn.techniques.interface import NotApplicable
from saturn.techniques.pipeline.absent import AbsentTensor
from saturn.techniques.pipeline.stage_forward import NeededElsewhere, StageForward
from saturn.techniques.pipeline.stages import Split, keep_only, split
from torch import nn

CPU = torch.device("cpu")


class FakeLine:
    """One rank of several that are threads of one process."""

    device = CPU

    def __init__(
        self, rank: int, stages_a_rank: int, barrier: threading.Barrier, values: list[Any]
    ) -> None:
        self.rank, self.num_places = rank, barrier.parties
        self.num_stages = self.num_places * stages_a_rank
        self.stages = tuple(range(rank, self.num_stages, self.num_places))
        self._barrier, self._values = barrier, values

    def place_of(self, stage: int) -> int:
        return stage % self.num_places

    def collect(self, value: Any) -> list[Any]:
        self._values[self.rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values


class Stages:
    """A model cut into stages, all of them here."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        num_stages: int,
        everywhere: list[str] | None = None,
        *,
        stages_a_rank: int = 1,
    ) -> None:
        self.modules = []
        num_ranks = num_stages // stages_a_rank
        self._barrier = threading.Barrier(num_ranks)
        values = [None] * num_ranks
        self._ranks = []
        for rank in range(num_ranks):
            module = seeded(build)
            self.cut = split(module, num_stages, everywhere=everywhere or ())
            line: Any = FakeLine(rank, stages_a_rank, self._barrier, values)
            absent = keep_only(module, self.cut, line.stages, CPU)
            self._ranks.append(StageForward(module, self.cut, line, absent))
            self.modules.append(module)

    def outputs(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, by way of all stages; rehearses first."""

        def rehearse(stage: StageForward) -> Any:
            try:
                return stage.rehearse(args, kwargs, 5)
            except threading.BrokenBarrierError:
                return None  # another stage has failed
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(len(self._ranks)) as pool:
            shapes = list(pool.map(rehearse, self._ranks))
        passed: Any = []
        for stage in range(self.cut.num_stages):
            rank = stage % len(self._ranks)
            passed = self._ranks[rank].run(stage, args, kwargs, shapes[rank], passed, 5)
        return passed

    def loss(self, outputs: Any) -> torch.Tensor:
        return self._ranks[-1].loss(loss_of(outputs))

    def gradients(self) -> dict[str, torch.Tensor]:
        """Each parameter's gradient, summed over the stages that hold it."""
        found: dict[str, torch.Tensor] = {}
        for module in self.modules:
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    found[name] = found.get(name, torch.zeros(())) + parameter.grad
        return found


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().train()


def loss_of(outputs: Any) -> torch.Tensor:
    if getattr(outputs, "loss", None) is not None:
        return outputs.loss
    return nn.functional.cross_entropy(outputs, torch.arange(len(outputs)) % NUM_CLASSES)


def tokens() -> dict[str, torch.Tensor]:
    rows = torch.randint(0, 32, (3, 16), generator=torch.Generator().manual_seed(1))
    return {"input_ids": rows, "labels": rows}


def padded_tokens() -> dict[str, torch.Tensor]:
    mask = torch.ones(3, 16, dtype=torch.long)
    mask[1, 12:] = 0
    return {**tokens(), "attention_mask": mask}


def pixels() -> dict[str, torch.Tensor]:
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": images, "labels": torch.arange(3)}


def rows() -> dict[str, torch.Tensor]:
    return {"inputs": torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))}


def check(
    build: Callable[[], nn.Module],
    inputs: dict[str, torch.Tensor],
    num_stages: int,
    everywhere: list[str] | None = None,
    stages_a_rank: int = 1,
) -> Split:
    """Loss and gradients of the stages are those of the model."""
    whole = seeded(build)
    expected = loss_of(whole(**inputs))
    expected.backward()
    stages = Stages(build, num_stages, everywhere, stages_a_rank=stages_a_rank)
    loss = stages.loss(stages.outputs(**inputs))
    loss.backward()
    assert closeness.ulps(loss, expected) < closeness.ACROSS
    gradients = stages.gradients()
    wanted = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
    assert gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert closeness.ulps(gradients[name], gradient) < closeness.ACROSS, name
    names = [set(dict(module.named_parameters())) for module in stages.modules]
    assert set.union(*names) == set(dict(whole.named_parameters()))
    return stages.cut


def transformer(kind: str, config: str, model: str, **options: Any) -> nn.Module:
    import importlib

    module = importlib.import_module(f"transformers.models.{kind}")
    size = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    rest = {"intermediate_size": 32, "max_position_embeddings": 16, "num_key_value_heads": 2}
    drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    return getattr(module, model)(getattr(module, config)(**{**size, **rest, **drops, **options}))


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 4}
    rest = {"num_heads": 2, "dropout_rate": 0.0, "decoder_start_token_id": 0, "pad_token_id": 0}
    return transformer("t5", "T5Config", "T5ForConditionalGeneration", **sizes, **rest)


TRANSFORMERS = {
    "gpt2": partial(model_kinds.gpt2, n_layer=4),
    "gpt2-no-cache": partial(model_kinds.gpt2, n_layer=4, use_cache=False),
    "llama": partial(model_kinds.llama, num_hidden_layers=4),
    "llama-tied": partial(model_kinds.llama, num_hidden_layers=4, tie_word_embeddings=True),
    "qwen2": partial(transformer, "qwen2", "Qwen2Config", "Qwen2ForCausalLM"),
    "gpt-neox": partial(transformer, "gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM"),
    "bert": partial(transformer, "bert", "BertConfig", "BertForMaskedLM"),
    "t5": t5,
}


def mixture(**options: Any) -> nn.Module:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, **options}
    return transformer("mixtral", "MixtralConfig", "MixtralForCausalLM", **experts)


def test_a_mixture_of_experts_without_and_with_a_loss_over_all_its_routers() -> None:
    pytest.importorskip("transformers")
    check(mixture, tokens(), 2)
    with pytest.raises(NotApplicable, match=r"hooked to the forward of `model.layers.0"):
        check(partial(mixture, output_router_logits=True), tokens(), 2)


@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_language_models(kind: str, num_stages: int) -> None:
    pytest.importorskip("transformers")
    inputs = tokens() if kind == "t5" else padded_tokens()
    check(TRANSFORMERS[kind], inputs, num_stages)
    if num_stages == 4:
        check(TRANSFORMERS[kind], inputs, num_stages, stages_a_rank=2)


def test_vision_transformer() -> None:
    pytest.importorskip("transformers")
    check(partial(model_kinds.vit, num_hidden_layers=4), pixels(), 4)


def test_parameters_whose_order_misleads_are_named_and_then_held_everywhere() -> None:
    pytest.importorskip("transformers")
    build = partial(
        transformer,
        "opt",
        "OPTConfig",
        "OPTForCausalLM",
        ffn_dim=32,
        word_embed_proj_dim=16,
        dropout=0.0,
    )
    with pytest.raises(NeededElsewhere) as raised:
        check(build, tokens(), 2)
    names = NeededElsewhere.names_in(str(raised.value))
    assert names == [f"model.decoder.final_layer_norm.{kind}" for kind in ("bias", "weight")]
    cut = check(build, tokens(), 2, names)
    assert cut.holders[names[0]] == (0, 1)


def sequential() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 16),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)),
        nn.Identity(),
        nn.Linear(16, NUM_CLASSES),
    )


def frozen() -> nn.Module:
    model = Mlp(4)
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    return model


@pytest.mark.parametrize(
    ("build", "everywhere"),
    [
        pytest.param(partial(Mlp, 4), [], id="residuals-outside-the-layers"),
        pytest.param(odd_models.TwoTensors, [], id="two-tensors"),
        pytest.param(odd_models.GivenToAll, [], id="given-to-all"),
        pytest.param(odd_models.Recurrent, [], id="recurrent"),
        pytest.param(partial(odd_models.Checkpoints, reentrant=False), [], id="checkpoints"),
        pytest.param(frozen, [], id="frozen"),
        pytest.param(odd_models.Shifted, ["first.weight", "first.bias"], id="shifted"),
        pytest.param(odd_models.TiedByCode, ["embed.weight"], id="tied-by-code"),
        pytest.param(
            odd_models.HeadFirst,
            ["head.weight", "head.bias", "norm.weight", "norm.bias"],
            id="head-first",
        ),
    ],
)
def test_plain_models(build: Callable[[], nn.Module], everywhere: list[str]) -> None:
    if everywhere:
        with pytest.raises(NeededElsewhere):
            check(build, rows(), 2)
    check(build, rows(), 2, everywhere)
    check(build, rows(), 4, everywhere)
    check(build, rows(), 4, everywhere, stages_a_rank=2)


def test_nested_sequentials_are_one_chain() -> None:
    def build() -> nn.Module:
        return sequential()

    inputs = {"input": rows()["inputs"]}
    cut = check(build, inputs, 4)
    assert [name for name, _ in cut.layers] == ["0", "1", "2.0", "2.1", "2.2", "3", "4"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (odd_models.SkipsAcross, "not only by way of the layers"),
        (odd_models.CallsTwice, "where all have been called"),
        (odd_models.Backwards, "calls layer `layers.3` where `layers.0` is next"),
        (odd_models.LeavesOut, "without a call of layer `layers.3`"),
        (odd_models.SideBySide, "gets nothing from the layers before"),
        (odd_models.LooksBetween, "calls `__bool__` on what comes from `layers.0`"),
        (odd_models.KeepsPenalty, "in `layers.0.penalty`"),
        (odd_models.FillsList, "changes a list or mapping"),
        (odd_models.WritesMask, "writes into an argument"),
        (odd_models.OverwritesBuffer, "into another tensor"),
        (odd_models.CountsForwards, "changes the buffer `count`"),
        (odd_models.DrawsForAll, "differs between the stages"),
        (odd_models.Penalises, "the loss depends on a value that comes from `first.bias`"),
        (odd_models.Follows, "changes the parameter `follower.bias` itself"),
        (partial(odd_models.Checkpoints, reentrant=True), "use_reentrant=False"),
    ],
)
def test_what_cannot_run_in_stages_says_why(build: Callable[[], nn.Module], reason: str) -> None:
    stages = Stages(build, 2)
    with pytest.raises(NotApplicable, match=reason):
        stages.loss(stages.outputs(**rows()))


def test_weights_that_code_kept_for_itself_are_not_used_stale() -> None:
    class Keeps(Mlp):
        def __init__(self) -> None:
            super().__init__(4)
            self.kept = [self.norm.weight]  # registered before the head; used before the layers

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs * self.kept[0])

    with pytest.raises(RuntimeError, match="size of tensor"):
        Stages(Keeps, 2).outputs(**rows())


def test_too_few_layers() -> None:
    with pytest.raises(NotApplicable, match=r"`layers` has 3 layers .* too few for 4"):
        split(Mlp(3), 4)
    with pytest.raises(NotApplicable, match="no chain of layers"):
        split(nn.Linear(2, 2), 2)


def test_stages_are_balanced_by_what_their_work_passes_over() -> None:
    pytest.importorskip("transformers")
    # Looking up 4000 words costs nothing, the head over them as much as many layers.
    model = model_kinds.gpt2(n_layer=8, vocab_size=4000)
    cut = split(model, 2)
    assert cut.bounds == (0, 7, 8)
    assert cut.holders["transformer.wte.weight"] == (0, 1) == cut.holders["lm_head.weight"]
    assert split(nn.Sequential(*(nn.Linear(4, 4) for _ in range(8))), 4).bounds == (0, 2, 4, 6, 8)


def test_layers_are_not_taken_apart_for_the_sake_of_balance() -> None:
    class Layer(nn.Sequential):  # its parts alone are no chain: what goes around them is added
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden + super().forward(hidden)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                Layer(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
                for _ in range(2)
            )
            self.head = nn.Linear(8, 500)  # most of the model

    cut = split(Model(), 2)
    assert [name for name, _ in cut.layers] == ["layers.0", "layers.1"]


def test_a_stage_of_frozen_layers_has_something_to_optimize() -> None:
    model = frozen()
    cut = split(model, 3)
    assert all(any(s in cut.holders[n] for n in ("head.weight", "head.bias")) for s in range(3))


def test_absent_tensors_look_like_tensors_on_their_device() -> None:
    absent = AbsentTensor.of((2, 3), torch.bfloat16, CPU, ["there"])
    assert absent.shape == (2, 3) and absent.dtype == torch.bfloat16 and absent.device == CPU
    assert not absent.is_meta and absent.requires_grad and absent.size(-1) == 3
    later = (absent.float() @ torch.ones(3, 4)).to("cpu")[0]
    assert isinstance(later, AbsentTensor) and later.shape == (4,)
    assert type(torch.zeros_like(later)) is torch.Tensor  # needs no value
    absent.supply(torch.full((2, 3), 2.0))
    assert type(absent + 1) is torch.Tensor and float((absent + 1).sum()) == 18.0
    assert isinstance(later + 1, AbsentTensor)  # was computed before


@pytest.mark.parametrize(
    "use",
    [
        *(float, bool, torch.Tensor.tolist, torch.Tensor.numpy, torch.nonzero, torch.unique),
        lambda absent: torch.zeros(2).copy_(absent),
        lambda absent: torch.zeros(2).add_(absent),
    ],
)
def test_absent_values_are_never_made_up(use: Callable[[torch.Tensor], Any]) -> None:
    shape = (2,) if "lambda" in getattr(use, "__name__", "") else ()
    absent = AbsentTensor.of(shape, torch.float32, CPU, ["layers.0"])
    with pytest.raises(NotApplicable, match=r"comes from `layers.0`"):
        use(absent)
