"""Small random problems of every kind, and a search for their global optimum that knows nothing of gradients.

sample(i)     problem i: S ≤ 4, A ≤ 3, N ≤ 4, any uncertainty set, γ in [.5, .99]. Its budgets lie between what a policy
              that minimises the constraints needs and what the best policy for the objective alone costs; a quarter
              of the problems are barely feasible.
search(…)     differential evolution from all deterministic policies and random ones, then local random search and
              SLSQP on differences. Robust evaluation is a black box, called for hundreds of policies at once.
python tests/tabular/global_search.py 30     writes the optima of the first 30 problems to global_optima.json
"""

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from rcac.problem import RCMDP
from rcac.tabular.steps import project_to_simplex
from rcac.uncertainty import (
    ChiSquare,
    Contamination,
    CressieRead,
    CVaR,
    FiniteKernels,
    KLBall,
    KLPenalty,
    LinearIPM,
    Nominal,
    StateL1,
    StateL2,
    TotalVariation,
    Wasserstein,
)
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.state_rectangular import StateRectangular

STORED = Path(__file__).with_name("global_optima.json")
SETS = ("nominal", "kl_ball", "kl_penalty", "tv", "tv_support", "chi_square", "wasserstein", "linear_ipm", "finite")
SETS += ("whole_kernels", "cressie_read", "contamination", "cvar", "state_l1", "state_l2")
FEASIBLE_BY = 1e-6  # of a cost's unit


class Sample(NamedTuple):
    problem: RCMDP
    uncertainty: Uncertainty
    name: str  # of the set
    units: np.ndarray  # (N+1,) by how much policies differ in each cost


class Optimum(NamedTuple):
    objective: float  # least J_0 found within the budgets, ∞ if none
    policy: np.ndarray  # (S, A)
    excess: float  # the least max_n (J_n − b_n)/unit_n found: at most 0 when a policy within the budgets is known


# Evaluation of many policies at once


def returns_of(problem: RCMDP, uncertainty: Uncertainty, policies: np.ndarray) -> np.ndarray:
    """Worst-case returns (B, N+1) of policies (B, S, A)."""
    if isinstance(uncertainty, FiniteKernels) and not uncertainty.rectangular:
        each = [_linear(problem, np.asarray(kernel), policies) for kernel in uncertainty.kernels]
        return np.max(each, axis=0) @ problem.initial
    count, terms = len(policies), len(problem.costs)
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    values = _linear(problem, problem.kernel, policies).reshape(-1, states)  # (B·(N+1), S)
    for _ in range(100):
        worst_values, kernels = _worst(problem, uncertainty, policies, values)
        q_values = problem.costs + gamma * worst_values.reshape(count, terms, states, actions)
        residual = np.einsum("bsa,bksa->bks", policies, q_values).reshape(values.shape) - values
        if gamma * np.abs(residual).max() <= 1e-11 * (1 - gamma) * max(1.0, np.abs(values).max()):
            break
        kernels = kernels.reshape(count, terms, states, actions, states)
        chains = np.einsum("bsa,bksat->bkst", policies, kernels).reshape(-1, states, states)
        values = values + np.linalg.solve(np.eye(states) - gamma * chains, residual[:, :, None])[:, :, 0]
    return (values @ problem.initial).reshape(count, terms)


def _linear(problem: RCMDP, kernel: np.ndarray, policies: np.ndarray) -> np.ndarray:
    """Values (B, N+1, S) in one model."""
    chains = np.einsum("bsa,sat->bst", policies, kernel)
    right = np.einsum("bsa,ksa->bsk", policies, problem.costs)
    matrix = np.eye(problem.num_states) - problem.discount * chains
    return np.linalg.solve(matrix, right).transpose(0, 2, 1)


def _worst(
    problem: RCMDP, uncertainty: Uncertainty, policies: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Worst cases of values (B·(N+1), S), (B·(N+1), S·A), and their kernels (B·(N+1), S·A, S)."""
    rows, states = problem.rows, problem.num_states
    if not isinstance(uncertainty, StateRectangular):
        worst = uncertainty.sweep(values, rows)
        return worst.value, _dense(worst, states)
    each = [
        uncertainty.against(policy).sweep(own, rows)
        for policy, own in zip(policies, values.reshape(len(policies), -1, states), strict=True)
    ]
    return np.concatenate([w.value for w in each]), np.concatenate([_dense(w, states) for w in each])


def _dense(worst, states: int) -> np.ndarray:
    """Kernels (K, M, S)."""
    lengths, terms = np.diff(worst.indptr), len(worst.value)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = rows * states + np.atleast_2d(worst.indices)  # (1 or K, nnz)
    flat = np.arange(terms)[:, None] * (len(lengths) * states) + places
    out = np.bincount(flat.ravel(), worst.data.ravel(), terms * len(lengths) * states)
    out = out.reshape(terms, len(lengths), states)
    if worst.direction is not None:
        out += worst.amount[:, :, None] * worst.direction[:, None, :]
    return out


# Problems


def sample(number: int, budgets: Sequence[float] | None = None) -> Sample:
    """Problem `number`; `budgets`, if they are known, save the search for them."""
    rng = np.random.default_rng((0, number))
    states, actions, constraints = int(rng.integers(1, 5)), int(rng.integers(2, 4)), int(rng.integers(1, 5))
    if number % 10 == 9:
        actions = 1 + number // 10 % 3
    kernel = _kernel(rng, states, actions)
    costs = rng.random((constraints + 1, states, actions)) ** rng.choice([1.0, 3.0])
    costs[0] *= rng.choice([-1.0, 1.0])  # a reward or a cost
    discount = float(rng.choice([0.5, 0.8, 0.9, 0.95, 0.99]))
    name = SETS[number % len(SETS)]
    free = RCMDP(kernel, costs, np.zeros(constraints), rng.dirichlet(np.ones(states)), discount)
    uncertainty = _make_set(rng, name, free)
    policies = _first_policies(rng, states, actions)
    returns = returns_of(free, uncertainty, policies)
    units = np.maximum(np.ptp(returns, axis=0), 1e-3 * np.abs(returns).max(axis=0))  # also where no policy matters
    if budgets is None:
        budgets = _budgets(rng, Sample(free, uncertainty, name, units), returns)
    return Sample(RCMDP(kernel, costs, budgets, free.initial, discount), uncertainty, name, units)


def _budgets(rng: np.random.Generator, free: Sample, returns: np.ndarray) -> np.ndarray:
    problem, uncertainty, name, units = free
    count = problem.num_constraints
    # the best policy for the objective alone, and one that brings all constraints down together
    alone = returns[np.argmin(returns[:, 0])]
    target = returns[:, 1:].min(axis=0) - rng.random(count) * units[1:]
    aimed = RCMDP(problem.kernel, problem.costs, target, problem.initial, problem.discount)
    barely = rng.random() < 0.25
    lowest = search(Sample(aimed, uncertainty, name, units), generations=25, polish=barely).policy
    low = returns_of(aimed, uncertainty, lowest[None])[0, 1:]
    if barely:
        return low + 10 ** rng.uniform(-5, -2) * units[1:]
    return low + rng.uniform(0.02, 1) * np.maximum(alone[1:] - low, 0.02 * units[1:])


def _kernel(rng: np.random.Generator, states: int, actions: int) -> np.ndarray:
    """Rows with and without zeros, from nearly deterministic to nearly uniform."""
    rows = rng.dirichlet(np.full(states, rng.choice([0.2, 0.7, 2.0])), size=(states, actions))
    rows = np.where(rows < rng.choice([1e-6, 0.1]), 0.0, rows)
    rows[..., 0] += rows.sum(axis=2) == 0
    return rows / rows.sum(axis=2, keepdims=True)


def _make_set(rng: np.random.Generator, name: str, problem: RCMDP) -> Uncertainty:
    states = problem.num_states
    if name == "nominal":
        return Nominal()
    if name == "kl_ball":
        return KLBall(10 ** rng.uniform(-3, 0))
    if name == "kl_penalty":
        return KLPenalty(10 ** rng.uniform(-1, 1) / (1 - problem.discount) ** 0.5)
    if name in ("tv", "tv_support"):
        return TotalVariation(float(rng.uniform(0.02, 0.5)), within_support=name == "tv_support")
    if name == "chi_square":
        return ChiSquare(10 ** rng.uniform(-2, 0.5))
    if name == "wasserstein":
        points = rng.normal(size=(states, 2)) if rng.random() < 0.5 else np.arange(states)[:, None] * np.ones(2)
        metric = np.linalg.norm(points[:, None] - points[None], axis=2)
        return Wasserstein(float(rng.uniform(0.05, 0.7)), metric)
    if name == "linear_ipm":
        size = int(rng.integers(1, states + 1))
        features = np.column_stack([np.ones(states), rng.normal(size=(states, size - 1))])
        pushed = float(np.sum(np.linalg.norm(np.linalg.pinv(features)[1:], axis=0)))
        return LinearIPM(float(rng.uniform(0.05, 0.9)) * (1 / problem.discount - 1) / max(pushed, 1e-9), features)
    if name == "cressie_read":
        return CressieRead(10 ** rng.uniform(-2, 0), float(rng.choice([-1.0, 0.0, 0.5, 1.5, 3.0])))
    if name == "contamination":
        return Contamination(float(rng.uniform(0.02, 0.5)))
    if name == "cvar":
        return CVaR(float(rng.uniform(0.2, 0.95)))
    if name in ("state_l1", "state_l2"):
        weights = rng.uniform(0.5, 2, size=(states, problem.num_actions)) if rng.random() < 0.5 else 1.0
        kind = StateL1 if name == "state_l1" else StateL2
        return kind(float(rng.uniform(0.05, 0.8)), weights, within_support=bool(rng.random() < 0.5))
    others = [_kernel(rng, states, problem.num_actions) for _ in range(int(rng.integers(1, 5)))]
    share = rng.uniform(0.2, 1.0)  # how far from the nominal kernel
    kernels = [problem.kernel, *((1 - share) * problem.kernel + share * other for other in others)]
    return FiniteKernels(kernels, rectangular=name == "finite")


def _first_policies(rng: np.random.Generator, states: int, actions: int) -> np.ndarray:
    """All deterministic ones (at most 81), and random ones."""
    choices = np.stack(np.meshgrid(*[np.arange(actions)] * states, indexing="ij"), axis=-1).reshape(-1, states)
    pure = np.eye(actions)[choices]
    mixed = [rng.dirichlet(np.full(actions, a), size=(24, states)) for a in (0.3, 1.0)]
    uniform = np.full((1, states, actions), 1 / actions)
    return np.concatenate([uniform, pure, *mixed])


# Search


def search(found: Sample, seed: int = 0, generations: int = 80, polish: bool = True) -> Optimum:
    problem, uncertainty, _, units = found
    rng = np.random.default_rng((seed, 77))

    def rank(policies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Excess over the budgets, in units, and the objective: (B,) each."""
        returns = returns_of(problem, uncertainty, policies)
        return np.max((returns[:, 1:] - problem.budgets) / units[1:], axis=1), returns[:, 0]

    people = _first_policies(rng, problem.num_states, problem.num_actions)
    excess, objective = rank(people)
    for _ in range(generations):
        best = people[_best(excess, objective)]
        a, b, c = (people[rng.integers(len(people), size=len(people))] for _ in range(3))
        towards = np.where(rng.random((len(people), 1, 1)) < 0.5, best, c)
        weight = rng.uniform(0.3, 1.0, size=(len(people), 1, 1))
        crossed = rng.random((len(people), problem.num_states, 1)) < 0.8
        trial = people + crossed * (weight * (a - b) + rng.uniform(0, 1, size=(len(people), 1, 1)) * (towards - people))
        trial = _projected(trial)
        new_excess, new_objective = rank(trial)
        better = _better(new_excess, new_objective, excess, objective)
        people[better], excess[better], objective[better] = trial[better], new_excess[better], new_objective[better]
    best = _best(excess, objective)
    policy, merit = people[best], (excess[best], objective[best])
    if polish:
        policy, merit = _random_search(rank, policy, merit, rng)
        for i in {best, *np.argsort(np.where(excess <= 0, objective, np.inf))[:3].tolist()}:
            trial = _slsqp(found, people[i] if i != best else policy)
            (e,), (o,) = rank(trial[None])
            if _better(e, o, *merit):
                policy, merit = trial, (e, o)
    return Optimum(float(merit[1]) if merit[0] <= 0 else np.inf, policy, float(merit[0]))


def _best(excess: np.ndarray, objective: np.ndarray) -> int:
    return int(np.argmin(excess) if excess.min() > 0 else np.argmin(np.where(excess <= 0, objective, np.inf)))


def _better(new_excess, new_objective, excess, objective):
    """Less violation first, then the objective."""
    inside = (new_excess <= 0) & (excess <= 0)
    return np.where(inside, new_objective < objective, np.maximum(new_excess, 0) < np.maximum(excess, 0))


def _projected(policies: np.ndarray) -> np.ndarray:
    return project_to_simplex(policies.reshape(-1, policies.shape[2])).reshape(policies.shape)


def _random_search(rank: Callable, policy: np.ndarray, merit: tuple, rng: np.random.Generator) -> tuple:
    spread = 0.1
    while spread > 1e-6:
        moves = rng.normal(size=(100, *policy.shape)) * rng.uniform(0, 2 * spread, size=(100, 1, 1))
        moves *= rng.random((100, policy.shape[0], 1)) < rng.uniform(0.3, 1, size=(100, 1, 1))
        trial = _projected(policy + moves)
        excess, objective = rank(trial)
        i = _best(excess, objective)
        if _better(excess[i], objective[i], *merit):
            policy, merit = trial[i], (excess[i], objective[i])
        else:
            spread *= 0.5
    return policy, merit


def _slsqp(found: Sample, policy: np.ndarray) -> np.ndarray:
    """Sequential quadratic programming on differences, all of them in one call."""
    problem, uncertainty, _, units = found
    shape, size = policy.shape, policy.size
    last: dict[bytes, tuple] = {}

    def evaluated(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = x.tobytes()
        if key not in last:
            last.clear()
            step = 1e-7
            points = np.maximum(np.concatenate([x[None], x + step * np.eye(size)]), 0).reshape(-1, *shape)
            raw = returns_of(problem, uncertainty, points / points.sum(axis=2, keepdims=True)) / units
            last[key] = raw[0], (raw[1:] - raw[0]) / step
        return last[key]

    sums = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    limits = problem.budgets / units[1:] - 1e-8
    constraints = [
        dict(type="ineq", fun=lambda x: limits - evaluated(x)[0][1:], jac=lambda x: -evaluated(x)[1][:, 1:].T),
        dict(type="eq", fun=lambda x: sums @ x - 1, jac=lambda x: sums),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        end = minimize(
            lambda x: evaluated(x)[0][0],
            policy.ravel(),
            jac=lambda x: evaluated(x)[1][:, 0],
            bounds=[(0, 1)] * size,
            constraints=constraints,
            method="SLSQP",
            options=dict(maxiter=40, ftol=1e-10),
        )
    return _projected(np.nan_to_num(end.x).reshape(1, *shape))[0]


def main() -> None:
    warnings.simplefilter("ignore")
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    path = Path(sys.argv[3]) if len(sys.argv) > 3 else STORED
    optima = []
    for i in range(first, first + count):
        problem = sample(i)
        found = search(problem)
        objective = found.objective if np.isfinite(found.objective) else None
        optima.append(dict(budgets=problem.problem.budgets.tolist(), objective=objective, excess=found.excess))
    path.write_text(json.dumps(optima, indent=0) + "\n")


if __name__ == "__main__":
    main()
