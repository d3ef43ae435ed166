"""Objective and constraints linearised together in one trust region.

    minimise over x   g_0ᵀx      subject to   e_n + g_nᵀx ≤ 0  (n = 1…N),     ½ xᵀHx ≤ δ

with g_n = ∇J_n and excess e_n = J_n − b_n. Everything happens in the span of H⁻¹g_0 … H⁻¹g_N; with the Gram matrix
G = [g_iᵀH⁻¹g_j] = [[q, rᵀ], [r, S]] the dual is

    max over ν ≥ 0   eᵀν − √(2δ (q + 2rᵀν + νᵀSν)),         x = −√(2δ/(…)) · H⁻¹(g_0 + Σ ν_n g_n)

and the least violation that the trust region allows is   max over μ in the simplex   eᵀμ − √(2δ μᵀSμ). When that is
positive the constraints cannot be met, and the step that attains it is taken instead (recovery). Violations are compared in
units of √S_nn, how far the region lets each J_n move.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

TINY = 1e-12
FLAT = 1e-8  # part of the gradients' squared lengths below which the Lagrangian's counts as zero


class RegionStep(NamedTuple):
    weights: np.ndarray  # (N+1,) x = −Σ weights_n H⁻¹g_n
    recovery: bool  # the constraints cannot be met within the region: violation is reduced instead


def trust_region_step(gram: np.ndarray, excess: np.ndarray, delta: float) -> RegionStep:
    """Solve the problem above: gram G (N+1, N+1), excess e (N,), region δ. Inside, each cost is counted in units of its gradient's
    length √G_nn, so that nothing depends on its own; a constraint that does not move at all is left out."""
    lengths = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    kept = np.flatnonzero((lengths > 0) | (np.arange(len(gram)) == 0))
    units = np.where(lengths[kept] > 0, lengths[kept], 1.0)
    step = _unit_step(gram[np.ix_(kept, kept)] / np.outer(units, units), excess[kept[1:] - 1] / units[1:], delta)
    weights = np.zeros(len(gram))
    weights[kept] = step.weights / units
    return RegionStep(weights, step.recovery)


def _unit_step(gram: np.ndarray, excess: np.ndarray, delta: float) -> RegionStep:
    if len(excess):
        mu = _least_violation(gram[1:, 1:], excess, delta)
        curvature = float(mu @ gram[1:, 1:] @ mu)
        if excess @ mu - np.sqrt(2 * delta * max(curvature, 0.0)) > 0 and curvature > TINY:
            return RegionStep(np.sqrt(2 * delta / curvature) * np.concatenate([[0.0], mu]), True)
    nu = _multipliers(gram, excess, delta)
    mixture = np.concatenate([[1.0], nu])
    curvature = float(mixture @ gram @ mixture)
    if curvature > FLAT * (mixture @ mixture):
        return RegionStep(np.sqrt(2 * delta / curvature) * mixture, False)
    # The objective has no slope of its own within the constraints that hold it: the shortest step that ends on these
    active = np.flatnonzero((nu > 0) | (excess > 0))
    weights, s = np.zeros(len(gram)), gram[np.ix_(active + 1, active + 1)]
    if len(active):
        shortest = np.linalg.lstsq(s, excess[active], rcond=FLAT)[0]
        weights[active + 1] = shortest * min(1.0, np.sqrt(2 * delta / max(float(shortest @ s @ shortest), TINY)))
    return RegionStep(weights, False)


def one_multiplier(q: float, r: float, s: float, excess: float, delta: float) -> float:
    """ν of the dual with one constraint, in closed form. Where the root is real,

    e = √(2δ) s u / √(q' + s u²),   u = ν + r/s,   q' = q − r²/s     ⟹     u = e √( q' / (s (2δs − e²)) )
    """
    if s <= TINY or excess**2 >= 2 * delta * s:
        return 0.0  # the constraint cannot be reached within the region (or, if violated, not met: see recovery)
    u = excess * np.sqrt(max(q - r * r / s, 0.0) / (s * (2 * delta * s - excess**2)))
    return max(0.0, u - r / s)


def _multipliers(gram: np.ndarray, excess: np.ndarray, delta: float) -> np.ndarray:
    """ν (N,) of the dual."""
    if len(excess) == 0:
        return np.zeros(0)
    q, r, s = gram[0, 0], gram[1:, 0], gram[1:, 1:]
    if len(excess) == 1:
        return np.array([one_multiplier(float(q), float(r[0]), float(s[0, 0]), float(excess[0]), delta)])

    def negative_dual(nu: np.ndarray) -> tuple[float, np.ndarray]:
        root = np.sqrt(max(q + 2 * r @ nu + nu @ s @ nu, TINY))
        slope = np.sqrt(2 * delta) * (r + s @ nu) / root - excess
        return float(np.sqrt(2 * delta) * root - excess @ nu), slope

    options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-12}
    start = np.zeros(len(excess))
    found = minimize(negative_dual, start, jac=True, bounds=[(0, 1e6)] * len(start), method="L-BFGS-B", options=options)
    return np.asarray(found.x)


def _least_violation(s: np.ndarray, excess: np.ndarray, delta: float) -> np.ndarray:
    """μ (N,) in the simplex that attains the least violation within the region."""
    count = len(excess)
    if count == 1:
        return np.ones(1)

    def negative(mu: np.ndarray) -> tuple[float, np.ndarray]:
        root = np.sqrt(max(mu @ s @ mu, TINY))
        return float(np.sqrt(2 * delta) * root - excess @ mu), np.sqrt(2 * delta) * (s @ mu) / root - excess

    total = {"type": "eq", "fun": lambda mu: mu.sum() - 1.0, "jac": lambda mu: np.ones(count)}
    start = np.full(count, 1.0 / count)
    options = {"maxiter": 500, "ftol": 1e-14}
    found = minimize(
        negative, start, jac=True, bounds=[(0, 1)] * count, constraints=[total], method="SLSQP", options=options
    )
    mu = np.clip(found.x, 0.0, 1.0)
    return mu / mu.sum()
