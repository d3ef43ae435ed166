"""Checkpoints as a callback of the loop, and the way back from one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rcac import __version__
from rcac.errors import InputError
from rcac.learner import Learner, Step, Term
from rcac.runs import checkpoint
from rcac.runs.loop import Callback, Outcome


class Checkpoints(Callback):
    """A checkpoint at the first position on or after each multiple of `every`, and one in the end.

    `identity` is what a checkpoint must share with the run that resumes from it; `sync` is called before each one.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], every: int, keep: int) -> None:
        if every < 1:
            raise InputError(f"checkpoint_every: {every} given, an integer ≥ 1 expected")
        self.identity = {"rcac": __version__, **identity}
        self.sync: Callable[[], None] = lambda: None
        self._folder, self._every, self._keep = folder, every, keep
        self._saved, self._before = -1, 0
        self._score: float | None = None

    def save(self, learner: Learner) -> None:
        self.sync()
        options: Any = {"identity": self.identity, "keep": self._keep, "score": self._score}
        checkpoint.save(self._folder, learner.position, learner.state(), **options)
        self._saved = learner.position

    def resume(self, learner: Learner) -> list[str]:
        """Load the newest whole checkpoint; says which ones were not, a line each."""
        loaded = checkpoint.load_latest(self._folder, self.identity)
        try:
            learner.load(loaded.state)
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            expected = f"one that rcac {__version__} wrote as it is installed here expected"
            raise InputError(f"checkpoint {loaded.position}: its state is another's ({error!r}), {expected}") from error
        if learner.position != loaded.position:
            raise InputError(f"checkpoint {loaded.position}: its state has position {learner.position}")
        checkpoint.set_aside_after(self._folder, loaded.position)
        self._saved = loaded.position
        return [f"{line}: continuing from {loaded.position}" for line in loaded.skipped]

    def on_start(self, learner: Learner) -> None:
        self._before = learner.position

    def on_step(self, learner: Learner, step: Step) -> None:
        self._score = rank(step.terms)
        # a multiple lies in (before, after]: the same ones whether or not the run was interrupted
        if learner.position // self._every > self._before // self._every:
            self.save(learner)
        self._before = learner.position

    def on_end(self, learner: Learner, outcome: Outcome) -> None:
        if learner.position != self._saved:
            self.save(learner)


def rank(terms: tuple[Term, ...]) -> float | None:
    """Of a feasible iterate, larger is better; None when a budget is exceeded. Only a return is to be large."""
    if not terms or not all(term.met for term in terms):
        return None
    objective = terms[0]
    return objective.value if objective.label == "return" else -objective.value
