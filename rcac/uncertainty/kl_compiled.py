"""Exponential tilts of many long rows, compiled: see `rcac.uncertainty.kl` for the model.

Vector instructions make these loops fast, at the price of a narrower range: rows that ask for care are left to NumPy.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from rcac.problem import Rows
from rcac.uncertainty.base import (
    NEVER,
    WorstCase,
    chain_start,
    expectation,
    rowwise,
)

_LOG2E, _LN2_HI, _LN2_LO = 1.4426950408889634, 0.693147180369123816490, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5·2^52: adding it rounds to an integer, kept in the low bits
MAX_STEPS = 200
TIE = 1e-15  # values this close to the top, relative to the span, are the top
_BLOCK = 16  # rows that share their scratch memory
FAR = 1e3  # β that is too large by more than a factor: the Gaussian guess in a row with a tiny top
CLOSE = 1e-7  # relative: the square of it is what a first-order correction leaves
CARE = -1.0  # in place of β: this row is for NumPy, because
SMALL_RADIUS, SMALL_TOP = 1e-6, 1e-280  # the radius, or the mass of the top, is less than this


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _exp(x):
    """e^x for x ≤ 0 (at least e^−700), of which the compiler makes vector instructions where it stands in a loop (libm's is
    called one by one). x = k ln2 + f, |f| ≤ ln2/2; e^f by its Taylor polynomial; 2^k through the exponent's bits."""
    x = x if x > -700.0 else -700.0  # unlike max(), this has a vector instruction
    shifted = x * _LOG2E + _ROUND
    k = shifted - _ROUND
    f = (x - k * _LN2_HI) - k * _LN2_LO
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
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    return (poly * f + 1.0) * np.int64(power).view(np.float64)


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _moments(p, u, beta):
    """Σ p u^i e^{βu} for i = 0..3."""
    z, first, second, third = 0.0, 0.0, 0.0, 0.0
    for j in range(len(p)):
        x = u[j]
        w = p[j] * _exp(beta * x)
        z += w
        w *= x
        first += w
        w *= x
        second += w
        third += w * x
    return z, first, second, third


@njit(cache=True, error_model="numpy")
def _cumulants(z, first, second, third):
    """Mean, variance and third cumulant."""
    mean = first / z
    variance = max(second / z - mean * mean, 0.0)
    return mean, variance, third / z - mean * (3.0 * second / z - 2.0 * mean * mean)


@njit(cache=True, error_model="numpy")
def _guess(p, u, r):
    """β from KL ≈ β²κ₂/2 + β³κ₃/3."""
    _, variance, skew = _cumulants(*_moments(p, u, 0.0))
    if not variance > 0.0:
        return -1.0 / np.min(u)
    beta = np.sqrt(2.0 * r) / np.sqrt(variance)
    bend = beta * skew / (3.0 * variance)
    return beta / (1.0 + bend) if abs(bend) < 0.5 else beta


@njit(cache=True, error_model="numpy")
def _tilt(p, u, r, beta):
    """Find β with KL(q_β‖p) = r, from `beta` (0: no guess), by Halley's method on √KL(β) = √r. Returns β, Z, m, the last
    Newton correction Δβ, which is small enough to be applied to first order: q_{β+Δβ} = q_β (1 + Δβ (u − m)), and the
    variance."""
    root, lo, hi = np.sqrt(r), 0.0, np.inf
    if not beta > 0.0:
        beta = _guess(p, u, r)
    for _ in range(MAX_STEPS):
        z, first, second, third = _moments(p, u, beta)
        mean, variance, skew = _cumulants(z, first, second, third)
        reached = np.sqrt(max(beta * mean - np.log(z), 1e-300))
        distance, slope = reached - root, beta * variance / (2.0 * reached)
        newton = -distance / slope if slope > 0.0 else np.inf
        if abs(distance) <= CLOSE * root and abs(newton) <= CLOSE * beta:
            return beta, z, mean, newton, variance
        if distance > 0.0:
            hi = beta
        else:
            lo = beta
        if hi < np.inf and hi - lo <= 4e-16 * hi:  # nothing left to gain at this precision
            break
        # the second derivative over the first one is  1/β + κ₃/κ₂ − slope/√KL
        bend = 1.0 + 0.5 * newton * (1.0 / beta + skew / variance - slope / reached) if variance > 0.0 else 1.0
        step = beta + (newton / bend if 0.5 < bend < 2.0 else newton)
        if not lo < step < hi:
            if hi == np.inf:
                step = 2.0 * beta
            elif lo > 0.0:
                step = np.sqrt(lo) * np.sqrt(hi)
            else:
                step = np.sqrt(hi) if hi > FAR else 0.1 * hi
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
def _rescale(u, top, span):
    """u ← (u − top)/span ∈ [−1, 0], so that no square overflows; ties with the top are made exact."""
    factor = 1.0 / span
    if factor == np.inf:  # a span that has no reciprocal
        factor = 1.0
        for j in range(len(u)):
            u[j] = (u[j] - top) / span
        top = 0.0
    for j in range(len(u)):
        x = (u[j] - top) * factor
        u[j] = 0.0 if x > -TIE else x


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _top_mass(u, p):
    total = 0.0
    for j in range(len(u)):
        total += p[j] if u[j] == 0.0 else 0.0
    return total


@njit(cache=True, error_model="numpy")
def _whole(values, longest):
    """What rows that reach every state share: u (K, S), tops and lows (K,), and the only state on top (K,), −1 if it is not."""
    u, tops, lows = values.copy(), np.empty(len(values)), np.empty(len(values))
    alone = np.full(len(values), -1)
    if longest == values.shape[1]:
        for k in range(len(values)):
            tops[k], lows[k] = np.max(values[k]), np.min(values[k])
            if tops[k] > lows[k]:
                _rescale(u[k], tops[k], tops[k] - lows[k])
                if np.sum(u[k] == 0.0) == 1:
                    alone[k] = np.argmax(u[k])
    return u, tops, lows, alone


@njit(cache=True, error_model="numpy")
def _longest(indptr):
    longest = 0
    for m in range(len(indptr) - 1):
        longest = max(longest, indptr[m + 1] - indptr[m])
    return longest


@rowwise
def ball(values, indptr, indices, data, radius, beta, value, tilts, kernel):
    """Fills value (K, M), β (K, M), and how each row is tilted, `tilts` (K, M, 5); the kernel (K, nnz) too unless it has
    no columns. With u = (V − top)/span the tilted row is  q = p · e^{βu} · (constant + slope·u)."""
    K, M, S, longest, write = len(values), len(indptr) - 1, values.shape[1], _longest(indptr), kernel.shape[1] > 0
    whole, tops, lows, alone = _whole(values, longest)
    for block in prange((M + _BLOCK - 1) // _BLOCK):
        scratch = np.empty(longest)
        for m in range(block * _BLOCK, min((block + 1) * _BLOCK, M)):
            lo, n, r = indptr[m], indptr[m + 1] - indptr[m], radius[m]
            p = data[lo : lo + n]
            for k in range(K):  # while the row is at hand
                u, tilt = scratch[:n], tilts[k, m]
                if n == S:  # every state: the same u for all such rows
                    u = whole[k]
                    top, low = tops[k], lows[k]
                else:
                    top, low = _gather(values[k], indices[lo : lo + n], u)
                    if top > low:
                        _rescale(u, top, top - low)
                tilt[0], tilt[1] = top, top - low
                if r == 0.0 or top == low:
                    tilt[1], tilt[2], tilt[3], tilt[4] = 0.0, 0.0, 1.0, 0.0
                    value[k, m] = expectation(values[k], indices[lo : lo + n], p)
                else:
                    at_top = p[alone[k]] if n == S and alone[k] >= 0 else _top_mass(u, p)
                    if r < SMALL_RADIUS or at_top < SMALL_TOP:
                        beta[k, m] = CARE
                        tilt[1], tilt[2], tilt[3], tilt[4] = 0.0, 0.0, 1.0, 0.0
                        continue
                    if r >= -np.log(at_top):
                        tilt[2], tilt[3], tilt[4] = np.inf, 1.0 / at_top, 0.0
                        value[k, m] = top
                    else:
                        found, z, mean, change, variance = _tilt(p, u, r, beta[k, m])
                        beta[k, m] = found + change
                        tilt[2], tilt[3], tilt[4] = found, (1.0 - change * mean) / z, change / z
                        value[k, m] = top + (top - low) * (mean + change * variance)
                if write:
                    _add(1.0, p, u, tilt, kernel[k, lo : lo + n])


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _add(weight, p, u, tilt, out):
    """out += weight · q."""
    beta, constant, slope = tilt[2], weight * tilt[3], weight * tilt[4]
    if tilt[1] == 0.0:  # not tilted
        for j in range(len(p)):
            out[j] += weight * p[j]
    elif beta == np.inf:
        for j in range(len(p)):
            out[j] += p[j] * constant if u[j] == 0.0 else 0.0
    else:
        for j in range(len(p)):
            out[j] += p[j] * _exp(beta * u[j]) * (constant + slope * u[j])


@njit(cache=True, error_model="numpy")
def _again(v, indices, whole, tilt, u):
    """u of a row whose tilt is known, which is `whole` where the row reaches every state."""
    if len(u) == len(whole):
        return whole
    if tilt[1] > 0.0:
        _gather(v, indices, u)
        _rescale(u, tilt[0], tilt[1])
    return u


@rowwise
def _mix(values, indptr, indices, data, tilts, policy, out):
    """T (K, S, S) += Σ_a π(a|s) q(·|s,a)."""
    K, (S, A), longest = len(values), policy.shape, _longest(indptr)
    whole = _whole(values, longest)[0]
    for s in prange(S):
        scratch_u, scratch_q = np.empty(longest), np.empty(longest)
        for a in range(A):
            if policy[s, a] == 0.0:
                continue
            m = s * A + a
            lo, n = indptr[m], indptr[m + 1] - indptr[m]
            p, states = data[lo : lo + n], indices[lo : lo + n]
            for k in range(K):  # while the row is at hand
                u = _again(values[k], states, whole[k], tilts[k, m], scratch_u[:n])
                if n == S:  # every state, in order
                    _add(policy[s, a], p, u, tilts[k, m], out[k, s])
                else:
                    q = scratch_q[:n]
                    q[:] = 0.0
                    _add(policy[s, a], p, u, tilts[k, m], q)
                    for j in range(n):
                        out[k, s, states[j]] += q[j]


@rowwise
def _mix_sparsely(values, indptr, indices, data, tilts, policy, start, states, out):
    """One value's chain, T(s,·) = Σ_a π(a|s) q(·|s,a), in compressed rows."""
    (S, A), longest = policy.shape, _longest(indptr)
    whole = _whole(values, longest)[0]
    for s in prange(S):
        u, i = np.empty(longest), start[s]
        for a in range(A):
            if policy[s, a] > NEVER:
                m = s * A + a
                lo, n = indptr[m], indptr[m + 1] - indptr[m]
                own = indices[lo : lo + n]
                states[i : i + n] = own
                out[i : i + n] = 0.0
                tilted = _again(values[0], own, whole[0], tilts[m], u[:n])
                _add(policy[s, a], data[lo : lo + n], tilted, tilts[m], out[i : i + n])
                i += n


@rowwise
def _write(values, indptr, indices, data, tilts, kernel):
    """The tilted rows, kernel (K, nnz) += q."""
    K, M, longest = len(values), len(indptr) - 1, _longest(indptr)
    whole = _whole(values, longest)[0]
    for m in prange(M):
        lo, n = indptr[m], indptr[m + 1] - indptr[m]
        scratch, p, states = np.empty(n), data[lo : lo + n], indices[lo : lo + n]
        for k in range(K):
            u = _again(values[k], states, whole[k], tilts[k, m], scratch)
            _add(1.0, p, u, tilts[k, m], kernel[k, lo : lo + n])


@rowwise
def penalty(values, indptr, indices, data, theta, linear, value, kernel):
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Tilted(WorstCase):
    """Worst kernels that are remembered by how their rows are tilted."""

    values: np.ndarray  # (K, S)
    rows: Rows
    tilts: np.ndarray  # (K, M, 5)

    @cached_property
    def data(self) -> np.ndarray:
        kernel = np.zeros((len(self.values), len(self.rows.data)))
        _write(self.values, self.rows, self.tilts, kernel)
        return kernel

    def chain(self, k: int, policy: np.ndarray) -> sp.csr_array:
        start = chain_start(policy, self.indptr)
        found = np.empty(start[-1], np.int32), np.empty(start[-1])
        _mix_sparsely(self.values[k : k + 1], self.rows, self.tilts[k], policy, start, *found)
        return sp.csr_array((found[1], found[0], start), shape=(len(policy), len(policy)))

    def mixed(self, policy: np.ndarray) -> np.ndarray:
        chains = np.zeros((len(self.values), len(policy), len(policy)))
        _mix(self.values, self.rows, self.tilts, policy, chains)
        return chains
