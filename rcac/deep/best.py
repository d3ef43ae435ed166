"""Which policy to hand out: the best by measured episodes, never just the last.

While the actor learns, an episode outlasts many updates, and a window of episodes measures a mixture of policies. So the
windows only choose candidates, the best of each of M equal parts of the run, and in the end every candidate acts alone in
a trial of fresh episodes. Both are ranked by the switch's merit of

    J_n = κC_n + γρ‖w_n‖ (1 − γ^l)/(1 − γ)           C measured episode sums, l their mean length; κ: see the trainer

the measured sums in discounted units, plus what the worst case of the critics' IPM set adds over such an episode. The
norms are the present ones for all that are compared: critics that know little yet have small ones.
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


def discounted_values(trajectory: Trajectory, initial: np.ndarray, gamma: float) -> np.ndarray:
    """J (K,) of a policy that acted alone among states seen as one-hot rows, from the initial ones (k, d).

    Every transition counts, not only what the discount leaves of the first ones of an episode: with the visits' own mean
    costs and frequencies, V(s) = ĉ(s) + γ Σ P̂(s'|s) V(s'), a step that terminates leading nowhere (least-squares
    temporal differences with one-hot features). States that were never seen are worth the mean of the others.
    """
    valid, count = trajectory.valid, trajectory.observations.shape[2]
    here = trajectory.observations[:-1].argmax(axis=2)
    there = trajectory.observations[1:].argmax(axis=2)
    if len(trajectory.final):
        there[tuple(trajectory.final_at.T)] = trajectory.final.argmax(axis=1)
    here, there, goes_on = here[valid], there[valid], ~trajectory.terminated[valid]
    visits = np.bincount(here, minlength=count)
    seen = visits > 0
    matrix = np.diag(np.where(seen, visits, 1).astype(float))
    np.add.at(matrix, (here, there), -gamma * goes_on)
    matrix[~seen] = np.where(seen, -1.0 / max(seen.sum(), 1), 0.0)
    matrix[~seen, ~seen] = 1.0
    costs = np.stack([np.bincount(here, weights=c[valid], minlength=count) for c in trajectory.costs], axis=1)
    values = np.linalg.solve(matrix, costs)  # (d, K)
    return values[initial.argmax(axis=1)].mean(axis=0)


def first_episodes(trajectory: Trajectory, gamma: float) -> tuple[np.ndarray, float]:
    """Mean sums (K,), discounted by γ, and mean length of the episodes that the copies began a trial with."""
    done = trajectory.terminated | trajectory.truncated  # (T, n)
    before = np.cumsum(done, axis=0) - done == 0  # (T, n) up to and including the first end
    factors = gamma ** np.arange(len(done))[:, None] * before
    return (trajectory.costs * factors).sum(axis=1).mean(axis=1), float(before.sum(axis=0).mean())
