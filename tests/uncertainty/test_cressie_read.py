"""Cressie–Read balls against their members' own solvers, cvxpy, and 50 digits."""

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest
from conftest import random_rows

from rcac.errors import InputError
from rcac.uncertainty import ChiSquare, CressieRead, KLBall


def divergence(q, p, power):
    """Σ p φ(q/p), in mpmath's digits."""
    total, k = mp.mpf(0), mp.mpf(power)
    for x, y in zip(q, p, strict=True):
        t = mp.mpf(x) / mp.mpf(y)
        if k == 1:
            total += y * (t * mp.log(t) - t + 1 if t else 1)
        elif k == 0:
            total += y * (t - 1 - mp.log(t))
        else:
            total += y * (t**k - k * t + k - 1) / (k * (k - 1))
    return total


def truth(v, p, r, power):
    """The worst case by bisection on log β, the tilt that has the radius."""
    v, p, r, k = [mp.mpf(float(x)) for x in v], [mp.mpf(float(x)) for x in p], mp.mpf(float(r)), mp.mpf(power)
    p, top, span = [x / sum(p) for x in p], max(v), max(v) - min(v)

    def tilted(log_beta):
        beta, found = mp.exp(log_beta), []
        for x, y in zip(v, p, strict=True):
            u = (x - top) / span
            found.append(y * (mp.exp(beta * u) if k == 1 else max(1 + (k - 1) * beta * u, mp.mpf(0)) ** (1 / (k - 1))))
        return [x / sum(found) for x in found]

    low, high = mp.mpf(-120), mp.mpf(0)
    while divergence(tilted(high), p, k) < r:
        high += 5
        if high > 700:
            return top
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(tilted(middle), p, k) < r else (low, middle)
    return sum(x * y for x, y in zip(tilted(low), v, strict=True))


@pytest.mark.parametrize("power", [2, 1, 0.5, 0, -1, 3, 1 + 1e-7, 1e-7, 1.5])
def test_values_to_the_last_digits(power):
    """Rows with masses down to 1e-40, spans from 1e-6 to 1e6, radii from 1e-14 to 10."""
    rng = np.random.default_rng(5)
    with mp.workdps(50):
        for i in range(12):
            p = np.maximum(rng.dirichlet(np.full(4, [0.05, 0.5, 5][i % 3])), 1e-40)
            p /= p.sum()
            v, r = rng.normal(size=4) * 10 ** rng.uniform(-6, 6), 10 ** rng.uniform(-14, 1)
            value, kernel = CressieRead(r, power).worst_case(v, p)
            assert abs(mp.mpf(float(value)) - truth(v, p, r, power)) <= 2e-14 * np.ptp(v)
            assert kernel.min() >= 0
            assert kernel.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(("power", "special", "factor"), [(1, KLBall, 1.0), (2, ChiSquare, 0.5)])  # D₂ is half of χ²
def test_members_agree_with_their_own_solvers(power, special, factor, rng):
    nominal = random_rows(rng, 500, 6)
    values = rng.normal(size=(500, 6)) * 10 ** rng.uniform(-4, 4, size=(500, 1))
    radius = 10 ** rng.uniform(-6, 1, size=500)
    value, kernel = CressieRead(factor * radius, power).worst_case(values, nominal)
    expected, same = special(radius).worst_case(values, nominal)
    np.testing.assert_allclose((value - expected) / np.ptp(values, axis=1), 0, atol=1e-8)
    np.testing.assert_allclose(kernel, same, atol=1e-7)


@pytest.mark.parametrize("power", [0.5, 1.5, -1.0, 3.0])
def test_against_cvxpy(power, rng):
    q, v, p, r = cp.Variable(5, nonneg=True), cp.Parameter(5), cp.Parameter(5, nonneg=True), cp.Parameter(nonneg=True)
    # Σ p φ(q/p) with t = q/p, so that the powers have constant coefficients
    t = cp.Variable(5, nonneg=True)
    distance = (p @ cp.power(t, power) - power * cp.sum(q) + power - 1) / (power * (power - 1))
    if 0 < power < 1:
        distance = (power * cp.sum(q) + 1 - power - p @ cp.power(t, power)) / (power * (1 - power))
    problem = cp.Problem(cp.Maximize(v @ q), [cp.sum(q) == 1, q == cp.multiply(p, t), distance <= r])
    for _ in range(15):
        p.value, v.value, r.value = rng.dirichlet(np.ones(5)) * 0.9 + 0.02, rng.random(5), 10 ** rng.uniform(-3, 0)
        p.value /= p.value.sum()
        truth = problem.solve(solver=cp.CLARABEL)
        value, kernel = CressieRead(r.value, power).worst_case(v.value, p.value)
        assert value == pytest.approx(truth, abs=2e-6)
        assert float(divergence(kernel, p.value, power)) <= r.value * (1 + 1e-9)


def test_hellinger_by_hand():
    """Two states: q = (sin²(φ + δ), cos²(φ + δ)) is 2 Σ (√q − √p)² = 4 (1 − cos δ) away from p = (sin² φ, cos² φ)."""
    phi, delta = 0.5, 0.3
    p = np.array([np.sin(phi) ** 2, np.cos(phi) ** 2])
    value, kernel = CressieRead(4 * (1 - np.cos(delta))).worst_case([1.0, 0.0], p)
    assert value == pytest.approx(np.sin(phi + delta) ** 2, abs=1e-14)
    np.testing.assert_allclose(kernel, [value, 1 - value], atol=1e-14)


def test_rounding_residues_and_tiny_masses_keep_their_place():
    """χ² cannot move more than √(r p) onto a mass p, nor KL more than about r/log(1/p)."""
    residue = 1 - 0.7 - 0.3
    value = CressieRead(0.005, 2).worst_case([1.0, 0.0], [residue, 1 - residue])[0]
    assert value == pytest.approx(np.sqrt(0.01 * residue), rel=1e-6)
    value = CressieRead(1.0, 1).worst_case([1.0, 0.3, 0.0], [1e-300, 0.5, 0.5])[0]
    assert value == pytest.approx(0.3003, abs=1e-4)


@pytest.mark.parametrize("power", [-1, 0, 0.5, 1, 2, 4])
def test_all_radii_in_order(power):
    p, v = np.array([0.2, 0.5, 0.3, 0.0]), np.array([3.0, 1.0, 2.0, 9.0])
    values = [CressieRead(r, power).worst_case(v, p)[0] for r in (0, 1e-300, 1e-30, 1e-20, 1e-10, 1e-3, 0.1, 10, 1e6)]
    assert values[:2] == pytest.approx([p @ v] * 2, abs=1e-15)
    assert np.all(np.diff(values) >= -1e-15)
    assert values[-1] == pytest.approx(3.0, abs=1e-5)


@pytest.mark.parametrize(
    ("power", "message"),
    [("a", "power: 'a' given, a finite number expected"), (np.inf, "power: inf"), (None, "power: None")],
)
def test_bad_powers_are_rejected(power, message):
    with pytest.raises(InputError, match=message):
        CressieRead(0.1, power)
