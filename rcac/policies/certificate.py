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

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from rcac.contexts import Parameters
from rcac.errors import InputError
from rcac.fields import COUNT, COUNT_OR_ZERO, check_fields, field, number
from rcac.files import replace_file
from rcac.labels import episode_labels
from rcac.policies.worst_context import Measure, worst_contexts

FILE = "certificate.json"
SHARE = number(lambda x: 0 < x < 1, "a number in (0, 1)")
LAW, SEARCH = "law", "search"  # why a context was played


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


@dataclass
class CertificateSettings:
    confidence: float = field(0.95, SHARE)  # with which all statements hold together
    contexts: int = field(300, COUNT)  # drawn from the law of the box
    episodes: int = field(8, COUNT)  # in each of them
    search_episodes: int = field(4096, COUNT)  # to find the worst context, at most
    final_episodes: int = field(4096, COUNT)  # fresh ones, at the worst context found for each cost
    seed: int = field(0, COUNT_OR_ZERO)  # of contexts, episodes and the policy's samples

    def check(self) -> None:
        check_fields(self)

    def total(self, costs: int) -> int:
        """Episodes in all."""
        return self.contexts * self.episodes + self.search_episodes + costs * self.final_episodes


@dataclass(frozen=True)
class CostCertificate:
    """What is known of one cost. Bounds are upper ones; together with those of the other costs they hold with the
    certificate's confidence."""

    label: str
    budget: float
    cost_range: tuple[float, float]  # the least and the largest cost of an episode, which the bound on the mean needs
    episodes_over: int  # of `contexts` episodes, each in a context of its own
    episodes_over_share: float  # bound on the share of episodes above the budget
    contexts_over: int  # of `contexts` means over `episodes` episodes
    contexts_over_share: float  # bound on the share of contexts whose mean over so many episodes is above the budget
    worst_context: dict[str, float]
    worst_mean: float  # of `final_episodes` fresh episodes there
    worst_bound: float

    @property
    def certified(self) -> bool:
        """Within its budget at the worst context found."""
        return self.worst_bound <= self.budget


@dataclass(frozen=True)
class PlayedContexts:
    """Every context played before the final episodes, (M,) each."""

    contexts: dict[str, list[float]]
    means: list[list[float]]  # (N, M) of each cost
    episodes: list[int]
    stage: list[str]  # law or search


@dataclass(frozen=True)
class Certificate:
    confidence: float
    contexts: int
    episodes: int  # in each of them
    search_episodes: int  # played
    final_episodes: int
    seed: int
    ranges: dict[str, Any]  # of the box
    costs: tuple[CostCertificate, ...]
    played: PlayedContexts

    @property
    def certified(self) -> bool:
        return all(cost.certified for cost in self.costs)

    def statements(self) -> list[str]:
        """In words, exactly what is claimed."""
        sure, times = f"{100 * self.confidence:g} %", f"{self.episodes} episode{'s' if self.episodes > 1 else ''}"
        lines = [f"All of the following together, with confidence {sure}, for contexts within {self._box()}:"]
        for cost in self.costs:
            where = ", ".join(f"{name} {value:.4g}" for name, value in cost.worst_context.items())
            verdict = "within" if cost.certified else "not shown to be within"
            low, high = cost.cost_range
            lines += [
                f"- {cost.label}: at the worst context found ({where}) its mean is at most {cost.worst_bound:.4g}, {verdict} "
                f"the budget of {cost.budget:.4g} (measured: {cost.worst_mean:.4g} in {self.final_episodes} fresh episodes; "
                f"an episode can cost {low:g} to {high:g}).",
                f"- {cost.label}: at most {100 * cost.contexts_over_share:.3g} % of contexts have a mean over {times} "
                f"above the budget (seen: {cost.contexts_over} of {self.contexts}).",
                f"- {cost.label}: at most {100 * cost.episodes_over_share:.3g} % of episodes cost more than the budget "
                f"(seen: {cost.episodes_over} of {self.contexts}, each in a context of its own).",
            ]
        return [
            *lines,
            "Shares are of contexts drawn from the law of the box: "
            + ", ".join(f"{name} {'log-uniform' if 'log' in r else 'uniform'}" for name, r in self.ranges.items())
            + ".",
            f"The worst context is the worst that a search of {self.search_episodes} episodes found; there may be worse ones. "
            "Nothing is claimed outside the box.",
        ]

    def _box(self) -> str:
        return ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high, *_) in self.ranges.items())

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the verdict and the words first, the contexts played last."""
        own = asdict(self)
        own["costs"] = [
            {**row, "certified": cost.certified} for row, cost in zip(own["costs"], self.costs, strict=True)
        ]
        return {"certified": self.certified, "statements": self.statements(), **own}

    def save(self, folder: str | Path, plots: str | Path | None = None, **about: Any) -> None:
        """`certificate.json` in a folder, and its figure there or in `plots`. `about` is written beside it: whose it is."""
        from rcac.policies.certificate_figure import draw  # matplotlib takes a second to load

        draw(self, Path(plots or folder))
        text = json.dumps({**about, **self.as_dict()}, indent=1, ensure_ascii=False)
        replace_file(Path(folder) / FILE, f"{text}\n".encode())


def certify_measured(
    measure: Measure,
    box: Parameters,
    budgets: Sequence[float],
    cost_ranges: Sequence[tuple[float, float]],
    *,
    labels: Sequence[str] | None = None,
    **settings: Any,
) -> Certificate:
    """Certify what `measure` plays. `cost_ranges` are the least and the largest cost that an episode can have; `settings`
    are those of `CertificateSettings`."""
    plan = CertificateSettings(**settings)
    plan.check()
    limits, names = np.asarray(budgets, dtype=float), labels or episode_labels(len(budgets))[1:]
    for n, limit in enumerate(limits):
        if not np.isfinite(limit):
            raise InputError(f"budgets[{n}]: {limit} given, a finite number expected")
    count = len(limits)
    seeds = [int(s) for s in np.random.SeedSequence(plan.seed).generate_state(4)]
    each = 1 - (1 - plan.confidence) / (3 * count)  # confidence of every statement

    drawn = box.sample(np.random.default_rng(seeds[0]), plan.contexts)
    played = measure(drawn, plan.episodes, seeds[1])  # (M, e, N)
    _check_ranges(played, cost_ranges)
    over = np.sum(played[:, 0] > limits, axis=0)
    over_mean = np.sum(played.mean(axis=1) > limits, axis=0)
    search = worst_contexts(measure, box, count, plan.search_episodes, seeds[2], [(drawn, played)])
    final = measure(search.worst, plan.final_episodes, seeds[3])  # (N, n, N)
    for costs in (*(costs for _, costs in search.played), final):
        _check_ranges(costs, cost_ranges)
    rows = []
    for n, (label, budget, (low, high)) in enumerate(zip(names, limits, cost_ranges, strict=True)):
        sample = final[n, :, n]
        rows.append(
            CostCertificate(
                label=label,
                budget=float(budget),
                cost_range=(float(low), float(high)),
                episodes_over=int(over[n]),
                episodes_over_share=share_bound(int(over[n]), plan.contexts, each),
                contexts_over=int(over_mean[n]),
                contexts_over_share=share_bound(int(over_mean[n]), plan.contexts, each),
                worst_context={k: float(v[0]) for k, v in box.contexts(search.worst[n : n + 1]).items()},
                worst_mean=float(sample.mean()),
                worst_bound=mean_bound(sample, low, high, each),
            )
        )
    return Certificate(
        confidence=plan.confidence,
        contexts=plan.contexts,
        episodes=plan.episodes,
        search_episodes=search.episodes,
        final_episodes=plan.final_episodes,
        seed=plan.seed,
        ranges=box.as_dict()["ranges"],
        costs=tuple(rows),
        played=_listed(box, [(LAW, drawn, played), *((SEARCH, *part) for part in search.played)]),
    )


def _check_ranges(costs: np.ndarray, ranges: Sequence[tuple[float, float]]) -> None:
    """Whether all episodes (M, e, N) cost what they can: one that does not disproves the range."""
    for n, (low, high) in enumerate(ranges):
        least, largest = costs[:, :, n].min(), costs[:, :, n].max()
        rounding = 1e-9 * max(1.0, abs(low), abs(high))
        if not (low - rounding <= least and largest <= high + rounding):
            raise InputError(
                f"cost_ranges[{n}]: [{low:g}, {high:g}] given, but an episode cost between {least:g} and {largest:g}: "
                "the bound needs the whole range"
            )


def _listed(box: Parameters, parts: list[tuple[str, np.ndarray, np.ndarray]]) -> PlayedContexts:
    points = np.concatenate([points for _, points, _ in parts])
    means = np.concatenate([costs.mean(axis=1) for *_, costs in parts])  # (M, N)
    return PlayedContexts(
        contexts={name: values.tolist() for name, values in box.contexts(points).items()},
        means=means.T.tolist(),
        episodes=[costs.shape[1] for _, points, costs in parts for _ in points],
        stage=[stage for stage, points, _ in parts for _ in points],
    )
