"""Robust evaluation against plain robust value iteration, finite differences, closed forms and its own error bound."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SET_NAMES, every_set, random_policy, random_problem, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import rcac.evaluation.chains
import rcac.evaluation.newton
from benchmarks import problems
from rcac import RCMDP, InputError, evaluate
from rcac.evaluation import NotSettled
from rcac.evaluation.chains import dense_solve
from rcac.uncertainty import ChiSquare, FiniteKernels, InexactWarning, KLBall, KLPenalty, TotalVariation

pytestmark = pytest.mark.filterwarnings("ignore::rcac.uncertainty.InexactWarning")


def named_set(name, problem, rng):
    shape = problem.kernel.shape
    others = [random_rows(rng, shape[0] * shape[1], shape[2], 0.5).reshape(shape) for _ in range(2)]
    return every_set(shape[0], kernels=[problem.kernel, *others])[name]


def plain_iteration(problem, policy, uncertainty, sweeps=4000):
    """V ← Σ_a π (c + γ sup qᵀV), over and over."""
    values = np.zeros(problem.costs.shape[:2])
    for _ in range(sweeps):
        worst = uncertainty.sweep(values, problem.rows).value.reshape(problem.costs.shape)
        image = np.einsum("sa,ksa->ks", policy, problem.costs + problem.discount * worst)
        if np.abs(image - values).max() < 1e-14 * max(1.0, np.abs(image).max()):
            break
        values = image
    return values


@pytest.mark.parametrize("name", SET_NAMES[:-1])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_plain_iteration(name, seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, states=4 + seed, constraints=1 + seed % 2)
    policy, uncertainty = random_policy(rng, problem), named_set(name, problem, rng)
    found = evaluate(problem, policy, uncertainty)
    truth = plain_iteration(problem, policy, uncertainty)
    np.testing.assert_allclose(found.values, truth, atol=1e-8)
    np.testing.assert_allclose(found.returns, truth @ problem.initial, atol=1e-8)
    assert np.abs(found.returns - truth @ problem.initial).max() <= found.error_bound + 1e-13
    worst, kernels = uncertainty.worst_case(found.values[:, None, None], problem.kernel)
    np.testing.assert_allclose(found.q_values, problem.costs + problem.discount * worst, atol=1e-8)
    np.testing.assert_allclose(found.kernels, kernels, atol=1e-6)


def test_whole_kernels_take_one_kernel_for_all_states(rng):
    problem = random_problem(rng, constraints=2)
    policy, uncertainty = random_policy(rng, problem), named_set("whole_kernels", problem, rng)
    found = evaluate(problem, policy, uncertainty)
    each = np.array(
        [
            evaluate(RCMDP(k, problem.costs, problem.budgets, problem.initial, 0.9), policy).returns
            for k in uncertainty.kernels
        ]
    )
    np.testing.assert_allclose(found.returns, each.max(axis=0), atol=1e-12)
    for k, chosen in enumerate(each.argmax(axis=0)):
        np.testing.assert_array_equal(found.kernels[k], uncertainty.kernels[chosen])
    rectangular = evaluate(problem, policy, FiniteKernels(uncertainty.kernels))
    assert np.all(rectangular.returns >= found.returns - 1e-12)


def test_the_error_of_whole_kernels_is_at_most_the_largest(rng, monkeypatch):
    problem = random_problem(rng)
    bounds = iter([0.25, 1.0, 0.5])
    monkeypatch.setattr(rcac.evaluation.newton, "error_bounds", lambda *_: np.full(2, next(bounds)))
    found = evaluate(problem, random_policy(rng, problem), named_set("whole_kernels", problem, rng))
    assert found.error_bounds.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", SET_NAMES)
def test_the_worst_kernels_attain_the_returns_and_the_occupancy_is_theirs(name, rng):
    """Evaluate each worst kernel as a plain Markov chain: same J (up to the price of a penalty), d by power series."""
    problem = random_problem(rng, constraints=2)
    policy, uncertainty = random_policy(rng, problem), named_set(name, problem, rng)
    found, gamma = evaluate(problem, policy, uncertainty), problem.discount
    np.testing.assert_allclose(found.kernels.sum(axis=-1), 1, atol=1e-12)
    for k in range(3):
        chain = np.einsum("sa,sat->st", policy, found.kernels[k])
        series, mass = np.zeros(problem.num_states), problem.initial
        for t in range(600):
            series += (1 - gamma) * gamma**t * mass
            mass = mass @ chain
        np.testing.assert_allclose(found.occupancy[k], series, atol=1e-12)
        if name != "kl_penalty":
            earned = series @ np.einsum("sa,sa->s", policy, problem.costs[k]) / (1 - gamma)
            assert found.returns[k] == pytest.approx(earned, abs=1e-8)


@pytest.mark.parametrize("name", SET_NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_gradient_agrees_with_central_differences(name, seed):
    rng = np.random.default_rng(100 + seed)
    problem = random_problem(rng, states=4, constraints=1)
    policy, uncertainty = random_policy(rng, problem) * 0.8 + 0.2 / 3, named_set(name, problem, rng)
    gradient, step = evaluate(problem, policy, uncertainty).gradients, 1e-5
    for _ in range(10):
        direction = rng.normal(size=policy.shape)
        direction -= direction.mean(axis=1, keepdims=True)  # stay on the simplex
        up, down = (
            evaluate(problem, policy + s * step * direction, uncertainty, tolerance=1e-14).returns for s in (1, -1)
        )
        slope = (up - down) / (2 * step)
        np.testing.assert_allclose(np.einsum("ksa,sa->k", gradient, direction), slope, atol=1e-5)


def test_gradient_of_the_linear_kl_value_is_approximate(rng):
    """The paper's evaluator: d·Q/(1−γ) misses the tilt's own movement, less and less as θ grows."""
    problem = random_problem(rng, states=4)
    policy, direction = random_policy(rng, problem) * 0.8 + 0.2 / 3, rng.normal(size=(4, 3))
    direction -= direction.mean(axis=1, keepdims=True)
    errors = []
    for theta in (10.0, 100.0, 1000.0):
        uncertainty = KLPenalty(theta, value="linear")
        up, down = (
            evaluate(problem, policy + s * 1e-5 * direction, uncertainty, tolerance=1e-14).returns for s in (1, -1)
        )
        estimate = np.einsum("ksa,sa->k", evaluate(problem, policy, uncertainty).gradients, direction)
        errors.append(np.abs(estimate - (up - down) / 2e-5).max())
    assert errors[0] > 1e-4  # it is there
    assert errors[1] < errors[0] / 5  # of order 1/θ
    assert errors[2] < errors[1] / 5


def test_linear_kl_value_equals_its_plain_iteration_where_that_converges(rng):
    problem = random_problem(rng)
    policy, uncertainty = random_policy(rng, problem), KLPenalty(20.0, value="linear")
    found = evaluate(problem, policy, uncertainty)
    np.testing.assert_allclose(found.values, plain_iteration(problem, policy, uncertainty), atol=1e-8)
    assert found.error_bound == np.inf  # no contraction, no promise


def test_linear_kl_value_says_when_it_does_not_settle():
    problem = random_problem(np.random.default_rng(3), states=8, discount=0.99, scale=5)
    policy = random_policy(np.random.default_rng(4), problem)
    seen = []
    for theta in (3.0, 1.0, 0.3, 0.1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = evaluate(problem, policy, KLPenalty(theta, value="linear"))
        chain = np.einsum("sa,ksa->ks", policy, found.q_values)
        settled = not any(w.category is NotSettled for w in caught)
        again, _ = KLPenalty(theta, value="linear").worst_case(found.values[:, None, None], problem.kernel)
        residual = np.abs(np.einsum("sa,ksa->ks", policy, problem.costs + 0.99 * again) - found.values).max()
        assert np.isfinite(chain).all()
        assert not settled or residual < 1e-6
        seen.append(settled)
    assert len(seen) == 4


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(SET_NAMES[:7]),
    tolerance=st.sampled_from([1e-1, 1e-3, 1e-6, 1e-10]),
    discount=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_error_bound_is_never_smaller_than_the_error(seed, name, tolerance, discount):
    rng = np.random.default_rng(seed)
    problem = random_problem(
        rng, states=int(rng.integers(1, 6)), actions=int(rng.integers(1, 4)), discount=discount, scale=10
    )
    policy, uncertainty = random_policy(rng, problem), every_set(problem.num_states)[name]
    rough = evaluate(problem, policy, uncertainty, tolerance=tolerance)
    truth = plain_iteration(problem, policy, uncertainty)
    assert np.abs(rough.values - truth).max() <= rough.error_bound + 1e-12
    assert np.abs(rough.returns - truth @ problem.initial).max() <= rough.error_bound + 1e-12


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["kl_ball", "tv", "tv_support", "chi_square", "wasserstein"]))
def test_worst_exceeds_nominal_exceeds_best_and_grows_with_the_radius(seed, name):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    policy, uncertainty = random_policy(rng, problem), every_set(problem.num_states)[name]
    worst, nominal = evaluate(problem, policy, uncertainty).returns, evaluate(problem, policy).returns
    mirrored = RCMDP(problem.kernel, -problem.costs, problem.budgets, problem.initial, problem.discount)
    best = -evaluate(mirrored, policy, uncertainty).returns
    assert np.all(worst >= nominal - 1e-8)
    assert np.all(nominal >= best - 1e-8)
    import dataclasses

    larger = dataclasses.replace(uncertainty, radius=uncertainty.radius * 2)
    assert np.all(evaluate(problem, policy, larger).returns >= worst - 1e-8)
    shifted = RCMDP(problem.kernel, problem.costs + 3.0, problem.budgets, problem.initial, problem.discount)
    np.testing.assert_allclose(evaluate(shifted, policy, uncertainty).returns, worst + 3.0 / (1 - 0.9), atol=1e-7)


def test_each_cost_has_its_own_adversary():
    """Two states, two opposite costs: the kernel that is worst for one is best for the other."""
    kernel = np.full((2, 1, 2), 0.5)
    problem = RCMDP(kernel, [[[1.0], [0.0]], [[0.0], [1.0]]], [0.0], [0.5, 0.5], 0.9)
    found = evaluate(problem, np.ones((2, 1)), TotalVariation(0.2))
    np.testing.assert_allclose(found.kernels[0], [[[0.7, 0.3]], [[0.7, 0.3]]])
    np.testing.assert_allclose(found.kernels[1], [[[0.3, 0.7]], [[0.3, 0.7]]])
    # J = 0.5 + γ/(1−γ)·0.7
    np.testing.assert_allclose(found.returns, 0.5 + 9 * 0.7, atol=1e-9)


def test_occupancy_of_a_one_way_street():
    """0 → 1 → 1: d = (1−γ, γ). A missing transpose gives something else."""
    problem = RCMDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[[1.0], [5.0]]], [], [1.0, 0.0], 0.9)
    found = evaluate(problem, np.ones((2, 1)))
    np.testing.assert_allclose(found.occupancy, [[0.1, 0.9]], atol=1e-14)
    np.testing.assert_allclose(found.q_values[0, :, 0], [1 + 0.9 * 50, 50], atol=1e-9)
    np.testing.assert_allclose(found.gradients[0, :, 0], [46.0, 0.9 * 50 / 0.1], atol=1e-7)


def test_rewards_become_costs():
    """Reward 1 per step at γ .9 is a return of 10, so J_0 = −10; a utility of 2 is J_2 = −20 against b_2 = −floor."""
    one = np.ones((1, 1))
    problem = RCMDP.from_rewards(
        [[[1.0]]], one, [one * 3], [40.0], [1.0], 0.9, utilities=[one * 2], utility_floors=[15.0]
    )
    np.testing.assert_allclose(evaluate(problem, one).returns, [-10, 30, -20], atol=1e-9)
    np.testing.assert_array_equal(problem.budgets, [40, -15])
    np.testing.assert_array_equal(problem.signs, [-1, 1, -1])


@pytest.mark.parametrize("name", SET_NAMES[:-2])
def test_one_state_and_one_action(name):
    problem = RCMDP([[[1.0]]], [[[2.0]], [[-3.0]]], [0.0], [1.0], 0.99)
    found = evaluate(problem, np.ones((1, 1)), every_set(1)[name])
    np.testing.assert_allclose(found.returns, [200, -300], atol=1e-6)


@pytest.mark.parametrize("name", SET_NAMES[:-2])
def test_absorbing_and_unreachable_states(name):
    """State 2 is absorbing, state 3 cannot be reached; both have finite, right values within the support."""
    kernel = np.zeros((4, 1, 4))
    kernel[0, 0] = [0.5, 0.3, 0.2, 0]
    kernel[1, 0] = [0, 0.4, 0.6, 0]
    kernel[2, 0, 2] = 1
    kernel[3, 0] = [0.5, 0.5, 0, 0]
    problem = RCMDP(kernel, [[[1.0], [2.0], [0.0], [100.0]]], [], [1.0, 0, 0, 0], 0.95)
    found = evaluate(problem, np.ones((4, 1)), every_set(4)[name])
    assert np.isfinite(found.values).all()
    if name in ("nominal", "kl_ball", "kl_penalty", "tv_support", "chi_square"):
        assert found.values[0, 2] == pytest.approx(0, abs=1e-12)
        assert found.occupancy[0, 3] == 0
        assert found.returns[0] <= 2 / 0.05


@pytest.mark.parametrize("make", [lambda r: KLBall(r), lambda r: TotalVariation(r), lambda r: ChiSquare(r)])
def test_radius_zero_is_the_nominal_evaluation_to_the_bit(make, rng):
    problem = random_problem(rng)
    policy = random_policy(rng, problem)
    np.testing.assert_array_equal(evaluate(problem, policy, make(0.0)).values, evaluate(problem, policy).values)


def test_warm_start_costs_at_most_two_rounds(rng):
    problem = random_problem(rng, states=15, actions=6, discount=0.99)
    policy = random_policy(rng, problem)
    moved = policy * np.exp(0.01 * rng.normal(size=policy.shape))
    moved /= moved.sum(axis=1, keepdims=True)
    for name, uncertainty in every_set(15).items():
        first = evaluate(problem, policy, uncertainty)
        again = evaluate(problem, moved, uncertainty, warm_start=first)
        assert again.rounds <= 2, name
        np.testing.assert_allclose(again.returns, evaluate(problem, moved, uncertainty).returns, atol=1e-7)


@pytest.mark.parametrize("name", SET_NAMES[:-2])
def test_sparse_problems_and_the_iterative_solver_agree_with_dense(name, rng, monkeypatch):
    dense = random_problem(rng, states=12, actions=3, sparse_share=1.0, discount=0.97)
    sparse = RCMDP(sp.csr_array(dense.kernel.reshape(36, 12)), dense.costs, dense.budgets, dense.initial, 0.97)
    policy, uncertainty = random_policy(rng, dense), every_set(12)[name]
    expected = evaluate(dense, policy, uncertainty)
    for factorised in (True, False):
        monkeypatch.setattr(rcac.evaluation.chains, "factorised", lambda states, entries, this=factorised: this)
        found = evaluate(sparse, policy, uncertainty)
        np.testing.assert_allclose(found.values, expected.values, atol=1e-8)
        np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=1e-10)
        assert found.error_bound < 1e-6
    assert sp.issparse(found.kernels[0])
    np.testing.assert_allclose(found.kernels[1].toarray(), expected.kernels[1].reshape(36, 12), atol=1e-6)
    if name == "linear_ipm":
        monkeypatch.setattr(rcac.evaluation.newton, "WRITTEN_OUT", 12 * 36 - 1)
        with pytest.raises(InputError, match="36 such rows are too many to write out"):
            evaluate(sparse, policy, uncertainty).kernels  # noqa: B018


def test_a_large_sparse_problem():
    """5 000 states × 10 actions × 10 successors, never made dense; the bound is checked by one more sweep."""
    rng = np.random.default_rng(0)
    states, actions, branching = 5_000, 10, 10
    indices = rng.integers(states, size=(states * actions, branching))
    data = rng.dirichlet(np.ones(branching), size=states * actions)
    kernel = sp.csr_array(
        (data.ravel(), indices.ravel(), np.arange(0, data.size + 1, branching)), shape=(states * actions, states)
    )
    problem = RCMDP(kernel, rng.random((2, states, actions)), [1.0], np.full(states, 1 / states), 0.99)
    policy = np.full((states, actions), 1 / actions)
    for uncertainty in (KLBall(0.05), TotalVariation(0.05)):
        found = evaluate(problem, policy, uncertainty)
        again = uncertainty.sweep(found.values, problem.rows).value.reshape(2, states, actions)
        residual = np.abs(np.einsum("sa,ksa->ks", policy, problem.costs + 0.99 * again) - found.values).max()
        assert residual / 0.01 <= found.error_bound + 1e-9
        assert found.error_bound < 1e-6
        np.testing.assert_allclose(found.occupancy.sum(axis=1), 1, atol=1e-9)


def test_huge_values_stay_finite(rng):
    problem = random_problem(rng, scale=1e8, discount=0.99)
    policy = random_policy(rng, problem)
    for name, uncertainty in every_set(5).items():
        found = evaluate(problem, policy, uncertainty)
        assert np.isfinite(found.values).all(), name
        assert np.isfinite(found.occupancy).all(), name


def test_inexact_closed_forms_are_reported(rng):
    from rcac.uncertainty import LinearIPM

    problem = random_problem(rng)
    features = np.column_stack([np.ones(5), np.arange(5.0)])
    with pytest.warns(InexactWarning, match="upper bound"):
        evaluate(problem, random_policy(rng, problem), LinearIPM(3.0, features))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.ones((5, 2)) / 2, r"policy: shape \(5, 2\) given, \(5, 3\) expected"),
        (np.ones((5, 3)), r"policy\[0\]: sums to 3, 1 expected"),
        (np.full((5, 3), np.nan), r"policy\[0, 0\]: nan given"),
        (np.array([[1.5, -0.5, 0]] * 5), r"policy\[0\]\[1\]: -0\.5 given"),
    ],
)
def test_bad_policies_are_refused(policy, message, rng):
    with pytest.raises(InputError, match=message):
        evaluate(random_problem(rng), policy)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wasserstein", "metric: 4 states given, the problem has 5"),
        ("linear_ipm", "features: 4 states given, the problem has 5"),
    ],
)
def test_sets_of_the_wrong_size_are_refused(name, message, rng):
    problem = random_problem(rng)
    with pytest.raises(InputError, match=message):
        evaluate(problem, random_policy(rng, problem), every_set(4)[name])
    with pytest.raises(InputError, match=r"radius: shape \(2, 2\) given, a number or \(5, 3\) expected"):
        evaluate(problem, random_policy(rng, problem), KLBall(np.ones((2, 2))))


def test_equal_successors_of_a_chain_are_merged(rng):
    for rows, columns, entries in ((1, 1, 5), (7, 4, 60), (40, 300, 200)):
        at = np.sort(rng.integers(rows, size=entries))
        start = np.searchsorted(at, np.arange(rows + 1)).astype(np.int32)  # some rows are empty
        columns_at = rng.integers(columns, size=entries).astype(np.int32)
        chain = sp.csr_array((rng.random(entries), columns_at, start), shape=(rows, columns))
        expected = chain.toarray()
        merged = rcac.evaluation.chains.merged(chain)
        np.testing.assert_allclose(merged.toarray(), expected, rtol=1e-14)
        assert merged.nnz == np.count_nonzero(expected)
        assert [len(set(merged[[i]].indices)) for i in range(rows)] == np.diff(merged.indptr).tolist()


def test_occupancies_of_large_problems_are_exact_from_a_uniform_start():
    """The constant vector, which is an eigenvector of the transposed chain: the solver broke down on it."""
    problem = problems.grid(25, 0.99)
    policy = problems.random_policy(problem)
    found = evaluate(problem, policy, TotalVariation(0.05))
    for k, kernel in enumerate(found.kernels):
        chain = (policy[:, :, None] * kernel.toarray().reshape(625, 10, 625)).sum(axis=1)
        expected = 0.01 * np.linalg.solve(np.eye(625) - 0.99 * chain.T, problem.initial)
        np.testing.assert_allclose(found.occupancy[k], expected, atol=1e-11)


@pytest.mark.parametrize("ends", ["circle", "line"])
@pytest.mark.parametrize("start", ["first", "uniform"])
def test_occupancies_of_chains_on_which_bicgstab_breaks_down(ends, start):
    """It then calls numbers as large as 1e100 a solution; γ .9999 asks for more than it can do in one go."""
    for states, gamma, seed in ((300, 0.9, 0), (1000, 0.9, 1), (1000, 0.95, 2), (400, 0.9999, 3)):
        every = np.arange(states)
        following = (every + 1) % states if ends == "circle" else np.minimum(every + 1, states - 1)
        kernel = sp.csr_array((np.ones(states), following, np.arange(states + 1)), shape=(states, states))
        cost = np.random.default_rng(seed).random((1, states, 1))
        initial = np.eye(states)[0] if start == "first" else np.full(states, 1 / states)
        found = evaluate(RCMDP(kernel, cost, [], initial, gamma), np.ones((states, 1)), TotalVariation(0.05))
        matrix = sp.eye_array(states) - gamma * found.kernels[0].T
        expected = sp.linalg.spsolve(matrix.tocsc(), (1 - gamma) * initial)
        np.testing.assert_allclose(found.occupancy[0], expected, atol=1e-9)
        assert found.returns[0] == pytest.approx(expected @ cost[0, :, 0] / (1 - gamma), abs=1e-6 * found.returns[0])


THREADED = """
import hashlib, sys
import numpy as np
from rcac import RCMDP, evaluate, solve
from benchmarks import problems
from rcac.uncertainty import KLBall, TotalVariation

def told(*arrays):
    print(hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest())

for made in (problems.dense(180, 5, 0.95), problems.sparse(12_000, 3, 5, 0.9)):
    problem = RCMDP(made.kernel, made.costs, [0.6 / (1 - made.discount)], made.initial, made.discount)
    found = evaluate(problem, problems.random_policy(problem), TotalVariation(0.05))
    told(found.values, found.returns, found.occupancy)
    told(solve(problem, "rsqp", KLBall(0.05), iterations=4).policy)
"""


def test_results_do_not_depend_on_the_number_of_threads():
    """Neither of numba's nor of those of the linear algebra, which a process reads when it starts."""
    found = []
    for count in ("1", "2"):
        threads = dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), count
        )
        done = subprocess.run(
            [sys.executable, "-c", THREADED],
            env={**os.environ, **threads},
            cwd=Path(__file__).parents[2] / "scripts",  # for its problems
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1]
    assert len(found[0].split()) == 4


@pytest.mark.parametrize("name", ["nominal", "kl_ball", "tv", "chi_square", "wasserstein"])
@pytest.mark.parametrize("factor", [1e-9, 1e-4, 1e9])
def test_evaluation_does_not_depend_on_the_unit_of_a_cost(name, factor, rng):
    problem = random_problem(rng, constraints=2, discount=0.99)
    policy, uncertainty = random_policy(rng, problem), every_set(5)[name]
    expected = evaluate(problem, policy, uncertainty)
    for k in range(3):
        unit = np.ones(3)
        unit[k] = factor
        costs = problem.costs * unit[:, None, None]
        scaled = RCMDP(problem.kernel, costs, problem.budgets, problem.initial, problem.discount)
        found = evaluate(scaled, policy, uncertainty)
        np.testing.assert_allclose(found.values, expected.values * unit[:, None], rtol=1e-9)
        np.testing.assert_allclose(found.error_bounds / unit, expected.error_bounds, rtol=0.05)
        np.testing.assert_allclose(found.gradients, expected.gradients * unit[:, None, None], rtol=1e-8)


def test_the_error_bound_holds_at_tiny_radii_and_masses(rng):
    """Against plain iteration in 40 digits, on a row that total masses of 1e-16 and a radius of 1e-13 make hard."""
    import mpmath as mp

    p = np.array([5.6e-17, 1.0 - 5.6e-17])
    for radius in (1e-13, 1e-6, 0.01):
        problem = RCMDP([[p], [p]], [[[1.0], [0.0]]], [], [0.5, 0.5], 0.9)
        found = evaluate(problem, np.ones((2, 1)), ChiSquare(radius))
        with mp.workdps(40):
            mass, r = mp.mpf(float(p[0])), mp.mpf(radius)
            mass /= mass + mp.mpf(float(p[1]))
            worst = mass + mp.sqrt(r * mass * (1 - mass))  # of state 0, while it is at most 1
            truth = mp.mpf("0.5") + mp.mpf(0.9) * worst / (1 - mp.mpf(0.9))
            assert abs(truth - mp.mpf(float(found.returns[0]))) <= found.error_bound


def test_an_evaluation_prints_on_one_line(rng):
    problem = random_problem(rng, states=30)
    shown = repr(evaluate(problem, random_policy(rng, problem), KLBall(0.1)))
    assert shown.startswith("Evaluation(returns [")
    assert "\n" not in shown
    assert len(shown) < 120


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_dense_systems_are_solved_to_rounding_by_products_or_by_factors(transposed, shared, rng, monkeypatch):
    """Chains that forget where they began, chains that do not (cycles), and one of each together."""
    forgets, cycle = rng.dirichlet(np.ones(300), size=300), np.roll(np.eye(300), 1, axis=1)
    factorised = []
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda *given: factorised.append(1) or solve(*given))
    for pair in ((forgets, forgets), (cycle, cycle), (forgets, cycle)):
        chains = np.stack(pair[:1] if shared else pair)
        right = rng.random((2, 300))
        factorised.clear()
        found = dense_solve(chains.copy(), 0.99, right, transposed=transposed)
        assert bool(factorised) == bool((chains == cycle).all(axis=(1, 2)).any())
        for k in range(2):
            chain = chains[k % len(chains)]
            truth = solve(np.eye(300) - 0.99 * (chain.T if transposed else chain), right[k])
            np.testing.assert_allclose(found[k], truth, rtol=1e-11)
        right[0] = 0.0
        assert not dense_solve(chains, 0.99, right, transposed=transposed)[0].any()
