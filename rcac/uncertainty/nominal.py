"""No uncertainty: the worst case is pᵀV."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, Worst, expectation, rowwise


@rowwise
def _nominal(values, indptr, indices, data):
    K, M = len(values), len(indptr) - 1
    value = np.empty((K, M))
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        value[k, m] = expectation(values[k], indices[lo:hi], data[lo:hi])
    return value


@dataclass(frozen=True)
class Nominal(Uncertainty):
    """The nominal kernel alone."""

    smooth = True

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        value = _nominal(values, rows)
        return Worst(value, rows.indptr, rows.indices, np.broadcast_to(rows.data, (len(values), len(rows.data))))
