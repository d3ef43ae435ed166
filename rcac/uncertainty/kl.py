"""Kullback-Leibler sets. Both worst cases are exponential tilts of the nominal row,

    q_β ∝ p · exp(β V),      β = 1/θ,

    ball     max { qᵀV : KL(q‖p) ≤ r }           β such that KL(q_β‖p) = r; all mass on the top of the support
                                                 once r ≥ −log p(top)
    penalty  max  qᵀV − θ KL(q‖p) = θ log E_p exp(V/θ)

With u = V − V(c) for a state c:  Z = E_p e^{βu},  m = E_q u,  KL(q_β‖p) = β m − log Z,  d KL/dβ = β Var_q(u).
√KL is nearly linear in β (exactly so for Gaussian V), so Newton runs on √KL(β) = √r, inside a bracket.

An error ε of KL is one of ε/β in qᵀV. So log Z is computed as log1p(E_p expm1(βu)) where it is small, and c is the state
with the most mass under q_β: then m and log Z are as small as they can be, and nothing overflows or vanishes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty import kl_compiled
from rcac.uncertainty.base import Uncertainty, WorstCase, blank, check_radius, per_row, threading_pays
from rcac.uncertainty.kl_compiled import CARE, CLOSE, FAR, MAX_STEPS, TIE
from rcac.uncertainty.vectorised import (
    compiling_pays,
    expectations,
    owners,
    row_maxima,
    row_minima,
    row_sums,
)

TINY, GAUSSIAN = 1e-16, 1e-8  # radii, and β in units of 1/span, where √KL is linear to rounding
CHUNK = 1 << 20  # entries × values that are held in memory at once


class _Tilt(NamedTuple):
    """Rows tilted by β."""

    weights: np.ndarray  # (K, nnz) p e^{βu}, up to a factor for each row
    total: np.ndarray  # (K, M) their sum
    centred: np.ndarray  # (K, nnz) u − m
    mean: np.ndarray  # (K, M) m, measured from the top
    variance: np.ndarray  # (K, M)
    divergence: np.ndarray  # (K, M) KL


def _tilt(u: np.ndarray, beta: np.ndarray, rows: Rows, owner: np.ndarray) -> _Tilt:
    """u (K, nnz) is measured from the top of each row, β is (K, M)."""
    p = rows.data
    level = np.log(p) + beta[:, owner] * u
    heaviest = level == row_maxima(level, rows)[:, owner]
    at = row_maxima(np.where(heaviest, u, -np.inf), rows)
    from_there = u - at[:, owner]
    exponent = beta[:, owner] * from_there
    weights, grown = p * np.exp(np.minimum(exponent, 700.0)), p * np.expm1(np.minimum(exponent, 700.0))
    if (exponent > 700.0).any():  # p is so small that their product is not
        large = np.exp(np.log(p) + exponent)
        weights, grown = (np.where(exponent > 700.0, large, entries) for entries in (weights, grown))
    total, excess = row_sums(weights, rows), row_sums(grown, rows)
    small = np.abs(excess) < 0.5
    log_z = np.where(small, np.log1p(np.where(small, excess, 0.0)), np.log(total))
    mean = row_sums(weights * from_there, rows) / total
    centred = from_there - mean[:, owner]
    variance = row_sums(weights * centred * centred, rows) / total
    return _Tilt(weights, total, centred, at + mean, variance, beta * mean - log_z)


class _Rows(NamedTuple):
    """Values in each row."""

    owner: np.ndarray  # (nnz,)
    top: np.ndarray  # (K, M)
    span: np.ndarray  # (K, M)
    u: np.ndarray  # (K, nnz) (V − top)/span


def _measured(values: np.ndarray, rows: Rows) -> _Rows:
    owner, x = owners(rows), values[:, rows.indices]
    top, low = row_maxima(x, rows), row_minima(x, rows)
    span = top - low
    u = (x - top[:, owner]) / np.where(span > 0, span, 1.0)[:, owner]
    return _Rows(owner, top, span, np.where(u > -TIE, 0.0, u))


def _ball(values: np.ndarray, rows: Rows, radius: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, ...]:
    """Worst-case expectations (K, M), kernels (K, nnz) and β (K, M), from a first guess of β (0: none)."""
    owner, top, span, u = _measured(values, rows)
    on_top = np.where(u == 0, rows.data, 0.0)
    at_top, rest = row_sums(on_top, rows), row_sums(rows.data - on_top, rows)
    largest = -np.where(rest < 0.5, np.log1p(-np.minimum(rest, 0.5)), np.log(at_top))
    still, full = (span == 0) | (radius == 0), radius >= largest
    root, done = np.sqrt(radius), still | full
    unknown = ~done & ~(beta > 0) | (radius < TINY)
    if unknown.any():
        variance = _tilt(u, np.zeros_like(top), rows, owner).variance
        guess = np.where(variance > 0, np.sqrt(2 * radius) / np.sqrt(np.where(variance > 0, variance, 1.0)), 1.0)
        done |= (radius < TINY) & (guess < GAUSSIAN)
        beta = np.where(unknown, guess, beta)
    beta = np.where(still | full, 0.0, beta)
    lo, hi, change = np.zeros_like(beta), np.full_like(beta, np.inf), np.zeros_like(beta)
    for _ in range(MAX_STEPS):
        tilted = _tilt(u, beta, rows, owner)
        reached = np.sqrt(np.maximum(tilted.divergence, 0.0))
        distance, slope = reached - root, beta * tilted.variance / (2 * np.maximum(reached, 1e-150))
        step = np.where(slope > 0, beta - distance / np.where(slope > 0, slope, 1.0), 0.0)
        near = (np.abs(distance) <= CLOSE * root) & (np.abs(step - beta) <= CLOSE * beta)
        change = np.where(near & ~done, step - beta, change)
        lo, hi = np.where(distance > 0, lo, beta), np.where(distance > 0, beta, hi)
        done |= near | ((hi < np.inf) & (hi - lo <= 4e-16 * hi)) | ((tilted.variance == 0) & (distance <= 0))
        if done.all():
            break
        lower = np.where(hi > FAR, np.sqrt(np.where(hi < np.inf, hi, 1.0)), 0.1 * hi)
        between = np.where(lo > 0, np.sqrt(lo) * np.sqrt(np.where(hi < np.inf, hi, 1.0)), lower)
        step = np.where((lo < step) & (step < hi), step, np.where(hi < np.inf, between, 2 * beta))
        beta = np.where(done, beta, step)
    factor = (1.0 + change[:, owner] * tilted.centred) / tilted.total[:, owner]
    value = top + span * (tilted.mean + change * tilted.variance)
    value = np.where(still, expectations(values, rows), np.where(full, top, value))
    kernel = np.where(full[:, owner], on_top / at_top[:, owner], tilted.weights * factor)
    return value, np.where(still[:, owner], rows.data, kernel), beta + change


def _penalty(values: np.ndarray, rows: Rows, temperature: float, linear: bool) -> tuple[np.ndarray, np.ndarray]:
    x, owner = values[:, rows.indices], owners(rows)
    top = row_maxima(x, rows)
    exponent = (x - top[:, owner]) / temperature
    weights, excess = rows.data * np.exp(exponent), row_sums(rows.data * np.expm1(exponent), rows)
    total = row_sums(weights, rows)
    small = excess > -0.5
    kernel = weights / total[:, owner]
    if linear:
        return row_sums(kernel * x, rows), kernel
    return top + temperature * np.where(small, np.log1p(np.where(small, excess, 0.0)), np.log(total)), kernel


@dataclass(frozen=True)
class KLBall(Uncertainty):
    """All q with KL(q‖p) ≤ radius; they share the support of p. `radius` is a number or (S, A).

    Parameters
    ----------
    radius : float or array (S, A)
        The largest divergence of a row, in nats; 0 is the nominal model.

    Examples
    --------
    >>> from rcac.uncertainty import KLBall
    >>> expectation, q = KLBall(0.05).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.9529
    """

    radius: float | np.ndarray
    tolerance = 1e-12
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        # memory: β of each (value, row) in units of the row's span
        shape, radius = (len(values), rows.count), per_row(self.radius, rows)
        beta = memory.copy() if memory is not None and memory.shape == shape else np.zeros(shape)
        if not compiling_pays(values, rows):
            value, kernel, beta = _ball(values, rows, radius, beta)
            return WorstCase(value, rows.indptr, rows.indices, kernel, beta)
        value, tilts = np.empty(shape), np.empty((*shape, 5))
        large = threading_pays(values, rows)  # then its kernels are not written out: what is asked for is seldom they
        kernel = np.zeros((len(values), 0 if large else len(rows.data)))
        kl_compiled.ball(values, rows, radius, beta, value, tilts, kernel)
        tilted = kl_compiled.Tilted(
            value, rows.indptr, rows.indices, None if large else kernel, beta, values=values, rows=rows, tilts=tilts
        )
        careful = np.flatnonzero((beta == CARE).any(axis=0))
        if not len(careful):
            return tilted if large else WorstCase(value, rows.indptr, rows.indices, kernel, beta)
        kernel = tilted.data
        for some in np.array_split(careful, 1 + len(values) * len(rows.data) // CHUNK):
            value[:, some], part, beta[:, some] = _ball(
                values, rows.take(some), radius[some], np.zeros((len(values), len(some)))
            )
            kernel[:, rows.places(some)] = part
        return WorstCase(value, rows.indptr, rows.indices, kernel, beta)


@dataclass(frozen=True)
class KLPenalty(Uncertainty):
    """Every q, at the price θ·KL(q‖p).

    `value="soft"` pays the price: θ log E exp(V/θ), a contraction under γ, with exact gradients. `value="linear"`
    returns qᵀV of the same tilt, as the paper's evaluator does: not a non-expansion when V varies by more than θ
    within a row, its gradient d·Q/(1−γ) is approximate, and evaluation may fail to settle (it says so).

    Parameters
    ----------
    temperature : float
        θ: the larger, the nearer to the nominal model.
    value : "soft" or "linear"
        What an expectation is, as said above.

    Examples
    --------
    >>> from rcac.uncertainty import KLPenalty
    >>> expectation, q = KLPenalty(2.0).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.8613
    """

    temperature: float
    value: str = "soft"
    smooth = True

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

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        linear = self.value == "linear"
        if compiling_pays(values, rows):
            value, kernel = blank(values, rows)
            kl_compiled.penalty(values, rows, self.temperature, linear, value, kernel)
        else:
            value, kernel = _penalty(values, rows, self.temperature, linear)
        return WorstCase(value, rows.indptr, rows.indices, kernel)
