"""Evaluate a task's model once, as one rank takes part in it.

An evaluation runs between two steps, in eval mode and without gradients, and changes nothing of the
training. Modes, buffers and random streams are put back; parameters and data are not touched. Its
random numbers are seeded by the task's seed and the batch's number. A trainer's own evaluation
moves the trainer's stream instead (`draws`).

Batches are dealt whole (`data.whole_batches`). Each rank sends its results to rank 0, which puts
them into the loader's order and computes the metrics once (`evaluation_rows`). An error of the
task's own functions is kept until the ranks have agreed that there is one, so that all of them can
still save.

When a task is evaluated, and what becomes of its metrics, is the business of `worker.evaluations`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

import torch

from saturn.data import nested, seeds
from saturn.data.whole_batches import Dealt, WholeBatches
from saturn.rank.exceptions import PeerLost, TaskError
from saturn.rank.failure import task_function
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.evaluation import Evaluation
from saturn.techniques.interface import ParallelModel
from saturn.techniques.model.buffers import Buffers
from saturn.techniques.model.modes import in_eval_mode
from saturn.training.draws import Draws
from saturn.training.evaluation_rows import (
    Row,
    checked_metrics,
    kept_by_default,
    metrics_of,
    on_host,
    target_of,
)
from saturn.training.objective import TaskObjective
from saturn.training.own_generators import OwnGenerators
from saturn.training.precision import Precision
from saturn.training.step_loss import StepItems

#: Rounds of batches that are run to time an evaluation; the first round warms up.
_TIMED_ROUNDS = 4
_OF_EVALUATE = "evaluate: "

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The result of one evaluation; only rank 0 has metrics."""

    metrics: dict[str, float]
    taken_s: float
    #: The error of the task's functions on this rank.
    failure: Exception | None = None
    #: Whether they have failed on any rank.
    has_failed: bool = False

    def expect(self) -> None:
        """Raise this rank's error; `PeerLost` if the functions failed on another rank."""
        if self.failure is not None:
            raise self.failure
        if self.has_failed:
            raise PeerLost("the evaluation has failed on another rank")


class Evaluator:
    """One rank's evaluator of a task under one technique."""

    def __init__(
        self,
        definition: TaskDefinition,
        parallel: ParallelModel,
        gang: Gang,
        *,
        note: Callable[[str], None],
        alive: Callable[[], None] = lambda: None,
        draws: Draws | None = None,
    ) -> None:
        """Make the loader. `note` tells the user something, `alive` sends a heartbeat.

        `draws` is the random stream of the task's steps, if the task has one.
        """
        assert definition.evaluate is not None
        step_loss = definition.step_loss
        self._draws = draws if step_loss is not None and step_loss.evaluates else None
        self._definition, self._parallel, self._gang = definition, parallel, gang
        self._evaluate = definition.evaluate
        self._note, self._alive = note, alive
        self._precision = Precision(definition.precision, gang.device)
        self._objective = TaskObjective(definition, precision=self._precision)
        self._own_generators = OwnGenerators(definition, parallel.module)
        self._batches: WholeBatches | None = None
        #: The buffers with which the present evaluation began.
        self._buffers: Buffers | None = None
        if isinstance(self._evaluate, Evaluation):
            with _of_evaluate(), gang.device_memory.host():
                self._batches = _batches_of(
                    self._evaluate, definition.seed, pin_memory=gang.device.type == "cuda"
                )
        self._failure: Exception | None = None

    def run(self) -> Outcome:
        """Evaluate the model as it is now; every rank calls this between two steps."""
        began = time.monotonic()
        self._failure = None
        with _of_evaluate(), self._at_rest() as module:
            if self._draws is not None:
                self._draws.begin_evaluation()
            if self._batches is None:
                metrics = self._by_function(module)
            else:
                metrics = self._of_rows([self._row(one) for one in self._dealt()])
            if metrics is not None:
                self._keep_failure_of(partial(self._expect_best, metrics))
        has_failed = self._gang.sum([self._failure is not None])[0] > 0
        return Outcome(metrics or {}, time.monotonic() - began, self._failure, has_failed)

    def time(self) -> float:
        """Seconds of an evaluation, estimated from a part of it; every rank calls this.

        Raises errors of the task's functions. An error of metrics on the part's rows is only noted
        if there are more rows, because the metrics may work on all of them.
        """
        with nullcontext() if self._draws is None else self._draws.unmoved():
            return self._time()

    def _time(self) -> float:
        if self._batches is None:
            outcome = self.run()
            outcome.expect()
            return outcome.taken_s
        self._failure = None
        began, ends = time.monotonic(), list[float]()
        rows: list[Row | None] = []
        with _of_evaluate(), self._at_rest():
            with closing(self._dealt()) as dealt:
                rounds = self._some_rounds(dealt, rows, ends)
            if self._failure is not None:
                raise self._failure
            last = time.monotonic()
            metrics = self._of_rows(rows)
            if metrics is not None:
                self._expect_best(metrics)
            if self._failure is not None and rounds <= _TIMED_ROUNDS:
                raise self._failure
            if self._failure is not None:
                self._note(
                    f"evaluate failed on its first {_TIMED_ROUNDS} batches, which may be too few "
                    f"for it: {self._failure}"
                )
        later_s = [later - sooner for sooner, later in pairwise(ends)]
        usual_s = median(later_s) if later_s else 0.0
        return ends[-1] - began + (rounds - len(ends)) * usual_s + time.monotonic() - last

    def _some_rounds(
        self, dealt: Iterator[Dealt], rows: list[Row | None], ends: list[float]
    ) -> int:
        """Run some rounds into `rows`, with their end times; returns the number of all rounds."""
        assert self._batches is not None
        rounds = 0
        for one in dealt:
            rounds += 1
            if rounds <= _TIMED_ROUNDS:
                rows.append(self._row(one))
                self._wait_for_device()
                ends.append(time.monotonic())
            elif (number := self._batches.number) is not None:
                return math.ceil(number / self._parallel.data_size)
        return rounds

    def _expect_best(self, metrics: Mapping[str, float]) -> None:
        """Raise `TaskError` if `best` names a metric that is not in `metrics`."""
        best = self._definition.best
        if best is not None and best[0] not in metrics:
            known = ", ".join(f"`{name}`" for name in metrics) or "nothing"
            raise TaskError(f"best names the metric `{best[0]}`; the evaluation has {known}")

    def _keep_failure_of(self, function: Callable[[], T]) -> T | None:
        """Call `function`; a `TaskError` is kept until the ranks agree on it, and gives None."""
        try:
            with _of_evaluate():
                return function()
        except TaskError as error:
            self._failure = error
            return None

    @contextmanager
    def _at_rest(self) -> Iterator[torch.nn.Module]:
        """Within this context the model is in eval mode; afterwards everything is as before."""
        parallel = self._parallel
        self._buffers = Buffers(parallel.module)
        state = seeds.RandomState.now(self._gang.device)
        with state.again(), torch.no_grad(), parallel.evaluating() as module:
            try:
                with in_eval_mode(parallel.module):
                    yield module
            finally:
                self._buffers.restore()

    # For evaluation by a function of the model.

    def _by_function(self, module: torch.nn.Module) -> dict[str, float] | None:
        """The metrics that the function returns; None if it failed."""
        device, evaluate = self._gang.device, self._evaluate
        assert not isinstance(evaluate, Evaluation)

        def bring(_: Any, args: Any, kwargs: Any) -> Any:
            return nested.to_device(args, device), nested.to_device(kwargs, device)

        hook = module.register_forward_pre_hook(bring, prepend=True, with_kwargs=True)

        def metrics() -> dict[str, float]:
            # The model's own forward has the precision already. The function may call other methods
            # and parts of the model, as `training_step` may.
            with self._drawing(0), task_function("the function"), self._precision.context():
                found = evaluate(module)
            return checked_metrics(found, "the function")

        try:
            return self._keep_failure_of(metrics)
        finally:
            hook.remove()

    # For evaluation by a loader and metrics.

    def _dealt(self) -> Generator[Dealt, None, None]:
        assert self._batches is not None
        return self._batches.dealt(self._parallel.data_rank, self._parallel.data_size)

    def _row(self, dealt: Dealt) -> Row | None:
        """This rank's row of its batch in a round; None if another rank reports the batch."""
        self._alive()
        device = self._gang.device
        batch = nested.to_device(dealt.batch, device)
        if (step_loss := self._definition.step_loss) is not None:
            self._objective.items = StepItems(step_loss.count([dealt.batch]), 1)
        # The number of batches that this rank saw before depends on the number of ranks. So a
        # buffer that a forward changes even in eval mode must not carry over.
        assert self._buffers is not None
        self._buffers.restore()
        with self._drawing(dealt.number):
            outputs = self._parallel.forward(batch, self._objective)
            if outputs is None or not dealt.counts or self._failure is not None:
                return None
            return self._keep_failure_of(partial(self._measured, dealt, batch, outputs))

    def _measured(self, dealt: Dealt, batch: Any, outputs: Any) -> Row:
        evaluate, weigh = self._evaluate, self._definition.loss_weight
        assert isinstance(evaluate, Evaluation)
        loss, weight, kept = None, 0.0, None
        if evaluate.loss:
            weight = float(nested.num_samples(dealt.batch) or 1)
            if weigh is not None:
                with task_function("loss_weight"):
                    weight = float(weigh(dealt.batch))
            if weight:  # a batch without weight may have no mean
                loss = self._objective.loss(outputs, batch).detach()
        if evaluate.metrics is not None:
            with task_function("keep"):
                kept = on_host((evaluate.keep or kept_by_default)(outputs, target_of(batch)))
        return Row(dealt.number, loss, weight, kept)

    def _of_rows(self, own: list[Row | None]) -> dict[str, float] | None:
        """The metrics on rank 0; None if anything failed. Every rank calls this."""
        gang, evaluate = self._gang, self._evaluate
        assert isinstance(evaluate, Evaluation)
        with gang.device_memory.host():
            own_rows = [row.read() for row in own if row is not None]
            told = gang.gather((self._failure is not None, own_rows))
            if gang.rank > 0 or any(has_failed for has_failed, _ in told):
                return None
            # If several ranks report a batch, it counts once.
            rows = {row.number: row for _, of_rank in told for row in of_rank}
            in_order = [rows[number] for number in sorted(rows)]
            with nullcontext() if self._stream is None else self._stream.drawing():
                return self._keep_failure_of(partial(metrics_of, evaluate, in_order))

    @property
    def _stream(self) -> Draws | None:
        """The random stream of a trainer's evaluation; None if each batch is seeded."""
        return self._draws if self._gang.world_size == 1 else None

    @contextmanager
    def _drawing(self, number: int) -> Iterator[None]:
        """Within this context, batch `number` draws its random numbers."""
        if self._stream is not None:
            with self._stream.drawing():
                yield
            return
        seed = seeds.derive(self._definition.seed, "evaluation", number)
        self._own_generators.seed(seed)
        seeds.seed_batch(seed, self._gang.device)
        yield

    def _wait_for_device(self) -> None:
        if self._gang.device.type != "cpu":
            torch.accelerator.synchronize(self._gang.device)


def look_at(evaluate: Evaluation, seed: int) -> None:
    """Make the loader and fetch one batch; raises `TaskError` if that fails."""
    with _of_evaluate(), closing(_batches_of(evaluate, seed).dealt(0, 1)) as dealt:
        next(dealt)


def _batches_of(evaluate: Evaluation, seed: int, *, pin_memory: bool = False) -> WholeBatches:
    return WholeBatches(
        evaluate.get_dataloader, seed=seed, most=evaluate.batches, pin_memory=pin_memory
    )


@contextmanager
def _of_evaluate() -> Iterator[None]:
    """Mark a `TaskError` as one of the task's evaluation."""
    try:
        yield
    except TaskError as error:
        if str(error).startswith(_OF_EVALUATE):
            raise
        raise TaskError(f"{_OF_EVALUATE}{error}") from error.__cause__
