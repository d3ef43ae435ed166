"""Total variation:  max { qᵀV : ½‖q − p‖₁ ≤ r }  moves mass r from the lowest values to the highest one.

Free, the highest is over all states; within the support, over the states that p reaches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_flag, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.sorting import ascending, ranks
from rcac.uncertainty.vectorised import compiling_pays, expectations, padded


@rowwise
def _compiled(values, indptr, indices, data, radius, order, rank, free, value, states, kernel):
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
                part = min(q[j], r - moved)
                if part <= 0.0 or gain <= 0.0:
                    break
                q[j] -= part
                moved += part
                total += part * gain
        states[k, start + hi - lo] = top
        kernel[k, start + hi - lo] = moved
        value[k, m] = total


def _vectorised(
    values: np.ndarray, rows: Rows, radius: np.ndarray, free: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = padded(rows)
    x = np.where(table.real, values[:, table.states], np.inf)  # (K, M, L)
    reached = np.where(table.real, x, -np.inf)
    last = np.take_along_axis(np.broadcast_to(table.states, x.shape), reached.argmax(axis=-1)[..., None], -1)[..., 0]
    top = np.broadcast_to(values.argmax(axis=1)[:, None], last.shape) if free else last
    best = np.take_along_axis(values, top, axis=1)
    order = np.argsort(x, axis=-1, kind="stable")
    up = np.take_along_axis(x, order, -1)
    p = np.take_along_axis(np.broadcast_to(table.mass, x.shape), order, -1)
    gain = np.maximum(best[..., None] - up, 0.0)  # 0 for what is filled up
    before = np.zeros_like(p)
    np.cumsum(p[..., :-1], axis=-1, out=before[..., 1:])
    part = np.where(gain > 0, np.clip(radius[:, None] - before, 0.0, p), 0.0)
    moved = np.empty_like(part)
    np.put_along_axis(moved, order, part, -1)
    kernel = np.concatenate([table.mass - moved, part.sum(axis=-1)[..., None]], axis=-1)
    states = np.concatenate([np.broadcast_to(table.states, x.shape), top[..., None]], axis=-1)
    real = np.concatenate([table.real, np.ones((rows.count, 1), bool)], axis=-1)
    value = expectations(values, rows) + (part * gain).sum(axis=-1)
    return value, states[:, real].astype(np.int32), kernel[:, real]


@dataclass(frozen=True)
class TotalVariation(Uncertainty):
    """All q with ½‖q − p‖₁ ≤ radius (a number or (S, A)); `within_support` keeps q where p is positive."""

    radius: float | np.ndarray
    within_support: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        check_flag("within_support", self.within_support)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius, free = per_row(self.radius, rows), not self.within_support
        if compiling_pays(values, rows):
            value, kernel = blank(values, rows, extra=1)
            states = np.empty(kernel.shape, np.int32)
            _compiled(values, rows, radius, *ranks(values), free, value, states, kernel)
        else:
            value, states, kernel = _vectorised(values, rows, radius, free)
        return WorstCase(value, rows.indptr + np.arange(rows.count + 1), states, kernel)
