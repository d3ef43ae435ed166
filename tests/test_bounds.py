"""Robust value iteration against brute force over policies; the occupancy linear program against known optima."""

import itertools

import numpy as np
import pytest
from conftest import every_set, random_policy, random_problem

from rcac import RCMDP, InputError, evaluate, nominal_optimum, robust_value_iteration
from rcac.uncertainty import FiniteKernels, KLBall, TotalVariation

NAMES = ["nominal", "kl_ball", "kl_penalty", "tv", "tv_support", "chi_square", "wasserstein"]


@pytest.mark.parametrize("name", NAMES)
def test_robust_value_iteration_against_every_deterministic_policy(name, rng):
    for _ in range(5):
        problem = random_problem(rng, states=3, actions=3)
        uncertainty = every_set(3)[name]
        for index in (0, 1):
            found = robust_value_iteration(problem, index, uncertainty)
            best = min(
                evaluate(problem, np.eye(3)[list(choice)], uncertainty).returns[index]
                for choice in itertools.product(range(3), repeat=3)
            )
            assert found.value == pytest.approx(best, abs=1e-7)
            assert evaluate(problem, found.policy, uncertainty).returns[index] == pytest.approx(best, abs=1e-7)
            for _ in range(20):  # nor does a random policy do better
                assert evaluate(problem, random_policy(rng, problem), uncertainty).returns[index] >= best - 1e-7


def test_robust_value_iteration_bounds_its_error(rng):
    for _ in range(20):
        problem = random_problem(rng, states=6, actions=4, discount=0.95)
        rough = robust_value_iteration(problem, 0, KLBall(0.1), tolerance=1e-2)
        exact = robust_value_iteration(problem, 0, KLBall(0.1))
        assert abs(rough.value - exact.value) <= rough.error_bound + 1e-12


def test_robust_value_iteration_refuses_what_it_cannot_do(rng):
    problem = random_problem(rng)
    with pytest.raises(InputError, match="index: 2 given, 0 to 1 expected"):
        robust_value_iteration(problem, 2)
    with pytest.raises(InputError, match="not rectangular"):
        robust_value_iteration(problem, 0, FiniteKernels([problem.kernel], rectangular=False))


def test_nominal_optimum_without_constraints_is_value_iteration(rng):
    for _ in range(10):
        problem = random_problem(rng, constraints=0)
        assert nominal_optimum(problem).value == pytest.approx(robust_value_iteration(problem).value, abs=1e-7)


def test_nominal_optimum_mixes_two_actions():
    """One state; action 1 earns 1 at cost 1, action 0 nothing: the budget is the probability of action 1."""
    problem = RCMDP.from_rewards([[[1.0], [1.0]]], [[0.0, 1.0]], [[[0.0, 1.0]]], [3.0], [1.0], 0.9)
    found = nominal_optimum(problem)
    assert found.value == pytest.approx(-3.0, abs=1e-9)
    np.testing.assert_allclose(found.policy, [[0.7, 0.3]], atol=1e-9)
    np.testing.assert_allclose(evaluate(problem, found.policy).returns, [-3, 3], atol=1e-8)


def test_nominal_optimum_is_feasible_and_no_random_policy_beats_it(rng):
    for _ in range(10):
        problem = random_problem(rng, constraints=2)
        middle = evaluate(problem, random_policy(rng, problem)).returns[1:]
        problem = RCMDP(problem.kernel, problem.costs, middle + 0.1, problem.initial, problem.discount)
        found = nominal_optimum(problem)
        returns = evaluate(problem, found.policy).returns
        assert returns[0] == pytest.approx(found.value, abs=1e-6)
        assert np.all(returns[1:] <= problem.budgets + 1e-6)
        for _ in range(200):
            other = evaluate(problem, random_policy(rng, problem)).returns
            assert np.any(other[1:] > problem.budgets) or other[0] >= found.value - 1e-7


def test_nominal_optimum_sees_infeasibility(rng):
    problem = random_problem(rng)
    least = robust_value_iteration(problem, 1).value
    for budget, feasible in ((least - 0.01, False), (least + 0.01, True)):
        moved = RCMDP(problem.kernel, problem.costs, [budget], problem.initial, problem.discount)
        assert nominal_optimum(moved).feasible is feasible


def test_a_larger_set_has_a_larger_bound(rng):
    problem = random_problem(rng)
    values = [robust_value_iteration(problem, 0, TotalVariation(r)).value for r in (0, 0.05, 0.2, 1.0)]
    assert values == sorted(values)
