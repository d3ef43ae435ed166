"""KL and χ² balls in 60 digits: masses down to 1e-300, radii from 1e-14 to 1e6, ties; and NumPy beside compiled code."""

import mpmath as mp
import numpy as np
import pytest
from conftest import random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.problem import compress
from rcac.uncertainty import ChiSquare, KLBall, KLPenalty, Nominal, TotalVariation, chi_square, vectorised

EPS = float(np.finfo(float).eps)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(60):
        yield


def exact(values, nominal):
    """The row and its values without rounding, its zeros left out, and with a sum of one."""
    kept = [j for j in range(len(nominal)) if nominal[j] > 0]
    masses = [mp.mpf(float(nominal[j])) for j in kept]
    return [m / sum(masses) for m in masses], [mp.mpf(float(values[j])) for j in kept]


def chi_square_truth(values, nominal, radius):
    """min over η of η + √(1+r)·√E(V−η)₊²: the minimum is where one of the sets above η would have it."""
    p, v = exact(values, nominal)
    order = sorted(range(len(v)), key=lambda j: -v[j])

    def dual(eta):
        return eta + mp.sqrt((1 + mp.mpf(radius)) * sum(m * max(x - eta, 0) ** 2 for m, x in zip(p, v, strict=True)))

    found = [dual(x) for x in v]
    for n in range(1, len(v) + 1):
        mass = sum(p[j] for j in order[:n])
        mean = sum(p[j] * v[j] for j in order[:n]) / mass
        variance = sum(p[j] * (v[j] - mean) ** 2 for j in order[:n]) / mass
        room = (1 + mp.mpf(radius)) * mass - 1
        if room > 0:
            found.append(dual(mean - mp.sqrt(variance / room)))
    return min(found)


def chi_square_distance(q, p):
    return mp.sqrt(sum((a - b) ** 2 / b for a, b in zip(q, p, strict=True)))


def kl_truth(values, nominal, radius):
    """Bisection on log β."""
    p, v = exact(values, nominal)
    top, span = max(v), max(v) - min(v)
    at_top = sum(m for m, x in zip(p, v, strict=True) if x == top)
    if span == 0:
        return top
    if mp.mpf(radius) >= -mp.log(at_top):
        return top
    low, high = mp.mpf(-60), mp.mpf(100)
    for _ in range(130):
        beta = mp.exp((low + high) / 2) / span
        weights = [m * mp.exp(beta * (x - top)) for m, x in zip(p, v, strict=True)]
        total = sum(weights)
        mean = sum(w * (x - top) for w, x in zip(weights, v, strict=True)) / total
        if beta * mean - mp.log(total) > radius:
            high = (low + high) / 2
        else:
            low = (low + high) / 2
    return top + mean


def kl_distance(q, p):
    total = sum(q)
    return mp.sqrt(abs(sum(a / total * mp.log(a / total / b) for a, b in zip(q, p, strict=True) if a > 0)))


KINDS = {
    "chi_square": (ChiSquare, chi_square_truth, chi_square_distance, 6),
    "kl_ball": (KLBall, kl_truth, kl_distance, 3),
}


@st.composite
def adversarial(draw):
    """Masses and values that provoke cancellation, overflow and underflow."""
    n = draw(st.integers(2, 6))
    mass = st.one_of(
        st.sampled_from([1e-300, 1e-100, 1e-17, 1e-16, 1e-8, 0.1, 0.5, 1.0]),
        st.floats(-300, 0).map(lambda x: 10.0**x),
    )
    masses = np.array(draw(st.lists(mass, min_size=n, max_size=n)))
    masses[draw(st.integers(0, n - 1))] = 1.0
    value = st.one_of(st.sampled_from([0.0, 1.0, 1.0 - 1e-13, 0.3, 2.0]), st.floats(-1e3, 1e3, allow_subnormal=False))
    return masses / masses.sum(), np.array(draw(st.lists(value, min_size=n, max_size=n)))


def check(kind, p, v, radius, precision):
    make, truth, distance, _ = KINDS[kind]
    value, q = make(radius).worst_case(v, p)
    size = np.abs(v).max()
    assert abs(float(mp.mpf(float(value)) - truth(v, p, radius))) <= precision * size
    assert q.sum() == pytest.approx(1, abs=8 * EPS)
    assert q @ v == pytest.approx(value, abs=precision * size)
    assert (q >= 0).all()
    masses, _ = exact(v, p)
    inside = [mp.mpf(float(x)) for x in q[p > 0]]
    assert distance(inside, masses) <= mp.sqrt(radius) * (1 + 1e-8) + 8 * EPS


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(case=adversarial(), exponent=st.floats(-14, 6))
def test_adversarial_rows_in_numpy(kind, case, exponent):
    check(kind, *case, 10.0 ** min(exponent, KINDS[kind][3]), 1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_adversarial_rows_compiled(kind, monkeypatch):
    monkeypatch.setattr(vectorised, "SMALL", 0)

    @settings(max_examples=60, deadline=None)
    @given(case=adversarial(), exponent=st.floats(-14, 6))
    def run(case, exponent):
        radius = 10.0 ** min(exponent, KINDS[kind][3])
        check(kind, *case, radius, KINDS[kind][0](radius).tolerance)

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_dirichlet_distribution_with_a_tiny_concentration(kind, rng):
    for concentration in (1e-3, 1e-2, 0.1):
        for _ in range(10):
            p = rng.dirichlet(np.full(5, concentration))
            check(kind, p / p.sum(), rng.normal(size=5), 10.0 ** rng.uniform(-14, 2), 1e-14)


@pytest.mark.parametrize("small", [True, False])
def test_rows_that_used_to_be_wrong(small, monkeypatch):
    if not small:
        monkeypatch.setattr(vectorised, "SMALL", 0)
    value, q = ChiSquare(0.01).worst_case(
        [1.0, 0.0], [1 - 0.7 - 0.3, 0.7 + 0.3]
    )  # the first mass is a rounding residue
    assert value == pytest.approx(7.45058e-10, rel=1e-5)
    assert q.sum() == pytest.approx(1, abs=EPS)
    value, _ = KLBall(1.0).worst_case([1, 0.3, 0], [1e-300, 0.5, 0.5])
    assert value == pytest.approx(float(kl_truth([1, 0.3, 0], [1e-300, 0.5, 0.5], 1.0)), abs=1e-14)
    assert 0.3003 < value < 0.3004
    for least in (1e-308, 5e-324):  # masses below the smallest number that has all its digits
        for radius in (0.02, 2.0, 200.0):
            nominal, values = [1.0, 1e-300, least], [-1.0, 0.0, 1.0]
            value, _ = KLBall(radius).worst_case(values, nominal)
            assert value == pytest.approx(float(kl_truth(values, nominal, radius)), abs=1e-13)


@pytest.mark.parametrize(
    "uncertainty",
    [Nominal(), KLBall(0.05), KLPenalty(0.7), KLPenalty(0.7, "linear"), ChiSquare(0.3), TotalVariation(0.1), TotalVariation(0.1, True)],
)  # fmt: skip
def test_numpy_and_compiled_code_agree(uncertainty, rng, monkeypatch):
    for states in (3, 9, 30):
        rows, values = compress(random_rows(rng, 40, states)), rng.normal(size=(2, states))
        both = []
        for small in (1 << 30, 0):
            monkeypatch.setattr(vectorised, "SMALL", small)
            both.append(uncertainty.sweep(values, rows))
        np.testing.assert_allclose(both[0].value, both[1].value, rtol=0, atol=1e-14)
        for k in range(2):
            np.testing.assert_allclose(both[0].dense(k, states), both[1].dense(k, states), rtol=0, atol=1e-13)


def test_some_rows_of_a_large_problem_ask_for_care(rng):
    """Small radii and masses among others: those rows are as exact as alone, and the others are what they were."""
    nominal, values = random_rows(rng, 900, 60), rng.normal(size=(2, 60))
    nominal[5] = 0.0
    nominal[5, :3], values[:, :3] = (1e-300, 0.5, 0.5), [[9.0, 0.3, 0.0]] * 2
    radius = np.full(900, 0.2)
    radius[7] = 1e-9
    rows = compress(nominal)
    together = KLBall(radius).sweep(values, rows)
    for m in (5, 6, 7, 8):
        value, q = KLBall(radius[m]).worst_case(values[0], nominal[m])
        assert together.value[0, m] == pytest.approx(value, abs=1e-13)
        np.testing.assert_allclose(together.dense(0, 60)[m], q, atol=1e-13)


@pytest.mark.parametrize("radius", [1e-9, 1e-3, 0.1, 2.0, 30.0, 1e4])
@pytest.mark.parametrize("concentration", [1.0, 0.05])
def test_chi_square_by_thresholds_equals_the_walk(radius, concentration, rng, monkeypatch):
    """Whole rows and rows with zeros, ties, and values at which all, many or few states stay."""
    nominal = rng.dirichlet(np.full(80, concentration), size=300)
    nominal[::2, rng.random(80) < 0.3] = 0.0
    nominal /= nominal.sum(axis=1, keepdims=True)
    values = np.stack([rng.random(80), rng.random(80) ** 9, np.round(rng.random(80), 1), np.exp(9 * rng.random(80))])
    fast = ChiSquare(radius).sweep(values, compress(nominal))
    monkeypatch.setattr(chi_square, "LONG", 1000)
    plain = ChiSquare(radius).sweep(values, compress(nominal))
    assert np.all(np.abs(fast.value - plain.value) <= 1e-13 * np.ptp(values, axis=1)[:, None])
    np.testing.assert_allclose(fast.data, plain.data, rtol=0, atol=1e-11)
