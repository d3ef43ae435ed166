"""Bounds on what any policy can do, so that an answer can be trusted.

robust value iteration   min over π of J_k(π) for one cost alone:  V(s) = min_a [ c_k(s,a) + γ sup_q qᵀV ].
                         For a constraint it proves infeasibility; for the objective it bounds the optimum.
nominal linear program   occupancies x(s,a) ≥ 0 of the nominal model:  min ⟨x, c_0⟩  s.t.  ⟨x, c_n⟩ ≤ (1−γ) b_n  and
                         Σ_a x(s',a) − γ Σ_{s,a} P(s'|s,a) x(s,a) = (1−γ) ρ(s').  A lower bound when the set contains
                         the nominal model, and the exact optimum at radius 0.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from rcac.errors import Infeasible, InputError
from rcac.evaluation import MAX_ROUNDS, ROUNDING, newton
from rcac.problem import RCMDP
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.nominal import Nominal


class Alone(NamedTuple):
    """The least worst-case value that one cost can have when nothing else matters."""

    value: float  # ρᵀV
    values: np.ndarray  # (S,)
    policy: np.ndarray  # (S, A), deterministic
    error_bound: float  # the true minimum is within this of `value`
    rounds: int  # policies tried


def robust_value_iteration(
    problem: RCMDP, index: int = 0, uncertainty: Uncertainty | None = None, *, tolerance: float = 1e-10
) -> Alone:
    """Minimise the worst case of cost `index` over all policies (robust policy iteration)."""
    uncertainty = uncertainty or Nominal()
    uncertainty.check(problem)
    if not 0 <= index <= problem.num_constraints:
        raise InputError(f"index: {index} given, 0 to {problem.num_constraints} expected")
    if isinstance(uncertainty, FiniteKernels) and not uncertainty.rectangular:
        raise InputError("uncertainty: whole kernels are not rectangular, and value iteration needs a rectangular set")
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    cost, every = problem.costs[index], np.arange(states)
    values, memory, choice = np.zeros((1, states)), None, None
    for rounds in range(MAX_ROUNDS):
        worst = uncertainty.sweep(values, problem.rows, memory)
        memory = worst.memory
        q = cost + gamma * worst.value.reshape(states, actions)
        best = q.min(axis=1)
        if choice is not None:  # keep the old action unless another is strictly better, so that ties cannot cycle
            choice = np.where(q[every, choice] <= best, choice, np.argmin(q, axis=1))
        else:
            choice = np.argmin(q, axis=1)
        scale = max(1.0, float(np.abs(best).max()))
        residual, rounding = float(np.abs(best - values[0]).max()), ROUNDING * scale
        if rounds and (gamma * residual / (1 - gamma) <= tolerance * scale or residual <= rounding):
            break
        chosen = problem.rows.take(every * actions + choice)
        fixed = newton(
            chosen,
            cost[every, choice][None, :, None],
            np.ones((states, 1)),
            gamma,
            uncertainty,
            np.minimum(best, values[0])[None] if rounds else best[None],
            None,
            tolerance,
        )
        values = fixed.values
    policy = np.zeros((states, actions))
    policy[every, choice] = 1.0
    modulus = gamma * uncertainty.modulus
    slack = (modulus * residual + rounding + uncertainty.tolerance * scale) / (1 - modulus) if modulus < 1 else np.inf
    return Alone(float(best @ problem.initial), best, policy, slack, rounds)


class NominalOptimum(NamedTuple):
    """The constrained optimum of the nominal model."""

    feasible: bool
    value: float  # J_0, cost form; ∞ when no policy meets the budgets
    policy: np.ndarray | None  # (S, A)
    occupancy: np.ndarray | None  # (S, A), sums to one


def nominal_optimum(problem: RCMDP) -> NominalOptimum:
    """Solve the occupancy linear program with HiGHS."""
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    matrix = problem.rows.matrix()
    leaves = sp.kron(sp.eye_array(states), np.ones((1, actions)), format="csr")
    flow = leaves - gamma * matrix.T
    costs = problem.costs.reshape(problem.num_constraints + 1, -1)
    scale = np.maximum(np.abs(costs).max(axis=1), 1e-300)  # each row of the program has entries of size one
    limits = costs[1:] / scale[1:, None] if problem.num_constraints else None
    right = (1 - gamma) * problem.budgets / scale[1:] if problem.num_constraints else None
    found = linprog(
        costs[0] / scale[0],
        A_ub=limits,
        b_ub=right,
        A_eq=flow,
        b_eq=(1 - gamma) * problem.initial,
        method="highs",
        options=dict(primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10),
    )
    if found.status == 2:
        return NominalOptimum(False, np.inf, None, None)
    if found.status != 0:
        raise RuntimeError(f"nominal_optimum: the linear program ended with: {found.message}")
    occupancy = np.maximum(found.x.reshape(states, actions), 0)
    visits = occupancy.sum(axis=1, keepdims=True)
    policy = np.where(visits > 0, occupancy / np.where(visits > 0, visits, 1), 1 / actions)
    return NominalOptimum(True, float(found.fun * scale[0] / (1 - gamma)), policy, occupancy)


class Bounds(NamedTuple):
    """What no policy can beat, cost form."""

    objective: float  # J_0 alone in the worst case: at least this
    constraints: np.ndarray  # (N,) each J_n alone: at least this
    nominal: float | None  # optimum of the nominal model; None if not computed, or if the set does not contain the model

    @property
    def best(self) -> float:
        """The larger, so tighter, bound on J_0."""
        return max(self.objective, -np.inf if self.nominal is None else self.nominal)

    def shown(self, signs: np.ndarray) -> dict[str, Any]:
        """In a person's signs."""
        nominal = None if self.nominal is None else float(signs[0] * self.nominal)
        return {"objective_alone": float(signs[0] * self.objective), "nominal_optimum": nominal,
                "constraints_alone": (signs[1:] * self.constraints).tolist()}


PROGRAM_SIZE = 4_000  # state-action pairs beyond which the linear program takes longer than it is worth


def bounds(problem: RCMDP, uncertainty: Uncertainty) -> Bounds:
    """Bound every cost alone; raise `Infeasible`, with the proof, when a budget cannot be met."""
    alone = [_least(problem, k, uncertainty) for k in range(problem.num_constraints + 1)]
    for n, (least, budget) in enumerate(zip(alone[1:], problem.budgets, strict=True)):
        if least > budget:
            if problem.signs[n + 1] > 0:
                raise Infeasible(f"constraint {n + 1}: the least attainable worst-case cost is {least:.6g}, the budget is {budget:.6g}")
            raise Infeasible(f"constraint {n + 1}: the largest attainable worst-case utility is {-least:.6g}, the floor is {-budget:.6g}")
    nominal = None
    if uncertainty.contains_nominal(problem) and problem.num_states * problem.num_actions <= PROGRAM_SIZE:
        optimum = nominal_optimum(problem)
        if not optimum.feasible:
            raise Infeasible("no policy meets all budgets together, not even in the nominal model (its linear program is infeasible)")
        nominal = optimum.value
    return Bounds(alone[0], np.array(alone[1:]), nominal)


def _least(problem: RCMDP, index: int, uncertainty: Uncertainty) -> float:
    """A proven lower bound on J_index over all policies, the error of its computation taken off."""
    if isinstance(uncertainty, FiniteKernels) and not uncertainty.rectangular:
        # min over π of max over kernels ≥ max over kernels of min over π
        singles = [FiniteKernels([kernel]) for kernel in uncertainty.kernels]
        return max(_least(problem, index, single) for single in singles)
    found = robust_value_iteration(problem, index, uncertainty)
    if found.error_bound == np.inf:  # no contraction: the nominal model still bounds from below
        found = robust_value_iteration(problem, index)
    return found.value - found.error_bound
