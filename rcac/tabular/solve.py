"""`rcac.solve`: a problem, an uncertainty set and a method's name in; a policy with its proofs out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rcac.learner import Step
from rcac.problem import RCMDP
from rcac.registry import algorithm
from rcac.switch import violation
from rcac.tabular.bounds import Bounds, bounds
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solver import Solver, first_policy
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.nominal import Nominal


@dataclass(frozen=True, eq=False)
class Solution:
    """The best policy found, cost form throughout."""

    policy: np.ndarray  # (S, A)
    returns: np.ndarray  # (N+1,) worst case
    feasible: bool  # every worst-case cost is within its budget
    violation: float  # the largest excess over a budget, 0 if none
    bounds: Bounds  # what no policy can beat
    gap: float  # returns[0] minus the tightest bound: the optimum is at most this much better
    history: dict[str, np.ndarray]  # returns (T, N+1), index (T,), best (T, N+1)
    stop_reason: str
    evaluations: int

    def __repr__(self) -> str:
        verdict = "feasible" if self.feasible else f"infeasible by {self.violation:.4g}"
        return (
            f"Solution(returns {np.array2string(self.returns, precision=4)}, {verdict}, gap {self.gap:.4g}, "
            f"{self.evaluations} evaluations, {self.stop_reason})"
        )


def make_solvers(
    problem: RCMDP, uncertainty: Uncertainty, settings: TabularSettings, seed: int, policy: np.ndarray | None = None
) -> list[Solver]:
    """One solver for each start; raises `Infeasible` when no policy can meet the budgets."""
    uncertainty.check(problem)
    proven = bounds(problem, uncertainty)
    first = first_policy(problem, settings.start, seed) if policy is None else policy
    others = [first_policy(problem, "random", int(s)) for s in np.random.SeedSequence((seed, 1)).generate_state(settings.starts - 1)]
    return [Solver(problem, uncertainty, settings, proven, start) for start in (first, *others)]


def solve(
    problem: RCMDP,
    method: str = "rsqp",
    uncertainty: Uncertainty | None = None,
    seed: int = 0,
    callback: Callable[[Step], Any] | None = None,
    *,
    policy: np.ndarray | None = None,  # (S, A) to start from
    **options: Any,  # fields of TabularSettings
) -> Solution:
    """Minimise J_0 subject to J_n ≤ b_n in the worst case. `callback` sees every step; returning False stops early."""
    settings = replace(algorithm(method, TabularSettings), **options)
    solvers = make_solvers(problem, uncertainty or Nominal(), settings, seed, policy)
    for solver in solvers:
        while not solver.finished:
            if callback is not None and callback(solver.step()) is False:
                break
            if callback is None:
                solver.step()
    best = min(solvers, key=lambda s: s.best.merit if s.best else (np.inf,))
    assert best.best is not None
    returns, excess = best.best.returns, violation(best.best.returns, problem.budgets)
    history = {name: np.array(rows) for name, rows in best.history.items()}
    return Solution(
        best.best.policy, returns, excess <= 0, excess, best.bounds, float(returns[0] - best.bounds.best), history,
        best.stop_reason, sum(s.position for s in solvers),
    )
