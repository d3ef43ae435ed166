"""Robust policy evaluation by Newton's method on the adversary.

    V_k = 𝒯_k V_k,      (𝒯_k V)(s) = Σ_a π(a|s) [ c_k(s,a) + γ · sup_{q ∈ 𝒫(s,a)} qᵀV ]          k = 0..N, each with its own q

𝒯 is a γ-contraction and convex in V, with derivative γ T, T(s,·) = Σ_a π(a|s) q*(·|s,a). A round asks for the worst
kernels q* at V and solves (I − γT) δ = 𝒯V − V: a handful of rounds at any γ, fewer from a nearby start. Since
|V − V*| ≤ |𝒯V − V|/(1−γ), every answer comes with a bound on its error.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.evaluation import chains
from rcac.evaluation.chains import Chains, linear_solve, one_thread
from rcac.problem import RCMDP, Array, Rows, check_policy, check_problem
from rcac.registry import make_uncertainty
from rcac.uncertainty.base import Uncertainty, WorstCase, assemble
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.nominal import Nominal

MAX_ROUNDS = 200
WRITTEN_OUT = 10**8  # entries of a kernel without zeros
ROUNDING = 8 * float(np.finfo(float).eps)
TOLERANCE = 1e-10  # on the error bound, relative to the scale of each cost: the larger of |c| and |V|
FAST = 0.5  # a sweep that leaves less of the residual's span than this is followed by another one
ITERATED = 1e-7  # the same, in loops over problems too large to factorise


class Warm(NamedTuple):
    """Where an evaluation may start from."""

    values: Array  # (N+1, S)
    memory: Any  # of the uncertainty set


class NotSettled(UserWarning):
    """The evaluation did not reach its tolerance; the error bound says how far it got."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Worst-case returns of a policy, cost form, with everything a policy-gradient step needs.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> found = rcac.evaluate(problem, np.full((6, 2), 0.5), "kl_ball")
    >>> found.returns.shape, found.values.shape, found.q_values.shape, found.kernels.shape
    ((2,), (2, 6), (2, 6, 2), (2, 6, 2, 6))
    """

    returns: Array  # (N+1,) J_k = ρᵀV_k
    values: Array  # (N+1, S)
    q_values: Array  # (N+1, S, A) c + γ sup qᵀV
    error_bounds: Array  # (N+1,) |returns − true| is at most this (∞ where the operator is no contraction)
    settled: bool  # the tolerance was reached
    rounds: int  # linear solves
    worst: WorstCase
    policy: Array  # (S, A)
    problem: RCMDP

    def __repr__(self) -> str:
        shown = np.array2string(self.returns, precision=6)
        unsettled = "" if self.settled else ", not settled"
        return f"Evaluation(returns {shown}, each within {self.error_bound:.2g}, {self.rounds} rounds{unsettled})"

    @property
    def error_bound(self) -> float:
        """The largest of the error bounds."""
        return float(self.error_bounds.max())

    @property
    def warm(self) -> Warm:
        return Warm(self.values, self.worst.memory)

    @cached_property
    def occupancy(self) -> Array:
        """Discounted state occupancy under each cost's worst kernel, (N+1, S): d = (1−γ)(I − γTᵀ)⁻¹ρ."""
        gamma = self.problem.discount
        start = np.broadcast_to((1 - gamma) * self.problem.initial, self.values.shape)
        with one_thread(self.problem):
            return linear_solve(Chains(self.policy, self.worst, gamma), start, transposed=True, rtol=1e-10)

    @cached_property
    def gradients(self) -> Array:
        """∂J_k/∂π(a|s) = d_k(s) Q_k(s,a)/(1−γ), (N+1, S, A)."""
        gradients: Array = self.occupancy[:, :, None] * self.q_values / (1 - self.problem.discount)
        return gradients

    @cached_property
    def kernels(self) -> Array | list[sp.csr_array]:
        """The worst kernels: dense (N+1, S, A, S), or a CSR matrix (S·A, S) for each cost of a sparse problem."""
        count, states, actions = self.q_values.shape
        moved = self.worst.direction is not None  # all rows alike, so that they have no zeros left
        if moved and self.problem.sparse:
            if states * states * actions > WRITTEN_OUT:
                raise InputError(
                    f"kernels: this set moves every row to all {states} states, and {states * actions} such rows are too many to write out"
                )
            return [sp.csr_array(self.worst.dense(k, states)) for k in range(count)]
        if not self.problem.sparse:
            return np.stack([self.worst.dense(k, states) for k in range(count)]).reshape(count, states, actions, states)
        matrices = [self.worst.matrix(k, states).copy() for k in range(count)]
        for matrix in matrices:
            matrix.sum_duplicates()
        return matrices


def evaluate(
    problem: RCMDP,
    policy: Array,  # (S, A)
    uncertainty: Uncertainty | str | None = None,
    warm_start: Evaluation | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> Evaluation:
    """Worst-case evaluation of every cost.

    Parameters
    ----------
    problem : RCMDP
        Kernel, costs and discount.
    policy : array (S, A)
        Rows are distributions over actions.
    uncertainty : Uncertainty or str
        A set, or its name with its usual parameters; the model as it is, if not given.
    warm_start : Evaluation
        Of a similar policy: saves rounds.
    tolerance : float
        Of the values.

    Returns
    -------
    Evaluation
        Returns, values, worst kernels, and bounds on the error of the returns.

    Examples
    --------
    >>> import numpy as np
    >>> import gymnasium as gym, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> right = np.tile([0.0, 1.0], (6, 1))  # always swim to the right
    >>> as_is, worst = rcac.evaluate(problem, right), rcac.evaluate(problem, right, "kl_ball")
    >>> bool((worst.returns > as_is.returns).all())
    True
    """
    check_problem(problem)
    chosen: Uncertainty = make_uncertainty(problem, uncertainty)
    chosen.check(problem)
    policy = check_policy(problem, policy)
    check_tolerance(tolerance)
    if warm_start is None:
        return evaluate_checked(problem, policy, chosen, None, tolerance)
    if not isinstance(warm_start, Evaluation) or warm_start.q_values.shape != problem.costs.shape:
        raise InputError(f"warm_start: {warm_start!r} given, an evaluation of costs {problem.costs.shape} expected")
    return evaluate_checked(problem, policy, chosen, warm_start.warm, tolerance)


def check_tolerance(tolerance: Any) -> None:
    if not (isinstance(tolerance, int | float | np.number) and 0 <= tolerance < np.inf):
        raise InputError(f"tolerance: {tolerance!r} given, a finite number ≥ 0 expected")


def evaluate_checked(
    problem: RCMDP,
    policy: Array,
    uncertainty: Uncertainty,
    warm: Warm | None = None,
    tolerance: float | None = None,  # what is usual in loops: looser where an iteration has to reach it
) -> Evaluation:
    """`evaluate` for loops: the policy and the set are known to fit."""
    if tolerance is None:
        tolerance = TOLERANCE if chains.factorised(problem.num_states, len(problem.rows.data)) else ITERATED
    with one_thread(problem):
        if isinstance(uncertainty, FiniteKernels) and not uncertainty.rectangular:
            return _evaluate_each(problem, policy, uncertainty, tolerance)
        uncertainty = uncertainty.against(policy)
        values, memory = warm or Warm(_nominal_values(problem, policy), None)
        fixed = newton(problem.rows, problem.costs, policy, problem.discount, uncertainty, values, memory, tolerance)
        returns = fixed.values @ problem.initial
    return Evaluation(
        returns,
        fixed.values,
        fixed.q_values,
        fixed.error_bounds,
        fixed.settled,
        fixed.rounds,
        fixed.worst,
        policy,
        problem,
    )


def evaluate_under(problem: RCMDP, policy: Array, kernels: WorstCase) -> Evaluation:
    """Evaluation where the adversaries do not move: cost k has kernel k."""
    right = np.einsum("sa,ksa->ks", policy, problem.costs)
    with one_thread(problem):
        values = linear_solve(Chains(policy, kernels, problem.discount), right, rtol=1e-8)
        q_values = problem.costs + problem.discount * kernels.expectations(values).reshape(problem.costs.shape)
        returns = values @ problem.initial
    residual = np.abs(np.einsum("sa,ksa->ks", policy, q_values) - values).max(axis=1)
    return Evaluation(returns, values, q_values, residual / (1 - problem.discount), True, 0, kernels, policy, problem)


def mean_kernels(parts: Iterable[WorstCase], states: int) -> WorstCase:
    """The mean of several kernels, which lies in a convex set if they do; for sets that do not move all rows alike."""
    sums: list[sp.csr_array] = []
    first, count = None, 0
    for part in parts:  # one matrix after the other: each may be large
        first = first or part
        for k in range(len(part.value)):
            sums[k : k + 1] = [sums[k] + part.matrix(k, states) if count else part.matrix(k, states)]
        count += 1
    assert first is not None
    if count == 1:  # a part's own matrices, which are not to be changed
        sums = [total.copy() for total in sums]
    for total in sums:
        total.data /= count
    return _Mean(first.value, sums[0].indptr, sums[0].indices, None, matrices=sums)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Mean(WorstCase):
    matrices: list[sp.csr_array]  # for each k

    def matrix(self, k: int, width: int) -> sp.csr_array:
        return self.matrices[k]

    def mixed(self, policy: Array) -> Array:
        one_type = ((m.indptr.astype(np.int64), m.indices.astype(np.int32), m.data) for m in self.matrices)
        return np.concatenate([assemble(policy, start, at[None], data[None]) for start, at, data in one_type])


def _nominal_values(problem: RCMDP, policy: Array) -> Array:
    """Where to start from when nothing is known, (N+1, S): one matrix for all costs."""
    rows, right = problem.rows, np.einsum("sa,ksa->ks", policy, problem.costs)
    if not chains.factorised(problem.num_states, len(rows.data)):
        shared = np.broadcast_to(rows.data, (len(right), len(rows.data)))
        nominal = WorstCase(np.empty((len(right), 0)), rows.indptr, rows.indices, shared)
        return linear_solve(Chains(policy, nominal, problem.discount), right, rtol=1e-2)
    if problem.sparse:
        chain = assemble(policy, rows.indptr, rows.indices[None], rows.data[None])
    else:
        chain = (policy[:, None] @ problem.kernel)[None, :, 0]
    return chains.dense_solve(chain, problem.discount, right)


@dataclass(frozen=True)
class FixedPoint:
    values: Array  # (K, S)
    q_values: Array  # (K, S, A)
    worst: WorstCase
    error_bounds: Array  # (K,)
    settled: bool
    rounds: int


def newton(
    rows: Rows,  # S·A of them
    costs: Array,  # (K, S, A)
    policy: Array,  # (S, A)
    discount: float,
    uncertainty: Uncertainty,
    values: Array,  # (K, S) to start from
    memory: object = None,
    tolerance: float = TOLERANCE,
) -> FixedPoint:
    """The fixed point of 𝒯 and a bound on its error."""
    rounds, damping, best, last = 0, 1.0, np.inf, np.full(len(costs), np.inf)
    swept = policy.shape[1] == 1 and uncertainty.modulus == 1  # a sweep costs no more than a product of a linear solver
    given = np.abs(costs).max(axis=(1, 2))  # (K,)
    while True:
        worst = uncertainty.sweep(values, rows, memory)
        memory = worst.memory
        q_values = costs + discount * worst.value.reshape(costs.shape)
        image = np.einsum("sa,ksa->ks", policy, q_values)
        residual = image - values
        size, scale = np.abs(residual).max(axis=1), np.maximum(given, np.abs(image).max(axis=1))  # (K,)
        settled = bool(np.all((discount * size <= (1 - discount) * tolerance * scale) | (size <= ROUNDING * scale)))
        if settled:
            break
        if rounds >= MAX_ROUNDS:
            message = f"evaluation stopped after {rounds} rounds with a residual of {size.max():.2g}"
            warnings.warn(message, NotSettled, stacklevel=3)
            break
        high, low = residual.max(axis=1), residual.min(axis=1)
        if swept and np.all(
            high - low <= FAST * last
        ):  # 𝒯(V + x) = 𝒯V + γx: what is left is nearly the same everywhere
            values = image + (discount / (1 - discount) * (high + low) / 2)[:, None]
            last = high - low
            continue
        largest = float((size / np.where(scale > 0, scale, 1.0)).max())
        if largest >= best and uncertainty.modulus > 1:  # no contraction is promised: take shorter steps
            damping = max(damping / 2, 1 / 16)
        best = min(best, largest)
        step = linear_solve(Chains(policy, worst, discount), residual, rtol=1e-3)
        values = values + damping * step if np.isfinite(step).all() else image
        rounds += 1
    return FixedPoint(image, q_values, worst, error_bounds(size, scale, discount, uncertainty), settled, rounds)


def error_bounds(residual: Array, scale: Array, discount: float, uncertainty: Uncertainty) -> Array:
    """|𝒯V − V*| ≤ (m|𝒯V − V| + ε)/(1 − m) for an operator of modulus m < 1 that is computed with an error of at most ε."""
    modulus = discount * uncertainty.modulus
    if not modulus < 1:
        return np.full_like(residual, np.inf)
    return (modulus * residual + (ROUNDING + uncertainty.tolerance) * scale) / (1 - modulus)


def _evaluate_each(problem: RCMDP, policy: Array, uncertainty: FiniteKernels, tolerance: float) -> Evaluation:
    """Whole kernels: evaluate each, and keep for every cost the one with the largest return."""
    fixed = [
        newton(
            model,
            problem.costs,
            policy,
            problem.discount,
            Nominal(),
            np.zeros(problem.costs.shape[:2]),
            None,
            tolerance,
        )
        for model in uncertainty.models
    ]
    returns = np.stack([f.values @ problem.initial for f in fixed])  # (kernels, N+1)
    chosen = np.argmax(returns, axis=0)
    union, data = uncertainty.union
    worst = WorstCase(
        np.stack([fixed[i].worst.value[k] for k, i in enumerate(chosen)]), union.indptr, union.indices, data[chosen]
    )
    return Evaluation(
        returns.max(axis=0),
        np.stack([fixed[i].values[k] for k, i in enumerate(chosen)]),
        np.stack([fixed[i].q_values[k] for k, i in enumerate(chosen)]),
        np.max([f.error_bounds for f in fixed], axis=0),
        all(f.settled for f in fixed),
        sum(f.rounds for f in fixed),
        worst,
        policy,
        problem,
    )
