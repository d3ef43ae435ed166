"""χ² ball:  max { qᵀV : Σ (q − p)²/p ≤ r,  q ≥ 0 }.

The solution is q = p·(V − η)₊ / E_p(V − η)₊. If the states above η have mass A, mean μ and variance s² under p
restricted to them, the radius is met when

    μ − η = s / √ρ,      and then      qᵀV = μ + s·√ρ,      with  ρ = (1+r)A − 1 = rA − (1 − A),

so one walk down the sorted values, updating (A, μ, s²), finds the threshold without iteration. Masses may be as small as
numbers get, so nothing is computed as a difference of nearly equal numbers: with the lowest value x reached so far, the
walk keeps D = μ − x, and 1 − A is added up from below. A state of mass p one step δ further down changes them to

    D ← (D + δ)·A/(A+p),      s² ← (s² + (D + δ)²·p/(A+p))·A/(A+p),

the latter without squares, which might vanish.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.sorting import ascending, ranks
from rcac.uncertainty.vectorised import compiling_pays, expectations, padded

TINY = 1e-290  # a standard deviation below it counts as zero


@rowwise
def _compiled(values, indptr, indices, data, radius, order, rank, value, kernel):
    K, M = len(values), len(indptr) - 1
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, q, v, r, n = data[lo:hi], kernel[k, lo:hi], values[k], radius[m], hi - lo
        up = ascending(order[k], rank[k], indices[lo:hi])
        top, low = v[indices[lo + up[-1]]], v[indices[lo + up[0]]]
        if r == 0.0 or top == low:
            q[:] = p
            value[k, m] = expectation(v, indices[lo:hi], p)
            continue
        below = 0.0
        for j in range(n):
            q[n - 1 - j] = below  # mass of the j lowest; q is written anew in the end
            below += p[up[j]]
        span, mass, distance, std, room, lowest = top - low, 0.0, 0.0, 0.0, r, top
        for taken in range(n):
            j = up[n - 1 - taken]
            x, below = v[indices[lo + j]], q[taken]
            further, before = distance + (lowest - x) / span, mass
            mass, lowest = mass + p[j], x
            old, new = before / mass, p[j] / mass
            distance, std = further * old, np.hypot(std, further * np.sqrt(new)) * np.sqrt(old)
            room = r * (mass / (mass + below)) - below / (mass + below)
            if taken < n - 1:
                step = (x - v[indices[lo + up[n - 2 - taken]]]) / span
                if room >= 0.0 and step > 0.0 and (distance + step) * np.sqrt(room) >= std:
                    break
        slope = np.sqrt(room) / std if std > 0.0 else 0.0  # 1/(μ − η)
        total = 0.0
        for j in range(n):
            x = v[indices[lo + j]]
            q[j] = p[j] * max(0.0, 1.0 + ((x - lowest) / span - distance) * slope) if x >= lowest else 0.0
            total += q[j]
        for j in range(n):
            q[j] /= total
        value[k, m] = min(top, lowest + span * (distance + std * np.sqrt(room)))


def _vectorised(values: np.ndarray, rows: Rows, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same walk, all rows together."""
    table = padded(rows)
    x = values[:, table.states]  # (K, M, L)
    low, top = np.where(table.real, x, np.inf).min(axis=-1), np.where(table.real, x, -np.inf).max(axis=-1)
    x = np.where(table.real, x, low[..., None])
    order = np.argsort(-x, axis=-1, kind="stable")
    down, p = np.take_along_axis(x, order, -1), np.take_along_axis(np.broadcast_to(table.mass, x.shape), order, -1)
    below = np.zeros_like(p)
    below[..., :-1] = np.cumsum(p[..., :0:-1], axis=-1)[..., ::-1]
    span = np.where(top > low, top - low, 1.0)
    mass, distance, std, lowest = p[..., 0], np.zeros_like(low), np.zeros_like(low), top
    room, walking = _room(radius, mass, below[..., 0]), np.ones(low.shape, bool)
    for taken in range(1, x.shape[-1]):
        step = (lowest - down[..., taken]) / span
        walking &= ~((room >= 0) & (step > 0) & ((distance + step) * np.sqrt(np.maximum(room, 0.0)) >= std))
        if not walking.any():
            break
        further, total = distance + step, mass + p[..., taken]
        old, new = mass / total, p[..., taken] / total
        distance = np.where(walking, further * old, distance)
        std = np.where(walking, np.hypot(std, further * np.sqrt(new)) * np.sqrt(old), std)
        mass, lowest = np.where(walking, total, mass), np.where(walking, down[..., taken], lowest)
        room = np.where(walking, _room(radius, mass, below[..., taken]), room)
    root = np.sqrt(np.maximum(room, 0.0))
    spread = std > TINY  # smaller ones are zero: their inverse is not finite
    slope = np.where(spread, root / np.where(spread, std, 1.0), 0.0)  # 1/(μ − η)
    above = (x - lowest[..., None]) / span[..., None] - distance[..., None]
    q = np.where(x >= lowest[..., None], table.mass * np.maximum(0.0, 1.0 + above * slope[..., None]), 0.0)
    q /= q.sum(axis=-1, keepdims=True)
    value = np.minimum(top, lowest + span * (distance + std * root))
    still = (radius == 0) | (top == low)
    value = np.where(still, expectations(values, rows), value)
    return value, np.where(still[..., None], table.mass, q)[:, table.real]


def _room(radius: np.ndarray, mass: np.ndarray, below: np.ndarray) -> np.ndarray:
    """ρ; exactly r where no mass is left below."""
    room: np.ndarray = radius * (mass / (mass + below)) - below / (mass + below)
    return room


@dataclass(frozen=True)
class ChiSquare(Uncertainty):
    """All q with Σ (q − p)²/p ≤ radius (a number or (S, A)), on the support of p."""

    radius: float | np.ndarray
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius = per_row(self.radius, rows)
        if compiling_pays(values, rows):
            value, kernel = blank(values, rows)
            _compiled(values, rows, radius, *ranks(values), value, kernel)
        else:
            value, kernel = _vectorised(values, rows, radius)
        return WorstCase(value, rows.indptr, rows.indices, kernel)
