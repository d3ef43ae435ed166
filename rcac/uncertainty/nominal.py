"""No uncertainty: the worst case is pᵀV."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, expectation, rowwise
from rcac.uncertainty.vectorised import compiling_pays, expectations


@rowwise
def _compiled(values, indptr, indices, data):
    K, M = len(values), len(indptr) - 1
    value = np.empty((K, M))
    for m in prange(M):
        lo, hi = indptr[m], indptr[m + 1]
        for k in range(K):  # while the row is at hand
            value[k, m] = expectation(values[k], indices[lo:hi], data[lo:hi])
    return value


@dataclass(frozen=True)
class Nominal(Uncertainty):
    """The nominal kernel alone.

    Examples
    --------
    >>> from rcac.uncertainty import Nominal
    >>> expectation, q = Nominal().worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.7
    """

    smooth = True

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        value = _compiled(values, rows) if compiling_pays(values, rows) else expectations(values, rows)
        return WorstCase(value, rows.indptr, rows.indices, np.broadcast_to(rows.data, (len(values), len(rows.data))))
