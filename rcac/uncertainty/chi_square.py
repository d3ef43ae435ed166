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
from numba import njit, prange

from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.sorting import ascending, ranks
from rcac.uncertainty.vectorised import compiling_pays, expectations, padded

TINY = 1e-290  # a standard deviation below it counts as zero
SAFE = (
    1e-4  # a standard deviation in units of the span, a mass or a share of the radius that leaves all digits but four
)
LONG = 24  # states of a row from which on its threshold is looked for


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _above(p, x, eta):
    """Of the states above η: how many, their mass, their mean; and the mass of the others."""
    count, mass, first, below = 0, 0.0, 0.0, 0.0
    for j in range(len(p)):
        w = p[j] if x[j] > eta else 0.0
        count += 1 if x[j] > eta else 0
        mass += w
        first += w * x[j]
        below += p[j] - w
    return count, mass, first / mass, below


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _variance(p, x, eta, mean):
    """The same states' mean square distance from their mean, times their mass."""
    total = 0.0
    for j in range(len(p)):
        distance = x[j] - mean
        total += p[j] * distance * distance if x[j] > eta else 0.0
    return total


@njit(cache=True, error_model="numpy")
def _threshold(p, x, r):
    """μ, s and ρ of the states above η, for values x in [−1, 0]: from all states on, those below the η that would be right for
    them are left out. While states below η count, their masses at V < η make η too small, so it rises to the right one from
    below. s = 0 where this is not precise: tiny masses are for the walk."""
    eta, last = -np.inf, -1
    for _ in range(len(p)):
        count, mass, mean, below = _above(p, x, eta)
        square = _variance(p, x, eta, mean) / mass
        room = r * (mass / (mass + below)) - below / (mass + below)
        if not (mass > SAFE * below and square > SAFE * SAFE and room > SAFE * r):
            return mean, 0.0, room
        std, following = np.sqrt(square), mean - np.sqrt(square / room)
        if count == last or following < -1.0:
            return mean, std, room
        eta, last = following, count
    return mean, 0.0, room


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _bend(p, x, mean, slope, q):
    """q ∝ p (1 + slope·(x − μ))₊."""
    total = 0.0
    for j in range(len(p)):
        factor = 1.0 + slope * (x[j] - mean)
        q[j] = p[j] * factor if factor > 0.0 else 0.0
        total += q[j]
    scale = 1.0 / total
    for j in range(len(p)):
        q[j] *= scale


@njit(cache=True, error_model="numpy")
def _walk(p, own, v, r, up, q):
    """Down the sorted values of a row, state by state; returns the worst case."""
    n, top, low = len(p), v[own[up[-1]]], v[own[up[0]]]
    below = 0.0
    for j in range(n):
        q[n - 1 - j] = below  # mass of the j lowest; q is written anew in the end
        below += p[up[j]]
    span, mass, distance, std, room, lowest = top - low, 0.0, 0.0, 0.0, r, top
    for taken in range(n):
        j = up[n - 1 - taken]
        x, below = v[own[j]], q[taken]
        further, before = distance + (lowest - x) / span, mass
        mass, lowest = mass + p[j], x
        old, new = before / mass, p[j] / mass
        distance, std = further * old, np.hypot(std, further * np.sqrt(new)) * np.sqrt(old)
        room = r * (mass / (mass + below)) - below / (mass + below)
        if taken < n - 1:
            step = (x - v[own[up[n - 2 - taken]]]) / span
            if room >= 0.0 and step > 0.0 and (distance + step) * np.sqrt(room) >= std:
                break
    slope = np.sqrt(room) / std if std > 0.0 else 0.0  # 1/(μ − η)
    total = 0.0
    for j in range(n):
        x = v[own[j]]
        q[j] = p[j] * max(0.0, 1.0 + ((x - lowest) / span - distance) * slope) if x >= lowest else 0.0
        total += q[j]
    for j in range(n):
        q[j] /= total
    return min(top, lowest + span * (distance + std * np.sqrt(room)))


@rowwise
def _compiled(values, indptr, indices, data, radius, order, rank, long, value, kernel):
    """Rows of at least `long` states look for their threshold, where that is precise; the others walk."""
    K, M, S = len(values), len(indptr) - 1, values.shape[1]
    whole = np.empty_like(values)
    for k in range(K):
        top, low = values[k, order[k, -1]], values[k, order[k, 0]]
        whole[k] = (values[k] - top) / (top - low)
    for m in prange(M):
        lo, hi, r = indptr[m], indptr[m + 1], radius[m]
        p, own = data[lo:hi], indices[lo:hi]
        for k in range(K):
            v, q = values[k], kernel[k, lo:hi]
            top, low, x = v[order[k, -1]], v[order[k, 0]], whole[k]
            if hi - lo < S:
                x = v[own]
                top, low = np.max(x), np.min(x)
                x = (x - top) / (top - low)
            if r == 0.0 or top == low:
                q[:] = p
                value[k, m] = expectation(v, own, p)
                continue
            mean, std, room = _threshold(p, x, r) if hi - lo >= long else (0.0, 0.0, 0.0)
            if std > 0.0:
                _bend(p, x, mean, np.sqrt(room) / std, q)
                value[k, m] = min(top, top + (top - low) * (mean + std * np.sqrt(room)))
            else:
                value[k, m] = _walk(p, own, v, r, ascending(order[k], rank[k], own), q)


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
    """All q with Σ (q − p)²/p ≤ radius (a number or (S, A)), on the support of p.

    Parameters
    ----------
    radius : float or array (S, A)
        The largest χ² divergence of a row.

    Examples
    --------
    >>> from rcac.uncertainty import ChiSquare
    >>> expectation, q = ChiSquare(0.2).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    1.0493
    """

    radius: float | np.ndarray
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius = per_row(self.radius, rows)
        if compiling_pays(values, rows):
            value, kernel = blank(values, rows)
            _compiled(values, rows, radius, *ranks(values), LONG, value, kernel)
        else:
            value, kernel = _vectorised(values, rows, radius)
        return WorstCase(value, rows.indptr, rows.indices, kernel)
