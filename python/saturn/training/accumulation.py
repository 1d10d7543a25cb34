"""How a loader's batches make optimizer steps, if a task accumulates gradients.

Batches are counted from the task's first one, across epochs. Each step takes the next
`gradient_accumulation_steps` batches, and the task's last step takes those that are left. So the
number of batches alone says where a step begins, and every position has that number.

With `epoch_batches`, a step also ends with its epoch: each epoch's last step takes what is left of
the epoch.
"""

from __future__ import annotations

from saturn.tasks.definition import TaskDefinition


def whole_steps(steps: int, a_step: int, an_epoch: int | None) -> int:
    """How many batches `steps` take, if none of them is cut short by the task's end.

    A step takes `a_step` batches, and ends with its epoch of `an_epoch` batches; None: epochs don't
    end steps.
    """
    if an_epoch is None:
        return steps * a_step
    epochs, within = divmod(steps, -(-an_epoch // a_step))
    return epochs * an_epoch + within * a_step


class Accumulation:
    """Counts one task's batches and steps.

    `batches_per_epoch` is the loader's length; None if the loader has none.
    """

    def __init__(self, definition: TaskDefinition, batches_per_epoch: int | None) -> None:
        self.a_step = definition.gradient_accumulation_steps
        self._an_epoch = definition.epoch_batches
        #: Batches of the whole task; None if that depends on a loader without length.
        self.total: int | None = definition.batch_count
        if definition.epochs is not None and batches_per_epoch is not None:
            self.total = definition.epochs * batches_per_epoch

    def next_step(self, batches: int) -> int:
        """How many batches the next step takes after `batches` are done.

        Steps after the task's last one are whole: a trial of a short task takes such steps.
        """
        within = batches if self._an_epoch is None else batches % self._an_epoch
        size = self.a_step - within % self.a_step
        if self._an_epoch is not None:
            size = min(size, self._an_epoch - within)
        left = 0 if self.total is None else self.total - batches
        return min(size, left) if left > 0 else size

    def is_past_end(self, batches: int) -> bool:
        """Whether `batches` exceeds the task's batches, as in a trial of a short task."""
        return self.total is not None and batches > self.total

    def steps(self, batches: int) -> int:
        """How many steps are complete after `batches`."""
        epochs, within = (0, batches) if self._an_epoch is None else divmod(batches, self._an_epoch)
        steps, rest = divmod(within, self.a_step)
        steps += epochs * self._steps_an_epoch
        return steps + 1 if rest and batches == self.total else steps

    def steps_before(self, batches: int) -> int:
        """How many steps are complete before the one that begins after `batches`.

        Steps after the task's last one, which only trials take, count as the last one.
        """
        return self.steps(batches if self.total is None else min(batches, self.total - 1))

    def batches(self, steps: int) -> int:
        """How many batches `steps` take."""
        end = whole_steps(steps, self.a_step, self._an_epoch)
        is_last = self.total is not None and end - self.a_step < self.total < end
        return self.total if is_last and self.total is not None else end

    @property
    def _steps_an_epoch(self) -> int:
        return 0 if self._an_epoch is None else -(-self._an_epoch // self.a_step)
