"""Inner problems: the worst case of a nominal row, beside cvxpy (extra `peers`) with its default solver.

    max qᵀV   over   q ≥ 0, Σ q = 1, q in the set around p

cvxpy's program is compiled once, p is a parameter of it; ours takes all rows in one sweep, as it is used.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import Row, absent, interleaved, seconds
from rcac.problem import compress
from rcac.uncertainty import ChiSquare, KLBall, TotalVariation, Wasserstein
from rcac.uncertainty.base import Uncertainty

AGREE = 1e-5  # of two worst cases, in units of the span of V; cvxpy's solvers stop at about 1e-7
Program = tuple[Any, Any, Callable[[np.ndarray], np.ndarray]]  # problem, its parameter, and the parameter's value for p


def kl(cp: Any, v: np.ndarray, radius: float) -> Program:
    q, p = cp.Variable(len(v), nonneg=True), cp.Parameter(len(v), nonneg=True)
    return cp.Problem(cp.Maximize(v @ q), [cp.sum(q) == 1, cp.sum(cp.rel_entr(q, p)) <= radius]), p, np.asarray


def total_variation(cp: Any, v: np.ndarray, radius: float) -> Program:
    q, p = cp.Variable(len(v), nonneg=True), cp.Parameter(len(v), nonneg=True)
    return cp.Problem(cp.Maximize(v @ q), [cp.sum(q) == 1, cp.norm1(q - p) <= 2 * radius]), p, np.asarray


def chi_square(cp: Any, v: np.ndarray, radius: float) -> Program:
    """q = √p ∘ x, so that the parameter stays out of the denominator."""
    x, root = cp.Variable(len(v), nonneg=True), cp.Parameter(len(v), nonneg=True)
    q = cp.multiply(root, x)
    return cp.Problem(cp.Maximize(v @ q), [cp.sum(q) == 1, cp.norm(x - root) <= radius**0.5]), root, np.sqrt


def wasserstein(cp: Any, v: np.ndarray, radius: float) -> Program:
    plan, p = cp.Variable((len(v), len(v)), nonneg=True), cp.Parameter(len(v), nonneg=True)
    within = [cp.sum(plan, axis=1) == p, cp.sum(cp.multiply(metric(len(v)), plan)) <= radius]
    return cp.Problem(cp.Maximize(v @ cp.sum(plan, axis=0)), within), p, np.asarray


def metric(states: int) -> np.ndarray:
    places = np.linspace(0, 1, states)
    return np.abs(np.subtract.outer(places, places))


class Inner(NamedTuple):
    name: str
    uncertainty: Uncertainty
    program: Callable[[Any, np.ndarray], Program]


def inner_problems(states: int) -> list[Inner]:
    return [
        Inner("KL ball .05", KLBall(0.05), partial(kl, radius=0.05)),
        Inner("χ² .2", ChiSquare(0.2), partial(chi_square, radius=0.2)),
        Inner("Wasserstein .05", Wasserstein(0.05, metric(states)), partial(wasserstein, radius=0.05)),
        Inner("TV .1", TotalVariation(0.1), partial(total_variation, radius=0.1)),
    ]


def by_cvxpy(inner: Inner, values: np.ndarray, nominal: np.ndarray) -> Callable[[], np.ndarray]:
    """A function that solves the program for each nominal row."""
    import cvxpy as cp

    problem, parameter, of = inner.program(cp, values)

    def solve() -> np.ndarray:
        found = []
        for row in nominal:
            parameter.value = of(row)
            found.append(problem.solve())
        return np.array(found)

    return solve


def measure(states: int = 30, count: int = 2000, compared: int = 9) -> list[Row]:
    """Microseconds per row of `count` rows; cvxpy solves `compared` of them, with the same answers."""
    rng = np.random.default_rng(3)
    values, nominal = rng.normal(size=states), rng.dirichlet(np.ones(states), size=count)
    rows, out = compress(nominal), []
    for inner in inner_problems(states):
        name, sweep = f"{inner.name}, a row of {states} states", partial(inner.uncertainty.sweep, values[None], rows)
        try:
            solve = by_cvxpy(inner, values, nominal[:compared])
        except ImportError:
            out.append(Row(name, seconds(sweep) / count * 1e6, "µs", None, absent("cvxpy")))
            continue
        difference = np.abs(sweep().value[0, :compared] - solve()).max()
        assert difference <= AGREE * np.ptp(values), f"{inner.name}: cvxpy differs by {difference}"
        mine, theirs = interleaved(sweep, solve)
        out.append(Row(name, mine / count * 1e6, "µs", theirs / compared / (mine / count), "cvxpy's time"))
    return out
