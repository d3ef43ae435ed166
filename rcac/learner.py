"""What a training in progress looks like from outside.

A tabular solver and a deep trainer are both a `Learner`: something that takes one step at a time, says how it is
doing, can be saved at any step and resumed exactly, and ends with a policy. The runner (`rcac.runs`) needs nothing else,
and learners know nothing of files, progress bars or loggers.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np


class State(NamedTuple):
    """Arrays and plain data, enough to continue exactly (or, for a policy, to act)."""

    tensors: dict[str, np.ndarray]
    data: dict[str, Any]  # JSON only: None, bool, int, float, str, list, dict with str keys


class Term(NamedTuple):
    """One line of the score in a person's own sign: a return is shown as a return, a cost against its budget."""

    label: str  # "return", "cost", "cost 2", "utility"
    value: float
    budget: float | None  # None for the objective
    met: bool  # within its budget; True for the objective
    worst: float | None = None  # at the worst context, where the training is against a box of them


NOTHING = "nothing"  # what a step descends that only measures


class Step(NamedTuple):
    """What one step reports."""

    metrics: dict[str, float]  # names have a namespace: "return/worst_case", "switch/index", "time/rounds"
    terms: tuple[Term, ...]  # objective first
    descending: str  # label of the term that this step descended, or NOTHING


class Learner(Protocol):
    @property
    def unit(self) -> str:
        """What `position` and `total` count: "evaluations", "steps"."""

    @property
    def total(self) -> int:
        """Planned work."""

    @property
    def position(self) -> int:
        """Work done so far."""

    @property
    def finished(self) -> bool:
        """Nothing left to do: the work is done, or a stopping test was met."""

    def step(self) -> Step:
        """One update; afterwards `position` is larger."""

    def state(self) -> State:
        """Everything needed to continue exactly from here."""

    def load(self, state: State) -> None:
        """Continue from what `state()` returned."""

    def policy(self) -> State:
        """The policy to hand out (the best one so far, not the last), with its card as data."""

    def summary(self) -> dict[str, Any]:
        """The result as plain data: returns, feasibility, bounds, reason for stopping."""

    def images(self) -> dict[str, np.ndarray]:
        """Pictures of the present state, uint8 (H, W, 3), by namespaced name; may be empty."""
