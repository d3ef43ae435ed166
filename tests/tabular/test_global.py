"""RSQP against a global search on small random problems, and in other units."""

import json
from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest
from tabular.global_search import FEASIBLE_BY, STORED, Optimum, Sample, sample, search

from rcac import RCMDP, solve

pytestmark = pytest.mark.filterwarnings("ignore::rcac.uncertainty.InexactWarning", "ignore::rcac.evaluation.NotSettled")


def shares(problems: Iterable[tuple[Sample, Optimum]]) -> tuple[float, int]:
    """How many answers are within 1 % of the search's optimum, and how many are outside although it found a policy inside."""
    near, outside = [], 0
    for (problem, uncertainty, _, _), optimum in problems:
        found = solve(problem, "rsqp", uncertainty)
        if found.feasible:
            near.append(found.returns[0] <= optimum.objective + 0.01 * abs(optimum.objective))
        elif optimum.excess <= -FEASIBLE_BY:
            outside += 1
            near.append(False)
    return float(np.mean(near)), outside


@cache
def stored() -> list[tuple[Sample, Optimum]]:
    rows = json.loads(STORED.read_text())
    optima = [Optimum(np.inf if r["objective"] is None else r["objective"], np.empty(0), r["excess"]) for r in rows]
    return [(sample(i, row["budgets"]), optimum) for i, (row, optimum) in enumerate(zip(rows, optima, strict=True))]


def test_rsqp_is_at_the_stored_optima_of_small_problems_of_every_kind():
    near, outside = shares(stored())
    assert near == 1.0
    assert outside == 0


@pytest.mark.parametrize("number", [13, 14, 28, 29])
def test_rsqp_settles_where_a_states_actions_share_a_budget(number):
    """There worst kernels depend on the mix of actions, and those of a rejected step are worth remembering."""
    problem, uncertainty, name, _ = stored()[number][0]
    assert name in ("state_l1", "state_l2")
    found = solve(problem, "rsqp", uncertainty)
    assert found.stop_reason == "stationary"
    assert found.evaluations <= 120


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_rsqp_is_at_the_global_optimum_of_2000_problems():
    made = (sample(i) for i in range(2000))
    near, outside = shares((one, search(one)) for one in made)
    assert near >= 0.997
    assert outside == 0


@pytest.mark.parametrize("number", [0, 1, *range(3, 15)])  # each set but the KL penalty, which has a unit itself
def test_no_result_depends_on_the_units_of_the_costs(number):
    """Constraints in units of 1e7 and 1e-5, the objective in units of 1e-4."""
    problem, uncertainty, _, _ = stored()[number][0]
    factors = np.array([1e4, 1e-7, 1e5, 1e-7, 1.0])[: len(problem.costs)]
    costs = problem.costs * factors[:, None, None]
    scaled = RCMDP(problem.kernel, costs, problem.budgets * factors[1:], problem.initial, problem.discount)
    once, again = (solve(p, "rsqp", uncertainty) for p in (problem, scaled))
    assert once.feasible == again.feasible
    assert again.returns[0] / factors[0] == pytest.approx(once.returns[0], rel=1e-4)


@pytest.mark.parametrize("actions", [1, 2])
@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_costs_of_very_different_size_do_no_harm(actions, discount, rng):
    kernel = rng.dirichlet(np.ones(3), size=(3, actions))
    for sizes in ([1e4, 1e-6, 1e-6], [1e-6, 1e4, 1e-6], [1e4, 1e4, 1e-6]):
        costs = rng.random((3, 3, actions)) * np.array(sizes)[:, None, None]
        free = RCMDP(kernel, costs, np.full(2, 1e12), np.full(3, 1 / 3), discount)
        reached = solve(free, "rsqp").returns[1:]
        found = solve(RCMDP(kernel, costs, reached * (1 + 1e-6), free.initial, discount), "rsqp")
        assert found.feasible
        assert np.isfinite(found.returns).all()
