"""Wasserstein-1 ball with a ground metric d on states:

    max { qᵀV : W_d(q, p) ≤ r }  =  min over κ ≥ 0 of  κ r + Σ_j p_j max_t (V_t − κ d(j,t)).

Mass at j may go to any t at price d(j,t). For each origin only the upper concave hull of the points (d(j,t), V_t)
matters; its edges have falling slopes (gain per distance), and the best plan takes edges of all origins by slope
until the radius is spent: a fractional knapsack, exact, with at most one origin split between two targets. Hulls
depend on V and d alone, so all rows part them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, per_row, rowwise
from rcac.uncertainty.nominal import Nominal


@njit(cache=True, error_model="numpy")
def _hulls(v, start, target, distance):
    """Edges of every origin's hull, by origin: (first, length (S,)), then per edge end, Δd, ΔV and slope."""
    S = len(start) - 1
    first, count = np.empty(S, np.int64), np.empty(S, np.int64)
    end = np.empty(len(target), np.int32)
    dd, dv, slope = np.empty(len(target)), np.empty(len(target)), np.empty(len(target))
    at_d, at_v, at_t = np.empty(len(target) + 1), np.empty(len(target) + 1), np.empty(len(target) + 1, np.int32)
    used = 0
    for j in range(S):
        n = 1
        at_d[0], at_v[0], at_t[0] = 0.0, v[j], j
        for i in range(start[j], start[j + 1]):  # by rising distance
            t, d = target[i], distance[i]
            if v[t] <= at_v[n - 1]:
                continue
            while n > 1 and (at_v[n - 1] - at_v[n - 2]) * (d - at_d[n - 1]) <= (v[t] - at_v[n - 1]) * (
                at_d[n - 1] - at_d[n - 2]
            ):
                n -= 1
            at_d[n], at_v[n], at_t[n] = d, v[t], t
            n += 1
        first[j], count[j] = used, n - 1
        for i in range(1, n):
            end[used], dd[used], dv[used] = at_t[i], at_d[i] - at_d[i - 1], at_v[i] - at_v[i - 1]
            slope[used] = dv[used] / dd[used]
            used += 1
    return first, count, end[:used], dd[:used], dv[:used], slope[:used]


@rowwise
def _transport(
    values, indptr, indices, data, radius, first, count, end, dd, dv, rank, order, origin, value, states, kernel
):
    """One value only (hulls differ between values), from its nominal expectations; the split origin's other part is an additional last entry."""
    M, S = len(indptr) - 1, values.shape[1]
    for m in prange(M):
        lo, hi, left = indptr[m], indptr[m + 1], radius[m]
        a, n = lo + m, hi - lo
        states[a : a + n] = indices[lo:hi]
        kernel[a : a + n] = data[lo:hi]
        states[a + n], kernel[a + n] = indices[lo], 0.0
        total = value[m]
        if left == 0.0:
            continue
        if n == S:
            edges = order
        else:
            size = 0
            for j in range(lo, hi):
                size += count[indices[j]]
            places, size = np.empty(size, np.int64), 0
            for j in range(lo, hi):
                s = indices[j]
                for e in range(first[s], first[s] + count[s]):
                    places[size] = rank[e]
                    size += 1
            places.sort()
            edges = order[places]
        for e in edges:
            s = origin[e]
            j = s if n == S else np.searchsorted(indices[lo:hi], s)
            price = data[lo + j] * dd[e]
            if price <= left:
                left -= price
                states[a + j] = end[e]
                total += data[lo + j] * dv[e]
            else:
                part = left / price
                kernel[a + j] = data[lo + j] * (1.0 - part)
                states[a + n], kernel[a + n] = end[e], data[lo + j] * part
                total += data[lo + j] * dv[e] * part
                break
        value[m] = total


@dataclass(frozen=True, eq=False)
class Wasserstein(Uncertainty):
    """All q that can be had from p by moving mass a total distance ≤ radius (a number or (S, A)).

    `metric` is (S, S): zero on the diagonal, positive elsewhere. A scipy sparse matrix lists the moves that are possible;
    what it does not store cannot be reached, which keeps large problems sparse.

    Parameters
    ----------
    radius : float or array (S, A)
        The largest distance that mass is moved in all.
    metric : array or sparse matrix (S, S)
        Distances between states.

    Examples
    --------
    >>> from rcac.uncertainty import Wasserstein
    >>> expectation, q = Wasserstein(0.3, [[0, 1, 2], [1, 0, 1], [2, 1, 0]]).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    1.0
    """

    radius: float | np.ndarray
    metric: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        sparse = sp.issparse(self.metric)
        try:
            matrix: Any = (
                sp.csr_array(self.metric, dtype=float, copy=True) if sparse else np.array(self.metric, dtype=float)
            )
        except (TypeError, ValueError):
            raise InputError("metric: not an array of numbers, (S, S) expected") from None
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
            raise InputError(f"metric: shape {matrix.shape} given, (S, S) expected")
        size = matrix.shape[0]
        if sparse:
            origin = np.repeat(np.arange(size), np.diff(matrix.indptr))
            target, distance = matrix.indices.astype(np.int32), matrix.data
        else:
            origin, target = (i.ravel() for i in np.indices((size, size), np.int32))
            distance = matrix.ravel()
        for bad, expected in (
            (~np.isfinite(distance), "a finite number"),
            (distance < 0, "a distance ≥ 0"),
            ((origin == target) & (distance != 0), "0 on the diagonal"),
            ((origin != target) & (distance == 0), "a distance > 0 between two states"),
        ):
            if bad.any():
                i = int(np.argmax(bad))
                raise InputError(f"metric[{origin[i]}, {target[i]}]: {distance[i]} given, {expected} expected")
        by = np.lexsort((distance, origin))
        start = np.concatenate([[0], np.cumsum(np.bincount(origin, minlength=size))])
        object.__setattr__(self, "_moves", (start, target[by].astype(np.int32), distance[by]))

    def check_states(self, states: int) -> None:
        given = len(self._moves[0]) - 1  # type: ignore[attr-defined]
        if given != states:
            raise InputError(f"metric: {given} states given, the problem has {states}")

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius, kernel = per_row(self.radius, rows), blank(values, rows, extra=1)[1]
        value = Nominal().sweep(values, rows).value
        states = np.empty(kernel.shape, np.int32)
        for k, v in enumerate(values):
            first, count, end, dd, dv, slope = _hulls(v, *self._moves)  # type: ignore[attr-defined]
            order = np.argsort(-slope, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            origin = np.repeat(np.arange(len(v)), count)
            hulls = (first, count, end, dd, dv, rank, order, origin)
            _transport(v[None], rows, radius, *hulls, value[k], states[k], kernel[k])
        return WorstCase(value, rows.indptr + np.arange(rows.count + 1), states, kernel)
