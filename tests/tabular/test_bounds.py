"""Robust value iteration against brute force over policies; the occupancy linear program against known optima."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import every_set, random_policy, random_problem
from tabular.global_search import returns_of

from rcac import RCMDP, Infeasible, InputError, evaluate, nominal_optimum, robust_value_iteration, solve
from rcac.tabular import bounds as bounds_module
from rcac.tabular.bounds import bounds, one_adversary
from rcac.uncertainty import ChiSquare, FiniteKernels, KLBall, KLPenalty, LinearIPM, Nominal, TotalVariation

NAMES = ["nominal", "kl_ball", "kl_penalty", "tv", "tv_support", "chi_square", "wasserstein"]


@pytest.mark.parametrize("name", NAMES)
def test_robust_value_iteration_against_every_deterministic_policy(name, rng):
    for _ in range(5):
        problem = random_problem(rng, states=3, actions=3)
        uncertainty = every_set(3)[name]
        for index in (0, 1):
            found = robust_value_iteration(problem, uncertainty, index)
            best = min(
                evaluate(problem, np.eye(3)[list(choice)], uncertainty).returns[index]
                for choice in itertools.product(range(3), repeat=3)
            )
            assert found.value == pytest.approx(best, abs=1e-7)
            assert evaluate(problem, found.policy, uncertainty).returns[index] == pytest.approx(best, abs=1e-7)
            for _ in range(20):  # nor does a random policy do better
                assert evaluate(problem, random_policy(rng, problem), uncertainty).returns[index] >= best - 1e-7


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_nominal_value_iteration_of_chains_that_forget_where_they_began_and_of_cycles(forgets, sparse, rng):
    states = 12
    kernel = rng.dirichlet(np.ones(states), size=(states, 2))
    if not forgets:
        kernel = np.eye(states)[(np.arange(states)[:, None] + [1, 3]) % states]
    costs, start = rng.normal(size=(1, states, 2)), np.full(states, 1 / states)
    problem = RCMDP(sp.csr_array(kernel.reshape(-1, states)) if sparse else kernel, costs, [], start, 0.999)
    found = robust_value_iteration(problem)
    chain = np.einsum("sa,sat->st", found.policy, kernel)
    exact = np.linalg.solve(np.eye(states) - 0.999 * chain, np.einsum("sa,sa->s", found.policy, costs[0]))
    np.testing.assert_allclose(found.values, exact, atol=found.error_bound)
    assert (exact <= (costs[0] + 0.999 * kernel @ exact).min(axis=1) + 1e-9).all()  # no action is better
    assert found.settled


def test_robust_value_iteration_bounds_its_error(rng):
    for _ in range(20):
        problem = random_problem(rng, states=6, actions=4, discount=0.95)
        rough = robust_value_iteration(problem, KLBall(0.1), tolerance=1e-2)
        exact = robust_value_iteration(problem, KLBall(0.1))
        assert abs(rough.value - exact.value) <= rough.error_bound + 1e-12


def test_robust_value_iteration_refuses_what_it_cannot_do(rng):
    problem = random_problem(rng)
    with pytest.raises(InputError, match="index: 2 given, 0 to 1 expected"):
        robust_value_iteration(problem, index=2)
    with pytest.raises(InputError, match="not rectangular"):
        robust_value_iteration(problem, FiniteKernels([problem.kernel], rectangular=False))


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
    least = robust_value_iteration(problem, index=1).value
    for budget, feasible in ((least - 0.01, False), (least + 0.01, True)):
        moved = RCMDP(problem.kernel, problem.costs, [budget], problem.initial, problem.discount)
        assert nominal_optimum(moved).feasible is feasible


def test_a_larger_set_has_a_larger_bound(rng):
    problem = random_problem(rng)
    values = [robust_value_iteration(problem, TotalVariation(r)).value for r in (0, 0.05, 0.2, 1.0)]
    assert values == sorted(values)


# One adversary for all costs


def constrained(problem, uncertainty, share):
    """With a budget between the least cost (0) and that of the best policy without it (1)."""
    least = robust_value_iteration(problem, uncertainty, 1).value
    free = evaluate(problem, robust_value_iteration(problem, uncertainty).policy, uncertainty).returns[1]
    budget = least + share * (free - least)
    return RCMDP(problem.kernel, problem.costs, [budget], problem.initial, problem.discount)


@pytest.mark.parametrize("uncertainty", [KLBall(0.05), TotalVariation(0.1), KLPenalty(2.0), KLPenalty(0.2)])
def test_one_adversary_never_exceeds_brute_force(uncertainty, rng):
    first, tighter = np.linspace([0.0, 1.0], [1.0, 0.0], 25), 0
    policies = np.stack([np.repeat(first, 25, axis=0), np.tile(first, (25, 1))], axis=1)  # (625, 2, 2)
    for _ in range(6):
        problem = constrained(random_problem(rng, 2, 2), uncertainty, 0.4)
        returns = returns_of(problem, uncertainty, policies)
        best = returns[returns[:, 1] <= problem.budgets[0], 0].min(initial=np.inf)
        found, alone = one_adversary(problem, uncertainty), robust_value_iteration(problem, uncertainty).value
        assert found <= best + 1e-9
        assert found >= alone - 1e-7  # μ = 0
        tighter += found > alone + 0.01
    assert tighter >= 2


def test_one_adversary_is_the_linear_program_at_radius_zero(rng):
    for _ in range(30):
        problem = constrained(random_problem(rng, 8, 4), Nominal(), rng.uniform(0.1, 0.9))
        assert one_adversary(problem, Nominal()) == pytest.approx(nominal_optimum(problem).value, abs=1e-6)


def test_one_adversary_is_at_least_the_linear_program_in_a_set_that_contains_the_model(rng):
    for uncertainty in (KLBall(0.02), TotalVariation(0.05)):
        for _ in range(10):
            problem = constrained(random_problem(rng, 8, 4), uncertainty, 0.3)
            found = bounds(problem, uncertainty)
            assert found.together >= max(found.nominal, found.objective) - 1e-5
            assert found.best == max(found.objective, found.nominal, found.together)
            assert found.shown(np.array([-1.0, 1.0]))["one_adversary"] == -found.together


def test_one_adversary_of_several_constraints_bounds_the_linear_program(rng):
    for _ in range(10):
        problem = random_problem(rng, 6, 3, constraints=2)
        reached = evaluate(problem, random_policy(rng, problem)).returns[1:]
        problem = RCMDP(problem.kernel, problem.costs, reached + 0.05, problem.initial, problem.discount)
        found = one_adversary(problem, Nominal())
        assert robust_value_iteration(problem).value - 1e-7 <= found <= nominal_optimum(problem).value + 1e-7


def test_one_adversary_is_silent_where_it_is_not_proven(rng):
    problem = random_problem(rng)
    features = np.column_stack([np.ones(5), np.linspace(-1, 1, 5)])
    for uncertainty in (KLPenalty(2.0, value="linear"), FiniteKernels([problem.kernel], rectangular=False)):
        assert one_adversary(problem, uncertainty) is None
    assert one_adversary(problem, LinearIPM(0.2, features)) is None
    assert one_adversary(random_problem(rng, constraints=0), KLBall(0.1)) is None


# Proofs of infeasibility


def budgeted(problem, budgets):
    return RCMDP(problem.kernel, problem.costs, budgets, problem.initial, problem.discount)


def test_a_rounding_residue_on_the_top_does_not_make_a_problem_infeasible():
    """State 0 costs 1 and is reached with a mass of 5.6e-17: it counts for next to nothing."""
    row = [1 - 0.7 - 0.3, 0.7 + 0.3]
    problem = RCMDP([[row], [row]], [[[0.0], [0.0]], [[1.0], [0.0]]], [0.1], [0.0, 1.0], 0.9)
    assert bounds(problem, ChiSquare(0.01)).doubt is None
    assert solve(problem, "rsqp", ChiSquare(0.01)).feasible


def test_infeasibility_is_proved_beyond_the_error_bound_and_doubted_within_it(rng):
    problem = random_problem(rng)
    least = robust_value_iteration(problem, KLBall(0.05), 1)
    assert least.settled
    with pytest.raises(Infeasible, match="constraint 1: the least attainable worst-case cost is"):
        bounds(budgeted(problem, [least.value - 2 * least.error_bound]), KLBall(0.05))
    close = budgeted(problem, [least.value - 0.5 * least.error_bound])
    assert "not proved: the error of the former" in bounds(close, KLBall(0.05)).doubt
    found = solve(close, "rsqp", KLBall(0.05), iterations=30)
    assert found.feasible or "not proved" in repr(found)
    assert bounds(budgeted(problem, [least.value + 0.1]), KLBall(0.05)).doubt is None


def test_what_did_not_settle_proves_nothing(rng, monkeypatch):
    problem = budgeted(random_problem(rng, discount=0.99), [-1e6])
    with pytest.raises(Infeasible):
        bounds(problem, TotalVariation(0.1))
    monkeypatch.setattr("rcac.tabular.bounds.MAX_ROUNDS", 1)
    monkeypatch.setattr("rcac.tabular.bounds.PROGRAM_SIZE", 0)
    found = bounds(problem, TotalVariation(0.1))
    assert "not proved" in found.doubt
    assert found.shown(np.ones(2))["infeasibility"] == found.doubt


@pytest.mark.parametrize("failures", [1, 2, 9])
def test_a_linear_program_that_cannot_be_solved_is_tried_otherwise_and_costs_one_bound_at_most(
    failures, rng, monkeypatch
):
    """HiGHS gives up on some programs with discounts near 1 and costs of very different sizes."""
    problem = budgeted(random_problem(rng), [5.0])
    before, calls, right = solve(problem, "rsqp", KLBall(0.1)), [], bounds_module.linprog

    def give_up(*args, **options):
        calls.append(options["method"])
        return SimpleNamespace(status=4, message="unknown") if len(calls) <= failures else right(*args, **options)

    monkeypatch.setattr(bounds_module, "linprog", give_up)
    found = solve(problem, "rsqp", KLBall(0.1))
    np.testing.assert_array_equal(found.policy, before.policy)
    if failures < 9:
        assert found.bounds.nominal == pytest.approx(before.bounds.nominal, rel=1e-6)
        return
    assert found.bounds.nominal is None
    with pytest.raises(RuntimeError, match="nominal_optimum: the linear program ended with: unknown"):
        nominal_optimum(problem)


def test_budgets_that_cannot_be_met_together(rng):
    """One state, two actions: whatever one cost saves, the other pays. The sum of both is 10."""
    costs = [[[0.0, 0.0]], [[0.0, 1.0]], [[1e6, 0.0]]]
    for excess, message in ((1e-6, None), (-1e-6, "no policy meets all budgets together")):
        problem = RCMDP([[[1.0], [1.0]]], costs, [5.0 + excess, 5e6], [1.0], 0.9)
        if message is None:
            assert bounds(problem, Nominal()).doubt is None
        else:
            with pytest.raises(Infeasible, match=message):
                bounds(problem, Nominal())


# Units


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e9])
@pytest.mark.parametrize("name", ["nominal", "kl_ball", "tv", "chi_square", "wasserstein"])
def test_bounds_do_not_depend_on_the_unit_of_a_cost(name, factor, rng):
    uncertainty = every_set(5)[name]
    problem = constrained(random_problem(rng, constraints=1), uncertainty, 0.4)
    expected = bounds(problem, uncertainty)
    for k in (0, 1):
        costs, budgets, unit = problem.costs.copy(), problem.budgets.copy(), np.ones(2)
        costs[k] *= factor
        budgets[k - 1 :] *= factor if k else 1
        unit[k] = factor
        scaled = RCMDP(problem.kernel, costs, budgets, problem.initial, problem.discount)
        found = bounds(scaled, uncertainty)
        assert found.objective == pytest.approx(expected.objective * unit[0], rel=1e-9)
        assert found.nominal == pytest.approx(expected.nominal * unit[0], rel=1e-9)
        assert found.together == pytest.approx(expected.together * unit[0], rel=1e-7)  # a search stops at 1e-7
        np.testing.assert_allclose(found.constraints, expected.constraints * unit[1], rtol=1e-9)
        one, other = (robust_value_iteration(p, uncertainty, k) for p in (problem, scaled))
        np.testing.assert_array_equal(one.policy, other.policy)
        assert other.error_bound == pytest.approx(one.error_bound * factor, rel=0.5)
