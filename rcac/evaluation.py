"""Robust policy evaluation by Newton's method on the adversary.

    V_k = 𝒯_k V_k,      (𝒯_k V)(s) = Σ_a π(a|s) [ c_k(s,a) + γ · sup_{q ∈ 𝒫(s,a)} qᵀV ]          k = 0..N, each with its own q

𝒯 is a γ-contraction and convex in V, with derivative γ T, T(s,·) = Σ_a π(a|s) q*(·|s,a). A round asks for the worst
kernels q* at V and solves (I − γT) δ = 𝒯V − V: a handful of rounds at any γ, fewer from a nearby start. Since
|V − V*| ≤ |𝒯V − V|/(1−γ), every answer comes with a bound on its error.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rcac import chains
from rcac.chains import Chains, linear_solve, one_thread
from rcac.errors import InputError
from rcac.problem import RCMDP, Rows, check_policy
from rcac.uncertainty.base import Uncertainty, Worst, assemble
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.nominal import Nominal

MAX_ROUNDS = 200
WRITTEN_OUT = 10**8  # entries of a kernel without zeros
ROUNDING = 8 * float(np.finfo(float).eps)
TOLERANCE = 1e-10  # on the error bound, relative to max(1, |V|)
ITERATED = 1e-7  # the same, in loops over problems too large to factorise


class Warm(NamedTuple):
    """Where an evaluation may start from."""

    values: np.ndarray  # (N+1, S)
    memory: Any  # of the uncertainty set


class NotSettled(UserWarning):
    """The evaluation did not reach its tolerance; the error bound says how far it got."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Worst-case returns of a policy, cost form, with everything a policy-gradient step needs."""

    returns: np.ndarray  # (N+1,) J_k = ρᵀV_k
    values: np.ndarray  # (N+1, S)
    q_values: np.ndarray  # (N+1, S, A) c + γ sup qᵀV
    error_bound: float  # |returns − true| is at most this (∞ where the operator is no contraction)
    rounds: int  # linear solves
    worst: Worst = field(repr=False)
    policy: np.ndarray = field(repr=False)  # (S, A)
    problem: RCMDP = field(repr=False)

    @property
    def warm(self) -> Warm:
        return Warm(self.values, self.worst.memory)

    @cached_property
    def occupancy(self) -> np.ndarray:
        """Discounted state occupancy under each cost's worst kernel, (N+1, S): d = (1−γ)(I − γTᵀ)⁻¹ρ."""
        gamma = self.problem.discount
        start = np.broadcast_to((1 - gamma) * self.problem.initial, self.values.shape)
        with one_thread(self.problem):
            return linear_solve(Chains(self.policy, self.worst, gamma), start, transposed=True, rtol=1e-10)

    @cached_property
    def gradients(self) -> np.ndarray:
        """∂J_k/∂π(a|s) = d_k(s) Q_k(s,a)/(1−γ), (N+1, S, A)."""
        return self.occupancy[:, :, None] * self.q_values / (1 - self.problem.discount)

    @cached_property
    def kernels(self) -> np.ndarray | list:
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
    policy: np.ndarray,  # (S, A)
    uncertainty: Uncertainty | None = None,
    warm_start: Evaluation | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> Evaluation:
    """Worst-case evaluation of every cost. `warm_start`, an evaluation of a similar policy, saves rounds."""
    uncertainty = uncertainty or Nominal()
    uncertainty.check(problem)
    policy = check_policy(problem, policy)
    return evaluate_checked(problem, policy, uncertainty, None if warm_start is None else warm_start.warm, tolerance)


def evaluate_checked(
    problem: RCMDP,
    policy: np.ndarray,
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
        values, memory = warm or Warm(_nominal_values(problem, policy), None)
        fixed = newton(problem.rows, problem.costs, policy, problem.discount, uncertainty, values, memory, tolerance)
        returns = fixed.values @ problem.initial
    return Evaluation(
        returns, fixed.values, fixed.q_values, fixed.error_bound, fixed.rounds, fixed.worst, policy, problem
    )


def evaluate_under(problem: RCMDP, policy: np.ndarray, kernels: Worst) -> Evaluation:
    """Evaluation where the adversaries do not move: cost k has kernel k."""
    right = np.einsum("sa,ksa->ks", policy, problem.costs)
    with one_thread(problem):
        values = linear_solve(Chains(policy, kernels, problem.discount), right, rtol=1e-8)
        q_values = problem.costs + problem.discount * kernels.expectations(values).reshape(problem.costs.shape)
        returns = values @ problem.initial
    residual = float(np.abs(np.einsum("sa,ksa->ks", policy, q_values) - values).max())
    return Evaluation(returns, values, q_values, residual / (1 - problem.discount), 0, kernels, policy, problem)


def mean_kernels(parts: Iterable[Worst], states: int) -> Worst:
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
class _Mean(Worst):
    matrices: list[sp.csr_array]  # for each k

    def matrix(self, k: int, width: int) -> sp.csr_array:
        return self.matrices[k]

    def mixed(self, policy: np.ndarray) -> np.ndarray:
        return np.stack([self.chain(k, policy).toarray() for k in range(len(self.matrices))])


def _nominal_values(problem: RCMDP, policy: np.ndarray) -> np.ndarray:
    """Where to start from when nothing is known, (N+1, S): one matrix for all costs."""
    rows, right = problem.rows, np.einsum("sa,ksa->ks", policy, problem.costs)
    if not chains.factorised(problem.num_states, len(rows.data)):
        shared = np.broadcast_to(rows.data, (len(right), len(rows.data)))
        nominal = Worst(np.empty((len(right), 0)), rows.indptr, rows.indices, shared)
        return linear_solve(Chains(policy, nominal, problem.discount), right, rtol=1e-2)
    if problem.sparse:
        chain = assemble(policy, rows.indptr, rows.indices[None], rows.data[None])
    else:
        chain = (policy[:, None] @ problem.kernel)[None, :, 0]
    return np.ascontiguousarray(np.linalg.solve(chains.away(chain, problem.discount)[0], right.T).T)


@dataclass(frozen=True)
class FixedPoint:
    values: np.ndarray  # (K, S)
    q_values: np.ndarray  # (K, S, A)
    worst: Worst
    error_bound: float
    rounds: int


def newton(
    rows: Rows,  # S·A of them
    costs: np.ndarray,  # (K, S, A)
    policy: np.ndarray,  # (S, A)
    discount: float,
    uncertainty: Uncertainty,
    values: np.ndarray,  # (K, S) to start from
    memory: object = None,
    tolerance: float = TOLERANCE,
) -> FixedPoint:
    """The fixed point of 𝒯 and a bound on its error."""
    rounds, damping, best = 0, 1.0, np.inf
    while True:
        worst = uncertainty.sweep(values, rows, memory)
        memory = worst.memory
        q_values = costs + discount * worst.value.reshape(costs.shape)
        image = np.einsum("sa,ksa->ks", policy, q_values)
        residual = image - values
        size, scale = float(np.abs(residual).max()), max(1.0, float(np.abs(image).max()))
        rounding = ROUNDING * scale
        bound = (discount * size + rounding + uncertainty.tolerance * scale) / (1 - discount)
        if discount * size / (1 - discount) <= tolerance * scale or size <= rounding:
            break
        if rounds >= MAX_ROUNDS:
            warnings.warn(
                f"evaluation stopped after {rounds} rounds with a residual of {size:.2g}", NotSettled, stacklevel=3
            )
            break
        if size >= best and uncertainty.modulus > 1:  # no contraction is promised: take shorter steps
            damping = max(damping / 2, 1 / 16)
        best = min(best, size)
        step = linear_solve(Chains(policy, worst, discount), residual, rtol=1e-3)
        values = values + damping * step if np.isfinite(step).all() else image
        rounds += 1
    modulus = discount * uncertainty.modulus
    if uncertainty.modulus > 1:
        bound = (modulus * size + rounding + uncertainty.tolerance * scale) / (1 - modulus) if modulus < 1 else np.inf
    return FixedPoint(image, q_values, worst, bound, rounds)


def _evaluate_each(problem: RCMDP, policy: np.ndarray, uncertainty: FiniteKernels, tolerance: float) -> Evaluation:
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
    worst = Worst(
        np.stack([fixed[i].worst.value[k] for k, i in enumerate(chosen)]), union.indptr, union.indices, data[chosen]
    )
    return Evaluation(
        returns.max(axis=0),
        np.stack([fixed[i].values[k] for k, i in enumerate(chosen)]),
        np.stack([fixed[i].q_values[k] for k, i in enumerate(chosen)]),
        max(f.error_bound for f in fixed),
        sum(f.rounds for f in fixed),
        worst,
        policy,
        problem,
    )
