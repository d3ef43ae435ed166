"""Bounds on what any policy can do, so that an answer can be trusted.

robust value iteration   min over π of J_k(π) for one cost alone:  V(s) = min_a [ c_k(s,a) + γ sup_q qᵀV ].
                         For a constraint it proves infeasibility; for the objective it bounds the optimum.
nominal linear program   occupancies x(s,a) ≥ 0 of the nominal model:  min ⟨x, c_0⟩  s.t.  ⟨x, c_n⟩ ≤ (1−γ) b_n  and
                         Σ_a x(s',a) − γ Σ_{s,a} P(s'|s,a) x(s,a) = (1−γ) ρ(s').  A lower bound when the set contains
                         the nominal model, and the exact optimum at radius 0.
one adversary for all    the worst case is convex in the cost, so that for weights μ ≥ 0, with m = 1 + Σ μ_n, a policy within
                         its budgets has  J_0 ≥ m · min over π of J[(c_0 + Σ μ_n c_n)/m] − Σ μ_n b_n,  by robust value
                         iteration at any size. (Dividing by m is for sets with a price, where one adversary that
                         serves m costs pays m times; a plain set does not mind.) At radius 0 the best μ gives the
                         linear program's value.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from rcac.chains import one_thread
from rcac.errors import Infeasible, InputError
from rcac.evaluation import MAX_ROUNDS, ROUNDING, evaluate_under, newton
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
    return _minimise(problem, problem.costs[index], uncertainty, np.zeros(problem.num_states), tolerance)


def _minimise(
    problem: RCMDP, cost: np.ndarray, uncertainty: Uncertainty, start: np.ndarray, tolerance: float = 1e-10
) -> Alone:
    """Robust policy iteration on a cost (S, A), from values (S,)."""
    with one_thread(problem):
        return _policy_iteration(problem, cost, uncertainty, start, tolerance)


def _policy_iteration(
    problem: RCMDP, cost: np.ndarray, uncertainty: Uncertainty, start: np.ndarray, tolerance: float
) -> Alone:
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    every, values, memory, choice = np.arange(states), start[None], None, None
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
    together: float | None = None  # one adversary for all costs: J_0 is at least this; None where it is not proven

    @property
    def best(self) -> float:
        """The largest, so tightest, bound on J_0."""
        return max(bound for bound in (self.objective, self.nominal, self.together) if bound is not None)

    def shown(self, signs: np.ndarray) -> dict[str, Any]:
        """In a person's signs."""
        nominal, together = (None if b is None else float(signs[0] * b) for b in (self.nominal, self.together))
        return {"objective_alone": float(signs[0] * self.objective), "nominal_optimum": nominal, "one_adversary": together,
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
    return Bounds(alone[0], np.array(alone[1:]), nominal, one_adversary(problem, uncertainty))


ITERATIONS = 12  # value iterations that the search for μ may take
CLOSE = 1e-7  # relative: what is left to gain when it stops


class _Tangent(NamedTuple):
    """The bound as a function of μ, to first order."""

    mu: np.ndarray  # (N,)
    value: float
    slopes: np.ndarray  # (N,) J_n of the minimising policy under the one adversary, minus b_n
    values: np.ndarray  # (S,)


def one_adversary(problem: RCMDP, uncertainty: Uncertainty, tolerance: float = 1e-10) -> float | None:
    """The largest bound over μ that a few value iterations find; None for sets where it is not proven."""
    count = problem.num_constraints
    if not (count and uncertainty.rectangular and uncertainty.modulus == 1.0):  # the last: the operator is monotone
        return None

    def tangent(mu: np.ndarray, start: np.ndarray) -> _Tangent:
        total = 1 + float(mu.sum())
        cost = (problem.costs[0] + np.tensordot(mu, problem.costs[1:], 1)) / total
        found = _minimise(problem, cost, uncertainty, start, tolerance)
        kernels = uncertainty.sweep(np.tile(found.values, (count + 1, 1)), problem.rows)
        slopes = evaluate_under(problem, found.policy, kernels).returns[1:] - problem.budgets
        return _Tangent(mu, total * (found.value - found.error_bound) - float(mu @ problem.budgets), slopes, found.values)

    best, left = tangent(np.zeros(count), np.zeros(problem.num_states)), ITERATIONS - 1
    spans = np.maximum(np.ptp(problem.costs, axis=(1, 2)), 1e-12)
    for n in range(count):  # along one coordinate after the other: where the tangents on both sides meet
        low, high, at = best, None, max(best.mu[n], spans[0] / spans[n + 1])
        for _ in range(left // (count - n)):
            if low.slopes[n] <= 0:  # the constraint is slack there
                break
            if high is not None:
                across = (high.value - low.value + low.slopes[n] * low.mu[n] - high.slopes[n] * high.mu[n]) / (low.slopes[n] - high.slopes[n])
                if low.value + low.slopes[n] * (across - low.mu[n]) - best.value <= CLOSE * max(1.0, abs(best.value)):
                    break
                at = across if low.mu[n] < across < high.mu[n] else (low.mu[n] + high.mu[n]) / 2
            found, left = tangent(np.where(np.arange(count) == n, at, low.mu), low.values), left - 1
            best = max(best, found, key=lambda t: t.value)
            if found.slopes[n] > 0:
                low, at = found, 4 * at
            else:
                high = found
    return best.value


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
