"""Problems from logged transitions: counts by hand, convergence, and the promised coverage."""

import numpy as np
import pytest
from conftest import random_problem

from rcac import RCMDP, InputError, evaluate
from rcac.uncertainty import TotalVariation


def log(rng, problem, per_pair):
    """The same number of transitions from every (s, a)."""
    states, actions = problem.num_states, problem.num_actions
    s, a = (x.ravel().repeat(per_pair) for x in np.indices((states, actions)))
    cumulative = problem.kernel[s, a].cumsum(axis=1)
    following = (rng.random(len(s))[:, None] > cumulative).sum(axis=1).clip(max=states - 1)
    return s, a, problem.costs[:, s, a].T, following


def estimate(rng, problem, per_pair, **options):
    return RCMDP.from_transitions(
        *log(rng, problem, per_pair), num_states=problem.num_states, num_actions=problem.num_actions,
        budgets=problem.budgets, discount=problem.discount, initial=problem.initial, **options,
    )


def test_counts_and_means_by_hand():
    found = RCMDP.from_transitions(
        [0, 0, 0, 1], [0, 0, 0, 0], [[1.0], [2.0], [3.0], [5.0]], [1, 1, 0, 1],
        num_states=2, num_actions=2, budgets=[], discount=0.9,
    )
    np.testing.assert_array_equal(found.counts, [[3, 0], [1, 0]])
    np.testing.assert_allclose(found.problem.kernel[0], [[1 / 3, 2 / 3], [0.5, 0.5]])
    np.testing.assert_allclose(found.problem.costs[0], [[2.0, 2.75], [5.0, 2.75]])  # unseen pairs: the mean of all
    np.testing.assert_array_equal(found.total_variation_radius()[:, 1], 1)  # nothing is known there


def test_smoothing_by_hand():
    found = RCMDP.from_transitions([0, 0], [0, 0], [[0.0], [0.0]], [1, 1], num_states=2, num_actions=1, budgets=[],
                                   discount=0.5, smoothing=0.5)
    np.testing.assert_allclose(found.problem.kernel[0, 0], [0.5 / 3, 2.5 / 3])


def test_estimates_converge(rng):
    problem = random_problem(rng)
    errors = [np.abs(np.asarray(dense(estimate(rng, problem, n).problem)) - problem.kernel).max() for n in (100, 10_000)]
    assert errors[1] < errors[0] / 3


def dense(problem):
    return problem.kernel.toarray().reshape((*problem.costs.shape[1:], -1)) if problem.sparse else problem.kernel


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_true_kernel_is_covered_as_often_as_promised(smoothing):
    rng, confidence, covered = np.random.default_rng(0), 0.9, 0
    for _ in range(300):
        problem = random_problem(rng, states=3, actions=2, sparse_share=0.0)
        found = estimate(rng, problem, int(rng.choice([5, 30, 200])), smoothing=smoothing)
        distance = np.abs(dense(found.problem) - problem.kernel).sum(axis=-1) / 2
        covered += bool(np.all(distance <= found.total_variation_radius(confidence)))
    assert covered / 300 >= confidence


def test_the_true_value_is_below_the_worst_case(rng):
    """What coverage is for: the robust evaluation of the estimate bounds the real costs."""
    for _ in range(20):
        problem = random_problem(rng, sparse_share=0.0)
        found = estimate(rng, problem, 50)
        policy = rng.dirichlet(np.ones(3), size=5)
        worst = evaluate(found.problem, policy, TotalVariation(found.total_variation_radius(0.99))).returns
        assert np.all(evaluate(problem, policy).returns <= worst)


def test_radii_shrink_with_the_root_of_the_count(rng):
    problem = random_problem(rng)
    few, many = (estimate(rng, problem, n).total_variation_radius() for n in (10_000, 40_000))
    np.testing.assert_allclose(few, 2 * many)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(states=[0, 7]), r"states\[1\]: 7 given, 0 to 1 expected"),
        (dict(actions=[0, -1]), r"actions\[1\]: -1 given"),
        (dict(states=[0.5, 1.0]), "states: float64"),
        (dict(costs=[[1.0], [np.nan]]), "costs: shape"),
        (dict(next_states=[0]), "equal lengths"),
        (dict(smoothing=-1.0), r"smoothing: -1\.0 given"),
    ],
)
def test_bad_logs_are_refused(change, message):
    good = dict(states=[0, 1], actions=[0, 0], costs=[[1.0], [2.0]], next_states=[1, 0])
    with pytest.raises(InputError, match=message):
        RCMDP.from_transitions(**(good | change), num_states=2, num_actions=1, budgets=[], discount=0.9)
    with pytest.raises(InputError, match="confidence: 1 given"):
        RCMDP.from_transitions(**good, num_states=2, num_actions=1, budgets=[], discount=0.9).total_variation_radius(1)
