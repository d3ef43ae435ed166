"""Worst cases against independent truth: cvxpy on the inner problem, a linear program for total variation."""

import sys
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_problem, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from rcac import cli, evaluate
from rcac.config import compose as configuration
from rcac.errors import InputError
from rcac.problem import RCMDP, compress
from rcac.runs.build import make_uncertainty
from rcac.uncertainty import (
    ChiSquare,
    CressieRead,
    FiniteKernels,
    InexactWarning,
    KLBall,
    KLPenalty,
    LinearIPM,
    Nominal,
    TotalVariation,
    Wasserstein,
    named,
)

STATES = 5
METRIC = np.abs(np.subtract.outer(np.arange(STATES), np.arange(STATES))).astype(float)
FEATURES = np.column_stack([np.ones(STATES), np.linspace(-1, 1, STATES), np.linspace(-1, 1, STATES) ** 2])


@pytest.fixture(params=[150, pytest.param(1000, marks=pytest.mark.slow)])
def number(request):
    """Of random rows."""
    return request.param


def cases(rng, number, radii):
    """Rows, values of very different spans, a radius for each."""
    values = rng.normal(size=(number, STATES)) * 10 ** rng.uniform(-2, 3, size=(number, 1))
    return values, random_rows(rng, number, STATES), rng.choice(radii, size=number)


def kl(q, p):
    return np.sum(np.where(q > 0, q * np.log(np.where(q > 0, q, 1) / np.where(p > 0, p, 1)), 0), axis=-1)


def assert_distribution(q):
    assert q.min() >= -1e-13
    np.testing.assert_allclose(q.sum(axis=-1), 1, atol=1e-11)


def cvxpy_solutions(problem, scenarios):
    """Solve one parametrised problem for each scenario (a dict of parameter values, which are scaled by the caller)."""
    out = []
    for scenario in scenarios:
        for parameter, value in scenario.items():
            parameter.value = value
        out.append(problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11))
    return np.array(out)


def inner(rng, number, radii, constraint, price=None):
    """cvxpy's worst case of scaled values; `constraint(q, p, r)` and `price(q, p, r)` describe the set."""
    values, nominal, radius = cases(rng, number, radii)
    span = np.maximum(np.ptp(values, axis=1), 1e-300)
    q, p, v, r = (
        cp.Variable(STATES, nonneg=True),
        cp.Parameter(STATES, nonneg=True),
        cp.Parameter(STATES),
        cp.Parameter(nonneg=True),
    )
    support = cp.Parameter(STATES, nonneg=True)
    objective = v @ q - (price(q, p, r) if price else 0)
    problem = cp.Problem(cp.Maximize(objective), [cp.sum(q) == 1, q <= support, *constraint(q, p, r)])
    shifted = (values - values.min(axis=1, keepdims=True)) / span[:, None]  # in [0, 1], as solvers like it
    reached = nominal > 0  # elsewhere q is 0, and q log(q/p) is 0 for any p > 0
    found = cvxpy_solutions(
        problem,
        (
            {p: np.where(reached[i], nominal[i], 1), support: reached[i] * 1.0, v: shifted[i], r: radius[i]}
            for i in range(number)
        ),
    )
    return values, nominal, radius, span, values.min(axis=1) + span * found


def check_against(values, nominal, kernel, value, truth, span):
    assert_distribution(kernel)
    np.testing.assert_allclose(value, (kernel * values).sum(axis=1), rtol=0, atol=1e-11 * np.abs(values).max())
    assert np.all(np.abs(value - truth) <= 1e-6 * np.maximum(1, span))


def test_kl_ball_against_cvxpy(rng, number):
    values, nominal, radius, span, truth = inner(
        rng,
        number,
        [1e-4, 1e-2, 0.3, 3.0],
        lambda q, p, r: [cp.sum(cp.rel_entr(q, p)) <= r],
    )
    value, kernel = zip(
        *(KLBall(r).worst_case(v, p) for v, p, r in zip(values, nominal, radius, strict=True)), strict=True
    )
    kernel = np.array(kernel)
    check_against(values, nominal, kernel, np.array(value), truth, span)
    assert np.all(kl(kernel, nominal) <= radius * (1 + 1e-9) + 1e-12)
    assert np.all(kernel[nominal == 0] == 0)


def test_kl_penalty_against_cvxpy(rng, number):
    values, nominal, theta, span, truth = inner(
        rng, number, [0.05, 0.5, 5.0], lambda q, p, r: [], lambda q, p, r: r * cp.sum(cp.rel_entr(q, p))
    )
    pairs = list(zip(values, nominal, theta * span, strict=True))
    value, kernel = (np.array(x) for x in zip(*(KLPenalty(t).worst_case(v, p) for v, p, t in pairs), strict=True))
    assert_distribution(kernel)
    assert np.all(np.abs(value - truth) <= 1e-6 * np.maximum(1, span))
    paid = (kernel * values).sum(axis=1) - theta * span * kl(kernel, nominal)
    np.testing.assert_allclose(value, paid, atol=1e-10 * np.abs(values).max())
    linear = np.array([KLPenalty(t, value="linear").worst_case(v, p)[0] for v, p, t in pairs])
    np.testing.assert_allclose(linear, (kernel * values).sum(axis=1), atol=1e-10 * np.abs(values).max())


def test_chi_square_against_cvxpy(rng, number):
    values, nominal, radius = cases(rng, number, [1e-4, 1e-2, 0.3, 3.0, 50.0])
    span = np.ptp(values, axis=1)
    shifted = (values - values.min(axis=1, keepdims=True)) / span[:, None]
    q, root, v, r = (
        cp.Variable(STATES, nonneg=True),
        cp.Parameter(STATES, nonneg=True),
        cp.Parameter(STATES),
        cp.Parameter(nonneg=True),
    )
    # q = root·x with root = √p:  Σ (q−p)²/p = ‖x − root‖²
    x = cp.Variable(STATES, nonneg=True)
    problem = cp.Problem(cp.Maximize(v @ q), [q == cp.multiply(root, x), cp.sum(q) == 1, cp.norm(x - root) <= r])
    found = cvxpy_solutions(
        problem, ({root: np.sqrt(nominal[i]), v: shifted[i], r: np.sqrt(radius[i])} for i in range(number))
    )
    truth = values.min(axis=1) + span * found
    value, kernel = (
        np.array(x)
        for x in zip(
            *(ChiSquare(r).worst_case(v, p) for v, p, r in zip(values, nominal, radius, strict=True)), strict=True
        )
    )
    check_against(values, nominal, kernel, value, truth, span)
    assert np.all(kernel[nominal == 0] == 0)
    distance = np.sum(np.where(nominal > 0, (kernel - nominal) ** 2 / np.where(nominal > 0, nominal, 1), 0), axis=1)
    assert np.all(distance <= radius * (1 + 1e-9) + 1e-12)


def test_wasserstein_against_cvxpy(rng, number):
    values, nominal, radius = cases(rng, number, [0.01, 0.3, 1.0, 10.0])
    span = np.ptp(values, axis=1)
    plan = cp.Variable((STATES, STATES), nonneg=True)
    p, v, r = cp.Parameter(STATES, nonneg=True), cp.Parameter(STATES), cp.Parameter(nonneg=True)
    problem = cp.Problem(
        cp.Maximize(v @ cp.sum(plan, axis=0)), [cp.sum(plan, axis=1) == p, cp.sum(cp.multiply(METRIC, plan)) <= r]
    )
    shifted = (values - values.min(axis=1, keepdims=True)) / span[:, None]
    found = cvxpy_solutions(problem, ({p: nominal[i], v: shifted[i], r: radius[i]} for i in range(number)))
    truth = values.min(axis=1) + span * found
    value, kernel = (
        np.array(x)
        for x in zip(
            *(Wasserstein(r, METRIC).worst_case(v, p) for v, p, r in zip(values, nominal, radius, strict=True)),
            strict=True,
        )
    )
    check_against(values, nominal, kernel, value, truth, span)
    # on a line, W₁ is the area between the distribution functions
    distance = np.abs(np.cumsum(kernel - nominal, axis=1))[:, :-1].sum(axis=1)
    assert np.all(distance <= radius * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_wasserstein_with_any_metric_against_a_linear_program(seed):
    """Asymmetric, triangle-breaking, with ties."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        n = int(rng.integers(1, 8))
        metric = rng.integers(1, 4, size=(n, n)) * rng.choice([1.0, 0.37])
        np.fill_diagonal(metric, 0)
        p, v, r = (
            random_rows(rng, 1, n, 0.5)[0],
            rng.integers(-3, 4, size=n).astype(float),
            rng.choice([0, 0.1, 0.7, 5]),
        )
        eq = np.kron(np.eye(n), np.ones(n))
        truth = -linprog(-np.tile(v, n), A_ub=metric.reshape(1, -1), b_ub=[r], A_eq=eq, b_eq=p).fun
        value, kernel = Wasserstein(r, metric).worst_case(v, p)
        assert value == pytest.approx(truth, abs=1e-9)
        assert kernel @ v == pytest.approx(value, abs=1e-12)
        assert_distribution(kernel)


def test_linear_ipm_against_cvxpy(rng, number):
    """For values in the features' span, wherever the attaining kernel is a distribution."""
    nominal = random_rows(rng, number, STATES, 0.25)
    weights = rng.normal(size=(number, 3)) * 10 ** rng.uniform(-2, 3, size=(number, 1))
    values, radius = weights @ FEATURES.T, rng.choice([1e-4, 1e-2, 0.1], size=number)
    span = np.ptp(values, axis=1)
    q, p, v, r = (
        cp.Variable(STATES, nonneg=True),
        cp.Parameter(STATES, nonneg=True),
        cp.Parameter(STATES),
        cp.Parameter(nonneg=True),
    )
    problem = cp.Problem(cp.Maximize(v @ q), [cp.sum(q) == 1, cp.norm(FEATURES[:, 1:].T @ (q - p)) <= r])
    shifted = (values - values.min(axis=1, keepdims=True)) / span[:, None]
    found = cvxpy_solutions(problem, ({p: nominal[i], v: shifted[i], r: radius[i]} for i in range(number)))
    truth = values.min(axis=1) + span * found
    exact = 0
    for i in range(number):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value, kernel = LinearIPM(radius[i], FEATURES).worst_case(values[i], nominal[i])
        assert bool(caught) == bool(kernel.min() < -1e-12)
        assert value == pytest.approx(kernel @ values[i], abs=1e-9 * max(1, span[i]))
        moved = np.linalg.norm(FEATURES[:, 1:].T @ (kernel - nominal[i]))
        assert moved == pytest.approx(radius[i], rel=1e-9)
        if caught:
            assert caught[0].category is InexactWarning
            assert value >= truth[i] - 1e-6 * max(1, span[i])  # an upper bound
        else:
            exact += 1
            assert value == pytest.approx(truth[i], abs=1e-6 * max(1, span[i]))
    assert exact > number / 3


@pytest.mark.parametrize("within_support", [True, False])
def test_total_variation_against_a_linear_program(rng, number, within_support):
    values, nominal, radius = cases(rng, number, [1e-3, 0.05, 0.4, 0.9, 1.0, 2.0])
    value, kernel = (
        np.array(x)
        for x in zip(
            *(
                TotalVariation(r, within_support).worst_case(v, p)
                for v, p, r in zip(values, nominal, radius, strict=True)
            ),
            strict=True,
        )
    )
    assert_distribution(kernel)
    for i in range(number):
        # q = p + up − down, Σ up = Σ down ≤ r
        v, p, scale = values[i], nominal[i], np.abs(values[i]).max()
        allowed = [(0, None if p[j] > 0 or not within_support else 0) for j in range(STATES)]
        found = linprog(
            np.concatenate([-v, v]) / scale,
            A_eq=[[1] * STATES + [-1] * STATES],
            b_eq=[0],
            A_ub=[[1] * STATES + [0] * STATES],
            b_ub=[radius[i]],
            bounds=[*allowed, *[(0, x) for x in p]],
        )
        assert value[i] == pytest.approx(p @ v - found.fun * scale, abs=1e-10 * max(1, np.ptp(v)))
        assert kernel[i] @ v == pytest.approx(value[i], abs=1e-11 * max(1, scale))
        assert np.abs(kernel[i] - p).sum() / 2 <= radius[i] + 1e-12
        if within_support:
            assert np.all(kernel[i][p == 0] == 0)


def test_finite_kernels_choose_the_best_row(rng):
    kernels = [random_rows(rng, 12, 4, 0.5).reshape(4, 3, 4) for _ in range(5)]
    values = rng.normal(size=(2, 1, 1, 4))
    value, kernel = FiniteKernels(kernels).worst_case(values, kernels[0])
    expected = np.stack([(k[None] * values).sum(-1) for k in kernels])
    np.testing.assert_allclose(value, expected.max(axis=0), atol=1e-14)
    best = np.stack(kernels)[expected.argmax(axis=0), np.arange(4)[:, None], np.arange(3)]
    np.testing.assert_array_equal(kernel, best)
    sparse = FiniteKernels([sp.csr_array(k.reshape(12, 4)) for k in kernels]).worst_case(values, kernels[0])
    np.testing.assert_array_equal(sparse[1], kernel)


def test_a_part_of_the_rows_of_finite_kernels(rng):
    """In any order, again and again, or none; with as many steps of Python for many rows as for few."""
    kernels = [sp.csr_array(random_rows(rng, 3000, 1000, 1.0)) for _ in range(2)]
    uncertainty, values, rows = FiniteKernels(kernels), rng.normal(size=(2, 1000)), compress(kernels[0])
    together, calls = uncertainty.sweep(values, rows), []
    for part in (rng.integers(3000, size=7), rng.integers(3000, size=2000), np.zeros(0, int)):
        count, taken = 0, rows.take(part)

        def called(*_):
            nonlocal count
            count += 1

        sys.setprofile(called)
        try:
            worst = uncertainty.sweep(values, taken)
        finally:
            sys.setprofile(None)
        calls.append(count)
        np.testing.assert_allclose(worst.value, together.value[:, part], rtol=1e-12)
        np.testing.assert_array_equal(worst.dense(1, 1000), together.dense(1, 1000)[part])
    assert max(calls) < 2 * min(calls)


def sets_by_radius(states):
    metric = np.abs(np.subtract.outer(np.arange(states), np.arange(states))).astype(float)
    return {
        "kl": KLBall,
        "tv": TotalVariation,
        "tv_support": lambda r: TotalVariation(r, within_support=True),
        "chi2": ChiSquare,
        "cressie_read": CressieRead,
        "wasserstein": lambda r: Wasserstein(r, metric),
    }


SETS = list(sets_by_radius(1))
finite = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def row_and_values(draw):
    n = draw(st.integers(1, 6))
    p = draw(arrays(float, n, elements=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 5.0])))
    p[draw(st.integers(0, n - 1))] = 1.0
    return p / p.sum(), draw(arrays(float, n, elements=finite)), draw(arrays(float, n, elements=st.floats(0, 1e3)))


@pytest.mark.parametrize("name", SETS)
def test_values_that_differ_by_less_than_rounding(name):
    p, values = np.array([0.82, 0.016, 0.164]), np.array([2.7e-191, 0.0, -1.0])
    for radius in (0.05, 0.2, 0.5):
        value, kernel = sets_by_radius(3)[name](radius).worst_case(values, p)
        assert_distribution(kernel)
        same, _ = sets_by_radius(3)[name](radius).worst_case(values.round(9), p)
        np.testing.assert_allclose([value, kernel @ values], same, atol=1e-12)


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=150, deadline=None)
@given(case=row_and_values(), radius=st.sampled_from([0.0, 1e-9, 1e-3, 0.2, 1.5, 100.0]), shift=finite)
def test_properties_of_a_worst_case(name, case, radius, shift):
    p, v, more = case
    make = sets_by_radius(len(p))[name]
    scale = max(1.0, np.abs(v).max(), abs(shift))
    value, kernel = make(radius).worst_case(v, p)
    assert_distribution(kernel)
    assert kernel @ v == pytest.approx(value, abs=1e-9 * scale)
    nominal, best = p @ v, -make(radius).worst_case(-v, p)[0]
    assert value >= nominal - 1e-11 * scale >= best - 2e-11 * scale  # worst ≥ nominal ≥ best
    assert make(2 * radius).worst_case(v, p)[0] >= value - 1e-9 * scale  # monotone in the radius
    assert make(radius).worst_case(v + more, p)[0] >= value - 1e-9 * max(scale, 1e3)  # monotone in V
    assert make(radius).worst_case(v + shift, p)[0] == pytest.approx(value + shift, abs=1e-9 * scale)
    other = v + more * np.where(np.arange(len(v)) % 2, 1, -1)
    distance = abs(make(radius).worst_case(other, p)[0] - value)
    assert distance <= np.abs(other - v).max() + 1e-9 * max(scale, 1e3)  # non-expansion


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=50, deadline=None)
@given(case=row_and_values())
def test_radius_zero_is_nominal_to_the_bit(name, case):
    p, v, _ = case
    value, kernel = sets_by_radius(len(p))[name](0.0).worst_case(v, p)
    expected, nominal = Nominal().worst_case(v, p)
    assert value == expected
    np.testing.assert_array_equal(kernel, nominal)


@pytest.mark.parametrize("name", SETS)
def test_huge_radius_gives_the_top(name, rng):
    p, v = np.array([0.5, 0.0, 0.3, 0.2]), np.array([1.0, 9.0, 4.0, 2.0])
    value, kernel = sets_by_radius(4)[name](1e6).worst_case(v, p)
    leaves = name in ("tv", "wasserstein")
    assert value == pytest.approx(9.0 if leaves else 4.0, abs=1e-12)
    assert kernel[1 if leaves else 2] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("ratio", [1e-12, 1e-6, 1.0, 1e3, 1e6])
def test_kl_penalty_stays_finite_and_exact(ratio):
    """range(V)/θ from tiny to a million; truth in 60 digits."""
    import mpmath as mp

    mp.mp.dps = 60
    v, p = (
        np.array([0.0, 3.0, 10.0, 7.0]),
        np.array([[0.4, 0.6, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 1, 0, 0], [0.5, 0, 0, 0.5]]),
    )
    theta = 10.0 / ratio
    value, kernel = KLPenalty(theta).worst_case(v, p)
    assert np.isfinite(value).all()
    assert_distribution(kernel)
    for i, row in enumerate(p):
        truth = theta * mp.log(
            sum(mp.mpf(float(x)) * mp.exp(mp.mpf(float(y)) / mp.mpf(theta)) for x, y in zip(row, v, strict=True))
        )
        assert abs(value[i] - truth) <= 1e-13 * 10


def test_kl_ball_with_nearly_equal_tops():
    """Two values almost tied at the top, and a radius that all but reaches them."""
    v, p = np.array([0.0, 1.0, 1.0 - 1e-14]), np.array([0.5, 0.25, 0.25])
    for radius in (np.log(2) - 1e-9, np.log(2), np.log(4) * (1 - 1e-12)):
        value, kernel = KLBall(radius).worst_case(v, p)
        assert_distribution(kernel)
        assert kl(kernel, p) <= radius * (1 + 1e-9)
        assert value <= 1.0 + 1e-15


@pytest.mark.parametrize("name", SETS)
def test_sparse_rows_equal_dense_rows(name, rng):
    nominal, values = random_rows(rng, 40, 12, 0.8), rng.normal(size=(3, 12))
    uncertainty = sets_by_radius(12)[name](0.3)
    value, kernel = uncertainty.worst_case(values[:, None], nominal)
    worst = uncertainty.sweep(values, compress(sp.csr_array(nominal)))
    np.testing.assert_allclose(worst.value, value, atol=1e-13)
    for k in range(3):
        np.testing.assert_allclose(worst.dense(k, 12), kernel[k], atol=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_one_radius_for_each_row(name, rng):
    nominal, v = random_rows(rng, 6, 4).reshape(3, 2, 4), rng.normal(size=4)
    radius = np.array([[0, 0.1], [0.2, 0.5], [1.0, 0.01]])
    together = sets_by_radius(4)[name](radius).worst_case(v, nominal)[0]
    for s, a in np.ndindex(3, 2):
        assert together[s, a] == sets_by_radius(4)[name](radius[s, a]).worst_case(v, nominal[s, a])[0]


@pytest.mark.parametrize("name", SETS)
def test_threads_do_not_change_results(name, rng):
    import numba

    nominal, values = random_rows(rng, 900, 60), rng.normal(size=(2, 60))
    uncertainty, rows = sets_by_radius(60)[name](0.2), compress(nominal)
    assert 2 * len(rows.data) > 1 << 16  # the threaded version
    threads = numba.get_num_threads()
    together = uncertainty.sweep(values, rows)
    numba.set_num_threads(1)
    try:
        alone = uncertainty.sweep(values, rows)
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(together.value, alone.value)
    np.testing.assert_array_equal(together.data, alone.data)


@pytest.mark.parametrize("name", SETS)
def test_a_policys_chains_are_mixtures_of_the_kernels(name, rng):
    """Small and large (threaded, and for the KL ball without writing the kernels) problems alike, whole rows or not."""
    for states, actions in ((4, 3), (60, 20)):
        nominal, values = random_rows(rng, states * actions, states), rng.normal(size=(2, states))
        nominal[: 2 * actions] = rng.dirichlet(np.ones(states), size=2 * actions)  # every state
        radius = np.full((states, actions), 0.2)
        radius[0, 0], radius[1, 1] = 0.0, 50.0
        policy = rng.dirichlet(np.ones(actions), size=states)
        policy[1, 0] = 0.0
        policy /= policy.sum(axis=1, keepdims=True)
        worst = sets_by_radius(states)[name](radius).sweep(values, compress(nominal))
        chains = worst.mixed(policy)
        for k in range(2):
            kernel = worst.dense(k, states).reshape(states, actions, states)
            np.testing.assert_allclose(chains[k], np.einsum("sa,sat->st", policy, kernel), atol=1e-14)
            sparse = worst.chain(k, policy).toarray()
            if worst.direction is not None:
                sparse += np.outer((policy * worst.amount[k].reshape(policy.shape)).sum(axis=1), worst.direction[k])
            np.testing.assert_allclose(sparse, chains[k], atol=1e-14)


def test_kernels_of_the_kl_ball_written_at_once_or_later(rng, monkeypatch):
    nominal, values = random_rows(rng, 400, 120), rng.normal(size=(2, 120))
    nominal[:5] = rng.dirichlet(np.ones(120), size=5)
    radius = rng.choice([0.0, 0.01, 0.3, 50.0], size=400)
    rows = compress(nominal)
    later = KLBall(radius).sweep(values, rows)
    assert later.entries is None
    monkeypatch.setattr("rcac.uncertainty.base.THREADING_PAYS", 1 << 30)
    at_once = KLBall(radius).sweep(values, rows)
    np.testing.assert_array_equal(later.value, at_once.value)
    np.testing.assert_allclose(later.data, at_once.entries, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KLBall(-0.1), r"radius: -0\.1 given"),
        (lambda: KLBall(np.nan), "radius: nan given"),
        (lambda: KLBall("x"), "radius: 'x' given"),
        (lambda: TotalVariation([[0.1, -1]]), r"radius\[0, 1\]: -1\.0 given"),
        (lambda: ChiSquare(np.inf), "radius: inf given"),
        (lambda: KLPenalty(0), "temperature: 0 given"),
        (lambda: KLPenalty(1, value="hard"), "value: 'hard' given, 'soft' or 'linear'"),
        (lambda: Wasserstein(0.1, [[0, -1], [1, 0]]), r"metric\[0, 1\]: -1\.0 given, a distance"),
        (lambda: Wasserstein(0.1, [[1, 1], [1, 0]]), r"metric\[0, 0\]: 1\.0 given, 0 on the diagonal"),
        (lambda: Wasserstein(0.1, np.zeros((2, 2))), r"metric\[0, 1\]: 0\.0 given, a distance > 0 between"),
        (lambda: Wasserstein(0.1, np.zeros((2, 3))), r"metric: shape \(2, 3\) given"),
        (lambda: LinearIPM(0.1, [[1, 2], [0, 1]]), r"features\[1, 0\]: 0\.0 given, 1 expected"),
        (lambda: LinearIPM(0.1, [[1, 2], [1, 2]]), "features: rank 1 given"),
        (lambda: FiniteKernels([]), "kernels: none given"),
        (lambda: FiniteKernels(None), "kernels: NoneType given, a list of kernels expected"),
        (lambda: FiniteKernels(np.eye(2)), r"kernels\[0\]: shape \(2,\) given, \(S, A, S\) or a sparse"),
        (lambda: FiniteKernels([[["a"]]]), r"kernels\[0\]: not an array of numbers"),
        (lambda: FiniteKernels([np.full((1, 1, 1), 0.5)]), r"kernels\[0\]: row 0 sums to 0\.5"),
        (lambda: KLBall(0.1).worst_case(np.ones(3), np.ones(2) / 2), "values: 3 states given, nominal has 2"),
    ],
)
def test_bad_sets_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_metric_may_be_a_list(rng):
    problem = random_problem(rng, states=2, actions=1)
    found = evaluate(problem, np.ones((2, 1)), Wasserstein(0.1, [[0, 1], [1, 0]])).returns
    same = evaluate(problem, np.ones((2, 1)), Wasserstein(0.1, np.array([[0.0, 1], [1, 0]]))).returns
    np.testing.assert_array_equal(found, same)
    with pytest.raises(InputError, match="metric: 3 states given, the problem has 2"):
        Wasserstein(0.1, METRIC[:3, :3].tolist()).check(problem)


# Sets as a configuration names them, with files


USUAL = {
    "kl_ball": {},
    "total_variation": {"within_support": False},
    "chi_square": {},
    "wasserstein": {"metric": "steps"},
    "linear_ipm": {"features": "complete"},
    "cressie_read": {"power": 0.5},
    "contamination": {},
}


@pytest.fixture
def problem(rng):
    return random_problem(rng, states=4, actions=3)


@pytest.mark.parametrize("name", USUAL)
def test_a_file_of_radii(name, problem, rng, tmp_path):
    """For every set that has a radius."""
    with_radius = {name for name, make in named.NAMED.items() if "radius" in make.__annotations__ and name != "ipm"}
    assert {*USUAL, "state_l1", "state_l2"} == with_radius  # the last two have one for each state
    radii, path = rng.uniform(0, 0.01, size=(4, 3)), tmp_path / "radii.npy"
    np.save(path, radii)
    found = make_uncertainty(problem, {"name": name, "radius": str(path), **USUAL[name]})
    np.testing.assert_array_equal(found.radius, radii)
    assert make_uncertainty(problem, {"name": name, "radius": "1e-3", **USUAL[name]}).radius == 1e-3
    rows = make_uncertainty(problem, {"name": name, "radius": radii.tolist(), **USUAL[name]})
    np.testing.assert_array_equal(rows.radius, radii)
    for word in (None, True, "nothing.npy"):
        with pytest.raises(
            InputError, match=rf"uncertainty.radius: .*{word}'? given, a number ≥ 0 or a .npy file \(S, A\) ex"
        ):
            make_uncertainty(problem, {"name": name, "radius": word, **USUAL[name]})
    for content, message in (
        (radii.T, r"uncertainty.radius: shape \(3, 4\) given, a number or \(4, 3\) expected"),
        (-radii, r"uncertainty.radius\[0, 0\]: -0.0\d+ given, a finite number ≥ 0 expected"),
        (radii.astype(str), r"uncertainty.radius: '.*radii.npy' holds <U\d+, numbers expected"),
        (
            radii.astype(object),
            r"uncertainty.radius: '.*radii.npy' given, a number ≥ 0 or a .npy file \(S, A\) expected",
        ),
    ):
        np.save(path, content, allow_pickle=True)
        with pytest.raises(InputError, match=message):
            make_uncertainty(problem, {"name": name, "radius": str(path), **USUAL[name]})


def test_radii_survive_in_a_run(tmp_path, monkeypatch, capsys):
    """In its configuration, in one that starts from it, and when it is taken up."""
    monkeypatch.chdir(tmp_path)
    radii = np.full((6, 2), 0.001)
    radii[2:] = 0.004
    np.save("radii.npy", radii)

    def run(*texts):
        with pytest.raises(SystemExit) as ending:
            cli.train([*texts, "progress=false"])
        out, err = capsys.readouterr()
        assert (ending.value.code, err) == (0, "")
        return Path(out.splitlines()[-1])

    first = run("env=river_swim", "algo=rnpg", "algo.iterations=6", "uncertainty.radius=radii.npy")
    assert configuration.load(first)["uncertainty"] == {"name": "kl_ball", "radius": "radii.npy"}
    second = run("--from", str(first), "seed=1")
    assert configuration.load(second)["uncertainty"]["radius"] == "radii.npy"
    assert run(f"resume={first}").resolve() == first.resolve()
    other = run("--from", str(first), "uncertainty.radius=0")
    values = [np.load(folder / "policy.npz")["values"] for folder in (first, second, other)]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.allclose(values[0], values[2])


def test_sparse_files(problem, tmp_path):
    path = tmp_path / "file.npz"
    metric = sp.coo_array(np.triu(np.tril(METRIC[:4, :4], 1), -1))
    sp.save_npz(path, metric)
    found = make_uncertainty(problem, {"name": "wasserstein", "radius": 0.1, "metric": str(path)})
    values = np.array([[0.0, 1, 5, 2]])
    np.testing.assert_array_equal(
        found.sweep(values, problem.rows).value, Wasserstein(0.1, metric).sweep(values, problem.rows).value
    )
    kernels = [problem.kernel, np.full((4, 3, 4), 0.25)]
    sp.save_npz(path, sp.vstack([sp.csr_array(kernel.reshape(12, 4)) for kernel in kernels]))
    found = make_uncertainty(problem, {"name": "finite", "kernels": str(path), "rectangular": True})
    np.testing.assert_allclose(
        found.sweep(values, problem.rows).value, FiniteKernels(kernels).sweep(values, problem.rows).value, rtol=1e-12
    )
    for row, message in (
        (
            {"name": "linear_ipm", "radius": 0.1, "features": str(path)},
            r"\(a sparse matrix\) given, a .npy file of one array",
        ),
        ({"name": "kl_ball", "radius": str(path)}, r"\(a sparse matrix\) given, a number ≥ 0 or a .npy"),
    ):
        with pytest.raises(InputError, match=message):
            make_uncertainty(problem, row)


def test_bad_sparse_files(problem, tmp_path):
    path = tmp_path / "file.npz"
    kernels = {"name": "finite", "kernels": str(path), "rectangular": True}
    sp.save_npz(path, sp.csr_array(np.eye(4)))
    with pytest.raises(InputError, match=r"uncertainty.kernels: shape \(4, 4\) given, \(K·12, 4\) expected"):
        make_uncertainty(problem, kernels)
    parts = {
        "format": b"csr",
        "shape": (12, 4),
        "data": np.ones(12),
        "indptr": np.arange(13),
        "indices": np.full(12, 7),
    }
    for change in ({}, {"format": b"os"}, {"shape": (12,)}, {"indptr": np.arange(13)[::-1]}):
        np.savez(path, **(parts | change))
        with pytest.raises(
            InputError, match=r"uncertainty.kernels: .* given, a .npy or .npz file of plain arrays expected"
        ):
            make_uncertainty(problem, kernels)
    np.savez(path, a=problem.kernel, b=problem.kernel)
    with pytest.raises(InputError, match=r"metric: .* \(2 arrays\) given, a .npy file of one array expected"):
        make_uncertainty(problem, {"name": "wasserstein", "radius": 0.1, "metric": str(path)})


@pytest.mark.parametrize("name", ["wasserstein", "linear_ipm"])
def test_defaults_that_are_too_large_say_what_to_give(name):
    states = 20_000
    kernel = sp.csr_array((np.ones(states), np.arange(states), np.arange(states + 1)), shape=(states, states))
    large = RCMDP(kernel, np.zeros((1, states, 1)), [], np.full(states, 1 / states), 0.9)
    expected = {
        "wasserstein": r"uncertainty.metric: 'steps' given, the file of a sparse matrix \(20000, 20000\) expected",
        "linear_ipm": r"uncertainty.features: 'complete' given, a .npy file \(20000, d\) of fewer features expected",
    }
    with pytest.raises(InputError, match=expected[name]):
        make_uncertainty(large, {"name": name, "radius": 0.1, **USUAL[name]})
