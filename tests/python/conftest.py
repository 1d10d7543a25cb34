"""Fixtures: one warm parent for the whole session, and a run directory for each test."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import before_imports  # noqa: F401  (what follows imports for seconds)
import clusters  # noqa: F401  (Ray asks for a token if this comes before whatever imports Ray)
import pytest
import torch
from before_imports import pytest_collection_finish  # noqa: F401
from fake_gpu import requirements
from fake_gpu.environment import environment
from harness import Runtime, runtime
from quick_gate import (  # noqa: F401  (pytest finds its hooks here)
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    pytest_xdist_make_scheduler,
)
from saturn import library
from served import Served
from told_at_once import pytest_configure  # noqa: F401
from warm_parent import Warm

# Where the tests run in the background or under `nohup`, what they start would inherit that these
# are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: Of transformers, by the warm parent.
PRELOADED = (
    *("BertForSequenceClassification", "GPT2LMHeadModel", "LlamaForCausalLM"),
    *("MixtralForCausalLM", "ViTForImageClassification", "CLIPModel"),
    *("DataCollatorForLanguageModeling", "EarlyStoppingCallback", "Seq2SeqTrainer", "Trainer"),
)

# As ranks run: on more threads, sums come in another order and differ in their last bits. With
# SATURN_TEST_THREADS what is computed here comes in such an order (scripts/numerics_matrix.py).
torch.set_num_threads(int(os.environ.get("SATURN_TEST_THREADS", "1")))


@pytest.fixture(scope="session", autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Device locks of this session's own: what else runs on this machine takes none of them."""
    directory = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SATURN_LOCKS_DIR", str(directory))
        yield directory


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A pool of one device, which a process of its own drives."""
    served = Served(tmp_path / "home")
    yield served
    served.end()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The warm parent; at its end, no process of its may be left.

    It has transformers where that is installed, as a parent that knows the tasks has: without, each
    rank that needs transformers would spend seconds on the import.
    """
    has_models = importlib.util.find_spec("transformers") is not None
    preload = ",".join(f"transformers:{name}" for name in PRELOADED) if has_models else ""
    parent = Warm(tmp_path_factory.mktemp("warm") / "workers.lock", preload)
    assert parent.ready.get("ready") is True
    yield parent
    parent.close()


@pytest.fixture(scope="session")
def warm_with_models(warm: Warm) -> Warm:
    """The warm parent, of tests that can't do without transformers."""
    pytest.importorskip("transformers")
    return warm


@pytest.fixture(scope="session")
def fake_gpus() -> None:
    """Fake GPUs can be had: on Linux on x86-64, with the versions of torch that were tried.

    Elsewhere what asks for them is left out, and pytest says why.
    """
    if (reason := requirements.why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def gpu_warm(tmp_path_factory: pytest.TempPathFactory, fake_gpus: None) -> Iterator[Warm]:
    """A warm parent on a machine of four fake GPUs, which has transformers.

    It never uses them: what uses CUDA before a fork can't after it, as on real ones.
    """
    names = ("GPT2LMHeadModel", "LlamaForCausalLM", "ViTForImageClassification")
    parent = Warm(
        tmp_path_factory.mktemp("gpu-warm") / "workers.lock",
        preload=",".join(f"transformers:{name}" for name in names),
        gpus=environment(devices=8),
    )
    assert parent.ready.get("ready") is True
    yield parent
    parent.close()


@pytest.fixture
def gpu_run(tmp_path: Path, gpu_warm: Warm) -> Iterator[Runtime]:
    """A fresh run directory whose gangs are on fake GPUs."""
    with runtime(tmp_path, gpu_warm) as opened:
        yield opened


@pytest.fixture
def run(tmp_path: Path, warm: Warm) -> Iterator[Runtime]:
    """A fresh run directory whose gangs are forked from the warm parent."""
    with runtime(tmp_path, warm) as opened:
        yield opened


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Saturn home of the test's own, and a library without memory of other tests."""
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(library, "_registered", {})
    yield tmp_path / "home"
