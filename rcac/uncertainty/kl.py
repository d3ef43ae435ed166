"""Kullback-Leibler sets. Both worst cases are exponential tilts of the nominal row,

    q_β ∝ p · exp(β V),      β = 1/θ,

    ball     max { qᵀV : KL(q‖p) ≤ r }           β such that KL(q_β‖p) = r; all mass on the top of the support
                                                 once r ≥ −log p(top)
    penalty  max  qᵀV − θ KL(q‖p) = θ log E_p exp(V/θ)

With u = V − max V over the support:  Z = E_p e^{βu},  m = E_q u,  KL(q_β‖p) = β m − log Z,  d KL/dβ = β Var_q(u).
√KL is nearly linear in β (exactly so for Gaussian V), so Newton runs on √KL(β) = √r, inside a bracket.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, Worst, blank, check_radius, expectation, per_row, rowwise

# exp(x) for x ≤ 0, in loops that the compiler turns into vector instructions (libm's is called one by one):
# x = k ln2 + f, |f| ≤ ln2/2; e^f by its Taylor polynomial; 2^k through the exponent's bits.
_LOG2E, _LN2_HI, _LN2_LO = 1.4426950408889634, 0.693147180369123816490, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5·2^52: adding it rounds to an integer, kept in the low bits
_MAX_STEPS = 200
_TIE = 1e-15  # values this close to the top, relative to the span, are the top
_BLOCK = 32  # rows that share their scratch memory
_CLOSE = 1e-6  # relative: the square of it is what a first-order correction leaves


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _exp(scale, x, out, power, bits):
    """out = exp(scale·x) for scale·x ≤ 0 (at least e^−700); `power` is scratch, and `bits` the same memory as integers."""
    for i in range(len(x)):
        a = scale * x[i]
        a = a if a > -700.0 else -700.0  # unlike max(), this has a vector instruction
        shifted = a * _LOG2E + _ROUND
        k = shifted - _ROUND
        f = (a - k * _LN2_HI) - k * _LN2_LO
        poly = 1.0 / 479001600.0
        poly = poly * f + 1.0 / 39916800.0
        poly = poly * f + 1.0 / 3628800.0
        poly = poly * f + 1.0 / 362880.0
        poly = poly * f + 1.0 / 40320.0
        poly = poly * f + 1.0 / 5040.0
        poly = poly * f + 1.0 / 720.0
        poly = poly * f + 1.0 / 120.0
        poly = poly * f + 1.0 / 24.0
        poly = poly * f + 1.0 / 6.0
        poly = poly * f + 0.5
        poly = poly * f + 1.0
        power[i] = shifted
        out[i] = poly * f + 1.0
    for i in range(len(x)):
        bits[i] = (bits[i] + 1023) << 52
    for i in range(len(x)):
        out[i] *= power[i]


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _moments(p, u, e):
    """Z, Σ p u e, Σ p u² e."""
    z, first, second = 0.0, 0.0, 0.0
    for j in range(len(p)):
        w = p[j] * e[j]
        z += w
        first += w * u[j]
        second += w * u[j] * u[j]
    return z, first, second


@njit(cache=True, error_model="numpy")
def _tilt(p, u, r, beta, e, power, bits):
    """Find β with KL(q_β‖p) = r, from `beta` (0: from the Gaussian guess); leaves exp(βu) in e. Returns β, Z, m and the
    last Newton correction Δβ, which is small enough to be applied to first order: q_{β+Δβ} = q_β (1 + Δβ (u − m))."""
    root, lo, hi = np.sqrt(r), 0.0, np.inf
    if not beta > 0.0:
        e[:] = 1.0
        z, first, second = _moments(p, u, e)
        variance = second / z - (first / z) ** 2
        beta = np.sqrt(2.0 * r / variance) if variance > 0.0 else -1.0 / np.min(u)
    for _ in range(_MAX_STEPS):
        _exp(beta, u, e, power, bits)
        z, first, second = _moments(p, u, e)
        mean = first / z
        variance = max(second / z - mean * mean, 0.0)
        kl = beta * mean - np.log(z)
        distance = np.sqrt(max(kl, 0.0)) - root
        slope = beta * variance / (2.0 * np.sqrt(max(kl, 1e-300)))
        step = beta - distance / slope if slope > 0.0 else 0.0
        if abs(distance) <= _CLOSE * root and abs(step - beta) <= _CLOSE * beta:
            return beta, z, mean, step - beta, variance
        if distance > 0.0:
            hi = beta
        else:
            lo = beta
        if hi < np.inf and hi - lo <= 4e-16 * hi:  # nothing left to gain at this precision
            break
        if not lo < step < hi:
            if hi == np.inf:
                step = 2.0 * beta
            elif lo > 0.0:
                step = np.sqrt(lo) * np.sqrt(hi)
            else:
                step = 0.1 * hi
        beta = step
    return beta, z, mean, 0.0, 0.0


@njit(cache=True, error_model="numpy", fastmath=True)
def _gather(v, indices, u):
    """u = v[indices]; returns the largest and the smallest."""
    top = low = v[indices[0]]
    for j in range(len(u)):
        x = v[indices[j]]
        u[j] = x
        top = x if x > top else top
        low = x if x < low else low
    return top, low


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _rescale(u, p, top, span):
    """u ← (u − top)/span ∈ [−1, 0], so that no square overflows; returns the mass at the top."""
    at_top, factor = 0.0, 1.0 / span
    if factor == np.inf:  # a span that has no reciprocal
        factor = 1.0
        for j in range(len(u)):
            u[j] = (u[j] - top) / span
        top = 0.0
    for j in range(len(u)):
        x = (u[j] - top) * factor
        tied = x > -_TIE
        u[j] = 0.0 if tied else x
        at_top += p[j] if tied else 0.0
    return at_top


@rowwise
def _ball(values, indptr, indices, data, radius, beta, value, kernel):
    K, M, longest = len(values), len(indptr) - 1, 0
    for m in range(M):
        longest = max(longest, indptr[m + 1] - indptr[m])
    for block in prange((K * M + _BLOCK - 1) // _BLOCK):
        scratch_u, scratch_e, scratch_power = np.empty(longest), np.empty(longest), np.empty(longest)
        scratch_bits = scratch_power.view(np.int64)
        for i in range(block * _BLOCK, min((block + 1) * _BLOCK, K * M)):
            k, m = i // M, i % M
            lo, n = indptr[m], indptr[m + 1] - indptr[m]
            p, q, v, r = data[lo : lo + n], kernel[k, lo : lo + n], values[k], radius[m]
            u, e = scratch_u[:n], scratch_e[:n]
            top, low = _gather(v, indices[lo : lo + n], u)
            if r == 0.0 or top == low:
                q[:] = p
                value[k, m] = expectation(v, indices[lo : lo + n], p)
                continue
            at_top = _rescale(u, p, top, top - low)
            if r >= -np.log(at_top):
                for j in range(n):
                    q[j] = p[j] / at_top if u[j] == 0.0 else 0.0
                value[k, m] = top
                continue
            found, z, mean, change, variance = _tilt(p, u, r, beta[k, m], e, scratch_power[:n], scratch_bits[:n])
            beta[k, m] = found + change
            constant, slope = (1.0 - change * mean) / z, change / z
            for j in range(n):
                q[j] = p[j] * e[j] * (constant + slope * u[j])
            value[k, m] = top + (top - low) * (mean + change * variance)


@rowwise
def _penalty(values, indptr, indices, data, theta, linear, value, kernel):
    K, M = len(values), len(indptr) - 1
    tops, excess = np.empty(K), np.empty_like(values)
    for k in range(K):
        tops[k] = np.max(values[k])
        for s in range(values.shape[1]):
            excess[k, s] = np.expm1((values[k, s] - tops[k]) / theta)
    for i in prange(K * M):
        k, m = i // M, i % M
        lo, hi = indptr[m], indptr[m + 1]
        p, q, v = data[lo:hi], kernel[k, lo:hi], values[k]
        # one shift for all rows: log E e^{u/θ} = log1p(E expm1(u/θ)), exact for large θ too
        shifted, top = expectation(excess[k], indices[lo:hi], p), tops[k]
        if shifted > -0.9:
            log_z, scale = np.log1p(shifted), 1.0 / (1.0 + shifted)
            for j in range(hi - lo):
                q[j] = p[j] * ((1.0 + excess[k, indices[lo + j]]) * scale)
        else:  # this row does not reach the top: shift by its own
            top, z = -np.inf, 0.0
            for j in range(lo, hi):
                top = max(top, v[indices[j]])
            for j in range(hi - lo):
                q[j] = p[j] * np.exp((v[indices[lo + j]] - top) / theta)
                z += q[j]
            for j in range(hi - lo):
                q[j] /= z
            log_z = np.log(z)
        value[k, m] = expectation(v, indices[lo:hi], q) if linear else top + theta * log_z


@dataclass(frozen=True)
class KLBall(Uncertainty):
    """All q with KL(q‖p) ≤ radius; they share the support of p. `radius` is a number or (S, A)."""

    radius: float | np.ndarray
    tolerance = 1e-11

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        # memory: β of each (value, row) in units of the row's span
        shape = (len(values), rows.count)
        beta = memory.copy() if memory is not None and memory.shape == shape else np.zeros(shape)
        value, kernel = blank(values, rows)
        _ball(values, rows, per_row(self.radius, rows), beta, value, kernel)
        return Worst(value, rows.indptr, rows.indices, kernel, beta)


@dataclass(frozen=True)
class KLPenalty(Uncertainty):
    """Every q, at the price θ·KL(q‖p).

    `value="soft"` pays the price: θ log E exp(V/θ), a contraction under γ, with exact gradients. `value="linear"`
    returns qᵀV of the same tilt, as the paper's evaluator does: not a non-expansion when V varies by more than θ
    within a row, its gradient d·Q/(1−γ) is approximate, and evaluation may fail to settle (it says so).
    """

    temperature: float | np.ndarray
    value: str = "soft"

    def __post_init__(self) -> None:
        try:
            theta = float(self.temperature)
        except (TypeError, ValueError):
            theta = np.nan
        if not 0 < theta < np.inf:
            raise InputError(f"temperature: {self.temperature} given, a positive finite number expected")
        if self.value not in ("soft", "linear"):
            raise InputError(f"value: {self.value!r} given, 'soft' or 'linear' expected")
        object.__setattr__(self, "temperature", theta)

    @property
    def modulus(self) -> float:  # type: ignore[override]
        return 1.0 if self.value == "soft" else np.inf

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        value, kernel = blank(values, rows)
        _penalty(values, rows, self.temperature, self.value == "linear", value, kernel)
        return Worst(value, rows.indptr, rows.indices, kernel)
