"""Total variation:  max { qᵀV : ½‖q − p‖₁ ≤ r }  moves mass r from the lowest values to the highest one.

Free, the highest is over all states; within the support, over the states that p reaches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, Worst, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.sorting import ascending, ranks


@rowwise
def _total_variation(values, indptr, indices, data, radius, order, rank, free, value, states, kernel):
    """The receiving state is an additional last entry of each row."""
    K, M = len(values), len(indptr) - 1
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, v, r, start = data[lo:hi], values[k], radius[m], lo + m
        q = kernel[k, start : start + hi - lo]
        q[:] = p
        states[k, start : start + hi - lo] = indices[lo:hi]
        top = order[k, -1]
        if not free:
            for j in range(lo, hi):
                if j == lo or v[indices[j]] > v[top]:
                    top = indices[j]
        total, moved = expectation(v, indices[lo:hi], p), 0.0
        if r > 0.0:
            for j in ascending(order[k], rank[k], indices[lo:hi]):
                gain = v[top] - v[indices[lo + j]]
                share = min(q[j], r - moved)
                if share <= 0.0 or gain <= 0.0:
                    break
                q[j] -= share
                moved += share
                total += share * gain
        states[k, start + hi - lo] = top
        kernel[k, start + hi - lo] = moved
        value[k, m] = total


@dataclass(frozen=True)
class TotalVariation(Uncertainty):
    """All q with ½‖q − p‖₁ ≤ radius (a number or (S, A)); `within_support` keeps q where p is positive."""

    radius: float | np.ndarray
    within_support: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        order, rank = ranks(values)
        value, kernel = blank(values, rows, extra=1)
        states = np.empty(kernel.shape, np.int32)
        _total_variation(
            values, rows, per_row(self.radius, rows), order, rank, not self.within_support, value, states, kernel
        )
        return Worst(value, rows.indptr + np.arange(rows.count + 1), states, kernel)
