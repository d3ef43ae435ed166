"""Which policy to hand out: the best by a trial of its own, never just the last.

While the actor learns, an episode outlasts many updates, and a window of episodes measures a mixture of policies. So the
window only proposes candidates, the best of each of M parts of the run (each but the last half as long as the one before, since
late policies are the better ones), and what decides is a trial: the frozen
policy alone, on fresh episodes, as many as the window has. Where states and actions can be counted a trial needs no episodes:
all transitions of the run say what a policy is worth (`rcac.deep.empirical`), so each is tried as it is proposed.

Candidates are ranked by the switch's merit of

    J_n = κ(C_n + e_n) + γρ‖w_n‖ (1 − γ^l)/(1 − γ)   C measured episode sums, l their mean length; κ: see the trainer

the measured sums in discounted units, plus what the worst case of the critics' IPM set adds over such an episode; e_n is the
standard error of a constraint's sums (the best of many would else be one that had luck with its costs), e_0 = 0. The norms are the present ones for all that are compared: critics that know little yet have small ones.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rcac.learner import State

Merit = Callable[[np.ndarray], tuple[float, ...]]  # of returns J (K,), cost form; smaller is better
FACTS = ("measured", "length", "episodes", "position", "errors", "tried")


@dataclass
class Candidate:
    tensors: dict[str, np.ndarray]  # of the policy
    measured: list[float]  # C (K,)
    length: float  # l
    episodes: int  # that it was measured by
    position: int  # environment steps before it acted
    errors: list[float]  # standard errors of `measured` (K,)
    tried: bool = False  # measured alone, in a trial


class Selection:
    """The best candidate of each part of a run."""

    def __init__(self, parts: int) -> None:
        self.candidates: list[Candidate | None] = [None] * parts

    def part(self, progress: float) -> int:
        """In which part of the run this share of it lies: 0 to ½, ½ to ¾, … and the rest."""
        return min(int(-math.log2(1.0 - progress)), len(self.candidates) - 1)

    def state(self) -> State:
        tensors: dict[str, np.ndarray] = {}
        facts: list[dict[str, Any] | None] = []
        for k, candidate in enumerate(self.candidates):
            facts.append(None if candidate is None else {name: getattr(candidate, name) for name in FACTS})
            if candidate is not None:
                tensors |= {f"{k}.{key}": array.copy() for key, array in candidate.tensors.items()}
        return State(tensors, {"candidates": facts})

    def load(self, state: State) -> None:
        for k, facts in enumerate(state.data["candidates"]):
            start = f"{k}."
            own = {name[len(start) :]: x for name, x in state.tensors.items() if name.startswith(start)}
            self.candidates[k] = None if facts is None else Candidate(own, **facts)


def worst_returns(candidate: Candidate, margins: np.ndarray, kappa: float, gamma: float) -> np.ndarray:
    """J (K,) above, with margins ρ‖w_n‖ (K,)."""
    horizon = (1.0 - gamma**candidate.length) / (1.0 - gamma)
    errors = np.array([0.0, *candidate.errors[1:]])
    return kappa * (np.array(candidate.measured) + errors) + gamma * margins * horizon


def best(
    candidates: Iterable[Candidate | None], merit: Merit, margins: np.ndarray, kappa: float, gamma: float
) -> Candidate | None:
    """What was tried beats what was not, then the smallest merit; of two that are equal, the first that is given."""

    def rank(candidate: Candidate) -> tuple[bool, tuple[float, ...]]:
        return not candidate.tried, merit(worst_returns(candidate, margins, kappa, gamma))

    return min((candidate for candidate in candidates if candidate is not None), key=rank, default=None)


def notes(candidates: Iterable[Candidate | None], chosen: Candidate | None, wanted: int, ended: int) -> list[str]:
    """What a reader of the result should know about how little it may mean; `ended`: episodes in the window."""
    if chosen is None:
        return [f"the window of {wanted} episodes was not filled, {ended} ended" if ended else "no episode has ended"]
    found: list[str] = []
    returns = [0.0 - candidate.measured[0] for candidate in candidates if candidate is not None]
    if returns and not np.any(returns):  # nothing was earned; all at the same good return is no fault
        found.append(f"return {returns[0]:.1f} at every candidate")
    if chosen.episodes < wanted:
        found.append(f"{chosen.episodes} episodes, {wanted} wanted")
    if not chosen.tried:
        found.append("measured while it was learning, by no trial of its own")
    return found
