"""What a training reports: costs as costs, and a utility, which is a negative cost inside, as a utility against its floor."""

import numpy as np
import pytest

import rcac
from rcac.deep import report
from rcac.deep.episodes import Measured
from rcac.deep.selection import Candidate
from rcac.labels import shown_signs

NAMES, BUDGETS = ["return", "utility 1", "cost 2"], np.array([-90.0, 40.0])


def test_signs_by_label():
    assert shown_signs(["return", "utility", "utility 2", "cost", "fuel"]).tolist() == [-1, -1, -1, 1, 1]
    assert shown_signs(["objective"]).tolist() == [1]


@pytest.mark.parametrize(("utility", "met"), [(89.0, False), (90.0, True), (91.0, True)])
def test_a_utility_stands_beside_its_floor(utility, met):
    measured = np.array([-5.0, -utility, 41.0])
    first, second, third = report.terms(measured, BUDGETS, NAMES, worst=measured + 1)
    assert (first.value, first.budget, first.met) == (5.0, None, True)
    assert (second.label, second.value, second.budget, second.met) == ("utility 1", utility, 90.0, met)
    assert (third.value, third.budget, third.met) == (41.0, 40.0, False)
    assert (second.worst, third.worst) == (utility - 1, 42.0)


def test_the_summary_and_trials_are_in_peoples_signs():
    best = Candidate({}, [-5.0, -89.0, 39.0], 10.0, 4, 100, [0.0] * 3, tried=True)
    found = report.summary(best, BUDGETS, NAMES, [], "stochastic", [-4.0, -95.0, 0.0], [], 4)
    assert (found["return"], found["costs"], found["budgets"]) == (5.0, [89.0, 39.0], [90.0, 40.0])
    assert (found["feasible"], found["violation"]) == (False, 1.0)
    assert found["deterministic"] == {"return": 4.0, "costs": [95.0, 0.0]}
    empty = report.summary(None, BUDGETS, NAMES, [], "stochastic", None, [], 0)
    assert (empty["return"], empty["costs"], empty["budgets"]) == (None, [], [90.0, 40.0])
    row = np.array([-5.0, -89.0, 39.0])
    tried = report.trial(Measured(row, row, 10.0, 4, np.zeros(3)), NAMES)
    assert (tried["trial/return"], tried["trial/cost/1"], tried["trial/cost/2"]) == (5.0, 89.0, 39.0)


def test_garnet_has_a_utility_in_deep_runs_too():
    size = dict(total_steps=512, num_envs=4, rollout_length=64, actor_hidden=[8], critic_hidden=[8], trials=0)
    result = rcac.train("rcac/Garnet-v0", algo="rcac_npg", env_kwargs={"num_states": 5}, **size)
    assert result.summary["labels"] == ["return", "utility"]
    assert result.summary["budgets"] == [90.0]
    assert all(value > 0 for value in result.summary["costs"])
    assert (result.history["cost/1/estimate"][-1] > 0, result.history["budget/1"][-1]) == (True, 90.0)
