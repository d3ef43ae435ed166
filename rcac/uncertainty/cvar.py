"""Conditional value at risk:  max { qᵀV : q ≤ p/α }  =  CVaR_α(V), the mean of V over its worst α under p.

The largest values get p/α each, from the top down, until the mass is spent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.nominal import Nominal
from rcac.uncertainty.sorting import ascending, ranks


@rowwise
def _cvar(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    alpha: np.ndarray,
    order: np.ndarray,
    rank: np.ndarray,
    value: np.ndarray,
    kernel: np.ndarray,
) -> None:
    K, M = len(values), len(indptr) - 1
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, q, v = data[lo:hi], kernel[k, lo:hi], values[k]
        q[:] = p
        if alpha[m] < 1.0:
            left = 1.0
            for j in ascending(order[k], rank[k], indices[lo:hi])[::-1]:
                q[j] = min(p[j] / alpha[m], left)
                left -= q[j]
        value[k, m] = expectation(v, indices[lo:hi], q)


@dataclass(frozen=True)
class CVaR(Uncertainty):
    """All q ≤ p/alpha, which keep the support of p; 1 is the nominal model. `alpha` is a number in (0, 1] or (S, A).

    Parameters
    ----------
    alpha : float or array (S, A)
        The share of next states, the worst ones, over which the mean is taken.

    Examples
    --------
    >>> from rcac.uncertainty import CVaR
    >>> expectation, q = CVaR(0.8).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.875
    """

    alpha: float | np.ndarray
    size = "alpha"

    def __post_init__(self) -> None:
        alpha = check_radius(self.alpha, "alpha")
        if not (np.min(alpha) > 0 and np.max(alpha) <= 1):
            outside = np.ravel(alpha)[(np.ravel(alpha) <= 0) | (np.ravel(alpha) > 1)]
            raise InputError(f"alpha: {outside[0]} given, probabilities in (0, 1] expected")
        object.__setattr__(self, "alpha", alpha)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        if np.all(np.asarray(self.alpha) == 1):
            return Nominal().sweep(values, rows)
        value, kernel = blank(values, rows)
        _cvar(values, rows, per_row(self.alpha, rows), *ranks(values), value, kernel)
        return WorstCase(value, rows.indptr, rows.indices, kernel)
