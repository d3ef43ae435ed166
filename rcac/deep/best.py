"""Which policy to hand out: the best by measured episodes, never just the last.

While the actor learns, an episode outlasts many updates, and a window of episodes measures a mixture of policies. So the
windows only choose candidates, the best of each of M equal parts of the run, and in the end every candidate acts alone in
a trial of fresh episodes. Both are ranked by the switch's merit of

    J_n = κC_n + γρ‖w_n‖ (1 − γ^l)/(1 − γ)           C measured episode sums, l their mean length

the measured sums in discounted units, plus what the worst case of the critics' IPM set adds over such an episode.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rcac.deep.rollout import Trajectory

Merit = Callable[[np.ndarray], tuple[float, ...]]  # of returns (K,), cost form, discounted units; smaller is better


@dataclass
class Candidate:
    tensors: dict[str, np.ndarray]  # of the policy
    margins: np.ndarray  # (K,) ρ‖w_n‖ of its critics
    measured: list[float]  # C (K,)
    merit: list[float]
    position: int  # environment steps before it acted
    tried: bool = False  # measured alone, in a trial


def worst_returns(measured: np.ndarray, length: float, margins: np.ndarray, share: float, gamma: float) -> np.ndarray:
    """J (K,) above."""
    return share * measured + gamma * margins * (1.0 - gamma**length) / (1.0 - gamma)


def better(new: Candidate, old: Candidate | None) -> bool:
    """What was tried beats what was not; a later one wins a tie."""
    return old is None or (not new.tried, new.merit) <= (not old.tried, old.merit)


def best(candidates: list[Candidate | None]) -> Candidate | None:
    chosen: Candidate | None = None
    for candidate in candidates:
        if candidate is not None and better(candidate, chosen):
            chosen = candidate
    return chosen


def first_episodes(trajectory: Trajectory) -> tuple[np.ndarray, float]:
    """Mean sums (K,) and length of the episodes that the copies began a trial with."""
    done = trajectory.terminated | trajectory.truncated  # (T, n)
    before = np.cumsum(done, axis=0) - done == 0  # (T, n) up to and including the first end
    return (trajectory.costs * before).sum(axis=1).mean(axis=1), float(before.sum(axis=0).mean())
