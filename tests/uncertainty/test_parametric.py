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


def test_it_is_solved_for_all_models():
    family = rcac.parametric(river, {"current": (0.0, 0.2)}, points=4)
    found = rcac.solve(CALM, "rsqp", family)
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
