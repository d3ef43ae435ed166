"""Tabular methods against linear programs, brute force, an explicit Fisher matrix, cvxpy, and analytic optima."""

import json
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from conftest import every_set, random_policy, random_problem
from tabular.global_search import returns_of

from benchmarks import problems
from rcac import RCMDP, Infeasible, InputError, evaluate, nominal_optimum, robust_value_iteration, solve
from rcac.evaluation import evaluate_under, mean_kernels
from rcac.learner import State
from rcac.registry import algorithm
from rcac.switch import CRPO, Complement, Epigraph, Surrogate, automatic_slack
from rcac.tabular.bounds import bounds
from rcac.tabular.rsqp import SequentialPolicy
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solve import make_solvers
from rcac.tabular.solver import Solver, first_policy, make_step
from rcac.tabular.steps import project_to_simplex
from rcac.uncertainty import FiniteKernels, KLBall, KLPenalty, Nominal, StateL1, TotalVariation

pytestmark = pytest.mark.filterwarnings("ignore::rcac.uncertainty.InexactWarning")

METHODS = ["rnpg", "rppg", "epirc_pgs", "robust_crpo", "primal_dual", "rsqp"]


def some_and_all(some: int, every: int) -> list:
    """Numbers of random problems: for every day, and for `make test-slow`."""
    return [some, pytest.param(every, marks=pytest.mark.slow)]


def with_budgets(problem, budgets):
    return RCMDP(problem.kernel, problem.costs, budgets, problem.initial, problem.discount)


# Parts


def test_natural_step_equals_the_explicit_fisher_step(rng):
    """θ ← θ − η F⁺∇_θJ for π = softmax(θ), F = Σ d(s) E[∇log π ∇log πᵀ], is the natural step of size η/(1−γ)."""
    problem = random_problem(rng, states=4, actions=3)
    policy, eta = random_policy(rng, problem), 0.3
    found = evaluate(problem, policy, KLBall(0.05))
    for k in (0, 1):
        fisher, gradient = np.zeros((12, 12)), np.zeros(12)
        for s in range(4):
            for a in range(3):
                score = np.zeros((4, 3))
                score[s] = -policy[s]
                score[s, a] += 1  # ∇_θ log π(a|s)
                weight = found.occupancy[k, s] * policy[s, a]
                fisher += weight * np.outer(score, score)
                gradient += weight * found.q_values[k, s, a] / (1 - 0.9) * score.ravel()
        theta = np.log(policy) - eta * (np.linalg.pinv(fisher, rcond=1e-10) @ gradient).reshape(4, 3)
        expected = np.exp(theta) / np.exp(theta).sum(axis=1, keepdims=True)
        step = make_step(TabularSettings(step="softmax", step_size=eta), problem, KLBall(0.05))
        np.testing.assert_allclose(step.propose(policy, found, np.eye(2)[k]), expected, atol=1e-9)


def test_projection_equals_cvxpys(rng):
    rows = np.concatenate([rng.normal(size=(30, 5)) * s for s in (0.1, 1, 100)])
    x = cp.Variable(5, nonneg=True)
    target = cp.Parameter(5)
    program = cp.Problem(cp.Minimize(cp.sum_squares(x - target)), [cp.sum(x) == 1])
    for row, mine in zip(rows, project_to_simplex(rows), strict=True):
        target.value = row
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        np.testing.assert_allclose(mine, x.value, atol=1e-6)
    np.testing.assert_allclose(project_to_simplex(rows).sum(axis=1), 1, atol=1e-15)
    np.testing.assert_array_equal(project_to_simplex(np.eye(4)), np.eye(4))


def test_projection_is_not_exp_normalisation():
    np.testing.assert_allclose(project_to_simplex(np.array([[0.9, 0.6, -1.0]])), [[0.65, 0.35, 0.0]])


def test_switches_with_literal_numbers():
    returns, budgets = np.array([-50.0, 41.0, 3.0]), np.array([42.0, 5.0])
    assert Surrogate(50).weights(returns, budgets).tolist() == [0.02, 0, 0]  # −1, −1, −2: the first of equals
    assert Surrogate(50, slack=0.5).weights(returns, budgets).tolist() == [0, 1, 0]
    assert Surrogate(100).merit(returns, budgets) == (-0.5,)
    assert CRPO().weights(returns, budgets).tolist() == [1, 0, 0]
    assert CRPO().weights(np.array([-50, 42.1, 7.0]), budgets).tolist() == [0, 0, 1]
    assert CRPO(tolerance=3).weights(np.array([-50, 42.1, 7.0]), budgets).tolist() == [1, 0, 0]
    assert CRPO().merit(np.array([-50, 42.1, 7.0]), budgets) == (2.0, -50.0)
    assert Epigraph(-45).weights(returns, budgets).tolist() == [0, 1, 0]  # −5, −1, −2
    assert Epigraph(-51).weights(returns, budgets).tolist() == [1, 0, 0]  # 1
    # complement with r_max = 1, γ .99: J_0 = 100 − 50, so 50/50 = 1 against −1 and −2
    complement = Complement(Surrogate(50), 100.0, 1.0)
    assert complement.merit(returns, budgets) == (1.0,)
    assert complement.weights(np.array([-50.0, 43.5, 3.0]), budgets).tolist() == [0, 1, 0]  # 1.5 exceeds 1
    assert complement.weights(np.array([-50.0, 42.5, 3.0]), budgets).tolist() == [0.02, 0, 0]  # .5 does not
    assert automatic_slack(2.0, 0.9, 50) == pytest.approx(0.4)
    assert automatic_slack(-1.0, 0.9, 50) == 0


# Known optima


@pytest.mark.parametrize("count", some_and_all(50, 200))
def test_rsqp_reaches_the_linear_programs_optimum_on_random_problems(count):
    rng = np.random.default_rng(0)
    started_infeasible = 0
    for i in range(count):
        states, actions, constraints = int(rng.integers(1, 21)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
        problem = random_problem(rng, states, actions, constraints, discount=float(rng.choice([0.5, 0.9, 0.99])))
        reached = evaluate(problem, random_policy(rng, problem)).returns[1:]
        problem = with_budgets(problem, reached + 1e-3 * np.abs(reached))
        start = random_policy(rng, problem)
        started_infeasible += bool(np.any(evaluate(problem, start).returns[1:] > problem.budgets))
        found, optimum = solve(problem, "rsqp", policy=start), nominal_optimum(problem).value
        assert found.violation <= 1e-6, i
        assert found.feasible, i
        assert found.returns[0] - optimum <= 1e-4 * max(1, abs(optimum)), i
        assert found.gap == pytest.approx(found.returns[0] - optimum, abs=1e-6)
    assert started_infeasible > count / 3


def grid_best(problem, uncertainty, steps=31):
    """By plain robust iteration on all the policies of a grid at once."""
    first = np.stack(np.meshgrid(*[np.linspace(0, 1, steps)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    policies = np.stack([first, 1 - first], axis=-1)  # (P, S, A)
    values = np.zeros((2, len(policies), 2))
    for _ in range(250):  # .9²⁵⁰·10 is 4e-11
        worst = uncertainty.sweep(values.reshape(-1, 2), problem.rows).value.reshape(2, -1, 2, 2)
        values = np.einsum("psa,kpsa->kps", policies, problem.costs[:, None] + 0.9 * worst)
    objective, cost = values @ problem.initial
    return objective[cost <= problem.budgets[0]].min(initial=np.inf)


@cache
def small_robust_problems(count):
    return list(_small_robust_problems(count))


def _small_robust_problems(count):
    rng = np.random.default_rng(1)
    for i in range(count):
        problem = random_problem(rng, 2, 2, 1, discount=0.9)
        uncertainty = [KLBall(0.05), TotalVariation(0.1)][i % 2]
        least = robust_value_iteration(problem, uncertainty, 1).value
        middle = evaluate(problem, np.full((2, 2), 0.5), uncertainty).returns[1]
        yield with_budgets(problem, [least + (abs(middle - least) + 0.1) * rng.uniform(0.1, 1)]), uncertainty


@pytest.mark.parametrize("count", some_and_all(8, 100))
def test_rsqp_is_within_one_percent_of_brute_force_on_robust_problems(count):
    for i, (problem, uncertainty) in enumerate(small_robust_problems(count)):
        found, best = solve(problem, "rsqp", uncertainty), grid_best(problem, uncertainty)
        assert found.returns[0] <= best + 0.01 * max(1, abs(best)), i
        assert found.feasible, i
        assert found.returns[0] >= found.bounds.best - 1e-6, i


@pytest.mark.parametrize("count", some_and_all(12, 100))
@pytest.mark.parametrize("method", METHODS)
def test_no_method_calls_an_infeasible_policy_feasible(method, count):
    """Feasibility is judged anew, by plain robust iteration on the policy handed out."""
    for problem, uncertainty in small_robust_problems(count):
        found = solve(problem, method, uncertainty, iterations=30)
        values = np.zeros((2, 2))
        for _ in range(250):  # .9²⁵⁰·10 is 4e-11
            worst = uncertainty.sweep(values, problem.rows).value.reshape(2, 2, 2)
            values = np.einsum("sa,ksa->ks", found.policy, problem.costs + 0.9 * worst)
        np.testing.assert_allclose(found.returns, values @ problem.initial, atol=1e-8)
        assert found.feasible == bool(found.returns[1] <= problem.budgets[0])
        assert found.violation == max(0.0, found.returns[1] - problem.budgets[0])


def two_kernel_example():
    """One decision, two kernels, an adversary for each cost (analytic).

    In state 0, action 1 leads to state 2 under the first kernel and to state 3 under the second; action 0, and all
    else, leads to state 1, which stays. State 2 pays 10 and costs 10, state 3 pays 5 and costs 2. With probability p of
    action 1 and γ = .1 the worst return is .1·5p (second kernel), the worst cost .1·10p (first kernel), so a budget
    of 2/3 allows p = 2/3, and the worst return is 1/3.
    """
    kernels = np.zeros((2, 4, 2, 4))
    kernels[:, :, :, 1] = 1
    kernels[:, 0, 1] = 0
    kernels[0, 0, 1, 2] = kernels[1, 0, 1, 3] = 1
    reward, cost = np.zeros((4, 2)), np.zeros((4, 2))
    reward[2], reward[3], cost[2], cost[3] = 10, 5, 10, 2
    problem = RCMDP.from_rewards(kernels[0], reward, [cost], [2 / 3], [1.0, 0, 0, 0], 0.1)
    return problem, kernels


@pytest.mark.parametrize("rectangular", [True, False])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("rsqp", {}),
        ("robust_crpo", dict(iterations=1000, step_size=2e-3)),
        ("rnpg", dict(lam=1000.0, iterations=1500, step_size=2.0)),
        ("rppg", dict(lam=1000.0, iterations=1500, step_size=0.5)),
        ("epirc_pgs", dict(levels=12, iterations=1500, step_size=2e-3)),
    ],
)
def test_every_method_finds_the_known_optimum_of_the_two_kernel_example(method, options, rectangular):
    problem, kernels = two_kernel_example()
    found = solve(problem, method, FiniteKernels(list(kernels), rectangular=rectangular), **options)
    assert found.feasible
    assert found.returns[0] == pytest.approx(-1 / 3, abs=1e-3)
    assert found.policy[0, 1] == pytest.approx(2 / 3, abs=3e-3)


@pytest.mark.parametrize(
    "environment",
    [
        *("river_swim", "garnet"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("frozen_lake", "garbage_collector")),
    ],
)
def test_rnpg_comes_within_two_percent_of_the_linear_program(environment):
    from importlib import import_module

    problem = getattr(import_module(f"rcac.envs.tabular.{environment}"), environment)()
    found, optimum = solve(problem, "rnpg", lam=500.0, iterations=10_000, step_size=1.0), nominal_optimum(problem).value
    assert found.feasible
    assert found.returns[0] <= optimum + 0.02 * abs(optimum)


@pytest.mark.parametrize(
    ("radius", "others"),
    [
        *((radius, ()) for radius in (1e-4, 1e-3)),
        *(pytest.param(radius, METHODS[:-1], marks=pytest.mark.slow) for radius in (1e-4, 1e-3)),
        (1e-2, METHODS[:-1]),
    ],
)
def test_rsqp_on_robust_river_swim_within_thirty_evaluations(radius, others):
    """At least what every other method reaches at its default, and a stationary, feasible answer."""
    from rcac.envs.tabular.river_swim import river_swim

    problem, uncertainty = river_swim(initial="uniform"), KLBall(radius)
    found = solve(problem, "rsqp", uncertainty)
    assert found.feasible
    assert found.evaluations <= 30
    assert found.stop_reason == "stationary"
    for method in others:
        other = solve(problem, method, uncertainty, iterations=300)
        assert not other.feasible or other.returns[0] >= found.returns[0] - 1e-6


def test_several_constraints_are_all_met(rng):
    problem = random_problem(rng, states=8, actions=4, constraints=3)
    uncertainty = KLBall(0.02)
    reached = evaluate(problem, random_policy(rng, problem), uncertainty).returns[1:]
    problem = with_budgets(problem, reached + 0.05)
    for method in METHODS:
        found = solve(problem, method, uncertainty, iterations=30)
        assert found.history["returns"].shape[1] == 4
        assert found.violation == pytest.approx(max(0, (found.returns[1:] - problem.budgets).max()))
    assert solve(problem, "rsqp", uncertainty).feasible


def test_no_constraint_at_all_is_robust_policy_optimisation(rng):
    problem = random_problem(rng, constraints=0)
    alone = robust_value_iteration(problem, KLBall(0.05)).value
    found = solve(problem, "rsqp", KLBall(0.05))
    assert found.returns[0] == pytest.approx(alone, abs=1e-4)
    assert found.feasible


@pytest.mark.parametrize("name", list(every_set(3)))
def test_every_method_runs_on_every_set(name, rng):
    problem = random_problem(rng, states=3, actions=2)
    uncertainty = every_set(3)[name]
    budget = evaluate(problem, np.full((3, 2), 0.5), uncertainty).returns[1] + 0.1
    for method in METHODS:
        found = solve(with_budgets(problem, [budget]), method, uncertainty, iterations=20)
        assert found.feasible  # the first policy is
        assert np.isfinite(found.returns).all()


# Proofs and results


def test_infeasible_problems_are_proved_so_before_iterating(rng):
    problem = random_problem(rng)
    least = robust_value_iteration(problem, KLBall(0.05), 1).value
    with pytest.raises(Infeasible, match=r"constraint 1: the least attainable worst-case cost is .*, the budget is"):
        solve(
            with_budgets(problem, [least - 0.01]), "rsqp", KLBall(0.05), callback=lambda step: pytest.fail("iterated")
        )
    assert solve(with_budgets(problem, [least + 0.01]), "rsqp", KLBall(0.05)).feasible


def test_infeasible_utilities_and_joint_infeasibility_have_their_own_words():
    one = np.ones((1, 2))
    kernel = np.ones((1, 2, 1))
    with pytest.raises(Infeasible, match=r"the largest attainable worst-case utility is 10, the floor is 11"):
        solve(RCMDP.from_rewards(kernel, one, utilities=[one], utility_floors=[11], discount=0.9))
    either = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    with pytest.raises(Infeasible, match="all budgets together"):
        solve(RCMDP.from_rewards(kernel, one, either, [4, 4], discount=0.9))


def test_bounds_hold_for_random_policies(rng):
    problem = with_budgets(random_problem(rng), [100.0])
    for name in ("kl_ball", "tv", "chi_square", "wasserstein", "kl_penalty"):
        uncertainty = every_set(5)[name]
        proven = bounds(problem, uncertainty)
        for _ in range(50):
            returns = evaluate(problem, random_policy(rng, problem), uncertainty).returns
            assert returns[0] >= proven.best
            assert returns[1] >= proven.constraints[0]


def test_a_set_without_the_nominal_model_has_no_nominal_bound(rng):
    problem = with_budgets(random_problem(rng), [100.0])
    other = random_problem(rng).kernel
    assert bounds(problem, FiniteKernels([other])).nominal is None
    assert bounds(problem, FiniteKernels([other, problem.kernel])).nominal is not None


def test_the_best_iterate_is_returned_and_history_is_complete(rng):
    problem = with_budgets(random_problem(rng), [evaluate(random_problem(rng), np.full((5, 3), 1 / 3)).returns[1] + 20])
    seen = []
    found = solve(problem, "rnpg", KLBall(0.01), iterations=50, step_size=20.0, callback=seen.append)
    merits = [Surrogate(50).merit(r, problem.budgets) for r in found.history["returns"]]
    assert Surrogate(50).merit(found.returns, problem.budgets) == min(merits)
    assert len(seen) == len(merits) == found.evaluations == 50
    assert [s.metrics["switch/index"] for s in seen] == found.history["index"].tolist()


def test_complement_is_the_problem_whose_costs_are_the_largest_reward_less_the_reward(rng):
    """`objective: complement` against the same method on c_0 = r_max − r ≥ 0, written out; in every kind of set."""
    plain = random_problem(rng)
    reward, rest = rng.uniform(-1, 3, plain.costs.shape[1:]), plain.costs[1:]
    fixed = dict(
        budgets=evaluate(plain, np.full((5, 3), 1 / 3)).returns[1:] - 1, initial=plain.initial, discount=plain.discount
    )
    given = RCMDP.from_rewards(plain.kernel, reward, rest, **fixed)
    costs = RCMDP(plain.kernel, np.concatenate([reward.max() - reward[None], rest]), *fixed.values())
    shift = reward.max() / (1 - plain.discount)
    for uncertainty in (KLBall(0.02), KLPenalty(5.0, "linear"), TotalVariation(0.05)):
        for slack in (0.0, None):
            options = dict(iterations=60, step_size=0.3, lam=40.0, slack=slack)
            ours = solve(given, "rnpg", uncertainty, objective="complement", **options)
            theirs = solve(costs, "rnpg", uncertainty, **options)
            assert {0, 1} == {*theirs.history["index"].tolist()}  # both sides of the switch are met
            np.testing.assert_array_equal(ours.history["index"], theirs.history["index"])
            np.testing.assert_allclose(ours.returns, theirs.returns - [shift, 0], rtol=1e-6)
    same = [solve(costs, "rnpg", KLBall(0.02), objective=o, iterations=20).policy for o in ("negated", "complement")]
    np.testing.assert_array_equal(*same)  # a cost stays a cost


def test_what_the_form_of_the_objective_does_to_lam_on_river_swim():
    """With −r a larger λ is less cautious; with r_max − r it is more cautious, and λ = 50 hands out an infeasible policy."""
    from rcac.envs.tabular.river_swim import river_swim

    model, penalty = river_swim(), KLPenalty(1000.0)
    handed = {
        form: [solve(model, "rnpg", penalty, objective=form, lam=lam).returns for lam in (10.0, 50.0, 500.0)]
        for form in ("negated", "complement")
    }
    np.testing.assert_allclose(-np.array(handed["negated"])[[0, 2], 0], [40.58, 45.42], atol=0.01)
    np.testing.assert_allclose(-np.array(handed["complement"])[[0, 2], 0], [51.64, 45.65], atol=0.01)
    np.testing.assert_allclose(np.array(handed["negated"])[:, 1], [37.86, 41.10, 41.90], atol=0.01)
    np.testing.assert_allclose(np.array(handed["complement"])[:, 1], [46.84, 43.04, 42.09], atol=0.01)


def test_a_problem_with_a_duality_gap():
    """Found by search over problems of two states and two actions; without uncertainty it has none.

    For any two policies, one within the budget and one not, and every μ: min_π J_0 + μ(J_1 − b) is at most what their
    segment in the (J_1, J_0) plane has at J_1 = b. So the dual's value is at most the least of these, and a grid of
    policies bounds it from above.
    """
    stay = np.array([[0.4, 0.9], [0.9, 0.2]])  # probability of the first state, by state and action
    costs = np.array([[[0.5, 0.9], [0.2, 0.4]], [[0.3, 0.2], [0.4, 0.3]]])
    problem = RCMDP(np.stack([stay, 1 - stay], axis=-1), costs, [2.9], [0.5, 0.5], 0.9)
    first = np.linspace([0.0, 1.0], [1.0, 0.0], 31)
    table = np.stack([np.repeat(first, 31, axis=0), np.tile(first, (31, 1))], axis=1)  # (961, 2, 2)

    def primal_and_dual(model, uncertainty):
        j0, excess = (returns_of(model, uncertainty, table) - [0, model.budgets[0]]).T
        inside, out = excess <= 0, excess > 0
        share = excess[out][:, None] / (excess[out][:, None] - excess[inside])
        return j0[inside].min(), ((1 - share) * j0[out][:, None] + share * j0[inside]).min()

    primal, dual = primal_and_dual(problem, KLBall(0.3))
    found = solve(problem, "rsqp", KLBall(0.3))
    assert found.feasible
    assert found.returns[0] == pytest.approx(primal, abs=0.1)  # the optimum, as far as the grid can tell
    assert dual < found.returns[0] - 1.4
    primal_dual = solve(problem, "primal_dual", KLBall(0.3))
    late = primal_dual.history["returns"][-100:]
    assert np.abs(late[:, 0] - found.returns[0]).min() > 0.3  # where it rests or turns is not the optimum
    budget = returns_of(problem, Nominal(), table)[:, 1].mean()
    easier = with_budgets(problem, [budget])
    primal, dual = primal_and_dual(easier, Nominal())
    exact = nominal_optimum(easier).value
    assert dual == pytest.approx(exact, abs=0.05)
    assert primal >= exact - 1e-9
    np.testing.assert_allclose(solve(easier, "primal_dual", iterations=3000).returns[0], exact, atol=0.02)


def test_every_level_can_begin_at_the_first_policy(rng):
    problem, starts = random_problem(rng), []
    for restart in (True, False):
        found = solve(problem, "epirc_pgs", KLBall(0.02), levels=4, iterations=20, restart=restart)
        starts.append(found.history["returns"][::5])  # the first evaluation of every level
    assert np.ptp(starts[0], axis=0).max() == 0
    assert np.ptp(starts[1], axis=0).min() > 0


def test_what_is_handed_out_is_evaluated_exactly(rng):
    problem, made = random_problem(rng), []
    for seed in (0, 0, 1):
        found = solve(problem, "rnpg", KLBall(0.02), seed, noise=0.1, iterations=20)
        np.testing.assert_allclose(found.returns, evaluate(problem, found.policy, KLBall(0.02)).returns, rtol=1e-9)
        assert np.abs(found.history["returns"][-1] - evaluate(problem, found.policy, KLBall(0.02)).returns).max() > 1e-3
        made.append(found.history["returns"])
    np.testing.assert_array_equal(made[0], made[1])
    assert np.abs(made[0] - made[2]).min() > 0


def test_callback_can_stop(rng):
    found = solve(with_budgets(random_problem(rng), [100]), "rnpg", callback=lambda step: False)
    assert found.evaluations == 1


def test_more_starts_never_hurt():
    problem, uncertainty = small_robust_problems(1)[0]
    once, often = solve(problem, "rsqp", uncertainty), solve(problem, "rsqp", uncertainty, starts=4)
    assert often.returns[0] <= once.returns[0] + 1e-9
    assert often.evaluations > once.evaluations


def test_same_seed_same_answer(rng):
    problem = with_budgets(random_problem(rng), [100])
    for seed in (0, 1):
        a, b = (solve(problem, "rnpg", KLPenalty(5.0), seed=seed, start="random", iterations=20) for _ in range(2))
        np.testing.assert_array_equal(a.policy, b.policy)
    other = solve(problem, "rnpg", KLPenalty(5.0), seed=2, start="random", iterations=20)
    assert not np.array_equal(a.policy, other.policy)


RESUMED = [*((method, KLBall(0.02), {}) for method in METHODS), ("rsqp", TotalVariation(0.1), {})]
INEXACT = [("epirc_pgs", KLBall(0.02), {"restart": True, "noise": 0.01}), ("rsqp", KLBall(0.02), {"noise": 0.01})]
SAMPLED = [("rnpg", KLPenalty(20.0, "linear"), {"samples": 50})]


@pytest.mark.parametrize(("method", "uncertainty", "options"), RESUMED + INEXACT + SAMPLED)
def test_a_solver_saved_and_resumed_ends_with_the_same_bits(method, uncertainty, options, rng):
    problem = random_problem(rng, states=6)
    budget = evaluate(problem, np.full((6, 3), 1 / 3), uncertainty).returns[1]
    problem = with_budgets(problem, [budget - 0.05])
    settings = replace(algorithm(method, TabularSettings), iterations=30, levels=5, **options)
    whole = make_solvers(problem, uncertainty, settings, 0)[0]
    while not whole.finished:
        whole.step()
    for stop in (1, 13):
        first = make_solvers(problem, uncertainty, settings, 0)[0]
        for _ in range(stop):
            if not first.finished:
                first.step()
        saved = first.state()
        copied = State({k: v.copy() for k, v in saved.tensors.items()}, json.loads(json.dumps(saved.data)))
        other = first_policy(problem, "uniform" if settings.restart else "random", 9)
        second = Solver(problem, uncertainty, settings, first.bounds, other, (0, 0))
        second.load(copied)
        while not second.finished:
            second.step()
        assert second.state().data == whole.state().data
        for name, value in whole.state().tensors.items():
            np.testing.assert_array_equal(second.state().tensors[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(method="nope"), "method: 'nope' given, one of epirc_pgs, .*rsqp expected"),
        (dict(method="rcac"), "method: 'rcac' given, one of epirc_pgs"),
        (dict(step_size=0.0), r"step_size: 0\.0 given, a positive finite number expected"),
        (dict(lam=float("nan")), "lam: nan given"),
        (dict(iterations=0), "iterations: 0 given, a whole number ≥ 1 expected"),
        (dict(iterations=2.5), r"iterations: 2\.5 given"),
        (dict(step="newton"), "step: 'newton' given, one of natural, softmax, projected, sqp expected"),
        (dict(slack=-1.0), r"slack: -1\.0 given"),
    ],
)
def test_bad_options_are_refused(options, message, rng):
    with pytest.raises(InputError, match=message):
        solve(with_budgets(random_problem(rng), [100]), **options)


# Kinks


def test_rsqp_is_within_a_kinked_budget_early():
    """Steps of a linear model alone end outside again and again."""
    found = solve(kinked(), "rsqp", TotalVariation(0.1), iterations=15)
    assert found.feasible
    assert found.returns[0] < 5.6


def kinked(states: int = 150) -> RCMDP:
    """Total variation moves mass from anywhere to the one worst state: a kink wherever two states are the worst."""
    large = problems.sparse(states, 10, 10, 0.95)
    return with_budgets(large, [4.0])


def test_rsqp_gets_past_kinks(monkeypatch):
    """One adversary for J_0 + μJ_1 makes a robust MDP, whose best policies for many μ the constrained optimum must beat;
    a search that only knows the worst kernel at the present policy ends with a worse one."""
    problem, uncertainty, best = kinked(), TotalVariation(0.1), np.inf
    for mu in np.linspace(0.5, 3, 26):
        both = RCMDP(problem.kernel, (problem.costs[0] + mu * problem.costs[1])[None], [], problem.initial, 0.95)
        policy = robust_value_iteration(both, uncertainty, tolerance=1e-5).policy
        returns = evaluate(problem, policy, uncertainty).returns
        best = min(best, returns[0] if returns[1] <= 4.0 else np.inf)
    found = solve(problem, "rsqp", uncertainty, iterations=40)
    assert found.feasible
    assert found.returns[0] < 0.95 * best
    monkeypatch.setattr(SequentialPolicy, "uses_bundle", lambda step, evaluation: False)
    assert solve(problem, "rsqp", uncertainty, iterations=40).returns[0] > found.returns[0] + 0.01


@pytest.mark.parametrize("uncertainty", [TotalVariation(0.1), StateL1(0.3)])
def test_interrupted_at_a_kink_or_not_the_policies_are_the_same(uncertainty):
    problem, settings = kinked(40), algorithm("rsqp", TabularSettings)
    settings.iterations = 25
    proven = bounds(problem, uncertainty)

    def solver():
        return Solver(problem, uncertainty, settings, proven, first_policy(problem, "uniform", 0))

    whole, bundled = solver(), 0
    while not whole.finished:
        whole.step()
        if whole.step_part.pieces:
            bundled += 1
            tensors, data = whole.state()
            again = solver()
            again.load(State(tensors, json.loads(json.dumps(data))))
            assert len(again.step_part.pieces) == len(whole.step_part.pieces)
    assert bundled > 2
    while not again.finished:
        again.step()
    np.testing.assert_array_equal(again.best.policy, whole.best.policy)
    np.testing.assert_array_equal(again.current, whole.current)


@pytest.mark.parametrize("states", [6, 250])
def test_an_evaluation_under_mean_kernels_is_that_of_their_model(states):
    """Factorised and iterative alike."""
    problem = problems.sparse(states, 3, 3, 0.9)
    rng = np.random.default_rng(0)
    policies = rng.dirichlet(np.ones(3), size=(3, states))
    parts = [evaluate(problem, policy, TotalVariation(0.3)).worst for policy in policies]
    kernels = mean_kernels(parts, states)
    found = evaluate_under(problem, policies[0], kernels)
    for k in range(2):
        mean = np.mean([part.dense(k, states) for part in parts], axis=0)
        model = RCMDP(mean.reshape(states, 3, states), problem.costs, problem.budgets, problem.initial, 0.9)
        expected = evaluate(model, policies[0])
        np.testing.assert_allclose(found.q_values[k], expected.q_values[k], rtol=1e-6)
        np.testing.assert_allclose(found.gradients[k], expected.gradients[k], rtol=1e-5, atol=1e-12)
        assert abs(found.returns[k] - expected.returns[k]) <= found.error_bound + 1e-9
