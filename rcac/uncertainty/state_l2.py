"""s-rectangular L2 ball:  𝒫_s = { (q_a)_a : Σ_a w_a ‖q_a − p_a‖₂² ≤ r_s² }.

Every solution is a projection onto the simplex, q_a = (p_a + x_a V − τ_a)₊. While the states A with q_a > 0 stay the same, with
n, P, v̄ and SS = Σ_A (V − v̄)² of them,

    q_aᵀV = Σ_A p V + v̄ (1 − P) + x_a SS,      ‖q_a − p_a‖² = x_a² SS + (1−P)²/n + Σ outside A of p²,

so each unknown is solved for exactly on such a piece, and the pieces are passed in order.

    given π           x_a = λ π_a/w_a, with λ such that the budget is spent
    for the best π    x_a such that c_a + γ q_aᵀV = t, with the level t such that the budget is spent; then π_a ∝ w_a x_a
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import WorstCase, blank, expectation, rowwise
from rcac.uncertainty.state_rectangular import StateRectangular

_MAX_STEPS = 300
_TIE = 1e-15  # values this close to the top, relative to the span of all, are the top
WRITTEN_OUT = 10**8  # entries of rows that reach all states


@njit(cache=True, error_model="numpy")
def _project(p: np.ndarray, u: np.ndarray, x: float, q: np.ndarray) -> tuple[float, float, float, float]:
    """q ← (p + xu − τ)₊; returns qᵀu, SS, ‖q − p‖² and the part of it that does not grow with x, SS apart."""
    q[:] = 1.0  # of A
    while True:
        n, mass, mean, dropped = 0.0, 0.0, 0.0, False
        for j in range(len(p)):
            if q[j] > 0.0:
                n += 1.0
                mass += p[j]
                mean += u[j]
        mean /= n
        shift = (1.0 - mass) / n if x > 0.0 else 0.0
        for j in range(len(p)):
            left = p[j] + shift + x * (u[j] - mean)
            if q[j] > 0.0 and (
                left < 0.0 or (left == 0.0 and u[j] <= mean)
            ):  # at x = 0, states that are about to be reached stay
                q[j], dropped = 0.0, True
        if not dropped:
            break
    squares, outside, expected = 0.0, 0.0, 0.0
    for j in range(len(p)):
        if q[j] > 0.0:
            squares += (u[j] - mean) ** 2
            q[j] = p[j] + shift + x * (u[j] - mean)
            expected += q[j] * u[j]
        else:
            outside += p[j] * p[j]
    fixed = n * shift * shift + outside
    return expected, squares, x * x * squares + fixed, fixed


@njit(cache=True, error_model="numpy")
def _gather(v: np.ndarray, indices: np.ndarray, top: float, span: float, u: np.ndarray) -> float:
    """u = (V − top)/span; returns the largest of the row."""
    best = -np.inf
    for j in range(len(indices)):
        u[j] = (v[indices[j]] - top) / span
        best = max(best, u[j])
    for j in range(len(indices)):
        u[j] = best if u[j] > best - _TIE else u[j]
    return best


@rowwise
def _respond(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    policy: np.ndarray,
    radius: np.ndarray,
    weights: np.ndarray,
    value: np.ndarray,
    kernel: np.ndarray,
) -> None:
    K, (S, A) = len(values), policy.shape
    for i in prange(K * S):
        k, s = i // S, i % S
        v, first, last, r = values[k], indptr[s * A], indptr[(s + 1) * A], radius[s]
        top, low = np.max(v), np.min(v)
        u, limit, growth = np.empty(last - first), 0.0, 0.0
        for a in range(A):
            lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
            kernel[k, lo:hi] = data[lo:hi]
            value[k, s * A + a] = expectation(v, indices[lo:hi], data[lo:hi])
            if top > low and r > 0.0 and policy[s, a] > 0.0:
                own, q = u[lo - first : hi - first], kernel[k, lo:hi]
                best = _gather(v, indices[lo:hi], top, top - low, own)
                n, mass, outside = 0.0, 0.0, 0.0
                for j in range(hi - lo):
                    if own[j] == best:
                        n += 1.0
                        mass += data[lo + j]
                    else:
                        outside += data[lo + j] ** 2
                limit += weights[s, a] * ((1.0 - mass) ** 2 / n + outside)
                growth += policy[s, a] ** 2 / weights[s, a] * _project(data[lo:hi], own, 0.0, q)[1]
        if not limit > 0.0:  # nothing to gain
            continue
        scale, below, above = r / np.sqrt(growth), 0.0, np.inf
        if r * r >= limit:
            scale = np.inf
        for _ in range(_MAX_STEPS if scale < np.inf else 0):
            growth, fixed = 0.0, 0.0
            for a in range(A):
                if policy[s, a] > 0.0:
                    lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
                    x = scale * policy[s, a] / weights[s, a]
                    _, squares, _, rest = _project(data[lo:hi], u[lo - first : hi - first], x, kernel[k, lo:hi])
                    growth += policy[s, a] ** 2 / weights[s, a] * squares
                    fixed += weights[s, a] * rest
            if scale * scale * growth + fixed > r * r:
                above = scale
            else:
                below = scale
            following = np.sqrt((r * r - fixed) / growth) if growth > 0.0 and r * r > fixed else np.nan
            if abs(following - scale) <= 4e-16 * scale:
                break
            if not below < following < above:
                following = 4.0 * scale if above == np.inf else 0.5 * (below + above)
                if not below < following < above:
                    break
            scale = following
        for a in range(A):
            if policy[s, a] > 0.0:
                lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
                own, q, expected = u[lo - first : hi - first], kernel[k, lo:hi], 0.0
                if scale == np.inf:
                    _onto_top(data[lo:hi], own, q)
                for j in range(hi - lo):
                    expected += q[j] * own[j]
                value[k, s * A + a] = top + (top - low) * expected


@njit(cache=True, error_model="numpy")
def _onto_top(p: np.ndarray, u: np.ndarray, q: np.ndarray) -> None:
    """The nearest distribution that has all mass at the top."""
    best, n, mass = np.max(u), 0.0, 0.0
    for j in range(len(p)):
        if u[j] == best:
            n += 1.0
            mass += p[j]
    for j in range(len(p)):
        q[j] = p[j] + (1.0 - mass) / n if u[j] == best else 0.0


@njit(cache=True, error_model="numpy")
def _lift(p: np.ndarray, u: np.ndarray, target: float, q: np.ndarray) -> tuple[float, float]:
    """x and ‖q − p‖² such that qᵀu = target. qᵀu is concave in x, so that steps from below never pass it."""
    x = 0.0
    expected, squares, distance, _ = _project(p, u, x, q)
    for _ in range(_MAX_STEPS):
        if expected >= target or squares == 0.0:
            break
        following = x + (target - expected) / squares
        if following == x:
            break
        x = following
        expected, squares, distance, _ = _project(p, u, x, q)
    return x, distance


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
    level: np.ndarray,
    policy: np.ndarray,
) -> None:
    (S, A), v = costs.shape, values[0]
    top, low = np.max(v), np.min(v)
    span = top - low
    for s in prange(S):
        first, last = indptr[s * A], indptr[(s + 1) * A]
        u, q, nominal, x = np.empty(last - first), np.empty(last - first), np.empty(A), np.zeros(A)
        highest, weakest = np.inf, 0
        for a in range(A):
            lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
            nominal[a] = costs[s, a] + discount * expectation(v, indices[lo:hi], data[lo:hi])
            best = 0.0
            if span > 0.0:
                best = top + span * _gather(v, indices[lo:hi], top, span, u[lo - first : hi - first])
            reach = costs[s, a] + discount * best if span > 0.0 else nominal[a]
            if reach < highest:
                highest, weakest = reach, a
        policy[s] = 0.0
        lowest = float(np.min(nominal))
        if radius[s] == 0.0 or discount * span == 0.0 or highest <= lowest:
            level[s] = lowest
            policy[s, np.argmin(nominal)] = 1.0
            continue
        t, below, above = highest, lowest, np.inf
        for step in range(_MAX_STEPS):
            distance, slope = 0.0, 0.0
            for a in range(A):
                x[a] = 0.0
                if t > nominal[a]:
                    lo, hi = indptr[s * A + a], indptr[s * A + a + 1]
                    own = u[lo - first : hi - first]
                    target = expectation(own, np.arange(hi - lo), data[lo:hi]) + (t - nominal[a]) / (discount * span)
                    x[a], moved = _lift(data[lo:hi], own, target, q[lo - first : hi - first])
                    distance += weights[s, a] * moved
                    slope += weights[s, a] * x[a]
            away = np.sqrt(distance)
            if away <= radius[s]:
                if step == 0:  # the weakest action cannot be made worse
                    x[:] = 0.0
                    x[weakest] = 1.0
                    break
                below = max(below, t)
            else:
                above = min(above, t)
            following = t - (away - radius[s]) * discount * span * away / slope if slope > 0.0 else np.nan
            if not below < following < above:
                following = 0.5 * (below + above)
            if not below < following < above or following == t:
                break
            t = following
        level[s] = min(t, highest)
        for a in range(A):
            policy[s, a] = weights[s, a] * x[a]
        total = np.sum(policy[s])
        if total > 0.0:
            policy[s] /= total
        else:
            policy[s, np.argmin(nominal)] = 1.0


@dataclass(frozen=True)
class StateL2(StateRectangular):
    """All kernels with Σ_a weights·‖q_a − p_a‖₂² ≤ radius² in every state. Mass is spread over many states: on large sparse problems
    it has to stay `within_support`.

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
    >>> from rcac.uncertainty import StateL2
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> policy = np.full((6, 2), 0.5)
    >>> worst, as_is = rcac.evaluate(problem, policy, StateL2(0.1)), rcac.evaluate(problem, policy)
    >>> bool(worst.returns[1] > as_is.returns[1])
    True
    """

    smooth = True

    def respond(
        self, values: np.ndarray, rows: Rows, policy: np.ndarray, radius: np.ndarray, weights: np.ndarray
    ) -> WorstCase:
        rows = self._reached(rows)
        value, kernel = blank(values, rows)
        _respond(values, rows, policy, radius, weights, value, kernel)
        return WorstCase(value, rows.indptr, rows.indices, kernel)

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
        _level(values, self._reached(rows), costs, discount, radius, weights, level, policy)
        return level, policy

    def _reached(self, rows: Rows) -> Rows:
        """The rows, with zeros where mass may go."""
        if self.within_support or len(rows.data) == rows.count * rows.width:
            return rows
        if rows.count * rows.width > WRITTEN_OUT:
            raise InputError(
                f"within_support: False given, True expected for {rows.count} rows of {rows.width} states: mass would go to all"
            )
        indices = np.tile(np.arange(rows.width, dtype=np.int32), rows.count)
        data = rows.matrix().toarray().ravel()
        return Rows(np.arange(rows.count + 1) * rows.width, indices, data, rows.width, rows.ids)
