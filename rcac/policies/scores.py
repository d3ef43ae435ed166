"""How good is a policy under a condition? By episodes, by the exact worst case, by random kernels.

Episodes give sums of reward and costs: plain ones against budgets on plain sums, discounted ones against a model's.
Episodes and random kernels depend on `seed` alone, so that policies and strengths are compared on the same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from omegaconf import MISSING

from rcac.evaluation import evaluate as evaluate_exactly
from rcac.fields import COUNT, COUNT_OR_ZERO, check_fields, field
from rcac.labels import term_labels, within
from rcac.policies.episodes import play
from rcac.policies.perturbations import EPISODES, KERNELS, WORST_CASE, Condition, random_kernels
from rcac.policies.policy import Policy
from rcac.problem import RCMDP
from rcac.runs.build import make_uncertainty
from rcac.runs.config import Config
from rcac.runs.environments import close, open_env


@dataclass
class EvaluationSettings:
    run: str = MISSING  # folder of a run, or a folder above runs
    episodes: int = field(100, COUNT)  # to play, for each run and strength
    num_envs: int = field(32, COUNT)  # copies of the environment, stepped together
    kernels: int = field(20, COUNT)  # to sample, for each run and strength of sweep.random
    seed: int = field(0, COUNT_OR_ZERO)  # of the episodes, of the kernels and of the policy's samples
    deterministic: bool | None = None  # take the mode of the policy instead of a sample; null: as algo.deploy said
    record: bool = False  # write a picture of an episode, episode.gif

    def check(self) -> None:
        check_fields(self)


class TermScore(NamedTuple):
    """One term in a person's sign; None for what was not computed."""

    term: str
    budget: float | None
    mean: float | None = None  # of episodes
    standard_error: float | None = None
    nominal: float | None = None  # exact, where there is a model
    worst_case: float | None = None
    kernels_mean: float | None = None  # exact, of random kernels
    kernels_worst: float | None = None
    within: float | None = None  # share of the episodes, or of the kernels, that are within every budget
    episodes: int = 0
    kernels: int = 0
    discount: float = 1.0  # of the sums

    def meets(self, value: float) -> bool:
        return within(self.term, value, self.budget)


class Terms(NamedTuple):
    """What is scored, objective first."""

    labels: list[str]
    signs: np.ndarray  # (N+1,) −1 where a person's sign is not that of a cost
    budgets: np.ndarray  # (N,) in cost form
    discount: float

    def limits(self) -> list[float | None]:
        return [None, *(self.signs[1:] * self.budgets).tolist()]

    def within(self, values: np.ndarray) -> float | None:
        """Share of rows (K, N+1), in cost form, that are within every budget."""
        return float((values[:, 1:] <= self.budgets).all(axis=1).mean()) if len(self.budgets) else None


def score(condition: Condition, policy: Policy, settings: EvaluationSettings) -> list[TermScore]:
    """A row for each term."""
    single, problem, _ = open_env(condition.config.env)
    close(single)
    return MEASURES[condition.measure](condition, policy, settings, problem)


def terms_of(config: Config, problem: RCMDP | None) -> Terms:
    if problem is not None:
        return Terms(problem.labels(), np.asarray(problem.signs), problem.budgets, problem.discount)
    limits, names = config.env.limits()
    budgets = np.array(limits)
    signs = np.array([-1.0, *np.ones(len(budgets))])
    return Terms(term_labels(signs, names), signs, budgets, 1.0)


# Measures


def _by_episodes(
    condition: Condition, policy: Policy, settings: EvaluationSettings, problem: RCMDP | None
) -> list[TermScore]:
    """And exact values, if the environment is the model it carries."""
    terms, count = terms_of(condition.config, problem), settings.episodes
    envs = condition.make_envs(min(settings.num_envs, count))
    try:
        sums = play(envs, policy, count, settings.seed, terms.discount, len(terms.budgets)).sums
    finally:
        close(envs)
    share = terms.within(sums)
    sums = sums * terms.signs + 0.0  # never −0
    error = sums.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(terms.labels), np.nan)
    known = problem is not None and condition.wrap is None
    exact = _exact(condition, policy, problem) if known else [{}] * len(terms.labels)  # type: ignore[arg-type]
    return [
        TermScore(
            label, limit, float(mean), float(spread), within=share, episodes=count, discount=terms.discount, **values
        )
        for label, limit, mean, spread, values in zip(
            terms.labels, terms.limits(), sums.mean(axis=0), error, exact, strict=True
        )
    ]


def _by_worst_case(
    condition: Condition, policy: Policy, settings: EvaluationSettings, problem: RCMDP | None
) -> list[TermScore]:
    terms, exact = terms_of(condition.config, problem), _exact(condition, policy, problem)  # type: ignore[arg-type]
    return [
        TermScore(label, limit, discount=terms.discount, **values)
        for label, limit, values in zip(terms.labels, terms.limits(), exact, strict=True)
    ]


def _by_kernels(
    condition: Condition, policy: Policy, settings: EvaluationSettings, problem: RCMDP | None
) -> list[TermScore]:
    """Mean and worst over random kernels, between the nominal value and the worst case over the set."""
    assert problem is not None
    assert condition.config.uncertainty is not None
    terms, table = terms_of(condition.config, problem), _table(policy, problem)
    models = random_kernels(
        problem, make_uncertainty(problem, condition.config.uncertainty), settings.kernels, settings.seed
    )
    values = np.array([evaluate_exactly(model, table).returns for model in models])  # (K, N+1)
    means, worst = terms.signs * values.mean(axis=0), terms.signs * values.max(axis=0)
    sampled: Any = {"within": terms.within(values), "kernels": len(models)}
    return [
        row._replace(kernels_mean=float(mean), kernels_worst=float(bad), **sampled)
        for row, mean, bad in zip(_by_worst_case(condition, policy, settings, problem), means, worst, strict=True)
    ]


MEASURES: dict[str, Callable[[Condition, Policy, EvaluationSettings, RCMDP | None], list[TermScore]]] = {
    EPISODES: _by_episodes,
    WORST_CASE: _by_worst_case,
    KERNELS: _by_kernels,
}


def _table(policy: Policy, problem: RCMDP) -> np.ndarray:
    """(S, A) probabilities."""
    table = policy.probabilities(np.arange(problem.num_states))
    return np.eye(problem.num_actions)[table.argmax(axis=1)] if policy.deterministic else table


def _exact(condition: Condition, policy: Policy, problem: RCMDP) -> list[dict[str, Any]]:
    """The value of each term in the nominal model and in the worst case."""
    table, signs, row = _table(policy, problem), np.asarray(problem.signs), condition.config.uncertainty
    found = {"nominal": signs * evaluate_exactly(problem, table).returns}
    if row is not None:
        found["worst_case"] = signs * evaluate_exactly(problem, table, make_uncertainty(problem, row)).returns
    return [{name: float(values[k]) + 0.0 for name, values in found.items()} for k in range(len(signs))]
