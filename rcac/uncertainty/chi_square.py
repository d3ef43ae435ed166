"""χ² ball:  max { qᵀV : Σ (q − p)²/p ≤ r,  q ≥ 0 }.

The solution is q = p·(V − η)₊ / E_p(V − η)₊. If the states above η have mass A, mean μ and variance s² under p
restricted to them, the radius is met when

    μ − η = s / √((1+r)A − 1),      and then      qᵀV = μ + s·√((1+r)A − 1),

so one walk down the sorted values, updating (A, μ, s²), finds the threshold without iteration.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, Worst, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.sorting import ascending, ranks


@rowwise
def _chi_square(values, indptr, indices, data, radius, order, rank, value, kernel):
    K, M = len(values), len(indptr) - 1
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, q, v, r = data[lo:hi], kernel[k, lo:hi], values[k], radius[m]
        up = ascending(order[k], rank[k], indices[lo:hi])
        top, low = v[indices[lo + up[-1]]], v[indices[lo + up[0]]]
        if r == 0.0 or top == low:
            q[:] = p
            value[k, m] = expectation(v, indices[lo:hi], p)
            continue
        span, mass, mean, spread = top - low, 0.0, 0.0, 0.0  # spread = A s²; values as (V − top)/span ∈ [−1, 0]
        n = hi - lo
        for taken in range(n):
            j = up[n - 1 - taken]
            x = (v[indices[lo + j]] - top) / span
            mass += p[j]
            delta = x - mean
            mean += delta * p[j] / mass
            spread += p[j] * delta * (x - mean)
            if taken == n - 1:
                mass = 1.0  # the whole row: leave no rounding in (1+r)A − 1
                break
            following = (v[indices[lo + up[n - 2 - taken]]] - top) / span
            room = (1.0 + r) * mass - 1.0
            if room >= 0.0 and (mean - following) * (mean - following) * room >= spread / mass and following < x:
                break
        room = max((1.0 + r) * mass - 1.0, 0.0)
        deviation = np.sqrt(spread / mass)
        if deviation == 0.0:  # only the top is left, and what cannot be told from it
            lowest = v[indices[lo + j]]
            for j in range(n):
                q[j] = p[j] / mass if v[indices[lo + j]] >= lowest else 0.0
            value[k, m] = top
            continue
        gap = deviation / np.sqrt(room)  # μ − η
        for j in range(n):
            x = (v[indices[lo + j]] - top) / span
            q[j] = p[j] / mass * max(0.0, 1.0 + (x - mean) / gap)
        value[k, m] = top + span * (mean + deviation * np.sqrt(room))


@dataclass(frozen=True)
class ChiSquare(Uncertainty):
    """All q with Σ (q − p)²/p ≤ radius (a number or (S, A)), on the support of p."""

    radius: float | np.ndarray
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        value, kernel = blank(values, rows)
        _chi_square(values, rows, per_row(self.radius, rows), *ranks(values), value, kernel)
        return Worst(value, rows.indptr, rows.indices, kernel)
