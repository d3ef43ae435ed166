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
from numpy.typing import NDArray
from scipy.optimize import linprog

from rcac.errors import Infeasible, InputError
from rcac.evaluation.chains import one_thread
from rcac.evaluation.newton import MAX_ROUNDS, ROUNDING, check_tolerance, error_bounds, evaluate_under, newton
from rcac.problem import RCMDP, Array, check_problem
from rcac.registry import make_uncertainty
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.nominal import Nominal
from rcac.uncertainty.state_rectangular import StateRectangular


class SingleCostOptimum(NamedTuple):
    """The least worst-case value that one cost can have when nothing else matters."""

    value: float  # ρᵀV
    values: Array  # (S,)
    policy: Array  # (S, A), deterministic where the set is (s,a)-rectangular
    error_bound: float  # the true minimum is within this of `value`
    rounds: int  # policies tried
    settled: bool  # the tolerance was reached


def robust_value_iteration(
    problem: RCMDP, uncertainty: Uncertainty | str | None = None, index: int = 0, *, tolerance: float = 1e-10
) -> SingleCostOptimum:
    """Minimise the worst case of one cost over all policies (robust policy iteration).

    Parameters
    ----------
    problem : RCMDP
        Kernel, costs and discount; budgets do not matter here.
    uncertainty : Uncertainty or str
        A rectangular set, or its name; the model as it is, if not given.
    index : int
        Which cost: 0 is the objective.
    tolerance : float
        Of the values.

    Returns
    -------
    SingleCostOptimum
        The least value that this cost can have, a policy that attains it, and a bound on the error.

    Examples
    --------
    >>> import gymnasium as gym, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> least = rcac.robust_value_iteration(problem, "kl_ball", index=1)
    >>> bool(least.value < problem.budgets[0])  # so the budget can be kept
    True
    """
    check_problem(problem)
    chosen: Uncertainty = make_uncertainty(problem, uncertainty)
    chosen.check(problem)
    if isinstance(index, bool) or not (isinstance(index, int | np.integer) and 0 <= index <= problem.num_constraints):
        raise InputError(f"index: {index} given, 0 to {problem.num_constraints} expected")
    check_tolerance(tolerance)
    if isinstance(chosen, FiniteKernels) and not chosen.rectangular:
        raise InputError("uncertainty: whole kernels are not rectangular, and value iteration needs a rectangular set")
    return _minimise(problem, problem.costs[index], chosen, np.zeros(problem.num_states), tolerance)


def _minimise(
    problem: RCMDP, cost: Array, uncertainty: Uncertainty, start: Array, tolerance: float = 1e-10
) -> SingleCostOptimum:
    """Robust policy iteration on a cost (S, A), from values (S,)."""
    with one_thread(problem):
        if isinstance(uncertainty, StateRectangular):
            if np.any(uncertainty.radius):
                return _mixed_policy_iteration(problem, cost, uncertainty, start, tolerance)
            uncertainty = Nominal()
        return _policy_iteration(problem, cost, uncertainty, start, tolerance)


def _policy_iteration(
    problem: RCMDP, cost: Array, uncertainty: Uncertainty, start: Array, tolerance: float
) -> SingleCostOptimum:
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    every, values, memory = np.arange(states), start[None], None
    choice: NDArray[np.intp] | None = None
    given = float(np.abs(cost).max())
    for rounds in range(MAX_ROUNDS):
        worst = uncertainty.sweep(values, problem.rows, memory)
        memory = worst.memory
        q = cost + gamma * worst.value.reshape(states, actions)
        best = q.min(axis=1)
        before, choice = choice, np.argmin(q, axis=1)
        if before is not None:  # keep the old action unless another is strictly better, so that ties cannot cycle
            choice = np.where(q[every, before] <= best, before, choice)
        changed = before is None or bool(np.any(choice != before))
        scale = max(given, float(np.abs(best).max()))
        residual = float(np.abs(best - values[0]).max())
        settled = gamma * residual <= (1 - gamma) * tolerance * scale or residual <= ROUNDING * scale
        if rounds and settled:
            break
        own, start, ready = cost[every, choice], np.minimum(best, values[0]) if rounds else best, False
        if isinstance(uncertainty, Nominal):
            chain = problem.kernel[every * actions + choice] if problem.sparse else problem.kernel[every, choice]
            start, ready = _swept(chain, own, gamma, start, tolerance, EARLY if changed else 0.0)
        values = start[None]
        if not ready:
            chosen, ones = problem.rows.take(every * actions + choice), np.ones((states, 1))
            values = newton(chosen, own[None, :, None], ones, gamma, uncertainty, values, None, tolerance).values
    policy = np.zeros((states, actions))
    policy[every, choice] = 1.0
    error = float(error_bounds(np.array(residual), np.array(scale), gamma, uncertainty))
    return SingleCostOptimum(float(best @ problem.initial), best, policy, error, rounds, settled)


SLOW = 0.9  # a sweep that leaves more of the residual's span than this is the last
EARLY = 0.03  # of its first residual's span is precise enough for a policy that the next round may change


def _swept(
    chain: Array | sp.csr_array, cost: Array, discount: float, values: Array, tolerance: float, enough: float
) -> tuple[Array, bool]:
    """V = c + γPV (S,) by sweeps that are shifted to where their residual is as far above as below 0: as fast as a chain
    forgets where it began. To the tolerance, or until this share of the first span is left, or to where a sweep gains so little
    that a linear solve has to go on."""
    last, goal = np.inf, 0.0
    while True:
        image = cost + discount * (chain @ values)
        residual = image - values
        high, low = float(residual.max()), float(residual.min())
        if high - low > SLOW * last:
            return values, False
        if last == np.inf:
            goal = enough * (high - low)
        values, last = image + discount / (1 - discount) * (high + low) / 2, high - low
        if last <= goal or discount * last <= (1 - discount) * tolerance * float(np.abs(values).max()):
            return values, True


def _mixed_policy_iteration(
    problem: RCMDP, cost: Array, uncertainty: StateRectangular, start: Array, tolerance: float
) -> SingleCostOptimum:
    """The same with V(s) = min over π of the worst case, for sets against which the best policy may be stochastic."""
    gamma, values, given = problem.discount, start, float(np.abs(cost).max())
    for rounds in range(MAX_ROUNDS):
        best, policy = uncertainty.improve(values, problem.rows, cost, gamma)
        scale, residual = max(given, float(np.abs(best).max())), float(np.abs(best - values).max())
        settled = gamma * residual <= (1 - gamma) * tolerance * scale or residual <= ROUNDING * scale
        if rounds and settled:
            break
        adversary = uncertainty.against(policy)
        values = newton(problem.rows, cost[None], policy, gamma, adversary, best[None], None, tolerance).values[0]
    error = float(error_bounds(np.array(residual), np.array(scale), gamma, uncertainty))
    return SingleCostOptimum(float(best @ problem.initial), best, policy, error, rounds, settled)


class NominalOptimum(NamedTuple):
    """The constrained optimum of the nominal model."""

    feasible: bool
    value: float  # J_0, cost form; ∞ when no policy meets the budgets
    policy: Array | None  # (S, A)
    occupancy: Array | None  # (S, A), sums to one


PRECISE = dict(primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10)
LINEAR_PROGRAMS: tuple[tuple[str, dict[str, float]], ...] = (("highs", PRECISE), ("highs", {}), ("highs-ipm", {}))


class Unsolved(RuntimeError):
    """A linear program that no method could solve: its numbers are of too different sizes."""


def nominal_optimum(problem: RCMDP) -> NominalOptimum:
    """The constrained optimum of the model as it is: the occupancy linear program, solved with HiGHS.

    Parameters
    ----------
    problem : RCMDP
        Of some thousand state-action pairs at most.

    Returns
    -------
    NominalOptimum
        Whether a policy meets the budgets, the least objective in cost form, the policy and its occupancy.

    Examples
    --------
    >>> import gymnasium as gym, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> print(f"{-rcac.nominal_optimum(problem).value:.1f}")
    46.6
    """
    check_problem(problem)
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    units = _units(problem.costs)  # each row of the program has entries of size one
    costs = problem.costs.reshape(problem.num_constraints + 1, -1) / units[:, None]
    for method, options in LINEAR_PROGRAMS:
        found = linprog(
            costs[0],
            A_ub=costs[1:] if problem.num_constraints else None,
            b_ub=(1 - gamma) * problem.budgets / units[1:] if problem.num_constraints else None,
            A_eq=_flow(problem),
            b_eq=(1 - gamma) * problem.initial,
            method=method,
            options=options,
        )
        if found.status in (0, 2):
            break
    if found.status == 2:
        return NominalOptimum(False, np.inf, None, None)
    if found.status != 0:
        raise Unsolved(f"nominal_optimum: the linear program ended with: {found.message}")
    occupancy = np.maximum(found.x.reshape(states, actions), 0)
    visits = occupancy.sum(axis=1, keepdims=True)
    policy = np.where(visits > 0, occupancy / np.where(visits > 0, visits, 1), 1 / actions)
    return NominalOptimum(True, float(found.fun * units[0] / (1 - gamma)), policy, occupancy)


class Bounds(NamedTuple):
    """What no policy can beat, cost form."""

    objective: float  # J_0 alone in the worst case: at least this
    constraints: Array  # (N,) each J_n alone: at least this
    nominal: float | None  # optimum of the nominal model; None if not computed, or if the set does not contain it
    together: float | None = None  # one adversary for all costs: J_0 is at least this; None where it is not proven
    doubt: str | None = None  # why the problem may be infeasible, though that is not proved

    @property
    def best(self) -> float:
        """The largest, so tightest, bound on J_0."""
        return max(bound for bound in (self.objective, self.nominal, self.together) if bound is not None)

    def shown(self, signs: Array) -> dict[str, Any]:
        """In a person's signs."""
        nominal, together = (None if b is None else float(signs[0] * b) for b in (self.nominal, self.together))
        return {
            "objective_alone": float(signs[0] * self.objective),
            "nominal_optimum": nominal,
            "one_adversary": together,
            "constraints_alone": (signs[1:] * self.constraints).tolist(),
            "infeasibility": self.doubt,
        }


PROGRAM_SIZE = 4_000  # state-action pairs beyond which the linear program takes longer than it is worth


def bounds(problem: RCMDP, uncertainty: Uncertainty) -> Bounds:
    """Bound every cost alone; raise `Infeasible`, with the proof, when no policy meets the budgets."""
    alone = [_least(problem, k, uncertainty) for k in range(problem.num_constraints + 1)]
    doubt = None
    for n, (least, budget) in enumerate(zip(alone[1:], problem.budgets, strict=True), start=1):
        if least.value > budget:
            kind, limit = ("largest", "floor") if problem.signs[n] < 0 else ("least", "budget")
            name = "utility" if problem.signs[n] < 0 else "cost"
            shown = f"constraint {n}: the {kind} attainable worst-case {name} is {problem.signs[n] * least.value:.6g}"
            shown += f", the {limit} is {problem.signs[n] * budget:.6g}"
            if least.proven > budget:
                raise Infeasible(shown)
            doubt = f"{shown}; not proved: the error of the former is up to {least.value - least.proven:.2g}"
    nominal = None
    if uncertainty.contains_nominal(problem) and problem.num_states * problem.num_actions <= PROGRAM_SIZE:
        optimum: NominalOptimum | None
        try:
            optimum = nominal_optimum(problem)
        except Unsolved:  # one bound fewer
            optimum = None
        nominal = optimum.value if optimum and optimum.feasible else None
        if optimum and not optimum.feasible:
            shown = (
                "no policy meets all budgets together, not even in the nominal model (its linear program is infeasible)"
            )
            if _nominal_violation(problem) > 0:
                raise Infeasible(shown)
            doubt = doubt or f"{shown}; not proved: it may be by less than rounding"
    constraints = np.array([least.proven for least in alone[1:]])
    return Bounds(alone[0].proven, constraints, nominal, one_adversary(problem, uncertainty), doubt)


class _Least(NamedTuple):
    value: float  # of a cost over all policies, as computed
    proven: float  # what it is at least; −∞ where the computation did not settle


def _least(problem: RCMDP, index: int, uncertainty: Uncertainty) -> _Least:
    if isinstance(uncertainty, FiniteKernels) and not uncertainty.rectangular:
        # min over π of max over kernels ≥ max over kernels of min over π
        singles = [_least(problem, index, FiniteKernels([kernel])) for kernel in uncertainty.kernels]
        return _Least(max(least.value for least in singles), max(least.proven for least in singles))
    found = robust_value_iteration(problem, uncertainty, index)
    if found.error_bound == np.inf:  # no contraction: the nominal model still bounds from below
        found = robust_value_iteration(problem, index=index)
    return _Least(found.value, found.value - found.error_bound if found.settled else -np.inf)


def _nominal_violation(problem: RCMDP) -> float:
    """A proven lower bound on the largest excess over a budget, each in its cost's unit, of any policy in the nominal model.

    For weights y ≥ 0 with sum 1 it is at least  min over π of Σ y_n (J_n − b_n)/u_n,  by value iteration. The best y are the
    multipliers of the linear program  min t  s.t.  (J_n − b_n)/u_n ≤ t.
    """
    states, actions, gamma = problem.num_states, problem.num_actions, problem.discount
    units = _units(problem.costs[1:])
    limits = problem.costs[1:].reshape(problem.num_constraints, -1) / units[:, None]
    column = np.zeros((states, 1))
    found = linprog(
        np.append(np.zeros(states * actions), 1.0),
        A_ub=np.hstack([limits, -np.ones((len(limits), 1))]),
        b_ub=(1 - gamma) * problem.budgets / units,
        A_eq=sp.hstack([_flow(problem), column]),
        b_eq=(1 - gamma) * problem.initial,
        bounds=[(0, None)] * (states * actions) + [(None, None)],
        method="highs",
    )
    if found.status != 0:
        return -np.inf
    weights = np.maximum(-found.ineqlin.marginals, 0.0) / units
    cost = np.tensordot(weights, problem.costs[1:], 1)
    least = _minimise(problem, cost, Nominal(), np.zeros(states))
    return least.value - least.error_bound - float(weights @ problem.budgets) if least.settled else -np.inf


def _units(costs: Array) -> Array:
    """What each cost (…, S, A) is measured in: its largest size, or 1 if it is zero."""
    largest = np.abs(costs).max(axis=(-2, -1))
    return np.where(largest > 0, largest, 1.0)


def _flow(problem: RCMDP) -> sp.csr_array:
    """Σ_a x(s',a) − γ Σ_{s,a} P(s'|s,a) x(s,a), (S, S·A)."""
    leaves = sp.kron(sp.eye_array(problem.num_states), np.ones((1, problem.num_actions)), format="csr")
    return leaves - problem.discount * problem.rows.matrix().T


ITERATIONS = 12  # value iterations that the search for μ may take
CLOSE = 1e-7  # relative: what is left to gain when it stops


class _Tangent(NamedTuple):
    """The bound as a function of μ, to first order."""

    mu: Array  # (N,)
    value: float
    slopes: Array  # (N,) J_n of the minimising policy under the one adversary, minus b_n
    values: Array  # (S,)


def one_adversary(problem: RCMDP, uncertainty: Uncertainty, tolerance: float = 1e-10) -> float | None:
    """The largest bound over μ that a few value iterations find; None for sets where it is not proven."""
    count = problem.num_constraints
    known = uncertainty.rectangular or isinstance(uncertainty, StateRectangular)
    if not (count and known and uncertainty.modulus == 1.0):  # the last: the operator is monotone
        return None

    def tangent(mu: Array, start: Array) -> _Tangent:
        total = 1 + float(mu.sum())
        cost = (problem.costs[0] + np.tensordot(mu, problem.costs[1:], 1)) / total
        found = _minimise(problem, cost, uncertainty, start, tolerance)
        adversary = uncertainty.against(found.policy)
        kernels = adversary.sweep(np.tile(found.values, (count + 1, 1)), problem.rows)
        slopes = evaluate_under(problem, found.policy, kernels).returns[1:] - problem.budgets
        return _Tangent(
            mu, total * (found.value - found.error_bound) - float(mu @ problem.budgets), slopes, found.values
        )

    best, left = tangent(np.zeros(count), np.zeros(problem.num_states)), ITERATIONS - 1
    spans = np.ptp(problem.costs, axis=(1, 2))
    spans = np.where(spans > 0, spans, _units(problem.costs))
    noise = CLOSE * spans[0]  # where the bound is about 0
    for n in range(count):  # along one coordinate after the other: where the tangents on both sides meet
        low, high, at = best, None, max(best.mu[n], spans[0] / spans[n + 1])
        for _ in range(left // (count - n)):
            if low.slopes[n] <= 0:  # the constraint is slack there
                break
            if high is not None:
                across = (high.value - low.value + low.slopes[n] * low.mu[n] - high.slopes[n] * high.mu[n]) / (
                    low.slopes[n] - high.slopes[n]
                )
                if low.value + low.slopes[n] * (across - low.mu[n]) - best.value <= max(noise, CLOSE * abs(best.value)):
                    break
                at = across if low.mu[n] < across < high.mu[n] else (low.mu[n] + high.mu[n]) / 2
            found, left = tangent(np.where(np.arange(count) == n, at, low.mu), low.values), left - 1
            best = max(best, found, key=lambda t: t.value)
            if found.slopes[n] > 0:
                low, at = found, 4 * at
            else:
                high = found
    return best.value
