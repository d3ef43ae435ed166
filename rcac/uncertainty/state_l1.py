"""s-rectangular L1 ball:  𝒫_s = { (q_a)_a : Σ_a w_a ‖q_a − p_a‖₁ ≤ r_s }.

Moving mass from state j to the top in action a's row takes 2w_a of the budget for each unit, and gains

    given π           π_a (V_top − V_j): the best moves come first, a fractional knapsack over all actions of the state.
    for the best π    γ (V_top − V_j) of action a's level: β_a(t) is piecewise linear with slopes 2w_a/(γ (V_top − V_j)), from the
                      lowest V_j up, and ends at the level where all mass is at the top. One walk up the sorted breakpoints of
                      all actions spends the budget exactly.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from rcac.problem import Rows
from rcac.uncertainty.base import WorstCase, blank, expectation, rowwise
from rcac.uncertainty.state_rectangular import StateRectangular


@njit(cache=True, error_model="numpy")
def _top(v: np.ndarray, indices: np.ndarray, best: int, free: bool) -> int:
    """The state that receives mass."""
    if free:
        return best
    top = indices[0]
    for state in indices:
        if v[state] > v[top]:
            top = state
    return np.int64(top)  # type: ignore[return-value]


@rowwise
def _respond(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    policy: np.ndarray,
    radius: np.ndarray,
    weights: np.ndarray,
    free: bool,
    value: np.ndarray,
    states: np.ndarray,
    kernel: np.ndarray,
) -> None:
    """The receiving state is an additional last entry of each row."""
    K, (S, A) = len(values), policy.shape
    for i in prange(K * S):
        k, s = i // S, i % S
        v, first, last = values[k], indptr[s * A], indptr[(s + 1) * A]
        best = int(np.argmax(v))
        gain, owner = np.empty(last - first), np.empty(last - first, np.int64)
        for a in range(A):
            m = s * A + a
            lo, hi = indptr[m], indptr[m + 1]
            top = _top(v, indices[lo:hi], best, free)
            value[k, m] = expectation(v, indices[lo:hi], data[lo:hi])
            kernel[k, lo + m : hi + m] = data[lo:hi]
            states[k, lo + m : hi + m] = indices[lo:hi]
            states[k, hi + m], kernel[k, hi + m] = top, 0.0
            for j in range(lo, hi):
                gain[j - first], owner[j - first] = policy[s, a] * (v[top] - v[indices[j]]) / weights[s, a], m
        left = 0.5 * radius[s]
        if left == 0.0:
            continue
        for e in np.argsort(-gain):
            if gain[e] <= 0.0 or left <= 0.0:
                break
            j, m = first + e, owner[e]
            end, weight = indptr[m + 1] + m, weights[s, m - s * A]
            share = min(data[j], left / weight)
            left -= share * weight
            kernel[k, j + m] -= share
            kernel[k, end] += share
            value[k, m] += share * (v[states[k, end]] - v[indices[j]])


@rowwise
def _level(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    costs: np.ndarray,
    discount: float,
    radius: np.ndarray,
    weights: np.ndarray,
    free: bool,
    level: np.ndarray,
    policy: np.ndarray,
) -> None:
    (S, A), v = costs.shape, values[0]
    best = int(np.argmax(v))
    for s in prange(S):
        size = indptr[(s + 1) * A] - indptr[s * A] + A
        at, slope, owner, used = np.empty(size), np.empty(size), np.empty(size, np.int64), 0
        for a in range(A):
            lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
            top = _top(v, indices[lo:hi], best, free)
            t, own = costs[s, a] + discount * expectation(v, indices[lo:hi], data[lo:hi]), np.empty(hi - lo)
            for j in range(hi - lo):
                own[j] = v[indices[lo + j]]
            for j in np.argsort(own):
                gain = discount * (v[top] - own[j])
                if gain > 0.0:
                    at[used], slope[used], owner[used] = t, 2.0 * weights[s, a] / gain, a
                    t += data[lo + j] * gain
                    used += 1
            at[used], slope[used], owner[used] = t, np.inf, a
            used += 1
        slopes, total, left, here = np.zeros(A), 0.0, radius[s], np.min(at[:used])
        for e in np.argsort(at[:used]):
            if total * (at[e] - here) > left:
                here += left / total
                break
            left -= total * (at[e] - here)
            here = at[e]
            if slope[e] == np.inf:  # this action cannot be made worse
                slopes[:], total = 0.0, 1.0
                slopes[owner[e]] = 1.0
                break
            total += slope[e] - slopes[owner[e]]
            slopes[owner[e]] = slope[e]
        level[s] = here
        policy[s] = slopes / np.sum(slopes)


@dataclass(frozen=True)
class StateL1(StateRectangular):
    """All kernels with Σ_a weights·‖q_a − p_a‖₁ ≤ radius in every state.

    Parameters
    ----------
    radius : float or array (S,)
        Of every state, over all its actions.
    weights : float or array (S, A)
        Of the actions' distances.
    within_support : bool
        Whether next states that the nominal row excludes stay excluded.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, rcac
    >>> from rcac.uncertainty import StateL1
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> policy = np.full((6, 2), 0.5)
    >>> worst, as_is = rcac.evaluate(problem, policy, StateL1(0.1)), rcac.evaluate(problem, policy)
    >>> bool(worst.returns[1] > as_is.returns[1])
    True
    """

    def respond(
        self, values: np.ndarray, rows: Rows, policy: np.ndarray, radius: np.ndarray, weights: np.ndarray
    ) -> WorstCase:
        value, kernel = blank(values, rows, extra=1)
        states = np.empty(kernel.shape, np.int32)
        _respond(values, rows, policy, radius, weights, not self.within_support, value, states, kernel)
        return WorstCase(value, rows.indptr + np.arange(rows.count + 1), states, kernel)

    def level(
        self,
        values: np.ndarray,
        rows: Rows,
        costs: np.ndarray,
        discount: float,
        radius: np.ndarray,
        weights: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        level, policy = np.empty(len(costs)), np.empty(costs.shape)
        _level(values, rows, costs, discount, radius, weights, not self.within_support, level, policy)
        return level, policy
