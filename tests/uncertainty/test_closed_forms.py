"""Contamination and CVaR: closed forms against linear programs and by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_policy, random_problem, random_rows
from scipy.optimize import linprog

from rcac import evaluate
from rcac.errors import InputError
from rcac.problem import compress
from rcac.runs.build import make_uncertainty
from rcac.uncertainty import Contamination, CVaR, Nominal


def largest(v, low, high):
    """max { qᵀv : low ≤ q ≤ high, Σq = 1 }."""
    found = linprog(-v, A_eq=np.ones((1, len(v))), b_eq=[1], bounds=list(zip(low, high, strict=True)))
    return -found.fun


@pytest.mark.parametrize("name", ["contamination", "cvar"])
def test_against_a_linear_program(name, rng):
    nominal, values = random_rows(rng, 200, 5), rng.normal(size=(200, 5)) * 10 ** rng.uniform(-3, 3, size=(200, 1))
    share = rng.choice([0.0, 0.01, 0.3, 0.9, 1.0], size=200) if name == "contamination" else rng.uniform(0.01, 1, 200)
    made = Contamination(share) if name == "contamination" else CVaR(share)
    value, kernel = made.worst_case(values, nominal)
    np.testing.assert_allclose(kernel.sum(axis=1), 1, atol=1e-14)
    for i in range(200):
        low, high = (
            ((1 - share[i]) * nominal[i], np.full(5, np.inf))
            if name == "contamination"
            else (np.zeros(5), nominal[i] / share[i])
        )
        assert np.all(kernel[i] >= low - 1e-15)
        assert np.all(kernel[i] <= high + 1e-15)
        assert value[i] == pytest.approx(largest(values[i], low, high), abs=1e-9 * np.abs(values[i]).max())
        assert kernel[i] @ values[i] == pytest.approx(value[i], abs=1e-13 * np.abs(values[i]).max())


def test_by_hand():
    v, p = np.array([4.0, 1.0, 2.0, 8.0]), np.array([0.1, 0.5, 0.4, 0.0])
    value, kernel = Contamination(0.25).worst_case(v, p)
    assert value == pytest.approx(0.75 * 1.7 + 0.25 * 8)  # the worst of all states, reached or not
    np.testing.assert_allclose(kernel, [0.075, 0.375, 0.3, 0.25])
    value, kernel = CVaR(0.2).worst_case(v, p)
    assert value == pytest.approx(3.0)  # half at 4, half at 2
    np.testing.assert_allclose(kernel, [0.5, 0, 0.5, 0])


@pytest.mark.parametrize("made", [Contamination(0.0), CVaR(1.0)])
def test_the_nominal_model_to_the_bit(made, rng):
    nominal, values = random_rows(rng, 50, 7), rng.normal(size=(50, 7))
    for found, expected in zip(made.worst_case(values, nominal), Nominal().worst_case(values, nominal), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", [Contamination, CVaR])
def test_rows_of_their_own_sparse_or_dense(make, rng):
    nominal, values, share = random_rows(rng, 30, 9, 0.8), rng.normal(size=(2, 9)), rng.uniform(0.1, 1, size=30)
    dense, sparse = (make(share).sweep(values, compress(each)) for each in (nominal, sp.csr_array(nominal)))
    np.testing.assert_array_equal(dense.value, sparse.value)
    for m in range(30):
        value, kernel = make(float(share[m])).worst_case(values, nominal[m])
        np.testing.assert_allclose(dense.value[:, m], value, rtol=1e-14)
        for k in range(2):
            np.testing.assert_array_equal(dense.dense(k, 9)[m], kernel[k])


def test_contamination_mixes_the_values_of_the_worst_state(rng):
    """Its worst case is (1−ε) of the nominal operator and ε of the largest value: a discount of (1−ε)γ and a bonus."""
    problem = random_problem(rng)
    policy = random_policy(rng, problem)
    found = evaluate(problem, policy, Contamination(0.2))
    chain = np.einsum("sa,sat->st", policy, problem.kernel)
    for k in range(2):
        right = (policy * problem.costs[k]).sum(axis=1) + 0.9 * 0.2 * found.values[k].max()
        np.testing.assert_allclose(found.values[k], np.linalg.solve(np.eye(5) - 0.9 * 0.8 * chain, right), rtol=1e-9)


def test_bad_shares(rng, tmp_path):
    problem = random_problem(rng, states=4, actions=3)
    for make, message in (
        (lambda: Contamination(1.5), r"radius: 1\.5 given, probabilities in \[0, 1\] expected"),
        (lambda: Contamination(-0.5), r"radius: -0\.5 given"),
        (lambda: CVaR(0.0), r"alpha: 0\.0 given, probabilities in \(0, 1\] expected"),
        (lambda: CVaR([[0.5, 1.5]]), r"alpha: 1\.5 given"),
        (lambda: CVaR("x"), "alpha: 'x' given"),
        (lambda: CVaR(np.ones((3, 4))).check(problem), r"alpha: shape \(3, 4\) given, a number or \(4, 3\) expected"),
        (
            lambda: make_uncertainty(problem, {"name": "cvar", "alpha": None}),
            r"uncertainty.alpha: None given, a number in \(0, 1\] or a .npy file \(S, A\) expected",
        ),
    ):
        with pytest.raises(InputError, match=message):
            make()
    np.save(tmp_path / "alpha.npy", np.full((4, 3), 0.5))
    made = make_uncertainty(problem, {"name": "cvar", "alpha": str(tmp_path / "alpha.npy")})
    np.testing.assert_array_equal(made.alpha, 0.5)
    assert make_uncertainty(problem, {"name": "contamination", "radius": "1e-2"}) == Contamination(0.01)
