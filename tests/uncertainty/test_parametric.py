"""A family of models as an uncertainty set."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_policy

import rcac
from rcac.envs.tabular.river_swim import river_swim

CALM = river_swim()


def river(current):
    return replace(CALM, kernel=(1 - current) * CALM.kernel + current * CALM.kernel[:, :1])


def test_the_worst_model_of_the_family_counts(rng):
    policy = random_policy(rng, CALM)
    family = rcac.parametric(river, {"current": (0.0, 0.2)}, points=16)
    each = [rcac.evaluate(replace(CALM, kernel=kernel), policy).returns for kernel in family.kernels]
    np.testing.assert_allclose(rcac.evaluate(CALM, policy, family).returns, np.max(each, axis=0), rtol=1e-9)


def test_gradients_are_those_of_the_worst_model(rng):
    """By differences of the exact worst return, along directions within the simplex."""
    family, policy, step = rcac.parametric(river, {"current": (0.0, 0.2)}, points=4), random_policy(rng, CALM), 1e-6
    turn = rng.standard_normal((CALM.num_states, 1)) * [1.0, -1.0] * policy.min()
    ends = [rcac.evaluate(CALM, policy + sign * step * turn, family).returns for sign in (1, -1)]
    found = rcac.evaluate(CALM, policy, family)
    slopes = [(found.visits[n][:, None] * found.q_values[n] * turn).sum() for n in range(2)]
    np.testing.assert_allclose(slopes, (ends[0] - ends[1]) / (2 * step), rtol=1e-4)


def test_it_is_solved_for_all_models():
    family = rcac.parametric(river, {"current": (0.0, 0.2)}, points=4)
    found = rcac.solve(CALM, family, method="rsqp")
    for current in (0.0, 0.2):
        costs = rcac.evaluate(river(current), found.policy).returns
        assert costs[1] <= CALM.budgets[0] + 1e-6


@pytest.mark.parametrize(
    ("make", "ranges", "points", "message"),
    [
        (river, {"current": (0.2, 0.0)}, 4, "low ≤ high"),
        (river, {"current": (0.0, 0.2)}, -1, "points: -1 given"),
        (lambda current: None, {"current": (0.0, 0.2)}, 4, "an RCMDP expected"),
    ],
)
def test_what_is_refused(make, ranges, points, message):
    with pytest.raises(rcac.InputError, match=message):
        rcac.parametric(make, ranges, points)
