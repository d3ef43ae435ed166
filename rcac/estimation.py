"""A problem estimated from logged transitions (s, a, c_0..c_N, s'), with how far the estimate may be off.

    counts n(s,a),    P̂(s'|s,a) = (n(s,a,s') + κ) / (n(s,a) + κ|R(s)|)  for s' in R(s),    ĉ_k(s,a) = mean of the logged costs

with smoothing κ ≥ 0 over R(s), the states that may follow s. `prior="all"`: every state, so a kernel that needs the prior
is dense. `prior="observed"`: those seen to follow s under any action (s itself where none was), so the kernel stays sparse.
A pair that was never seen goes to each state of R(s) alike, at the mean of all costs.

    With probability ≥ 1 − δ, for all (s,a) at once,
    ½‖P(·|s,a) − P̃(·|s,a)‖₁ ≤ ½ √( 2 (ln(2^m − 2) + ln(SA n(n+1)/δ)) / n )      with n = n(s,a)

for the empirical P̃ and rows with at most m successors. For one pair and a count fixed beforehand this is the bound of
Weissman et al. (2003) at level δ/(SA n(n+1)). A log's counts are random, and may depend on what was drawn: a policy that
learns visits some pairs because of where they led, and a log may end when it looks well. But the k-th visit to a pair
draws from P(·|s,a) whatever came before, so the first n draws are independent for each fixed n, and a union bound over the
pairs and all n ≥ 1 (Σ 1/(n(n+1)) = 1) covers whichever n the log ends with. So the promise holds for any log in which each
s' was drawn by the one true kernel and no transition was left out because of its s'.

Smoothing moves the estimate by at most κ|R(s)|/(n + κ|R(s)|) more. The radius of a pair that was never seen is 1: nothing
is known.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP

DENSE_LIMIT = 10**8  # entries of the largest dense kernel that is made: 0.8 GB


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated problem and what it rests on."""

    problem: RCMDP
    counts: np.ndarray  # (S, A)
    prior: np.ndarray  # (S,) κ|R(s)|, the counts that smoothing added to each pair
    successors: int  # the most that any pair was seen to have

    def total_variation_radius(self, confidence: float = 0.95, successors: int | None = None) -> np.ndarray:
        """(S, A) radii for `TotalVariation` such that the true kernel is in the set with this probability, however the
        log was made: the formula of this module.

        `successors`: no pair of the true model has more (m above; all S states when not given). Without it, radii are
        below 1 only where n(s,a) is well above S.
        """
        if not 0 < _number("confidence", confidence) < 1:
            raise InputError(f"confidence: {confidence} given, a number in (0, 1) expected")
        states, actions = self.counts.shape
        most = states if successors is None else _whole("successors", successors)
        if not self.successors <= most <= states:
            raise InputError(f"successors: {most} given, {self.successors} (as many were seen) to {states} expected")
        if states == 1:
            return np.zeros((1, actions))
        seen = np.maximum(self.counts, 1)
        drawn = 0.0  # with one successor there is nothing to estimate
        if most > 1:
            shapes = most * np.log(2) + np.log1p(-(2.0 ** (1 - min(most, 1000))))  # ln(2^m − 2)
            share = np.log(states * actions / (1 - confidence)) + np.log(seen) + np.log(seen + 1)  # ln(SA n(n+1)/δ)
            drawn = 0.5 * np.sqrt(2 * (shapes + share) / seen)
        moved = self.prior[:, None] / (seen + self.prior[:, None])
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
    smoothing: float = 0.0,  # κ
    prior: str = "all",  # all | observed: R(s), where smoothing and pairs that were never seen may go
) -> Estimate:
    """Estimate kernel and costs: see the formulas of this module. `prior="observed"` is the choice for large problems."""
    num_states, num_actions = _whole("num_states", num_states), _whole("num_actions", num_actions)
    states, actions, next_states = (
        _indices(name, values, limit)
        for name, values, limit in (
            ("states", states, num_states),
            ("actions", actions, num_actions),
            ("next_states", next_states, num_states),
        )
    )
    if not len(states) == len(actions) == len(next_states) > 0:
        raise InputError(
            f"states, actions, next_states: {len(states)}, {len(actions)}, {len(next_states)} given, equal lengths > 0 expected"
        )
    costs = _costs(costs, len(states))
    if not 0 <= _number("smoothing", smoothing) < np.inf:
        raise InputError(f"smoothing: {smoothing} given, a finite number ≥ 0 expected")
    if prior not in ("all", "observed"):
        raise InputError(f"prior: {prior!r} given, 'all' or 'observed' expected")
    pairs = states * num_actions + actions
    size = num_states * num_actions
    seen = np.bincount(pairs, minlength=size)  # (S·A,)
    reached = _counts(pairs, next_states, size, num_states)  # n(s,a,s')
    weight = np.where(seen > 0, float(smoothing), 1.0)  # of each state of R(s); a pair never seen has nothing else
    if prior == "observed":
        follows = _followers(states, next_states, num_states)
        possible = np.diff(follows.indptr)  # |R(s)|
        rows = np.flatnonzero(weight)
        added = sp.csr_array(follows[rows // num_actions].multiply(weight[rows, None]))
        model = _normalised(reached + _placed(added, rows, size))
    else:
        possible = np.full(num_states, num_states)
        model = _with_all(reached, weight, num_actions) if weight.any() else _normalised(reached)
    means = np.stack([np.bincount(pairs, weights=c, minlength=size) for c in costs.T]) / np.maximum(seen, 1)
    means = np.where(seen > 0, means, costs.mean(axis=0)[:, None])
    if initial is None:
        initial = np.full(num_states, 1 / num_states)
    problem = RCMDP(model, means.reshape(-1, num_states, num_actions), budgets, initial, discount)
    most = int(np.diff(reached.indptr).max())
    return Estimate(problem, seen.reshape(num_states, num_actions), smoothing * possible, most)


def _counts(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> sp.csr_array:
    """How often each (row, column) occurs."""
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(height, width))
    matrix.sum_duplicates()
    return matrix


def _followers(states: np.ndarray, next_states: np.ndarray, num_states: int) -> sp.csr_array:
    """(S, S) ones at R(s): the states seen to follow s, or s itself where none was."""
    alone = np.flatnonzero(np.bincount(states, minlength=num_states) == 0)
    matrix = _counts(np.concatenate([states, alone]), np.concatenate([next_states, alone]), num_states, num_states)
    matrix.data[:] = 1.0
    return matrix


def _placed(matrix: sp.csr_array, rows: np.ndarray, height: int) -> sp.csr_array:
    """The matrix whose rows `rows`, in rising order, are those given; all others are empty."""
    lengths = np.zeros(height, np.int64)
    lengths[rows] = np.diff(matrix.indptr)
    start = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_array((matrix.data, matrix.indices, start), shape=(height, matrix.shape[1]))


def _normalised(matrix: sp.csr_array) -> sp.csr_array:
    """Rows divided by their sums."""
    sums = matrix.sum(axis=1)
    matrix.data /= np.repeat(sums, np.diff(matrix.indptr))
    return matrix


def _with_all(reached: sp.csr_array, weight: np.ndarray, num_actions: int) -> np.ndarray:
    """The kernel (S, A, S) with `weight` (S·A,) added at every state."""
    size, num_states = reached.shape
    if size * num_states > DENSE_LIMIT:
        raise InputError(
            f"prior: 'all' given, 'observed' expected for {num_states} states × {num_actions} actions: smoothing, and pairs "
            f"that were never seen ({int((np.diff(reached.indptr) == 0).sum())} here), would fill {size * num_states:.1e} entries"
        )
    kernel = reached.toarray() + weight[:, None]
    kernel /= kernel.sum(axis=1, keepdims=True)
    return kernel.reshape(num_states, num_actions, num_states)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str | bool) or np.ndim(value) != 0:
        raise InputError(f"{name}: {value!r} given, a number expected")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r} given, a number expected") from None


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}: {value!r} given, a whole number ≥ 1 expected")
    return int(value)


def _costs(values: Any, count: int) -> np.ndarray:
    expected = f"({count}, N+1), objective first, expected"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"costs: not an array of numbers, {expected}") from None
    if array.ndim != 2 or len(array) != count or array.shape[1] == 0:
        raise InputError(f"costs: shape {array.shape} given, {expected}")
    bad = ~np.isfinite(array)
    if bad.any():
        i, k = (int(x) for x in np.argwhere(bad)[0])
        raise InputError(f"costs[{i}, {k}]: {array[i, k]} given, a finite number expected")
    return array


def _indices(name: str, values: np.ndarray, limit: int) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name}: rows of different lengths given, whole numbers (T,) expected") from None
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name}: {array.dtype} of shape {array.shape} given, whole numbers (T,) expected")
    bad = (array < 0) | (array >= limit)
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"{name}[{i}]: {array[i]} given, 0 to {limit - 1} expected")
    return array.astype(np.int64)
