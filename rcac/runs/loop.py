"""The one loop that drives a learner: step, check, tell the callbacks, stop on request.

Everything else is a callback: loggers (`rcac.runs.loggers`), checkpoints (`rcac.runs.saving`), progress
(`rcac.runs.progress`), and those of the user.
"""

import contextlib
import errno
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from rcac.learner import Learner, Step
from rcac.runs.signals import StopRequest

FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}  # of a disk, or of a quota
CHECKED = ("policy/", "return/", "cost/")  # namespaces in which NaN means that the training is lost


class TrainingStopped(Exception):
    """The training cannot go on, for a reason that fits in one line; the last good checkpoint is there."""


class Outcome(NamedTuple):
    exit_code: int  # 0, or 130 after SIGINT, 143 after SIGTERM
    position: int
    reason: str  # "finished", "SIGINT", "SIGTERM", "callback"


class Callback:
    """What happens beside a training; does nothing of its own."""

    def on_start(self, learner: Learner) -> None:
        """Before the first step, of a new run or of one that goes on."""

    def on_step(self, learner: Learner, step: Step) -> bool | None:
        """After every step; may add to `step.metrics`. False stops the training."""

    def on_end(self, learner: Learner, outcome: Outcome) -> None:
        """After the last step, unless something failed."""

    def close(self) -> None:
        """In the end, whatever happened."""


def run(learner: Learner, callbacks: Sequence[Callback], stop: StopRequest | None = None) -> Outcome:
    """Train until finished or told to stop: by a signal, or by a callback."""
    with contextlib.ExitStack() as stack:
        stop = stop or stack.enter_context(StopRequest())
        for callback in callbacks:
            stack.callback(callback.close)
        for callback in callbacks:
            callback.on_start(learner)
        reason, before, clock = "finished", learner.position, time.monotonic()
        while not learner.finished:
            if stop.received is not None:
                reason = stop.received.name
                break
            step = learner.step()
            _check(step)
            now = time.monotonic()
            step.metrics["time/steps_per_second"] = (learner.position - before) / max(now - clock, 1e-9)
            before, clock = learner.position, now
            answers = [callback.on_step(learner, step) for callback in callbacks]
            if any(answer is False for answer in answers):
                reason = "finished" if learner.finished else "callback"
                break
        outcome = Outcome(stop.exit_code, learner.position, reason)
        for callback in callbacks:
            callback.on_end(learner, outcome)
    return outcome


def _check(step: Step) -> None:
    for name, value in step.metrics.items():
        if name.startswith(CHECKED) and math.isnan(value):
            raise FloatingPointError(f"{name} is not a number")
