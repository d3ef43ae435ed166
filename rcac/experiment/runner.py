"""The one loop that drives a learner: step, check, record, checkpoint, stop on request.

Whatever ends it, the last good checkpoint stays, and a run taken up again (`resume=True`) goes on exactly from there.
"""

import contextlib
import errno
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Console

from rcac import __version__
from rcac.errors import InputError
from rcac.experiment import checkpoint
from rcac.experiment.metrics import MetricsWriter
from rcac.experiment.progress import ProgressView
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.signals import StopRequest
from rcac.learner import Learner, Step, Term

FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
CHECKED = ("policy/", "return/", "cost/")  # namespaces in which NaN means that the training is lost


class TrainingStopped(Exception):
    """The training cannot go on, for a reason that fits in one line; the last good checkpoint is there."""


class Outcome(NamedTuple):
    exit_code: int  # 0, or 130 after SIGINT, 143 after SIGTERM
    position: int
    reason: str  # "finished", "SIGINT", "SIGTERM"


def run(
    learner: Learner,
    folder: RunFolder,
    *,
    checkpoint_every: int,
    keep: int,
    identity: dict[str, Any],
    progress: bool,
    hyperparameters: dict[str, Any],
    resume: bool = False,
    images_every: int | None = None,
    console: Console | None = None,
) -> Outcome:
    """Train until finished or told to stop, and leave checkpoint, policy and summary in `folder`.

    Checkpoints fall on multiples of `checkpoint_every` positions, pictures on multiples of `images_every` (None: with
    the checkpoints). `identity` is what a checkpoint must share with the run that takes it up.
    """
    for name, value in (("checkpoint_every", checkpoint_every), ("images_every", images_every or 1)):
        if value < 1:
            raise InputError(f"{name}: {value} given, an integer ≥ 1 expected")
    console = console or Console(stderr=True)
    identity = {"rcac": __version__, **identity}

    def save(score: float | None = None) -> int:
        checkpoint.save(folder.path, learner.position, learner.state(), identity=identity, keep=keep, score=score)
        return learner.position

    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        stack.enter_context(_explained(learner, folder))
        try:
            folder.lock()
            saved = _take_up(learner, folder, identity, console) if resume else save()
            metrics = stack.enter_context(MetricsWriter(folder.path, saved if resume else None))
        except BaseException:
            folder.discard()  # a start that failed; an opened folder is left as it is
            raise
        view = stack.enter_context(ProgressView(learner, enabled=progress, console=console))

        before, clock, step = learner.position, time.monotonic(), Step({}, (), "")
        while not learner.finished and stop.received is None:
            step = learner.step()
            _check(step)
            now = time.monotonic()
            rate = (learner.position - before) / max(now - clock, 1e-9)
            metrics.write(learner.position, {**step.metrics, "time/steps_per_second": rate})
            view.update(step)
            if _crossed(images_every or checkpoint_every, before, learner.position):
                metrics.images(learner.position, learner.images())
            if _crossed(checkpoint_every, before, learner.position):
                metrics.sync()
                saved = save(_score(step.terms))
            before, clock = learner.position, now

        if learner.position != saved:
            metrics.sync()
            save(_score(step.terms))
        reason = stop.received.name if stop.received and not learner.finished else "finished"
        summary = learner.summary() if learner.position > 0 else {}  # before its first step a learner has no result
        if summary:
            ending = {"finished": learner.finished, "reason": reason, "position": learner.position}
            folder.write_policy(learner.policy(), {"identity": identity, "hyperparameters": hyperparameters})
            folder.write_json("summary.json", {**summary, "run": {**ending, "wall_time": round(metrics.wall_time, 3)}})
            metrics.images(learner.position, learner.images())
        if learner.finished:
            metrics.hyperparameters(learner.position, hyperparameters, summary)

    if metrics.board_error:
        _warn(console, metrics.board_error)
    return Outcome(stop.exit_code, learner.position, reason)


def _warn(console: Console, line: str) -> None:
    console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _take_up(learner: Learner, folder: RunFolder, identity: dict[str, Any], console: Console) -> int:
    """Load the newest whole checkpoint, and say which ones were not."""
    loaded = checkpoint.load_latest(folder.path, identity)
    for line in loaded.skipped:
        _warn(console, f"{line}: continuing from {loaded.position}")
    learner.load(loaded.state)
    if learner.position != loaded.position:
        raise InputError(f"checkpoint {loaded.position}: its state has position {learner.position}")
    checkpoint.set_aside_after(folder.path, loaded.position)
    return loaded.position


def _check(step: Step) -> None:
    for name, value in step.metrics.items():
        if name.startswith(CHECKED) and math.isnan(value):
            raise FloatingPointError(f"{name} is not a number")


def _crossed(every: int, before: int, after: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]: the same ones whether or not the run was interrupted."""
    return after // every > before // every


def _score(terms: tuple[Term, ...]) -> float | None:
    """Rank of a feasible iterate, larger is better; None when a budget is exceeded. Only a return is to be large."""
    if not terms or not all(term.met for term in terms):
        return None
    objective = terms[0]
    return objective.value if objective.label == "return" else -objective.value


@contextlib.contextmanager
def _explained(learner: Learner, folder: RunFolder) -> Iterator[None]:
    """Failures say where the training was and what is left; those with a simple cause become one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        kept = checkpoint.latest(folder.path)
        rest = f"the last good checkpoint is {kept}" if kept else "there is no checkpoint yet"
        where = f"after {learner.position} {learner.unit}; {rest}"
        if isinstance(error, FloatingPointError):
            raise TrainingStopped(f"numbers broke down: {error}, {where}") from error
        if isinstance(error, OSError) and error.errno in FULL:
            raise TrainingStopped(f"no space left ({error.strerror}: {error.filename}), {where}") from error
        error.add_note(f"training stopped {where}")
        raise
