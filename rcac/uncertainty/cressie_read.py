"""Cressie–Read divergences, one ball for each power k:

    max { qᵀV : Σ p φ_k(q/p) ≤ r },      φ_k(t) = (t^k − kt + k − 1) / (k(k−1)),

    k = 2   ½ Σ (q−p)²/p, half of χ²        k = 1   KL(q‖p), the limit of φ_k       k = 0   KL(p‖q), the limit of φ_k
    k = ½   2 Σ (√q − √p)², Hellinger       k = −1  half of Neyman's χ²

With u = (V − top)/span over the support, every solution is a tilt  q ∝ p·w  by the power  w = (1 + (k−1)βu)₊^{1/(k−1)}
(exp(βu) at k = 1), with β such that the radius is met; all mass is at the top once r ≥ P φ(1/P) + (1−P) φ(0), P = p(top).
With Z = E_p w, m = E_q u and h = w^{2−k}:  dm/dβ = (E_p u²h − m E_p uh)/Z  and  dD/dβ = Z^{1−k} β dm/dβ.
D is nearly a power of β, so Newton runs on log D against log β, inside a bracket.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, expectation, per_row, rowwise
from rcac.uncertainty.nominal import Nominal

_TIE = 1e-15  # values this close to the top, relative to the span, are the top
_MAX_STEPS = 300
_LARGEST = 1e300  # β


@njit(cache=True, error_model="numpy")
def _at_top(top: float, k: float) -> float:
    """D of all mass on the top, which has this mass: P φ(1/P) + (1−P) φ(0)."""
    if top >= 1.0:
        return 0.0
    if k <= 0.0:
        return np.inf
    found: float = (-np.log(top) if k == 1.0 else np.expm1((1.0 - k) * np.log(top)) / (k - 1.0)) / k
    return found


@njit(cache=True, error_model="numpy")
def _tilted(p: np.ndarray, u: np.ndarray, k: float, beta: float, w: np.ndarray) -> tuple[float, float]:
    """Fills w; returns D and d log D/d log β. D comes as E_q[(t^{k−1} − 1)/(k−1)]/k, which needs no more logarithms,
    and from terms that vanish with β, so that its error does so too."""
    total, z, z1, mean, uh, uuh = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(p)):
        total += p[j]
        base = 1.0 + (k - 1.0) * beta * u[j]
        if base <= 0.0:
            w[j] = 0.0
            z1 -= p[j]
            continue
        log_w = beta * u[j] if k == 1.0 else np.log1p((k - 1.0) * beta * u[j]) / (k - 1.0)
        w1 = np.expm1(log_w)
        w[j] = 1.0 + w1 if log_w > -0.7 else np.exp(log_w)
        z += p[j] * w[j]
        z1 += p[j] * w1
        mean += p[j] * w[j] * u[j]
        uh += p[j] * w[j] / base * u[j]
        uuh += p[j] * w[j] / base * u[j] * u[j]
    mean /= z
    slope = beta * (uuh - mean * uh) / z
    log_z = np.log1p(z1 / total) if z1 > -0.5 else np.log(z / total)
    factor = np.exp((1.0 - k) * log_z)
    if abs(k) >= 0.25:
        log_k = log_z if k == 1.0 else np.expm1((k - 1.0) * log_z) / (k - 1.0)
        divergence = factor * (beta * mean - log_k) / k
    else:
        divergence = 0.0
        for j in range(len(p)):
            log_t = np.log1p((k - 1.0) * beta * u[j]) / (k - 1.0) - log_z
            divergence += p[j] / total * (log_t if k == 0.0 else np.expm1(k * log_t) / k) / (k - 1.0)
    return divergence, factor * slope * beta / divergence


@njit(cache=True, error_model="numpy")
def _solve(p: np.ndarray, u: np.ndarray, r: float, k: float, q: np.ndarray) -> None:
    """q on the boundary of the ball, but for its norm."""
    mean, variance = 0.0, 0.0
    for j in range(len(p)):
        mean += p[j] * u[j]
    for j in range(len(p)):
        variance += p[j] * (u[j] - mean) ** 2
    beta = np.sqrt(2.0 * r / variance) if variance > 0.0 else 1.0
    beta = min(beta, _LARGEST)
    low, high, grow = 0.0, np.inf, 2.0
    for _ in range(_MAX_STEPS):
        divergence, slope = _tilted(p, u, k, beta, q)
        if abs(divergence - r) <= 1e-15 * r or (beta >= _LARGEST and divergence < r):
            break
        if divergence > r:
            high = beta
        else:
            low = beta
        change = -np.log(divergence / r) / slope if divergence > 0.0 else np.nan
        following = beta * np.exp(change) if abs(change) < 700.0 else np.nan
        if not low < following < high:
            if high == np.inf:
                following, grow = min(beta * grow, _LARGEST), min(grow * grow, 1e50)
            else:
                following = np.sqrt(low) * np.sqrt(high) if low > 0.0 else 0.01 * high
        if abs(following - beta) <= 2e-16 * beta or not low < following < high:
            break
        beta = following
    for j in range(len(p)):
        q[j] *= p[j]


@rowwise
def _cressie_read(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    radius: np.ndarray,
    power: float,
    value: np.ndarray,
    kernel: np.ndarray,
) -> None:
    K, M = len(values), len(indptr) - 1
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, q, states, v, r = data[lo:hi], kernel[k, lo:hi], indices[lo:hi], values[k], radius[m]
        u = np.empty(hi - lo)
        for j in range(hi - lo):
            u[j] = v[states[j]]
        top, low = np.max(u), np.min(u)
        if r == 0.0 or top == low:
            q[:] = p
            value[k, m] = expectation(v, states, p)
            continue
        mass = 0.0
        for j in range(hi - lo):
            u[j] = (u[j] - top) / (top - low)
            u[j] = 0.0 if u[j] > -_TIE else u[j]
            mass += p[j] if u[j] == 0.0 else 0.0
        if r >= _at_top(mass, power):
            for j in range(hi - lo):
                q[j] = p[j] / mass if u[j] == 0.0 else 0.0
            value[k, m] = top
            continue
        _solve(p, u, r, power, q)
        total, mean = 0.0, 0.0
        for j in range(hi - lo):
            total += q[j]
        for j in range(hi - lo):
            q[j] /= total
            mean += q[j] * u[j]
        value[k, m] = top + (top - low) * mean


@dataclass(frozen=True)
class CressieRead(Uncertainty):
    """All q on the support of p with Σ p φ_power(q/p) ≤ radius (a number or (S, A)).

    `ChiSquare(r)` is power 2 with radius r/2, `KLBall(r)` is power 1; these have faster solvers of their own.

    Parameters
    ----------
    radius : float or array (S, A)
        The largest divergence of a row.
    power : float
        Of the family; .5 is Hellinger's.

    Examples
    --------
    >>> from rcac.uncertainty import CressieRead
    >>> expectation, q = CressieRead(0.05).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.956
    """

    radius: float | np.ndarray
    power: float = 0.5  # Hellinger
    tolerance = 1e-12
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        try:
            power = float(self.power)
        except (TypeError, ValueError):
            power = np.nan
        if not np.isfinite(power):
            raise InputError(f"power: {self.power!r} given, a finite number expected")
        object.__setattr__(self, "power", power)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        if not np.any(self.radius):
            return Nominal().sweep(values, rows)
        value, kernel = blank(values, rows)
        _cressie_read(values, rows, per_row(self.radius, rows), self.power, value, kernel)
        return WorstCase(value, rows.indptr, rows.indices, kernel)
