"""A problem estimated from logged transitions (s, a, c_0..c_N, s'), with how far the estimate may be off.

    counts n(s,a),    P̂(s'|s,a) = (n(s,a,s') + κ) / (n(s,a) + κS)  with smoothing κ ≥ 0,    ĉ_k(s,a) = mean of the logged costs

    With probability ≥ 1 − δ, for all (s,a) at once,   ½‖P(·|s,a) − P̃(·|s,a)‖₁ ≤ ½ √( 2 (ln(2^S − 2) + ln(SA/δ)) / n(s,a) )

for the empirical P̃ (Weissman et al. 2003, and a union bound over the pairs); smoothing moves the estimate by at most κS/(n + κS) more.
The radius of a pair that was never seen is 1: nothing is known about it.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated problem and what it rests on."""

    problem: RCMDP
    counts: np.ndarray  # (S, A)
    smoothing: float

    def total_variation_radius(self, confidence: float = 0.95) -> np.ndarray:
        """(S, A) radii for `TotalVariation` such that the true kernel is in the set with this probability."""
        if not 0 < confidence < 1:
            raise InputError(f"confidence: {confidence} given, a number in (0, 1) expected")
        states, actions = self.counts.shape
        if states == 1:
            return np.zeros((1, actions))
        shapes = states * np.log(2) + np.log1p(-(2.0 ** (1 - min(states, 1000))))  # ln(2^S − 2)
        exponent = shapes + np.log(states * actions / (1 - confidence))
        seen = np.maximum(self.counts, 1)
        drawn = 0.5 * np.sqrt(2 * exponent / seen)
        moved = self.smoothing * states / (seen + self.smoothing * states)
        return np.where(self.counts > 0, np.minimum(drawn + moved, 1.0), 1.0)


def from_transitions(
    states: np.ndarray,  # (T,) int
    actions: np.ndarray,  # (T,) int
    costs: np.ndarray,  # (T, N+1), objective first, cost form
    next_states: np.ndarray,  # (T,) int
    *,
    num_states: int,
    num_actions: int,
    budgets: np.ndarray,  # (N,)
    discount: float,
    initial: np.ndarray | None = None,  # (S,), uniform when not given
    smoothing: float = 0.0,
) -> Estimate:
    """Estimate kernel and costs. A pair that was never seen goes everywhere with equal probability, at the mean cost."""
    states, actions, next_states = (
        _indices(name, values, limit)
        for name, values, limit in (
            ("states", states, num_states), ("actions", actions, num_actions), ("next_states", next_states, num_states),
        )
    )
    costs = np.asarray(costs, dtype=float)
    if costs.ndim != 2 or len(costs) != len(states) or not np.isfinite(costs).all():
        raise InputError(f"costs: shape {costs.shape} given, finite numbers ({len(states)}, N+1) expected")
    if not len(states) == len(actions) == len(next_states) > 0:
        raise InputError(f"states, actions, next_states: {len(states)}, {len(actions)}, {len(next_states)} given, equal lengths > 0 expected")
    if not 0 <= smoothing < np.inf:
        raise InputError(f"smoothing: {smoothing} given, a finite number ≥ 0 expected")
    pairs = states * num_actions + actions
    size = num_states * num_actions
    seen = np.bincount(pairs, minlength=size)  # (S·A,)
    reached = sp.csr_array((np.ones(len(pairs)), (pairs, next_states)), shape=(size, num_states))
    reached.sum_duplicates()
    unseen = seen == 0
    if smoothing > 0 or unseen.any():
        kernel = (reached.toarray() + smoothing) / np.maximum(seen + smoothing * num_states, 1e-300)[:, None]
        kernel[unseen] = 1 / num_states
        model = kernel.reshape(num_states, num_actions, num_states)
    else:
        model = sp.csr_array(sp.diags_array(1 / seen) @ reached)
    means = np.stack([np.bincount(pairs, weights=c, minlength=size) for c in costs.T]) / np.maximum(seen, 1)
    means = np.where(unseen, costs.mean(axis=0)[:, None], means)
    if initial is None:
        initial = np.full(num_states, 1 / num_states)
    problem = RCMDP(model, means.reshape(-1, num_states, num_actions), budgets, initial, discount)
    return Estimate(problem, seen.reshape(num_states, num_actions), float(smoothing))


def _indices(name: str, values: np.ndarray, limit: int) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name}: {array.dtype} of shape {array.shape} given, whole numbers (T,) expected")
    bad = (array < 0) | (array >= limit)
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"{name}[{i}]: {array[i]} given, 0 to {limit - 1} expected")
    return array.astype(np.int64)
