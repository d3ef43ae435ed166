"""A certificate: what fresh episodes say about a policy's costs over a box of contexts, with a confidence.

    episodes    m contexts from the law, e episodes in each      k of m first episodes cost more than the budget
    contexts                                                     k of m means over e episodes are above the budget
                share ≤ B⁻¹(1 − δ; k + 1, m − k)                 exact for independent trials (Clopper and Pearson)
    worst       a search for the worst context, then n fresh episodes there
                J ≤ mean + √(2V ln(2/δ)/n) + 7R ln(2/δ)/(3(n − 1))       empirical Bernstein (Maurer and Pontil),
                V the sample variance, R the range that an episode's cost can have

The error probability 1 − confidence is divided among all statements, three for each cost, so that they hold together.
Nothing is claimed outside the box, and nothing of contexts that the search has not found.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

from rcac.contexts import Parameters
from rcac.errors import InputError

# (points (M, d) of the unit cube, episodes in each, seed) → the costs of each episode (M, episodes, N)
Measure = Callable[[np.ndarray, int, int], np.ndarray]

ROUNDS = 6  # of the search, after the first half of its episodes
NEW = 8  # contexts that a round plays for each cost
LENGTHS = (0.1, 0.2, 0.4, 0.8)  # scales of the Gaussian process, in units of the cube's diagonal


def share_bound(count: int, trials: int, confidence: float) -> float:
    """Upper bound on a probability, after `count` of `trials` independent trials."""
    if count >= trials:
        return 1.0
    return float(beta.ppf(confidence, count + 1, trials - count))


def mean_bound(sample: np.ndarray, low: float, high: float, confidence: float) -> float:
    """Upper bound on the mean of independent numbers in [low, high], from a sample (n,)."""
    n, log = len(sample), np.log(2 / (1 - confidence))
    if n < 2:
        return high
    bound = sample.mean() + np.sqrt(2 * sample.var(ddof=1) * log / n) + 7 * (high - low) * log / (3 * (n - 1))
    return float(min(bound, high))


@dataclass(frozen=True)
class CostCertificate:
    """What is known of one cost. Bounds are upper ones; together with those of the other costs they hold with the
    certificate's confidence."""

    label: str
    budget: float
    episodes_over: int  # of `contexts` episodes, each in a context of its own
    episodes_over_share: float  # bound on the share of episodes above the budget
    contexts_over: int  # of `contexts` means over `episodes` episodes
    contexts_over_share: float  # bound on the share of contexts whose mean over so many episodes is above the budget
    worst_context: dict[str, float]
    worst_mean: float  # of `final_episodes` fresh episodes there
    worst_bound: float
    nominal_mean: float | None = None

    @property
    def certified(self) -> bool:
        """Within its budget at the worst context found."""
        return self.worst_bound <= self.budget


@dataclass(frozen=True)
class Certificate:
    confidence: float
    contexts: int
    episodes: int  # in each of them
    search_episodes: int
    final_episodes: int
    box: dict[str, Any]
    seed: int
    costs: tuple[CostCertificate, ...]

    @property
    def certified(self) -> bool:
        return all(cost.certified for cost in self.costs)

    def statements(self) -> list[str]:
        """In words, exactly what is claimed."""
        sure = f"{100 * self.confidence:g} %"
        lines = [f"All of the following together, with confidence {sure}, for contexts within {_words(self.box)}:"]
        for cost in self.costs:
            where = ", ".join(f"{name} {value:.4g}" for name, value in cost.worst_context.items())
            verdict = "within" if cost.certified else "not shown to be within"
            lines += [
                f"- {cost.label}: at the worst context found ({where}) its mean is at most {cost.worst_bound:.4g}, {verdict} "
                f"the budget of {cost.budget:.4g} (measured {cost.worst_mean:.4g} in {self.final_episodes} fresh episodes).",
                f"- {cost.label}: at most {100 * cost.contexts_over_share:.3g} % of contexts have a mean over {self.episodes} "
                f"episodes above the budget (seen: {cost.contexts_over} of {self.contexts}).",
                f"- {cost.label}: at most {100 * cost.episodes_over_share:.3g} % of episodes cost more than the budget "
                f"(seen: {cost.episodes_over} of {self.contexts}).",
            ]
        return [*lines, "Nothing is claimed outside the box, or of contexts that the search did not find."]

    def as_dict(self) -> dict[str, Any]:
        costs = [{**asdict(cost), "certified": cost.certified} for cost in self.costs]
        return {**asdict(self), "costs": costs, "certified": self.certified, "statements": self.statements()}


def _words(box: dict[str, Any]) -> str:
    return ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high, *_) in box["ranges"].items())


def certify_measured(
    measure: Measure,
    box: Parameters,
    budgets: Sequence[float],
    cost_ranges: Sequence[tuple[float, float]],
    *,
    labels: Sequence[str] | None = None,
    confidence: float = 0.95,
    contexts: int = 300,
    episodes: int = 8,
    search_episodes: int = 4096,
    final_episodes: int = 1024,
    seed: int = 0,
) -> Certificate:
    """Certify what `measure` plays. `cost_ranges` are the least and the largest cost that an episode can have."""
    for name, count in (("contexts", contexts), ("episodes", episodes), ("final_episodes", final_episodes)):
        if count < 1:
            raise InputError(f"{name}: {count} given, a whole number ≥ 1 expected")
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} given, a number in (0, 1) expected")
    limits, names = np.asarray(budgets, dtype=float), labels or _labels(len(budgets))
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(4)]
    each = 1 - (1 - confidence) / (3 * len(limits))  # of every statement

    played = measure(box.sample(np.random.default_rng(seeds[0]), contexts), episodes, seeds[1])  # (M, e, N)
    over = np.sum(played[:, 0] > limits, axis=0)
    over_mean = np.sum(played.mean(axis=1) > limits, axis=0)
    worst = worst_contexts(measure, box, len(limits), search_episodes, seeds[2])  # (N, d)
    final = measure(worst, final_episodes, seeds[3])  # (N, n, N)
    costs = []
    for n, (label, budget, (low, high)) in enumerate(zip(names, limits, cost_ranges, strict=True)):
        sample = final[n, :, n]
        if sample.min() < low or sample.max() > high:
            raise InputError(
                f"cost_ranges[{n}]: [{low:g}, {high:g}] given, but an episode cost between {sample.min():g} and "
                f"{sample.max():g}: the bound needs the whole range"
            )
        where = {name: float(values[0]) for name, values in box.contexts(worst[n : n + 1]).items()}
        costs.append(
            CostCertificate(
                label=label,
                budget=float(budget),
                episodes_over=int(over[n]),
                episodes_over_share=share_bound(int(over[n]), contexts, each),
                contexts_over=int(over_mean[n]),
                contexts_over_share=share_bound(int(over_mean[n]), contexts, each),
                worst_context=where,
                worst_mean=float(sample.mean()),
                worst_bound=mean_bound(sample, low, high, each),
            )
        )
    return Certificate(
        confidence, contexts, episodes, search_episodes, final_episodes, box.as_dict(), seed, tuple(costs)
    )


def _labels(count: int) -> list[str]:
    return [f"cost {n}" if count > 1 else "cost" for n in range(1, count + 1)]


def worst_contexts(measure: Measure, box: Parameters, costs: int, episodes: int, seed: int) -> np.ndarray:
    """(N, d) the worst context found for each cost, within about so many episodes in all.

    Half of them go to corners, centre and points inside. A Gaussian process through what was measured then says where each
    cost may be worst (its mean plus two standard deviations), and the other half goes there in rounds. The context with
    the largest mean of the process is the one found: a lucky episode counts for as much as it should."""
    rng = np.random.default_rng(seed)
    points = np.concatenate([box.corners(), np.full((1, box.dimension), 0.5)])
    points = np.concatenate([points, box.points(max(min(64, episodes // 16), 1), seed)])
    each = max(episodes // 2 // len(points), 1)
    played = [(points, measure(points, each, int(rng.integers(2**31))))]
    rounds = min(ROUNDS, episodes // 64)
    for _ in range(rounds):
        candidates = np.concatenate([rng.random((256, box.dimension)), *(points for points, _ in played)])
        chosen = []
        for n in range(costs):
            near = candidates[_process(played, n, candidates)[0].argmax()] + 0.05 * rng.normal(size=(64, box.dimension))
            pool = np.concatenate([candidates, np.clip(near, 0.0, 1.0)])
            mean, std = _process(played, n, pool)
            chosen.append(pool[np.argsort(-(mean + 2 * std), kind="stable")[:NEW]])
        points = np.unique(np.concatenate(chosen), axis=0)
        each = max(episodes // (2 * rounds) // len(points), 1)
        played.append((points, measure(points, each, int(rng.integers(2**31)))))
    points = np.concatenate([points for points, _ in played])
    return np.stack([points[_process(played, n, points)[0].argmax()] for n in range(costs)])


def _process(played: list[tuple[np.ndarray, np.ndarray]], n: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (M,) at points (M, d) of a Gaussian process with a squared-exponential kernel through the
    mean costs measured; the length scale that makes them likeliest, noise from the spread of episodes."""
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
