# Saturn's two commands are `make demo` and `make test`; each does all of the set-up, which takes
# minutes the first time and a second after that. `make help` lists the rest.

PYTHON ?= python3
# `make demo DEVICES=3` chooses the number of devices; empty means all there are. DEVICE_MEMORY=600MB
# limits what each may hold.
DEVICES ?=
DEVICE_MEMORY ?=
bin := .venv/bin
setup := scripts/setup.py
demo_flags := $(if $(DEVICES),--devices $(DEVICES)) $(if $(DEVICE_MEMORY),--device-memory $(DEVICE_MEMORY))

.DEFAULT_GOAL := help
.PHONY: help setup docs demo demo-short demo-fake-gpus demo-cluster check test test-rust test-python test-rust-waiting test-rust-computing test-nightly test-numerics test-torch test-loggers wheel release zoo gpu-check gpu-check-fake fuzz fuzz-readers mutants mutants-python bench \
  record-runs evaluate bench-solver bench-techniques bench-engine bench-profile bench-cluster bench-build bench-report bench-tuning bench-sharing lint lint-rust lint-python format clean

help:
	@echo 'make demo        measure, plan and train a sweep of 12 models; a second time nothing is measured'
	@echo 'make demo-short  the same with fewer steps, about two minutes'
	@echo 'make demo-fake-gpus  the short demo on eight GPUs that are none (docs/fake-gpu.md), three minutes'
	@echo 'make demo-cluster  the short demo on a Ray cluster of two nodes on this machine, of which one dies and another joins'
	@echo 'make check       what the change can have broken: formatter, lints, types, nearest tests; a minute'
	@echo 'make test        all quick tests, about ten minutes'
	@echo 'make test-nightly  what make test leaves out: slow tests, more kills, more seeds, other instructions, busy cores; three and a half hours'
	@echo '                 PARTS="kills busy" runs these parts; scripts/nightly.py --list says what each is for'
	@echo 'make test-numerics  the tests of numbers under each instruction set, mode of MKL, number of threads, size of pages: two hours'
	@echo 'make test-torch  a chosen part of the tests with another torch, from PyPI: make test-torch TORCH=2.11.0'
	@echo 'make wheel       one wheel of the program and the package, for every Python from 3.10 on: dist/'
	@echo 'make release     the files of a release: make release VERSION=0.2.0 (docs/release.md)'
	@echo 'make zoo         78 architectures under every technique, the losses compared, docs/zoo.md written: half an hour; ZOO="GPT-2,T5" for some'
	@echo 'make gpu-check   on a machine with NVIDIA GPUs: same training, memory, failures, staging, steps, a switch, the demo; into gpu-check/'
	@echo 'make fuzz        simulated runs with faults, by their seeds: make fuzz SEEDS=0..10000'
	@echo 'make bench       the solver beside CP-SAT and the exact program, techniques beside plain torch, the engine at scale, clusters, trials, searches, builds, the report: over an hour'
	@echo 'make fuzz-readers  every reader of files and messages is fuzzed, FUZZ_S=30 seconds each'
	@echo 'make mutants     which small wrong changes of the Rust core its tests notice (docs/mutants.md): hours'
	@echo 'make mutants-python  which of 300 changes to the code for training the quick Python tests notice: hours; docs/mutants-python.md'
	@echo 'make record-runs  record again the real runs that the simulator is checked against (docs/evaluation/replay.md): half an hour'
	@echo 'make evaluate    the tables of docs/evaluation, made anew and written into the pages: an hour; TABLES="fastest habit" for some'
	@echo 'make docs        the documentation as a site, its links checked: target/site/index.html'
	@echo 'make lint        formatter, lints, types'
	@echo 'make format      format all code'
	@echo 'make setup       only the set-up: virtual environment, build'
	@echo 'make clean       remove everything that was built'

setup:
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'missing: Python 3.10 or later; get it from your system (Debian: apt install python3 python3-venv) or https://python.org'; exit 1; }
	@$(PYTHON) $(setup)

demo: setup
	@$(bin)/python examples/sweep.py $(demo_flags)

demo-short: setup
	@$(bin)/python examples/sweep.py --short $(demo_flags)

# What it measures is a CPU's time; what it says is that the whole program runs on GPUs. Nothing is
# remembered of it for other runs.
demo-fake-gpus: setup
	@home=$$(mktemp -d) && trap 'rm -rf "$$home"' EXIT && \
	  SATURN_HOME="$$home" PYTHONPATH=tests $(bin)/python -m fake_gpu --devices 8 -- \
	  $(bin)/python examples/sweep.py --short --device-memory 200MB --name "fake-gpus-$$(date +%Y%m%d-%H%M%S)"

demo-cluster: setup
	@$(bin)/python examples/cluster.py

test: test-rust test-python

# The same random cases each time, so that the gate says what the change did; `test-nightly` draws others.
# Tests that mostly wait are unoptimised, for they compile in a fifth of the time (`profile.bench` in
# Cargo.toml), and several wait at once. Tests that compute are as the product is. Each call names the
# whole workspace: with other packages, dependencies have other features, and would be compiled a
# second time.
waiting := --profile bench --workspace --lib --bin saturn --test all
computing := --release --workspace --test plans --test simulations --test views --test replays
test-rust: setup
	@$(MAKE) --no-print-directory --jobs=2 test-rust-waiting test-rust-computing

# Side by side: cargo lets only one call compile at a time, and meanwhile the other runs its tests.
# Without MAKEFLAGS, cargo doesn't look for the job server of make, which the calls don't inherit.
test-rust-waiting:
	@MAKEFLAGS= PROPTEST_RNG_SEED=1 RUST_TEST_THREADS=6 $(PYTHON) $(setup) --run cargo test $(waiting)

test-rust-computing:
	@MAKEFLAGS= PROPTEST_RNG_SEED=1 $(PYTHON) $(setup) --run cargo test $(computing)
	@MAKEFLAGS= $(PYTHON) $(setup) --run cargo test --release --workspace --doc

# Three files at a time on two cores, the longest first: most tests wait for processes to start and to end.
side_by_side := -n 3 --dist loadfile --no-loadscope-reorder
test-python: setup
	@$(bin)/python -m pytest $(side_by_side) --durations=10

# Cosmic Ray is in an environment of its own: Saturn and its tests need nothing of it.
mutants := target/mutants-python/tool
mutants-python: setup
	@[ -x $(mutants)/bin/cosmic-ray ] || { $(PYTHON) -m venv $(mutants) && $(mutants)/bin/pip install --quiet cosmic-ray==8.7.0; }
	@nice -n 15 $(mutants)/bin/python scripts/mutants_python.py record run table

# Against SINCE, a commit.
SINCE ?= HEAD
check: setup
	@$(PYTHON) scripts/check.py $(SINCE)

# What `make test` leaves out, in parts of at most 45 minutes (docs/install.md). Each prints its time.
PARTS ?=
test-nightly: setup
	@$(bin)/python scripts/nightly.py $(PARTS)

test-numerics: setup
	@$(bin)/python scripts/numerics_matrix.py

# The oldest torch that is supported, and its tests: what Saturn takes of torch beyond its public
# names has changed most since.
TORCH ?= 2.11.0
TORCH_TESTS := walkthrough same_training pipeline tensor offload fsdp_knobs checkpoints precision trial warm_parent survival doctor fake_gpu gpu_steps gpu_failures gpu_training peer_watch device_memory optimizer_form casts
test-torch: setup
	@$(PYTHON) scripts/with_torch.py $(TORCH) -m pytest --nightly $(side_by_side) $(addprefix tests/python/test_,$(addsuffix .py,$(TORCH_TESTS)))

# The trackers themselves, which weigh 340 MB and want other versions of what the tests need: in a folder of their own.
test-loggers: setup
	@$(bin)/python -m pip install --quiet --target=target/trackers wandb mlflow-skinny trackio
	@PYTHONPATH=target/trackers $(bin)/python -m pytest --nightly tests/python/test_loggers.py tests/python/test_tracker_packages.py

# Without build isolation: what `make setup` has built is only linked anew and packed.
WHEELS ?= dist
wheel: setup
	@$(PYTHON) $(setup) --run $(bin)/python -m pip --disable-pip-version-check wheel --quiet --no-deps \
	  --no-build-isolation --wheel-dir $(WHEELS) .

# Into dist/VERSION; uploads nothing (docs/release.md).
release: setup
	@$(bin)/python scripts/release.py $(or $(VERSION),$(error VERSION is missing: make release VERSION=0.2.0))

# Fails where any loss differs. Without ZOO, it writes docs/zoo.md.
ZOO ?=
zoo: setup
	@$(bin)/python tests/python/zoo.py $(if $(ZOO),--only "$(ZOO)")

# What only real GPUs can show: a folder with a report, versions and the demo's profile. 1 where a part fails, 2 without a GPU.
GPU_CHECK ?= gpu-check
gpu-check: setup
	@$(bin)/python tests/python/gpu_check.py --out $(GPU_CHECK)

# The same on a fake GPU, or on several: `make gpu-check-fake GPUS=4`; with small models.
GPUS ?= 1
gpu-check-fake: setup
	@out=$$(mktemp -d) && PYTHONPATH=tests $(bin)/python -m fake_gpu --devices $(GPUS) -- \
	  $(bin)/python tests/python/gpu_check.py --small --out "$$out" && rm -rf "$$out"

# Overwrite the kept pages: commit them only from a machine that does nothing else.
bench: bench-solver bench-techniques bench-engine bench-profile bench-cluster bench-tuning bench-build bench-fused bench-report

bench-solver: setup
	@$(bin)/python -m pip --disable-pip-version-check install --quiet ortools
	@$(PYTHON) $(setup) --run cargo build --release -p saturn-solver --examples
	@$(bin)/python benches/solver/bench.py --seeds 1 --first-seed 200 --times 0.1,1,10 --cp-sat 10 \
	  --switch-seeds 2 --resolve-seeds 3 --queue-seeds 3 --out docs/bench/solver.md

bench-techniques: setup
	@$(bin)/python benches/techniques/bench.py --pairs 10 --repetitions 2 --out docs/bench/techniques.md

bench-build: setup
	@$(bin)/python benches/build/bench.py --out docs/bench/build.md

bench-fused: setup
	@$(bin)/python benches/fused/bench.py --out docs/bench/fused.md

# Prints how fast the report of a thousand tasks opens and scrolls in Chromium.
bench-report: setup
	@$(bin)/python benches/report/bench.py

# Each run in processes of its own, one after the other; RUNS="asha median" for some.
RUNS ?=
record-runs: setup
	@$(bin)/python benches/replay/record.py $(RUNS)

# Numbers of the simulator and the estimator, which are the same on every machine; `planner` alone is timed.
TABLES ?=
evaluate: setup
	@$(bin)/python benches/evaluation/tables.py $(TABLES)

# cargo-fuzz needs flags that a stable compiler takes only when told that it may.
FUZZ_S ?= 30
fuzz-readers: setup
	@command -v target/tools/bin/cargo-fuzz >/dev/null || cargo install --quiet cargo-fuzz --root target/tools
	@for one in $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs))); do \
	  mkdir -p fuzz/corpus/$$one && echo "fuzzing the reader: $$one" && \
	  RUSTC_BOOTSTRAP=1 $(PYTHON) $(setup) --run target/tools/bin/cargo-fuzz run $$one fuzz/corpus/$$one fuzz/seeds/$$one \
	    -- -max_total_time=$(FUZZ_S) -rss_limit_mb=4096 || exit 1; \
	done

# A seed that breaks a rule prints the end of its history and the command that replays it.
SEEDS ?= 0..10000
fuzz: setup
	@$(PYTHON) $(setup) --run cargo run --quiet --release -p saturn-sim --bin saturn-fuzz -- --seeds $(SEEDS)

# One crate alone: make mutants CRATE=saturn-core.
CRATE ?= saturn-core saturn-engine saturn-solver
mutants: setup
	@command -v target/tools/bin/cargo-mutants >/dev/null || cargo install --quiet cargo-mutants --root target/tools
	@for one in $(CRATE); do $(PYTHON) scripts/mutants.py $$one || exit 1; done
	@$(PYTHON) scripts/mutants.py saturn-engine --by seeds

bench-engine: setup
	@$(bin)/python benches/engine/bench.py --out docs/bench/engine.md

# An hour or two; the same on every machine.
bench-sharing: setup
	@$(PYTHON) $(setup) --run cargo build --quiet --release -p saturn-sim --bin saturn-sharing
	@$(bin)/python benches/sharing/bench.py --out docs/bench/sharing.md

bench-cluster: setup
	@$(bin)/python benches/cluster/bench.py --out docs/bench/cluster.md

# What Ray Tune needs beside Ray, in a folder of its own.
bench-tuning: setup
	@$(bin)/python -m pip --disable-pip-version-check install --quiet --no-deps --target=target/ray-tune pyarrow tensorboardX
	@PYTHONPATH=target/ray-tune $(bin)/python benches/tuning/bench.py --steps 270 --out docs/bench/tuning.md

bench-profile: setup
	@$(bin)/python benches/profile/bench.py --out docs/bench/profile.md

# A broken link, or a name that is missing in a reference, is an error.
docs: setup
	@$(bin)/python -m sphinx -q -W --keep-going -b html -c docs -d target/site-sources . target/site
	@echo "$(CURDIR)/target/site/index.html"

# mypy keeps one core busy and clippy the other, so they go side by side.
lint: setup
	@$(MAKE) --no-print-directory --jobs=2 lint-rust lint-python

lint-rust:
	@$(PYTHON) $(setup) --run cargo fmt --all --check
	@$(PYTHON) $(setup) --run cargo clippy --release --workspace --all-targets -- -D warnings

lint-python:
	@$(bin)/ruff format --check .
	@$(bin)/ruff check .
	@$(bin)/mypy
	@$(bin)/python -m mypy.stubtest saturn._core
	@$(bin)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml

format: setup
	@$(PYTHON) $(setup) --run cargo fmt --all
	@$(bin)/ruff format .
	@$(bin)/ruff check --fix .

clean:
	rm -rf .venv target python/saturn/*.so
