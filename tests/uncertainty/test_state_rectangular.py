"""s-rectangular balls: the adversary's problem against cvxpy, evaluation, gradients, bounds and solutions against brute force."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_policy, random_problem

from rcac import RCMDP, evaluate, robust_value_iteration, solve
from rcac.errors import Infeasible, InputError
from rcac.runs.build import make_uncertainty
from rcac.tabular.bounds import bounds, one_adversary
from rcac.uncertainty import Nominal, StateL1, StateL2, TotalVariation

BALLS = [StateL1, StateL2]
METHODS = ["rsqp", "rnpg", "rppg", "epirc_pgs", "robust_crpo"]


def with_budgets(problem, budgets):
    return RCMDP(problem.kernel, problem.costs, budgets, problem.initial, problem.discount)


def distance(ball, q, p, weights):
    """Of joint rows (…, A, S)."""
    moved = np.abs(q - p)
    if ball is StateL1:
        return (weights * moved.sum(axis=-1)).sum(axis=-1)
    return np.sqrt((weights * (moved**2).sum(axis=-1)).sum(axis=-1))


def adversary(ball, p, weights, radius, within, values, policy=None, costs=0.0):
    """max over the joint rows q (A, S) of a state of πᵀ(c + qV), or of the least entry of c + qV, by cvxpy."""
    q = cp.Variable(p.shape, nonneg=True)
    if ball is StateL1:
        near = cp.sum(cp.multiply(weights, cp.norm1(q - p, axis=1))) <= radius
    else:
        near = cp.sum_squares(cp.multiply(np.sqrt(weights)[:, None], q - p)) <= radius**2
    support = [cp.multiply(q, (p == 0) * 1.0) == 0] if within else []
    levels = costs + q @ values
    objective = cp.min(levels) if policy is None else policy @ levels
    return cp.Problem(cp.Maximize(objective), [cp.sum(q, axis=1) == 1, near, *support]).solve(solver=cp.CLARABEL)


def small_cases(rng, count):
    for i in range(count):
        problem, policy = random_problem(rng, states=4, actions=3), rng.dirichlet(np.ones(3), size=4)
        policy[:2] = [[1, 0, 0], [0.5, 0, 0.5]]
        radius, weights = 10 ** rng.uniform(-3, 0.7, size=4), rng.uniform(0.3, 3, size=(4, 3))
        yield problem, policy, rng.normal(size=4) * 10.0 ** (2 * i - 4), radius, weights, bool(i % 2)


@pytest.mark.parametrize("ball", BALLS)
def test_worst_rows_of_a_policy_against_cvxpy(ball, rng):
    for problem, policy, values, radius, weights, within in small_cases(rng, 6):
        worst = ball(radius, weights, within).against(policy).sweep(values[None], problem.rows)
        found, kernel = (policy * worst.value.reshape(4, 3)).sum(axis=1), worst.dense(0, 4).reshape(4, 3, 4)
        np.testing.assert_allclose(kernel.sum(axis=2), 1, atol=1e-13)
        assert kernel.min() >= -1e-15
        assert np.all(distance(ball, kernel, problem.kernel, weights) <= radius * (1 + 1e-12))
        assert not within or np.all(kernel[problem.kernel == 0] == 0)
        span = np.ptp(values)
        np.testing.assert_allclose(worst.value.reshape(4, 3), kernel @ values, atol=1e-13 * span)
        for s in range(4):
            truth = adversary(ball, problem.kernel[s], weights[s], radius[s], within, values / span, policy[s])
            assert found[s] / span == pytest.approx(truth, abs=2e-6)


@pytest.mark.parametrize("ball", BALLS)
def test_the_best_policy_of_a_state_against_cvxpy_and_its_own_worst_case(ball, rng):
    """min over π max over q = max over q min over a, which cvxpy computes; and the policy found attains it, exactly."""
    mixed = 0
    for problem, _, values, radius, weights, within in small_cases(rng, 6):
        span = np.ptp(values)
        made, costs = ball(radius / 4, weights, within), 0.05 * span * problem.costs[0]
        level, policy = made.improve(values, problem.rows, costs, 0.9)
        np.testing.assert_allclose(policy.sum(axis=1), 1, atol=1e-14)
        worst = made.against(policy).sweep(values[None], problem.rows).value.reshape(4, 3)
        np.testing.assert_allclose((policy * (costs + 0.9 * worst)).sum(axis=1), level, atol=1e-13 * span)
        mixed += np.sum(policy.max(axis=1) < 0.99)
        for s in range(4):
            truth = adversary(
                ball,
                problem.kernel[s],
                weights[s],
                radius[s] / 4,
                within,
                0.9 * values / span,
                costs=costs[s] / span,
            )
            assert level[s] / span == pytest.approx(truth, abs=2e-6)
    assert mixed > 2  # stochastic policies are met


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("within", [False, True])
def test_evaluation_is_the_fixed_point(ball, within, rng):
    """By plain iteration with cvxpy's adversary from Newton's values: one more application changes nothing."""
    problem = random_problem(rng, states=3, actions=2)
    policy = random_policy(rng, problem)
    found = evaluate(problem, policy, ball(0.3, within_support=within))
    assert found.error_bound < 1e-8
    for k in range(2):
        for s in range(3):
            model = problem.kernel[s], np.ones(2), 0.3, within
            worst = adversary(ball, *model, 0.9 * found.values[k], policy[s], problem.costs[k, s])
            assert found.values[k, s] == pytest.approx(worst, abs=1e-5)
    # the kernels found have these values, and lie in the set
    chains = np.einsum("sa,ksat->kst", policy, found.kernels)
    for k in range(2):
        right = (policy * problem.costs[k]).sum(axis=1)
        np.testing.assert_allclose(np.linalg.solve(np.eye(3) - 0.9 * chains[k], right), found.values[k], atol=1e-8)


@pytest.mark.parametrize("ball", BALLS)
def test_gradients_against_finite_differences(ball, rng):
    for _ in range(3):
        problem = random_problem(rng, states=4, actions=3)
        policy, made = random_policy(rng, problem), ball(0.15, rng.uniform(0.5, 2, size=(4, 3)))
        gradients = evaluate(problem, policy, made).gradients
        direction = rng.normal(size=(4, 3))
        direction -= direction.mean(axis=1, keepdims=True)
        step = 1e-6
        ahead, behind = (evaluate(problem, policy + h * direction, made, tolerance=1e-13) for h in (step, -step))
        slopes = (ahead.returns - behind.returns) / (2 * step)
        np.testing.assert_allclose(np.einsum("ksa,sa->k", gradients, direction), slopes, rtol=1e-4, atol=1e-5)


def grid(steps=41):
    ticks = np.linspace(0, 1, steps)
    return [np.array([[x, 1 - x], [y, 1 - y]]) for x in ticks for y in ticks]


@pytest.mark.parametrize("ball", BALLS)
def test_bounds_and_solutions_against_a_grid(ball):
    """2 × 2 problems: no policy of the grid is better than the least worst case, the best one is close to it; the bound that
    takes all costs together holds; RSQP is as good as the grid's best feasible policy."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        problem, made = random_problem(rng, states=2, actions=2, discount=0.8), ball(0.25)
        returns = np.array([evaluate(problem, policy, made).returns for policy in grid()])
        for index in range(2):
            alone = robust_value_iteration(problem, made, index)
            assert returns[:, index].min() >= alone.value - alone.error_bound
            assert returns[:, index].min() <= alone.value + 0.05
            assert alone.error_bound < 1e-8
            assert evaluate(problem, alone.policy, made).returns[index] == pytest.approx(alone.value, abs=1e-8)
        least = returns[:, 1].min()
        problem = with_budgets(problem, [least + 0.3 * (np.median(returns[:, 1]) - least) + 1e-3])
        best = returns[returns[:, 1] <= problem.budgets[0], 0].min()
        assert one_adversary(problem, made) <= best + 1e-9
        found = solve(problem, "rsqp", made)
        assert found.feasible
        assert bounds(problem, made).best - 1e-9 <= found.returns[0] <= best + 0.01 * max(1, abs(best))
        with pytest.raises(Infeasible, match="constraint 1"):
            solve(with_budgets(problem, [robust_value_iteration(problem, made, 1).value - 1e-3]), "rsqp", made)


@pytest.mark.parametrize("ball", BALLS)
def test_every_method_runs(ball, rng):
    problem = random_problem(rng, states=3, actions=2)
    made = ball(0.2)
    budget = evaluate(problem, np.full((3, 2), 0.5), made).returns[1] + 0.1
    for method in METHODS:
        found = solve(with_budgets(problem, [budget]), method, made, iterations=15)
        assert found.feasible  # the first policy is
        assert found.returns[0] >= found.bounds.best


@pytest.mark.parametrize("ball", BALLS)
def test_radius_zero_is_the_nominal_model_to_the_bit(ball, rng):
    problem = random_problem(rng)
    policy, values = random_policy(rng, problem), rng.normal(size=(2, 5))
    np.testing.assert_array_equal(
        ball(0.0).against(policy).sweep(values, problem.rows).value, Nominal().sweep(values, problem.rows).value
    )
    np.testing.assert_array_equal(evaluate(problem, policy, ball(0.0)).returns, evaluate(problem, policy).returns)
    assert robust_value_iteration(problem, ball(0.0), 0).value == pytest.approx(
        robust_value_iteration(problem).value, rel=1e-12
    )


@pytest.mark.parametrize("ball", BALLS)
def test_a_huge_radius_gives_the_top(ball, rng):
    problem = random_problem(rng)
    policy, values = random_policy(rng, problem), rng.normal(size=(1, 5))
    free, kept = (ball(1e3, within_support=within).against(policy).sweep(values, problem.rows) for within in (0, 1))
    np.testing.assert_allclose(free.value, values.max(), rtol=1e-12)
    tops = np.where(problem.kernel.reshape(-1, 5) > 0, values, -np.inf).max(axis=1)
    np.testing.assert_allclose(kept.value[0], tops, rtol=1e-12)


def test_one_action_is_total_variation(rng):
    problem = random_problem(rng, actions=1)
    for within in (False, True):
        expected = evaluate(problem, np.ones((5, 1)), TotalVariation(0.1, within_support=within)).returns
        np.testing.assert_allclose(
            evaluate(problem, np.ones((5, 1)), StateL1(0.2, within_support=within)).returns, expected, rtol=1e-12
        )


def test_sharing_the_budget_costs_less_than_giving_it_to_every_action(rng):
    problem = random_problem(rng)
    policy = random_policy(rng, problem)
    shared, each = (evaluate(problem, policy, made).returns for made in (StateL1(0.2), TotalVariation(0.1)))
    assert np.all(shared < each)
    for action in range(3):  # a policy that takes one action meets all of it
        pure = np.eye(3)[np.full(5, action)]
        np.testing.assert_allclose(
            evaluate(problem, pure, StateL1(0.2)).returns, evaluate(problem, pure, TotalVariation(0.1)).returns
        )


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_results_do_not_depend_on_units(ball, unit, rng):
    problem, made = random_problem(rng), ball(0.2)
    values, policy = rng.normal(size=(1, 5)), random_policy(rng, problem)
    plain, scaled = (made.against(policy).sweep(x, problem.rows) for x in (values, unit * values))
    np.testing.assert_allclose(scaled.value, unit * plain.value, rtol=1e-12, atol=1e-12 * unit)
    levels = made.improve(values[0], problem.rows, problem.costs[0], 0.9)
    other = made.improve(unit * values[0], problem.rows, unit * problem.costs[0], 0.9)
    np.testing.assert_allclose(other[0], unit * levels[0], rtol=1e-12)
    np.testing.assert_allclose(other[1], levels[1], atol=1e-9)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("within", [False, True])
def test_sparse_problems_equal_dense_ones(ball, within, rng):
    dense = with_budgets(random_problem(rng, states=6, actions=3, sparse_share=1.0), [100.0])
    sparse = RCMDP(sp.csr_array(dense.kernel.reshape(-1, 6)), dense.costs, dense.budgets, dense.initial, dense.discount)
    policy, made = random_policy(rng, dense), ball(rng.uniform(0, 0.5, size=6), within_support=within)
    one, other = (evaluate(problem, policy, made) for problem in (dense, sparse))
    np.testing.assert_allclose(other.returns, one.returns, rtol=1e-10)
    np.testing.assert_allclose(other.kernels[1].toarray(), one.kernels[1].reshape(-1, 6), atol=1e-9)
    assert robust_value_iteration(sparse, made, 0).value == pytest.approx(robust_value_iteration(dense, made, 0).value)
    one, other = (solve(problem, "rsqp", made, iterations=8).returns for problem in (dense, sparse))
    np.testing.assert_allclose(other, one, rtol=1e-6)


def test_smoothness_is_what_rsqp_is_told():
    assert StateL2(0.1).smooth
    assert not StateL1(0.1).smooth
    assert not any(ball(0.1).rectangular for ball in BALLS)


@pytest.mark.parametrize("name", ["state_l1", "state_l2"])
def test_names_files_and_refusals(name, rng, tmp_path):
    problem, rest = random_problem(rng, states=4, actions=3), {"weights": 1.0, "within_support": False}
    np.save(tmp_path / "radius.npy", np.arange(4) / 10)
    np.save(tmp_path / "weights.npy", np.ones((4, 3)))
    made = make_uncertainty(
        problem,
        {"name": name, **rest, "radius": str(tmp_path / "radius.npy"), "weights": str(tmp_path / "weights.npy")},
    )
    np.testing.assert_array_equal(made.radius, np.arange(4) / 10)
    for change, message in (
        ({"radius": [[0.1] * 3] * 4}, r"uncertainty.radius: shape \(4, 3\) given, a number or \(4,\) expected"),
        ({"radius": None}, r"uncertainty.radius: None given, a number ≥ 0 or a .npy file \(S,\) expected"),
        ({"radius": -1.0}, r"uncertainty.radius: -1.0 given, a finite number ≥ 0 expected"),
        ({"weights": 0.0}, r"uncertainty.weights: 0.0 given, positive numbers expected"),
        ({"weights": [1.0, 2.0]}, r"uncertainty.weights: shape \(2,\) given, a number or \(4, 3\) expected"),
    ):
        with pytest.raises(InputError, match=message):
            make_uncertainty(problem, {"name": name, "radius": 0.1, **rest, **change})
    with pytest.raises(InputError, match="worst_case: the rows of a state share a budget"):
        made.worst_case(np.zeros(4), problem.kernel)


def test_mass_that_would_fill_large_rows_is_refused(monkeypatch, rng):
    monkeypatch.setattr("rcac.uncertainty.state_l2.WRITTEN_OUT", 10)
    problem = random_problem(rng, sparse_share=1.0)
    policy = random_policy(rng, problem)
    with pytest.raises(InputError, match="within_support: False given, True expected for 15 rows of 5 states"):
        evaluate(problem, policy, StateL2(0.1))
    evaluate(problem, policy, StateL2(0.1, within_support=True))
