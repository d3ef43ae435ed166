"""A search for the worst context of each cost, within a stated number of episodes.

Half of the episodes go to corners, centre and points inside. A Gaussian process through what was measured,

    C(u) ~ GP(m, s²·exp(−‖u − u'‖²/2l²)),    l the likeliest of a few, noise from the spread of a context's episodes,

then says where each cost may be worst (its mean plus two standard deviations), and the other half goes there in rounds.
The context with the largest mean of the process is the one found: a lucky episode counts for as much as it should.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.spatial.distance import cdist

from rcac.contexts import Parameters

# (points (M, d) of the unit cube, episodes in each, seed) → the costs of each episode (M, episodes, N)
Measure = Callable[[np.ndarray, int, int], np.ndarray]
Played = list[tuple[np.ndarray, np.ndarray]]  # points (M, d) and the costs of their episodes (M, e, N)

CORNERS, INSIDE = 128, 64  # of the first half, at most
KNOWN = 128  # contexts measured before that the process goes through, at most
ROUNDS = 6  # of the search, after the first half of its episodes
NEW = 8  # contexts that a round plays for each cost
LENGTHS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)  # scales of the Gaussian process, in units of the cube's diagonal


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
    corners = rng.permutation(box.corners())[:CORNERS]
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
            process = Process(played, n)
            near = candidates[process(candidates)[0].argmax()] + 0.05 * rng.normal(size=(64, box.dimension))
            pool = np.concatenate([candidates, np.clip(near, 0.0, 1.0)])
            mean, std = process(pool)
            chosen.append(pool[np.argsort(-(mean + 2 * std), kind="stable")[:NEW]])
        points = np.unique(np.concatenate(chosen), axis=0)
        points = rng.permutation(points)[:room]
        played.append((points, measure(points, room // len(points), int(rng.integers(2**31)))))
    points = np.concatenate([points for points, _ in played])
    worst = np.stack([points[Process(played, n)(points)[0].argmax()] for n in range(costs)])
    return Search(worst, played[len(before) :])


class Process:
    """The Gaussian process of cost n, through what was measured."""

    def __init__(self, played: Played, n: int) -> None:
        parts = [(points, costs[:, :, n]) for points, costs in played]  # (M, d), (M, e)
        self.points = np.concatenate([points for points, _ in parts])
        means = np.concatenate([costs.mean(axis=1) for _, costs in parts])
        counts = np.concatenate([np.full(len(costs), costs.shape[1]) for _, costs in parts])
        within = np.concatenate([(costs - costs.mean(axis=1, keepdims=True)).ravel() for _, costs in parts])
        variance = np.sum(within**2) / max(len(within) - len(means), 1)  # of a context's episodes, pooled
        self.mean, self.scale = means.mean(), means.std() + 1e-12 * (1 + np.abs(means).max())  # m, s
        values = (means - self.mean) / self.scale
        noise = np.diag(variance / counts / self.scale**2 + 1e-6)
        distance = _squared(self.points, self.points)

        def factors(length: float) -> tuple[np.ndarray, np.ndarray, float]:
            factor = cholesky(np.exp(-0.5 * distance / length**2) + noise, lower=True)
            weights = cho_solve((factor, True), values)
            return factor, weights, float(-0.5 * values @ weights - np.sum(np.log(np.diag(factor))))  # log-likelihood

        lengths = [share * np.sqrt(self.points.shape[1]) for share in LENGTHS]
        fits = [factors(length) for length in lengths]
        best = int(np.argmax([likelihood for *_, likelihood in fits]))
        self.length, (self.factor, self.weights, _) = lengths[best], fits[best]

    def __call__(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (M,) at points (M, d)."""
        across = np.exp(-0.5 * _squared(at, self.points) / self.length**2)  # (M, m)
        explained = np.sum(solve_triangular(self.factor, across.T, lower=True) ** 2, axis=0)
        std = np.sqrt(np.maximum(1 - explained, 0.0))
        return self.mean + self.scale * across @ self.weights, self.scale * std


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(A, B) squared distances of points (A, d) and (B, d)."""
    return np.asarray(cdist(a, b, "sqeuclidean"))
