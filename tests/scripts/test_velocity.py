"""The rules of the MuJoCo sections, on made-up runs at, above and below each line."""

import numpy as np
import pytest

from reproduction import velocity, velocity_tuning

HOLDS, IN_PART, NOT = "holds", "holds in part", "does not hold here"
TASKS = list(velocity.TASKS)


def made(task, algo, returns, cost, length=1000.0, spread=0.0):
    """A run whose test episodes have this mean return and cost, ± a spread."""
    costs = [cost - spread, cost + spread] * 8
    test = {"returns": [returns] * 16, "costs": costs, "lengths": [length] * 16}
    return {"env": task, "algo": algo, "seed": 100, "seconds": 60.0, "stochastic": test, "deterministic": test}


def result(*runs):
    names = {run["algo"] for run in runs}
    algorithms = [algo for algo in velocity.ALGORITHMS if algo in names]
    return {"runs": list(runs), "tasks": TASKS, "algorithms": algorithms, "steps": 10, "episodes": 16}


def everywhere(algo, returns, costs):
    return [made(task, algo, r, c) for task, r, c in zip(TASKS, returns, costs, strict=True)]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [((25.0, 10.0, 0.0), HOLDS), ((25.1, 10.0, 0.0), NOT)],
)
def test_on_the_line_is_within_the_budget(costs, expected):
    found = velocity.claims(result(*everywhere("rcac", (1500, 2500, 900), costs)))
    assert [claim.verdict for claim in found] == [expected]


def test_one_run_above_while_the_mean_is_not():
    runs = [*everywhere("rcac", (1500, 2500, 900), (10, 10, 10)), made("hopper_velocity", "rcac", 1500, 39.0)]
    assert velocity.claims(result(*runs))[0].verdict == IN_PART


def test_two_standard_errors():
    assert velocity.within([20.0, 34.0] * 8)  # 27 ± 1.8
    assert not velocity.within([26.0, 28.0] * 8)  # 27 ± .26
    assert velocity.within([25.0])
    assert not velocity.within([25.1])


@pytest.mark.parametrize(
    ("sqp", "expected"),
    [((1500, 2500, 900), HOLDS), ((1499, 2600, 901), IN_PART), ((1499, 2499, 899), NOT)],
)
def test_at_least_as_much_as_the_others(sqp, expected):
    others = everywhere("ppo_lagrangian", (1500, 2000, 900), (0, 0, 0)), everywhere("cpo", (900, 2500, 800), (0, 0, 0))
    found = velocity.claims(result(*everywhere("rcac_sqp", sqp, (0, 0, 0)), *others[0], *others[1]))
    assert found[1].verdict == expected


@pytest.mark.parametrize(
    ("hopper", "cheetah", "length", "expected"),
    [
        (1371, 2000, 1000, HOLDS),
        (1370, 2000, 1000, IN_PART),  # at half the limit, not above
        (1370, 1999, 1000, IN_PART),  # the return alone
        (999, 1999, 1000, NOT),
        (999, 1999, 500, IN_PART),  # as fast, but it falls
    ],
)
def test_what_is_to_be_reached(hopper, cheetah, length, expected):
    runs = everywhere("rcac_sqp", (hopper, cheetah, 0), (0, 0, 0))
    runs[0]["stochastic"]["lengths"] = [length] * 16
    found = velocity.claims(result(*runs))[-1]
    assert found.verdict == expected


def test_the_table_has_every_seed_and_what_is_published():
    runs = [made("hopper_velocity", "rcac_sqp", r, 10.0) for r in (1500, 1400)]
    runs += [made(task, "rcac_sqp", 100, 1.0) for task in TASKS[1:]]
    text = velocity.tables(result(*runs))
    assert "1450 (1500, 1400)" in text
    assert "1713.71 ± 18.26 at 13.40" in text


def test_the_best_setting_counts_tasks_alike_and_runs_over_budget_as_nothing():
    assert velocity_tuning.counted(made("hopper_velocity", "rcac", 1500, 25.0)) == 1500
    assert velocity_tuning.counted(made("hopper_velocity", "rcac", 1500, 25.1)) == 0
    assert velocity_tuning.counted(made("hopper_velocity", "rcac", -3, 1.0)) == 0
    assert velocity_tuning.best_setting([[100, 2000], [90, 3000]]) == 1  # 1 + ⅔ against .9 + 1
    assert velocity_tuning.best_setting([[100, 2000], [60, 2600]]) == 0  # 1 + .77 against .6 + 1
    assert np.isfinite(velocity_tuning.best_setting([[0, 0], [0, 0]]))


def test_what_is_kept_is_read_from_the_configuration():
    assert velocity_tuning.kept("rcac_npg", "hopper_velocity") in velocity_tuning.SETTINGS["rcac_npg"]
