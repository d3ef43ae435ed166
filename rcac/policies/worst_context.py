"""A search for the worst context of each cost, within a stated number of episodes.

Half of the episodes go to corners, centre and points inside. A Gaussian process through what was measured,

    C(u) ~ GP(m, s²·exp(−‖u − u'‖²/2l²)),    l the likeliest of a few, noise from the spread of a context's episodes,

then says where each cost may be worst (its mean plus two standard deviations), and the other half goes there in rounds.
The context with the largest mean of the process is the one found: a lucky episode counts for as much as it should.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rcac.contexts import Parameters

# (points (M, d) of the unit cube, episodes in each, seed) → the costs of each episode (M, episodes, N)
Measure = Callable[[np.ndarray, int, int], np.ndarray]
Played = list[tuple[np.ndarray, np.ndarray]]  # points (M, d) and the costs of their episodes (M, e, N)

INSIDE = 64  # points inside, at most
KNOWN = 256  # contexts measured before that the process goes through, at most
ROUNDS = 6  # of the search, after the first half of its episodes
NEW = 8  # contexts that a round plays for each cost
LENGTHS = (0.1, 0.2, 0.4, 0.8)  # scales of the Gaussian process, in units of the cube's diagonal


class Search(NamedTuple):
    worst: np.ndarray  # (N, d) the worst context found for each cost
    played: Played  # in the search

    @property
    def episodes(self) -> int:
        return sum(costs.shape[0] * costs.shape[1] for _, costs in self.played)


def worst_contexts(
    measure: Measure, box: Parameters, costs: int, episodes: int, seed: int, known: Played | None = None
) -> Search:
    """Search with at most so many episodes (one at least), beginning with what is known."""
    rng = np.random.default_rng(seed)
    inside = box.points(max(min(INSIDE, episodes // 16), 1), seed)
    corners = rng.permutation(box.corners())  # there may be more than can be played
    points = np.concatenate([np.full((1, box.dimension), 0.5), corners, inside])[: max(episodes // 2, 1)]
    each = max(episodes // 2 // len(points), 1)
    before = [(points[:KNOWN], costs[:KNOWN]) for points, costs in known or []]
    played = [*before, (points, measure(points, each, int(rng.integers(2**31))))]
    rounds = min(ROUNDS, episodes // 64)
    for _ in range(rounds):
        room = episodes // (2 * rounds)  # for the episodes of this round
        candidates = np.concatenate([rng.random((256, box.dimension)), *(points for points, _ in played)])
        chosen = []
        for n in range(costs):
            near = candidates[_process(played, n, candidates)[0].argmax()] + 0.05 * rng.normal(size=(64, box.dimension))
            pool = np.concatenate([candidates, np.clip(near, 0.0, 1.0)])
            mean, std = _process(played, n, pool)
            chosen.append(pool[np.argsort(-(mean + 2 * std), kind="stable")[:NEW]])
        points = np.unique(np.concatenate(chosen), axis=0)
        points = rng.permutation(points)[:room]
        played.append((points, measure(points, room // len(points), int(rng.integers(2**31)))))
    points = np.concatenate([points for points, _ in played])
    return Search(np.stack([points[_process(played, n, points)[0].argmax()] for n in range(costs)]), played[len(before) :])


def _process(played: Played, n: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (M,) of cost n at points (M, d)."""
    points = np.concatenate([points for points, _ in played])
    means = np.concatenate([costs[:, :, n].mean(axis=1) for _, costs in played])
    counts = np.concatenate([np.full(len(points), costs.shape[1]) for points, costs in played])
    within = np.concatenate(
        [(costs[:, :, n] - costs[:, :, n].mean(axis=1, keepdims=True)).ravel() for _, costs in played]
    )
    scale = means.std() + 1e-12 * (1 + np.abs(means).max())
    values = (means - means.mean()) / scale
    noise = (within.var() * len(within) / max(len(within) - len(points), 1) / counts + 1e-6 * scale**2) / scale**2

    def kernel(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, axis=2) / length**2))

    def likelihood(length: float) -> float:
        covariance = kernel(points, points, length) + np.diag(noise)
        return float(-0.5 * values @ np.linalg.solve(covariance, values) - 0.5 * np.linalg.slogdet(covariance)[1])

    length = max((x * np.sqrt(points.shape[1]) for x in LENGTHS), key=likelihood)
    inverse = np.linalg.inv(kernel(points, points, length) + np.diag(noise))
    across = kernel(at, points, length)
    variance = np.maximum(1 - np.einsum("mi,ij,mj->m", across, inverse, across), 0.0)
    return means.mean() + scale * across @ inverse @ values, scale * np.sqrt(variance)
