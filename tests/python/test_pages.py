"""Examples of the pages do what they say: every block of Python and of the shell is run here.

The Python blocks of a page are one program, after definitions that the page takes for granted;
commands are run on what those programs left. What no test can run, or another one does, is listed
with the reason. A new block is run by itself: it works, or the test says that it doesn't.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from warm_parent import PYTHON_DIR

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "toml"}

#: Blocks of Python and commands that aren't run here: page, what they hold, why.
NOT_HERE = [
    ("docs/techniques.md", "", "test_techniques_page.py runs the page as one script"),
    ("docs/tutorial.md", "", "test_tutorial.py does what the page says, in its order"),
    ("docs/reference.md", "import torch.distributed.checkpoint", "run by test_huggingface.py"),
    ("docs/reference.md", "saturn.export(", "needs a transformers model: test_huggingface.py"),
    ("docs/trackers.md", "class Printed(Logger)", "run by test_loggers.py"),
    (
        "docs/trackers.md",
        'loggers=["wandb"]',
        "W&B and MLflow are not installed: test_tracker_packages.py",
    ),
    (
        "docs/trackers.md",
        "tensorboard --logdir",
        "TensorBoard is not installed: test_event_file.py",
    ),
    ("docs/trainer.md", "from trl import", "fetches a model and data: test_trl_trainers.py"),
    ("docs/frameworks.md", "class Classifier(pl.", "run by test_frameworks.py"),
    ("docs/cluster.md", "cluster=", "needs a cluster: test_cluster_gangs.py"),
    ("docs/cluster.md", "--cluster", "needs a cluster: test_cluster_verbs.py"),
    ("docs/cluster.md", "ray ", "starts daemons of Ray's: test_cluster_gangs.py"),
    ("docs/storage.md", "storage=", "needs an object store: test_object_store.py"),
    ("docs/clusters/*.md", "", "needs machines of that kind: test_cluster_places.py"),
    ("docs/pool.md", "", "needs a pool: test_pool.py"),
    ("docs/scripts.md", "saturn submit", "needs a pool: test_pool.py"),
    ("docs/web.md", "", "needs a run in progress: test_web.py"),
    ("*.md", "saturn web", "serves until Ctrl-C: test_web.py"),
    ("*.md", "pip install", "needs a build of minutes, or the network: test_install.py"),
    ("docs/fake-gpu.md", "COMMAND", "COMMAND is the reader's: test_fake_gpu.py"),
]

#: What the pages take for granted: small tasks, and files.
TASKS = """
import torch, saturn
from saturn import HParams, Task, orchestrate
def get_model(width=8):
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 2))
def get_dataloader():
    inputs = torch.randn(16, 4)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :2].argmax(1))
    return torch.utils.data.DataLoader(data, batch_size=8)
loss = torch.nn.functional.cross_entropy
def tiny(name):
    return Task(get_model, get_dataloader, loss, HParams(lr=0.01, epochs=2), name=name)
"""
BEFORE = {
    "docs/evaluating.md": "get_dataloader = list\n",
    "docs/runs.md": TASKS + "tasks, late_task = [tiny('wide-lr3')], tiny('late')\n",
    "docs/scripts.md": "import torch\nfirst_step, steps, state = 0, 3, dict\ntrain = float\n",
    "docs/tuning.md": TASKS + "tasks = [tiny('a'), tiny('b')]\n",
}
#: What is smaller here than in the page, or goes by the name that the pages' commands use.
SMALLER = {
    "n_trials=50, devices=8": "n_trials=2, devices=1",
    '"width", [64, 256]': '"width", [8]',
    "epochs=4": "epochs=1",
    "open-run": "my-run",
    "--seeds 20": "--seeds 2",
    "runs/*.jsonl": "runs/stopped.jsonl",
}
#: Verbs that only compute: a command that stands on several pages is run once.
COMPUTING = {"estimate", "simulate", "whatif"}
SCRIPT = """
import saturn
for step in (1, 2, 3):
    saturn.report(step, 0.5, total_steps=3)
"""
#: Commands that compute for half a minute. `make test` checks their arguments, and runs them on the
#: README's example alone; `make test-nightly` runs them as they are.
COSTLY = ["saturn simulate benches/evaluation/*", "saturn simulate examples/simulate.toml --*"]
#: Verbs that need a run in progress, or train for long: only their arguments are checked, and those
#: of `plan` where it would measure a sweep. That they do what they say is tested elsewhere.
ARGUMENTS_ONLY = {"pause", "unpause", "priority", "cancel", "stop", "run", "sweep", "doctor"}
#: Stands behind the arguments of those: the program checks them first, and then does nothing.
CHECKED = "--help"


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    text: str

    def not_here(self, piece: str) -> bool:
        """Whether a piece of it is listed as one that isn't run here."""
        return any(fnmatch.fnmatch(self.page, p) and holds in piece for p, holds, _ in NOT_HERE)


def blocks() -> Iterator[Block]:
    fence = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    for page in PAGES:
        for indent, language, text in fence.findall(page.read_text()):
            lines = [line.removeprefix(indent) for line in text.splitlines(keepends=True)]
            yield Block(str(page.relative_to(ROOT)), language, "".join(lines))


def commands() -> Iterator[tuple[Block, str]]:
    for block in blocks():
        for line in block.text.splitlines() if block.language == "sh" else ():
            if shlex.split(line, comments=True):
                yield block, line


def smaller(text: str) -> str:
    """A program or a command, as it is run here."""
    for whole, part in SMALLER.items():
        text = text.replace(whole, part)
    return text


def call(
    command: list[str], cwd: Path, home: Path, *, cores: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it as a reader would, whose Saturn is that of the checkout.

    `cores` is how many of this machine's cores it may use: by default, all.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(PYTHON_DIR),
        "OMP_NUM_THREADS": "1",
    }
    environment["SATURN_HOME"] = str(home)
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages' programs and commands speak of."""
    place = tmp_path_factory.mktemp("pages")
    for folder in ("examples", "benches"):
        (place / folder).symlink_to(ROOT / folder)
    (place / "train.py").write_text(SCRIPT)
    sweeps = [b for b in blocks() if b.language == "toml" and b.text.startswith("script =")]
    for name, sweep in zip(("sweep.toml", "search.toml"), sweeps, strict=True):
        (place / name).write_text(sweep.text)
    programs: dict[str, str] = {}
    for block in blocks():
        if block.language == "python" and not block.not_here(block.text):
            before = programs.setdefault(block.page, BEFORE.get(block.page, ""))
            programs[block.page] = before + block.text
    for page, program in programs.items():
        name = f"{page.replace('/', '-').removesuffix('.md')}.py"
        (place / name).write_text(smaller(program))
    # The README's comes last: it registers a technique that trains nothing.
    (place / "all.py").write_text(
        "import runpy\n"
        f"for page in {sorted((p.replace('/', '-')[:-3] for p in programs), reverse=True)}:\n"
        "    runpy.run_path(f'{page}.py', run_name='__main__')\n"
    )
    return place


@pytest.fixture(scope="module")
def programs(place: Path) -> subprocess.CompletedProcess[str]:
    """What came of the pages' programs; the runs that they leave are those of the commands.

    They train on one core: on more, trials of more techniques take most of their time.
    """
    return call([sys.executable, "all.py"], place, place / "home", cores=1)


@pytest.mark.timeout(600)
def test_python_runs(programs: subprocess.CompletedProcess[str]) -> None:
    assert programs.returncode == 0, programs.stderr
    assert "4 of 4 tasks done" in programs.stderr  # the README's sweep


def failures_of_commands(place: Path, *, costly: bool) -> str:
    """What went wrong in the pages' commands; those that are `COSTLY` are run only if `costly`."""
    wrong = []
    computed = []
    for block, line in commands():
        is_costly = any(fnmatch.fnmatch(line, pattern) for pattern in COSTLY)
        if block.not_here(line) or (costly and not is_costly):
            continue
        command = shlex.split(smaller(line).partition(" > ")[0], comments=True)
        if command[1] in COMPUTING:
            if command in computed:
                continue
            computed.append(command)
        if command[0] == "make":
            done = call(["make", "--dry-run", *command[1:]], ROOT, place / "home")
        else:
            assert command[0] == "saturn", f"{block.page}: nobody here knows how to run {line}"
            if command[1] == "run":  # what comes behind the script is the script's
                command.insert(2, CHECKED)
            elif (
                command[1:3] == ["plan", "sweep.toml"]
                or (command[1] in ARGUMENTS_ONLY and "--list" not in command)
                or (is_costly and not costly)
            ):
                command.append(CHECKED)
            done = call(command, place, place / "home")
        if done.returncode != 0:
            wrong.append(f"{block.page}: {line}: {done.stderr}")
    return "\n".join(wrong)


@pytest.mark.timeout(600)
def test_commands_run(place: Path, programs: subprocess.CompletedProcess[str]) -> None:
    assert programs.returncode == 0
    wrong = failures_of_commands(place, costly=False)
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_costly_commands_run(place: Path) -> None:
    assert any(fnmatch.fnmatch(line, COSTLY[0]) for _, line in commands())
    wrong = failures_of_commands(place, costly=True)
    assert not wrong, wrong


def test_each_page_begins_with_its_question() -> None:
    silent = []
    for page in sorted(ROOT.glob("docs/**/*.md")):
        title, begin, *_ = page.read_text().split("\n\n", 2)
        if "?" not in title + begin:
            silent.append(page.name)
    assert not silent, f"pages that say at their top no question that they answer: {silent}"


def test_problems_are_planned(place: Path) -> None:
    problems = [b.text for b in blocks() if b.language == "json" and '"cluster"' in b.text]
    assert problems
    for problem in problems:
        (place / "problem.json").write_text(problem)
        done = call(["saturn", "plan", "problem.json", "--time-limit", "1"], place, place / "home")
        assert done.returncode == 0, (problem, done.stderr)


def test_every_block_has_a_language() -> None:
    unknown = [(b.page, b.language, b.text[:60]) for b in blocks() if b.language not in LANGUAGES]
    assert not unknown


def test_the_list_of_what_is_not_run_here_is_as_long_as_it_must_be() -> None:
    pieces = [(b, b.text) for b in blocks() if b.language == "python"] + list(commands())
    for page, holds, why in NOT_HERE:
        if not any(fnmatch.fnmatch(str(one.relative_to(ROOT)), page) for one in PAGES):
            continue
        matched = [b for b, piece in pieces if fnmatch.fnmatch(b.page, page) and holds in piece]
        assert matched, f"nothing in {page} holds `{holds}` any more ({why})"
        for named in re.findall(r"test_\w+\.py", why):
            assert (Path(__file__).parent / named).is_file(), why
