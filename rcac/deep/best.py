"""Which policy to hand out: the best by measured episodes, never just the last.

While the actor learns, an episode outlasts many updates, and a window of episodes measures a mixture of policies. So the
windows only choose candidates, the best of each of M equal parts of the run, and in the end every candidate acts alone in
a trial of fresh episodes. Both are ranked by the switch's merit of

    J_n = κC_n + γρ‖w_n‖ (1 − γ^l)/(1 − γ)           C measured episode sums, l their mean length; κ: see the trainer

the measured sums in discounted units, plus what the worst case of the critics' IPM set adds over such an episode. The
norms are the present ones for all that are compared: critics that know little yet have small ones. Where states and actions
can be counted (`tally`), no trial is needed: candidates are compared by what all transitions of the run say of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rcac.deep.rollout import Trajectory

Merit = Callable[[np.ndarray], tuple[float, ...]]  # of returns J (K,), cost form; smaller is better


@dataclass
class Candidate:
    tensors: dict[str, np.ndarray]  # of the policy
    measured: list[float]  # C (K,)
    length: float  # l
    position: int  # environment steps before it acted
    tried: bool = False  # measured alone, in a trial


def worst_returns(candidate: Candidate, margins: np.ndarray, share: float, gamma: float) -> np.ndarray:
    """J (K,) above, with margins ρ‖w_n‖ (K,)."""
    horizon = (1.0 - gamma**candidate.length) / (1.0 - gamma)
    return share * np.array(candidate.measured) + gamma * margins * horizon


def best(
    candidates: Iterable[Candidate | None], merit: Merit, margins: np.ndarray, share: float, gamma: float
) -> Candidate | None:
    """What was tried beats what was not, then the smallest merit; a later one wins a tie."""

    def rank(candidate: Candidate) -> tuple[bool, tuple[float, ...], int]:
        return not candidate.tried, merit(worst_returns(candidate, margins, share, gamma)), -candidate.position

    return min((candidate for candidate in candidates if candidate is not None), key=rank, default=None)


def first_episodes(trajectory: Trajectory, gamma: float) -> tuple[np.ndarray, float]:
    """Mean sums (K,), discounted by γ, and mean length of the episodes that the copies began a trial with."""
    done = trajectory.terminated | trajectory.truncated  # (T, n)
    before = np.cumsum(done, axis=0) - done == 0  # (T, n) up to and including the first end
    factors = gamma ** np.arange(len(done))[:, None] * before
    return (trajectory.costs * factors).sum(axis=1).mean(axis=1), float(before.sum(axis=0).mean())
