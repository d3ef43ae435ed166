"""The reproduction: its parts against known answers, every section at a tiny setting, resumption, and the command."""

import itertools
import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from rcac import RCMDP, nominal_optimum, registry
from rcac.config.compose import compose
from rcac.errors import InputError
from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.loop import Outcome, TrainingStopped
from rcac.tabular.solve import solve
from rcac.uncertainty import ChiSquare, KLBall, KLPenalty, Nominal, TotalVariation
from reproduction import (
    assumption,
    best_policy,
    cac_variants,
    cartpole,
    command,
    curves,
    deep,
    equal_return,
    forms,
    labels,
    late_iterates,
    models,
    noise,
    other_sets,
    radius_ablation,
    rate,
    report,
    river_swim,
    slack_vs_radius,
    step_sizes,
    switch,
    tabular,
    tradeoff,
    tuning,
    wall_clock,
)
from reproduction.section import (
    HOLDS,
    IN_PART,
    NOT,
    UNDECIDED,
    Claim,
    Interrupted,
    PieceCache,
    Section,
    SeedCosts,
    at_most,
    decide,
    verdict,
)
from reproduction.sections import SECTIONS
from reproduction.store import Store, defaults

ROOT = Path(__file__).parents[2]
SMALL_NETWORKS = ["algo.actor_hidden=[8]", "algo.critic_hidden=[8]", "algo.num_envs=8", "algo.rollout_length=128"]
DEEP = {
    "seeds": 1,
    "steps": 1024,
    "episodes": 2,
    "noise": [0.0, 0.04, 0.1],
    "tuning_settings": 2,
    "tuning_seeds": 1,
    "tuning_steps": 1024,
    "changes": SMALL_NETWORKS,
}
TINY = {
    "step_sizes": {"iterations": 5, "problems": ["river_swim", "garnet"], "methods": ["rnpg", "epirc_pgs"]},
    "river_swim": {"radii": [1e-2], "iterations": 20, "stride": 9},
    "wall_clock": {
        "problems": ["river_swim"],
        "discounts": [0.9, 0.99],
        "iterations": 10,
        "repetitions": 1,
        "stride": 6,
    },
    "best_policy": {
        "problems": ["river_swim", "garnet"],
        "discounts": [0.9, 0.99],
        "iterations": 10,
        "step_sizes": [1.0],
    },
    "curves": {"problems": ["river_swim", "garnet"], "iterations": 30, "garnet_lambda": 30.0},
    "rate": {"sets": ["kl_ball"], "iterations": [5, 100, 200], "tune_at": 10},
    "other_sets": {"iterations": 5, "step_sizes": [1.0]},
    "switch": {"iterations": 60},
    "noise": {"problems": ["river_swim"], "noise": [0.01, 0.1], "samples": [1000], "seeds": 2, "iterations": 20},
    "models": {},
    "cartpole": {"algorithms": ["rcac_npg", "epirc_pgs_deep"], "clean": ["rcac_npg"], **DEEP},
    "tradeoff": {
        "algorithms": ["cac", "rcac_sqp"],
        **DEEP,
        "wind": [0.0, 2.0],
        "length": [1.0],
        "radius_ablation": ["rcac_sqp"],
        "radii": [0.0, 1e-3],
        "slacks": [0.0, 15.0],
        "sweep_seeds": 1,
    },
    "velocity": {
        "tasks": ["hopper_velocity"],
        "algorithms": ["rcac_npg", "rcac_sqp", "cpo"],
        **{key: DEEP[key] for key in ("seeds", "steps", "episodes", "changes")},
    },
    "velocity_tuning": {
        "tasks": ["hopper_velocity"],
        "algorithms": ["rcac_npg"],
        **{key: DEEP[key] for key in ("seeds", "steps", "episodes", "changes")},
    },
    "robust": {
        "methods": ["robust_sqp", "rcac_sqp"],
        **{"sides": 2, "points": 2},
        **{key: DEEP[key] for key in ("seeds", "steps", "episodes", "changes")},
    },
}


# Parts


def test_budgets_keep_their_meaning_at_every_discount():
    """A cost of c at every step is c/(1−γ): the budget per step is the same."""
    for problem in tabular.PROBLEMS:
        per_step = [tabular.load_problem(problem, g).budgets * (1 - g) for g in (0.9, 0.99, 0.995)]
        np.testing.assert_allclose(per_step, [per_step[1]] * 3)
    assert tabular.load_problem("river_swim").budgets == pytest.approx([42.0])


def test_the_linear_program_allows_what_the_design_says():
    model = tabular.load_problem("river_swim", initial="uniform")
    assert -nominal_optimum(model).value == pytest.approx(46.5, abs=0.1)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([[-1, 5], [-3, 2], [-2, 1], [-9, 3]], 1),  # the best of the feasible ones
        ([[-1, 5], [-3, 4], [-2, 6]], 1),  # none is: the least violating
    ],
)
def test_best_iterate(returns, expected):
    assert tabular.best_iterate(np.array(returns, float), np.array([2.0])) == expected


def test_a_run_reports_what_the_solver_found():
    model, uncertainty = tabular.load_problem("garnet"), tabular.kl_penalty("garnet")
    run, found = tabular.run_method(model, "rsqp", uncertainty), solve(model, "rsqp", uncertainty)
    assert run["objective"] == pytest.approx(-found.returns[0])
    assert run["constraint"] == pytest.approx(-found.returns[1])  # a utility, in its own sign
    assert run["feasible"]
    assert run["constraint"] >= 90


def test_the_first_policy_to_reach_the_goal_must_be_feasible():
    returns = np.array([[-5.0, 3.0], [-4.0, 1.0], [-4.9, 2.0]])
    assert wall_clock.first_reaching(returns, np.array([2.0]), goal=-4.5) == 2
    assert wall_clock.first_reaching(returns, np.array([2.0]), goal=-5.0) is None


def test_the_surrogates_minimum_is_below_every_policys():
    model, uncertainty = rate.positive_costs(), tabular.kl_penalty("river_swim")
    lam, slack = 200.0, 1.0
    least = rate.least_surrogate(model, uncertainty, lam, slack)
    found = solve(model, "rnpg", uncertainty, iterations=400, step_size=20.0, lam=lam, slack=slack)
    excess = found.history["returns"] @ np.diag([1 / lam, 1.0]) + np.array([0.0, slack - model.budgets[0]])
    surrogate = excess.max(axis=1)
    assert (surrogate >= least - 1e-6).all()
    assert surrogate.min() <= least + 0.05


def test_slope_of_a_power():
    counts = [10, 100, 1000, 10_000]
    assert rate.slope(counts, [3 * t**-0.5 for t in counts]) == pytest.approx(-0.5)


def test_shares_of_the_switch():
    assert switch.shares([0, 0, 1, 1, 0]) == (0.5, 2)


def test_every_method_of_a_comparison_gets_as_many_settings():
    for grids in (river_swim.GRIDS, wall_clock.GRIDS):
        assert len({len(grid) for method, grid in grids.items() if method != "rsqp"}) == 1
        assert grids["rsqp"] == [{}]


def test_every_deep_method_is_tuned_over_six_settings():
    for algo in deep.ALGORITHMS:
        own = tuning.select_settings(algo, 6)
        assert own == tuning.grid(algo)
        assert len(set(own)) == 6
        assert tuning.select_settings(algo, 2) == [own[0], own[-1]]
        for changes in own:
            compose([f"env={tradeoff.ENV}", f"algo={algo}", *changes])  # all keys and values are good ones
    assert {SECTIONS[name].settings["full"]["tuning_settings"] for name in ("cartpole", "tradeoff")} == {6}
    assert not {*range(deep.FIRST_SEED, deep.FIRST_SEED + 50)} & {*range(tuning.FIRST_SEED, tuning.FIRST_SEED + 50)}


@pytest.mark.parametrize(
    ("tried", "best"),
    [
        ([(600, 201), (500, 199), (550, 200)], 2),  # the largest return within the budget of 200
        ([(600, 230), (500, 210), (400, 220)], 1),  # none is: the least cost
        ([(500, 30), (500, 10), (499.96, 9), (499.9, 1)], 2),  # ties, as printed to .1: the lower cost
    ],
)
def test_the_best_setting(tried, best):
    assert tuning.best_setting([{"return": value, "cost": cost} for value, cost in tried]) == best


# The trade-off study's causes, on synthetic results


def fake_run(seed, scores):
    """A run whose tests are {(kind, strength): (return, cost)}."""
    tests = [{"kind": k, "strength": s, "returns": [v], "costs": [c]} for (k, s), (v, c) in scores.items()]
    return {"seed": seed, "tests": tests}


def runs_of(*columns):
    """A run for each seed from 10 on, of (return, cost) as trained, at δ .1 and under wind of 2 N."""
    at = [("noise", 0.04), ("noise", 0.1), ("wind", 2.0)]
    return [fake_run(10 + k, dict(zip(at, scores, strict=True))) for k, scores in enumerate(columns)]


def test_paired_differences_are_of_the_same_seeds():
    method = runs_of(*[((600 + k, 100), (700, 150 + k), (650, 190)) for k in range(4)])
    ablated = runs_of(*[((610 + k, 100), (700, 250 + k * k), (650, 190)) for k in range(4)])
    value, cost = radius_ablation.paired(method, ablated[::-1], ("noise", 0.04))
    assert value == pytest.approx((-10, -10, -10))
    assert cost == pytest.approx((0, 0, 0))
    _, cost = radius_ablation.paired(method, ablated[::-1], ("noise", 0.1))
    assert cost.estimate == pytest.approx(-101)  # −100, −100, −102, −106: the mean of the middle two
    assert -106 <= cost.low <= cost.high <= -100


BREAKS, HOLDS_IT = ((600, 150), (700, 260), (650, 240)), ((600, 150), (650, 190), (640, 180))


@pytest.mark.parametrize(
    ("ablated", "expected"),
    [
        (BREAKS, HOLDS),  # at both perturbations that CAC breaks
        (((600, 150), (700, 260), (650, 199)), IN_PART),  # at one of two
        (((600, 150), (300, 150), (650, 199)), NOT),  # an ablation that falls does not break the budget
        (HOLDS_IT, NOT),
    ],
)
def test_the_norm_gets_credit_only_where_the_ablation_breaks_the_budget(ablated, expected):
    methods = {"cac": runs_of(*[BREAKS] * 3), "rcac_sqp": runs_of(*[HOLDS_IT] * 3)}
    found = radius_ablation.claim(methods, {"rcac_sqp": runs_of(*[ablated] * 3)})
    assert found.verdict == expected
    assert "RCAC-SQP holds it at 2" in found.evidence


def test_a_difference_that_is_not_clear_earns_no_credit():
    """The ablation costs 201 in the middle, but is below its method on one seed of four."""
    methods = {"cac": runs_of(*[BREAKS] * 4), "rcac": runs_of(*[HOLDS_IT] * 4)}
    unclear = [((600, 150), (650, cost), (640, 180)) for cost in (201, 201, 201, 120)]
    assert radius_ablation.claim(methods, {"rcac": runs_of(*unclear)}).verdict == NOT


def test_no_perturbation_to_count_is_no_credit():
    methods = {"cac": runs_of(HOLDS_IT, HOLDS_IT), "rcac": runs_of(HOLDS_IT, HOLDS_IT)}
    assert radius_ablation.claim(methods, {"rcac": runs_of(BREAKS, BREAKS)}).verdict == NOT


def point(value, cost, seeds=3, upright=600):
    return runs_of(*[((value, 100), (upright, cost), (upright, cost))] * seeds)


def swept(radii, slacks):
    first = [{"scope": "last_layer", "radius": radius, "runs": runs} for radius, runs in radii.items()]
    return first, [{"slack": slack, "runs": runs} for slack, runs in slacks.items()]


SLACKS = {0.0: point(640, 400), 15.0: point(600, 300), 45.0: point(500, 200)}


def test_slacks_are_interpolated_at_the_radiuss_return():
    radii = {0.0: point(640, 400), 1e-4: point(620, 340), 1e-3: point(550, 260), 1e-2: point(499, 10)}
    found = equal_return.compare(*swept(radii, SLACKS), slack_vs_radius.JUDGED)
    assert found.left_out == [1e-2]  # no slack returns so little
    assert [c.slack_cost for c in found.compared] == pytest.approx([350, 250])
    assert [c.difference.estimate for c in found.compared] == pytest.approx([-10, 10])
    assert found.mean == pytest.approx((0, 0, 0))


def test_a_policy_that_falls_is_not_compared():
    radii = {0.0: point(640, 400), 1e-3: point(620, 5, upright=100)}
    assert equal_return.compare(*swept(radii, SLACKS), slack_vs_radius.JUDGED).left_out == [1e-3]
    fallen = {slack: point(550, 5, upright=100) for slack in SLACKS}
    found = equal_return.compare(*swept({1e-3: point(550, 260)}, fallen), slack_vs_radius.JUDGED)
    assert found == ([], [1e-3], None)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((340, 240), HOLDS),  # both below the slacks' 350 and 250
        ((380, 240), IN_PART),  # one below, the mean not
        ((350, 250), NOT),
    ],
)
def test_does_a_radius_protect_better_than_aiming_below_the_budget(costs, expected):
    radii = {0.0: point(640, 400), 1e-4: point(620, costs[0]), 1e-3: point(550, costs[1])}
    _, found = slack_vs_radius.claims(*swept(radii, SLACKS))
    assert found.verdict == expected


def test_radius_and_slack_are_resampled_with_the_same_seeds():
    """Seeds that move radius and slacks alike leave the difference as it is."""

    def moved(value, cost):
        return runs_of(*[((value, 100), (600, cost + k), (600, cost + k)) for k in (0, 50, 90, 7)])

    found = equal_return.compare(
        *swept({1e-3: moved(620, 300)}, {0.0: moved(640, 400), 15.0: moved(600, 300)}), slack_vs_radius.JUDGED
    )
    assert found.mean == pytest.approx((-50, -50, -50))


def test_slack_in_units_of_an_episodes_cost():
    share = (1 - 0.995**500) / (0.005 * 500)
    assert slack_vs_radius.target_cost(15.0) == pytest.approx(200 - 15 / share)
    assert slack_vs_radius.target_cost(0.0) == 200
    assert SECTIONS["tradeoff"].settings["full"]["slacks"][0] == 0


def test_equal_trainings_are_made_once():
    settings = SECTIONS["tradeoff"].settings["full"]
    best = {algo: tuning.grid(algo)[0] for algo in deep.ALGORITHMS}
    groups = tradeoff._groups(settings, best)
    seeds = slice(0, settings["sweep_seeds"])
    zero = groups["radius_ablation", "rcac_npg"][seeds]
    assert zero == groups["slack", 0.0] == groups["radius", "last_layer", 0.0] == groups["radius", "all", 0.0]
    assert groups["method", "rcac_npg"][seeds] == groups["radius", "last_layer", 1e-3]  # the default
    specs = {spec for group in groups.values() for spec in group}
    assert len({spec.label for spec in specs}) == len(specs) == 60 + 50 + 35 + 25  # methods, ablations, radii, slacks
    different = {(spec.algo, spec.changes) for spec in specs}
    composed = {str(compose([f"env={tradeoff.ENV}", f"algo={algo}", *changes]).algo) for algo, changes in different}
    assert len(composed) == len(different)


def test_equal_specs_are_one_piece(tmp_path):
    class Counting(PieceCache):
        def compute_all(self, pieces):
            self.names = list(pieces)
            return self.names

    cache = Counting(tmp_path)
    first, second = deep.TrainingSpec("cartpole", "cac", 10), deep.TrainingSpec("cartpole", "cac", 11)
    assert deep.train_and_test({"group": [first, second, first]}, [], {}, cache) == {
        "group": [first.label, second.label, first.label]
    }
    assert cache.names == [first.label, second.label]


def test_labels_of_points_do_not_overlap():
    fig = style.figure(6.2, 3.0)
    axes = fig.subplots()
    places = [(0, 0), (0.01, 0.01), (0.02, 0), (1, 1), (1, 1.01)]
    axes.plot(*zip(*places, strict=True))
    labels.place_labels(axes, [labels.PointLabel("0.0001", x, y, "black") for x, y in places])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(places)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("module", [cartpole, tradeoff])
def test_the_report_states_the_rules(module, results):
    text = module.SECTION.tables(results[module.SECTION.name])
    assert module.RULES in text
    assert tuning.RULE in text
    for algo, tuned in results[module.SECTION.name]["tuned"].items():
        assert len(tuned["tried"]) == 2
        assert f"| {style.look(algo).name} | **{tuning.format_setting(tuned['best'])}** |" in text


def test_printed_numbers_against_the_program():
    [check] = [c for c in best_policy._checks("river_swim", 0.99) if c["method"] == "rnpg"]
    assert (check["objective"], check["constraint"]) == (102.1, 42.2)
    assert check["allowed"] < 50 < check["objective"]
    assert best_policy._impossible(check)
    assert not best_policy._impossible({**check, "objective": 40.0})


def test_verdicts_and_tables():
    assert [verdict(True, True), verdict(False, True), verdict(False, False)] == [HOLDS, IN_PART, NOT]
    assert markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 9, True),
        (1, 10, True),
        (10, 10, True),
        (10, 11, None),
        (9, 11, None),
        (10.1, 11, False),
        (np.nan, np.nan, None),
    ],
)
def test_an_interval_that_crosses_the_line_decides_nothing(low, high, expected):
    assert at_most(low, high, 10) is expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([True, True], HOLDS),
        ([False, False], NOT),
        ([True, False], IN_PART),
        ([True, None], UNDECIDED),  # holds, or in part
        ([False, None], UNDECIDED),
        ([True, None, False], IN_PART),  # whatever the open one is
        ([], UNDECIDED),
    ],
)
def test_a_verdict_is_undecided_where_open_parts_could_tip_it(parts, expected):
    assert decide(parts) == expected


@pytest.mark.parametrize(
    ("costs", "within"),
    [
        ([190.0, 192.0, 194.0], True),  # mean 192, sem 2/√3, t .975 with 2 degrees 4.303: 192 ± 4.97
        ([196.0, 198.0, 200.0], None),  # 198 ± 4.97
        ([204.0, 206.0, 208.0], False),  # 206 ± 4.97
        ([200.0, 200.0], True),  # on the line
        ([100.0], None),  # one seed says nothing
        ([140.0] * 5 + [449.0], None),  # the worst seed counts
    ],
)
def test_budgets_are_judged_by_every_seed(costs, within):
    found = SeedCosts(costs, 200.0)
    assert found.within is within
    assert found.breaks is (None if within is None else not within)
    assert f"{max(costs):.1f} on the worst" in str(found)
    assert f"above the budget on {sum(c > 200 for c in costs)} of {len(costs)} seeds" in str(found)
    if costs == [190.0, 192.0, 194.0]:
        np.testing.assert_allclose(found.interval, [192 - 4.9683, 192 + 4.9683], atol=1e-3)


def test_every_method_has_a_look_of_its_own():
    for group in (tabular.METHODS, SECTIONS["cartpole"].settings["full"]["algorithms"]):
        looks = [style.look(method) for method in group]
        for part in ("name", "colour", "marker"):
            assert len({getattr(own, part) for own in looks}) == len(group)


# Verdicts, on synthetic results


def at_trained_noise(*costs, value=495.0):
    """A run for each cost at δ .04 and 50 less without noise, seeds from 10 on."""
    scores = [{("noise", 0.0): (value, cost - 50), ("noise", 0.04): (value, cost)} for cost in costs]
    return [fake_run(10 + k, score) | {"seconds": 1.0} for k, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("noisy", "clean", "expected"),
    [
        ((250, 260, 270, 240), (210, 220, 230, 240), HOLDS),
        ((50, 60, 70, 80), (210, 220, 230, 240), IN_PART),  # only when trained without noise
        ((250, 260, 270, 280), (50, 60, 70, 80), IN_PART),  # only when trained with it
        ((50, 60, 70, 80), (50, 60, 70, 80), NOT),
        ((50, 60, 70, 80), (200, 200, 200, 200), NOT),  # on the line is within
        ((250, 260, 270, 199), (210, 220, 230, 240), UNDECIDED),  # one seed below, and the interval crosses
        ((50, 60, 70, 80), (120, 130, 140, 449), UNDECIDED),  # one seed far above
    ],
)
def test_cac_is_judged_by_both_variants(noisy, clean, expected):
    methods = {"cac": at_trained_noise(*noisy)}
    found = cac_variants.claim(methods, {"cac": at_trained_noise(*clean)})
    assert found.verdict == expected
    assert f"above the budget on {sum(c > 200 for c in noisy)} of 4 seeds" in found.evidence
    assert f"above the budget on {sum(c > 200 for c in clean)} of 4 seeds" in found.evidence


@pytest.mark.parametrize(
    ("noisy", "cac", "rcac", "words"),
    [
        (50, 220, 230, "so it breaks it as well: what breaks it is training without the noise"),
        (250, 220, 230, "so it breaks it as well"),
        (50, 220, 150, "thanks to its norm"),
        (50, 150, 150, "so it holds it as well"),
        (50, 150, 230, "although it has the norm"),
    ],
)
def test_rcac_without_noise_shows_the_cause(noisy, cac, rcac, words):
    clean = {"cac": at_trained_noise(cac, cac), "rcac": at_trained_noise(rcac, rcac)}
    evidence = cac_variants.claim({"cac": at_trained_noise(noisy, noisy)}, clean).evidence
    assert words in evidence
    assert ("not the missing norm" in evidence) == (noisy < 200 < min(cac, rcac))


def test_the_norm_gets_no_credit_for_what_seeds_may_explain():
    clean = {"cac": at_trained_noise(190, 220, 230, 400), "rcac": at_trained_noise(150, 190, 199, 390)}
    assert "do not show the cause" in cac_variants.claim({"cac": at_trained_noise(50, 50)}, clean).evidence


def test_training_without_noise_is_tested_with_it(results):
    [first, _] = results["cartpole"]["clean"]["rcac_npg"]
    noisy = results["cartpole"]["methods"]["rcac_npg"][0]
    assert first["changes"] == [*noisy["changes"], cac_variants.WITHOUT_NOISE]
    assert first["seed"] == noisy["seed"]
    assert [test["strength"] for test in first["tests"]] == [test["strength"] for test in noisy["tests"]]
    config = compose(["env=cartpole", "algo=cac", *first["changes"][1:]])
    assert config.env.kwargs["noise_high"] == 0
    assert "| RCAC-NPG | δ 0 |" in cartpole.tables(results["cartpole"])


def late_stats(infeasible=0.0, late=0.0, last=False, change=(0.0, 0.0)):
    return {"infeasible": infeasible, "late_infeasible": late, "last_infeasible": last, "change": list(change)}


def curve_problem(problem="river_swim", floor=False, **late_stats):
    """A problem with bound and budget 100, and runs with these late iterates that begin at a constraint of 50."""
    runs = [{"method": m, "late_iterates": e, "constraint": [50.0]} for m, e in late_stats.items()]
    return {"problem": problem, "runs": runs, "best": 100.0, "budget": 100.0, "floor": floor}


def test_late_iterate_stats():
    returns = np.array([[-1.0, 3.0], [-2, 1], [-3, 1], [-4, 1], [-5, 1], [-6, 1], [-7, 1], [-8, 5], [-9, 1], [-7, 4]])
    found = tabular.late_iterate_stats(returns, np.array([2.0]))
    assert found["infeasible"] == pytest.approx(0.3)
    assert found["late_infeasible"] == pytest.approx(2 / 3)  # of the last three
    assert found["last_infeasible"]
    assert found["change"] == pytest.approx([1.5, 3.5])


OVER, WITHIN = late_stats(late=0.8, last=True), late_stats(late=0.4, last=True)


@pytest.mark.parametrize(
    ("rnpg", "rppg", "epirc_pgs", "expected"),
    [
        (WITHIN, OVER, OVER, HOLDS),
        (WITHIN, WITHIN, OVER, IN_PART),
        (WITHIN, WITHIN, late_stats(late=0.8), NOT),  # its last one is feasible
        (OVER, OVER, OVER, NOT),
    ],
)
def test_who_ends_up_infeasible_is_judged_by_late_iterates(rnpg, rppg, epirc_pgs, expected):
    found = late_iterates._ends_infeasible(curve_problem(rnpg=rnpg, rppg=rppg, epirc_pgs=epirc_pgs))
    assert found.verdict == expected


@pytest.mark.parametrize(
    ("rnpg", "rppg", "epirc_pgs", "expected"),
    [
        ((1, 0), (2, 0), (0, 2), HOLDS),  # reward or constraint, whichever moves more
        ((1, 0), (2, 0), (1, 0), IN_PART),  # equal is not more stable
        ((1, 0), (0, 0), (1.005, 0), NOT),  # nor is a hundredth of a per cent
    ],
)
def test_stability(rnpg, rppg, epirc_pgs, expected):
    changes = {"rnpg": rnpg, "rppg": rppg, "epirc_pgs": epirc_pgs}
    found = late_iterates._stable([curve_problem(**{m: late_stats(change=c) for m, c in changes.items()})])
    assert found.verdict == expected


def test_feasible_at_every_iteration():
    clean, once_broken = late_stats(), late_stats(infeasible=0.001)
    all_clean = curve_problem("garnet", True, rnpg=clean, rppg=clean, epirc_pgs=clean)
    one = curve_problem("garnet", True, rnpg=clean, rppg=clean, epirc_pgs=once_broken)
    none = curve_problem("garnet", True, rnpg=once_broken, rppg=once_broken, epirc_pgs=once_broken)
    found = [late_iterates._always_feasible(problems) for problems in ([all_clean], [all_clean, one], [none])]
    assert [claim.verdict for claim in found] == [HOLDS, IN_PART, NOT]
    assert "the first policy breaks it" in found[0].evidence


def test_who_obeys_on_the_garbage_collector():
    clean, broken = late_stats(), late_stats(infeasible=0.1)
    verdicts = [
        late_iterates._garbage_collector(
            curve_problem("garbage_collector", rnpg=clean, rppg=rppg, epirc_pgs=epirc)
        ).verdict
        for rppg, epirc in ((clean, broken), (clean, clean), (broken, clean))
    ]
    assert verdicts == [HOLDS, IN_PART, NOT]


def swim(rnpg, rppg, epirc_pgs, crpo):
    """A radius of river-swim from (reward, feasible) of the best runs."""
    best = {"rnpg": rnpg, "rppg": rppg, "epirc_pgs": epirc_pgs, "robust_crpo": crpo, "rsqp": (50.0, True)}
    return {
        "radius": 0.01,
        "methods": {
            m: [{"objective": value, "feasible": ok, "violation": 0.0 if ok else 1.0, "evaluations": 10}]
            for m, (value, ok) in best.items()
        },
    }


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (((40, True), (39, True), (41, False), (45, True)), HOLDS),  # robust CRPO is no party, an infeasible one loses
        (((40, True), (41, True), (39, True), (1, True)), IN_PART),
        (((42, False), (39, True), (39, True), (1, True)), NOT),
    ],
)
def test_rnpg_against_its_rivals_only_and_only_if_feasible(best, expected):
    found = river_swim.claims({"radii": [swim(*best)]})
    [claim] = [claim for claim in found if "RNPG earns more" in claim.claim]
    assert claim.verdict == expected
    [feasible] = [claim for claim in found if "is feasible" in claim.claim]
    assert feasible.verdict == (HOLDS if best[0][1] else NOT)


def test_the_bound_of_the_theory():
    model = rate.positive_costs()
    known = 200 * np.sqrt(6 / 400) * np.log(2) * 100**2
    assert rate.bound("known", 400, model) == pytest.approx(known)
    assert rate.bound("known", 1600, model) == pytest.approx(known / 2)
    assert rate.bound("unknown", 16, model) == pytest.approx(rate.bound("unknown", 1, model) / 2)
    for variant in rate.VARIANTS:
        assert rate.bound(variant, round(rate.informative_from(variant, model)), model) == pytest.approx(100, rel=1e-3)


@pytest.mark.parametrize(
    ("gaps", "slopes", "expected"),
    [
        ([27.0, 27.0], 0.0, (HOLDS, NOT)),  # a gap that stays does not contradict an upper bound
        ([27.0, 1.0], -0.9, (HOLDS, HOLDS)),
        ([27.0, 1e9], 0.5, (IN_PART, NOT)),
    ],
)
def test_a_bound_and_a_slope_are_two_claims(gaps, slopes, expected):
    curve = {"multiple": 1.0, "gaps": gaps, "slope": slopes}
    names = [f"{variant} {step}" for variant in rate.VARIANTS for step in ("theory", "tuned")]
    sets = [{"set": "kl_ball", "curves": dict.fromkeys(names, curve)}]
    for beta, words, applied in (
        (1.4, "does not apply", NOT),
        (1.0, "does not apply", NOT),
        (0.995, "theorem applies", HOLDS),
    ):
        betas = [{"problem": "river_swim", "set": "kl_ball", "beta": beta}]
        found = rate.claims({"sets": sets, "iterations": [100, 200], "assumption": betas})
        assert [claim.verdict for claim in found] == [applied, *expected, *expected]
        assert words in found[1].evidence


def test_beta_of_the_assumption():
    """By hand: γ times the largest growth of a probability that a set allows."""
    kernel = np.array([[[0.1, 0.9]], [[1.0, 0.0]]])
    model = RCMDP.from_rewards(kernel, np.zeros((2, 1)), discount=0.9)
    assert assumption.beta(model, Nominal()) == pytest.approx(0.9)
    assert assumption.beta(model, ChiSquare(0.01)) == pytest.approx(0.9 * 1.3)  # .1 grows by √(.01 · .1 · .9) = .03
    tilt = np.exp(10 / 50) / (0.1 * np.exp(10 / 50) + 0.9)  # values of 0 and 10, θ 50
    assert assumption.beta(model, KLPenalty(50.0)) == pytest.approx(0.9 * tilt)
    assert assumption.beta(model, TotalVariation(0.01)) == np.inf  # reaches a state that p0 does not
    q = brentq(lambda q: q * np.log(q / 0.1) + (1 - q) * np.log((1 - q) / 0.9) - 0.01, 0.1, 0.5)
    assert assumption.beta(model, KLBall(0.01)) == pytest.approx(0.9 * q / 0.1, rel=1e-6)
    river = tabular.load_problem("river_swim")
    assert assumption.beta(river, KLBall(0.01)) == pytest.approx(1.435, abs=1e-3)


def clock(problem, rppg, near=(1.0, 1.0)):
    """A cell in which RNPG takes a second, and `near` is RNPG's and EPIRC-PGS's."""
    seconds = {"rnpg": (1.0, near[0]), "rppg": (rppg, None), "epirc_pgs": (2.0, near[1])}
    methods = {m: {"updates": u, "near": n, "evaluations": 1} for m, (u, n) in seconds.items()}
    return {"problem": problem, "discount": 0.9, "methods": methods}


@pytest.mark.parametrize(
    ("river", "others", "expected"),
    [
        ((1.5, 1.7), (1.4, 0.7), (HOLDS, HOLDS)),
        ((1.5, 1.0), (1.4, 0.5), (IN_PART, IN_PART)),
        ((1.0, 0.9), (3.0, 0.5), (NOT, NOT)),
    ],
)
def test_rnpg_and_rppg_by_the_clock(river, others, expected):
    cells = [clock("river_swim", r) for r in river] + [clock("garnet", r) for r in others]
    assert [claim.verdict for claim in wall_clock.claims({"cells": cells})[-2:]] == [*expected]


def text_in(figure):
    figure.draw_without_rendering()
    inside = [text.get_text() for axes in figure.axes for text in axes.texts]
    return " ".join([*inside, " ".join(figure.get_supxlabel().split())])


def test_a_goal_that_is_not_reached_is_marked():
    cells = [clock("river_swim", 1.0, near=(None, 1.0)), clock("garnet", 1.0)]
    assert "not near: RNPG" in text_in(wall_clock.figures({"cells": cells})["wall_clock"])
    assert "ot near" not in text_in(wall_clock.figures({"cells": cells[1:]})["wall_clock"])


def test_stems_start_at_zero(results):
    result = json.loads(json.dumps(results["best_policy"][forms.OURS]))
    fig = best_policy.figures(result)["best_policy"]
    assert {axes.get_xlim()[0] for axes in fig.axes} == {0}
    result["cells"][0]["methods"]["rnpg"]["feasible"] = False
    assert "Hollow: the policy breaks its budget" in text_in(best_policy.figures(result)["best_policy"])


def test_notes_are_wrapped_to_the_figure():
    fig = style.figure(6.2, 3.0)
    style.note(fig, "a few words " * 40)
    fig.draw_without_rendering()
    [text] = fig.texts
    assert "\n" in text.get_text()
    assert text.get_window_extent().x1 <= fig.bbox.x1


def trained(*pairs):
    """A run for each (return, cost) late in training; both are 0 before."""
    return [
        {"curve": {"steps": list(range(1, 11)), "return": [0] * 7 + [v] * 3, "cost": [0] * 7 + [c] * 3}}
        for v, c in pairs
    ]


@pytest.mark.parametrize(
    ("crpo", "epirc", "expected"),
    [
        ((480, 60), (120, 50), HOLDS),
        ((480, 60), (490, 50), IN_PART),  # EPIRC-PGS is like the others
        ((480, 90), (120, 50), IN_PART),  # costs are not alike
        ((300, 90), (120, 50), NOT),
    ],
)
def test_alike_in_training(crpo, epirc, expected):
    methods = {algo: trained((495, 50), (490, 55)) for algo in cartpole.ALIKE}
    methods |= {"robust_crpo_deep": trained(crpo), "epirc_pgs_deep": trained(epirc)}
    assert cartpole._alike(methods).verdict == expected


def test_lines_that_coincide_are_named():
    same, other = at_trained_noise(150, 160), at_trained_noise(150, 160, value=300.0)
    methods = {"cac": same, "rcac": same, "rcac_npg": same}
    assert deep.coinciding(methods | {"rcac_sqp": other}, "noise") == ["cac", "rcac", "rcac_npg"]
    assert "all 3 that were trained at δ .04 coincide" in cartpole._coinciding_note(methods)
    assert "CAC, RCAC, RCAC-NPG, trained" in cartpole._coinciding_note(methods | {"rcac_sqp": other})
    assert cartpole._coinciding_note({"cac": same, "rcac": other}) == ""
    assert "over 2 seeds, 20 test episodes" in deep.sweep_note(methods, 20)


def test_figures_say_what_points_and_bands_are(results):
    for module in (cartpole, tradeoff):
        figures = module.figures(results[module.SECTION.name])
        for name in {"cartpole_noise", "cartpole_training", "tradeoff", "tradeoff_noise"} & figures.keys():
            assert "interquartile mean over 2 seeds" in text_in(figures[name])
            assert "Bands: " in text_in(figures[name])


def test_the_papers_own_two_have_a_figure(results):
    result = {**results["cartpole"], "methods": dict(results["cartpole"]["methods"])}
    assert "cartpole_own" not in cartpole.figures(result)
    result["methods"]["rcac"] = result["methods"]["rcac_npg"]
    assert "cartpole_own" in cartpole.figures(result)


def test_the_models_are_compared_with_the_tables(tmp_path):
    result = json.loads(json.dumps(models.compute({}, PieceCache(tmp_path))))
    found, preset = models.claims(result)
    assert (found.verdict, preset.verdict) == (IN_PART, HOLDS)
    assert "frozen-lake, states" in found.evidence  # 15 printed, of a 4×4 grid
    assert "river-swim, s0 right" in found.evidence  # printed with a move out of the river
    assert "reward of" not in found.evidence
    result["preset"]["garnet"][-1] = 0.5
    assert models.claims(result)[1].verdict == IN_PART
    result["amounts"]["frozen_lake"]["hole"][1] = 0.5
    assert "frozen-lake, cost of hole" in models.claims(result)[0].evidence
    for kernel in (dict(own) for _, _, own in [*result["swim"], *result["grid"]]):
        assert sum(kernel.values()) == pytest.approx(1)


def on_other_sets(*groups):
    """A result of made-up runs: for each set, reward and feasibility of RNPG, its rivals and RSQP."""
    methods = ["rnpg", *other_sets.RIVALS, other_sets.OURS]
    sets = [
        {
            "set": kind,
            "runs": [
                {"method": method, "objective": reward, "constraint": 40.0 if feasible else 43.0, "feasible": feasible}
                for method, (reward, feasible) in zip(methods, group, strict=True)
            ],
        }
        for kind, group in zip(other_sets.OTHER_SETS, groups, strict=False)
    ]
    return {"sets": sets, "iterations": 1}


def test_verdicts_on_other_sets():
    low, mid, high, over = (20.0, True), (30.0, True), (35.0, True), (50.0, False)

    def verdicts(*groups):
        return [claim.verdict for claim in other_sets.claims(on_other_sets(*groups))]

    ahead, behind = [mid, low, low, over, high], [low, mid, low, low, low]
    assert verdicts(ahead, ahead) == [HOLDS, HOLDS, HOLDS]  # who is over the budget does not count
    assert verdicts(ahead, behind) == [HOLDS, IN_PART, IN_PART]
    assert verdicts(behind) == [HOLDS, NOT, NOT]
    assert verdicts([over, low, low, low, high], ahead) == [IN_PART, IN_PART, HOLDS]
    assert verdicts([(29.99, True), mid, low, low, mid]) == [HOLDS, HOLDS, HOLDS]  # level
    assert verdicts([(29.9, True), mid, low, low, mid])[1] == NOT


# Forms, and evaluators with an error


def noisy(method, *shortfalls, error=None):
    """A cell whose runs fall short by these shares of a reward of 100."""
    runs = [{"objective": 100 * (1 - s), "constraint": 40.0, "excess": 0.0} for s in shortfalls]
    error = error or {"noise": 0.01}
    return {"problem": "river_swim", "method": method, "error": error, "exact": {"objective": 100.0}, "runs": runs}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([0.04, 0.04], True),
        ([0.05, 0.05], True),  # on the line
        ([0.06, 0.06], False),
        ([0.0, 0.2], None),
        ([0.04], None),  # one seed has no interval
        ([-0.5, -0.5], True),  # earning more is no shortfall
    ],
)
def test_a_method_works_under_an_error_or_does_not(runs, expected):
    assert noise.works(noisy("rnpg", *runs)) is expected


def test_breaking_the_budget_is_a_shortfall():
    over = noisy("rnpg", 0.01)
    over["runs"][0]["excess"] = 0.03
    assert noise.shortfalls(over) == pytest.approx([0.04])


@pytest.mark.parametrize(
    ("epirc", "rnpg", "expected"),
    [
        ([0.06, 0.06], [0.04, 0.04], HOLDS),
        ([0.06, 0.06], [0.05, 0.05], HOLDS),  # on the line it works
        ([0.05, 0.05], [0.04, 0.04], NOT),  # EPIRC-PGS does not fail
        ([0.06, 0.06], [0.06, 0.06], NOT),
        ([0.0, 0.2], [0.04, 0.04], UNDECIDED),
        ([0.06, 0.06], [0.0, 0.2], UNDECIDED),
    ],
)
def test_does_a_binary_search_fail_under_noise(epirc, rnpg, expected):
    cells = [noisy("epirc_pgs", *epirc), noisy("rnpg", *rnpg), noisy("rsqp", 0.0, 0.0)]
    found, _ = noise.claims({"cells": [*cells, *(noisy(m, 0, 0, error={"samples": 1000}) for m in noise.METHODS)]})
    assert found.verdict == expected


def test_the_paper_evaluator_is_judged_by_its_methods_alone():
    for epirc, rsqp, expected in ((0.05, 0.9, HOLDS), (0.06, 0.0, IN_PART)):
        shares = {"epirc_pgs": epirc, "rnpg": 0.0, "rsqp": rsqp}
        cells = [noisy(m, s, s, error={"samples": 1000}) for m, s in shares.items()]
        assert noise.claims({"cells": cells})[1].verdict == expected


def test_forms_change_what_they_say():
    assert forms.options("negated", "rnpg", "garnet") == {}
    assert forms.options("complement", "rppg", "garnet") == {"objective": "complement"}
    paper = {method: forms.options("paper", method, "garnet") for method in forms.FORMS["paper"].methods}
    assert {method: row["step_size"] for method, row in paper.items()} == dict.fromkeys(paper, 1e-3)
    assert (paper["rnpg"]["lam"], paper["rppg"]["lam"], paper["epirc_pgs"]["restart"]) == (50.0, 15.0, True)
    for method, by_problem in tabular.PAPER_LAMBDA.items():
        for problem, lam in by_problem.items():
            assert forms.options("paper", method, problem).get("lam", 50.0) == lam
    assert forms.in_form("paper", KLPenalty(50.0)) == KLPenalty(50.0, "linear")
    assert forms.in_form("complement", KLPenalty(50.0)) == KLPenalty(50.0)


def test_a_claim_is_shown_in_every_form_that_says_something_else():
    def compute(settings, cache, form, ours):
        return {"form": form}

    def claims(result):
        same = Claim("Same", HOLDS, "it is")
        return [same, Claim("Its form", NOT, result["form"]), Claim("(Ours) Best", HOLDS, result["form"])]

    plain = Section("s", "S", "", "tabular", {}, compute, lambda r: "a table", lambda r: {}, claims)
    section = forms.in_forms(plain, compute, ["key"], lambda result: {("same",): "1", ("other",): result["form"]})
    result = section.compute({}, None)
    assert [claim.claim for claim in section.claims(result)] == [
        "Same",
        *(f"Its form ({form.words})" for form in forms.FORMS.values()),
        "(Ours) Best (c_0 = −r)",
        "(Ours) Best (c_0 = r_max − r)",
    ]
    assert section.tables(result).endswith("| other | negated | complement | paper |")


# Each verdict's rule, on each side of its line and on it


def named(found, word):
    [claim] = [claim for claim in found if word in claim.claim]
    return claim.verdict


def stepped(*rewards, method="rnpg"):
    """A cell of the step sizes: what each of the six earns, where the uniform policy earns 0 and the best known one 100."""
    runs = [
        {"answer": {"objective": float(r), "feasible": True}, "objective": float(r), "feasible": True, "first": 0.0}
        for r in rewards
    ]
    return {"set": "kl_ball", "problem": "garnet", "method": method, "runs": runs, "reference": {"objective": 100.0}}


@pytest.mark.parametrize(("way", "expected"), [(96, HOLDS), (95, HOLDS), (94, IN_PART), (50, IN_PART), (49, NOT)])
def test_is_the_papers_step_size_enough(way, expected):
    cell = stepped(way, 0, 0, 0, 0, 0)
    assert named(step_sizes.claims({"cells": [cell]}), "of the paper, 1e-3") == expected
    cell["runs"][0]["answer"]["feasible"] = False
    assert named(step_sizes.claims({"cells": [cell]}), "of the paper, 1e-3") == NOT


@pytest.mark.parametrize(("other", "expected"), [(89, HOLDS), (90, HOLDS), (95, IN_PART), (96, NOT)])
def test_is_our_default_the_best_step_size(other, expected):
    assert named(step_sizes.claims({"cells": [stepped(0, 0, 0, 90, other, 0)]}), "Our default") == expected


@pytest.mark.parametrize(
    ("rival", "evaluations", "expected"),
    [(49.9, 30, HOLDS), (50.0, 30, HOLDS), (50.1, 30, NOT), (50.0, 31, IN_PART)],
)
def test_rsqp_leads_within_thirty_evaluations(rival, evaluations, expected):
    radius = swim((rival, True), (1, True), (1, True), (1, True))
    radius["methods"]["rsqp"][0]["evaluations"] = evaluations
    assert named(river_swim.claims({"radii": [radius]}), "(Ours)") == expected


def timed(problem, quotient, near):
    """A cell in which EPIRC-PGS takes `quotient` times as long as RNPG, and `near` times to the goal."""
    cell = clock(problem, 1.0, near=(1.0, near))
    cell["methods"]["epirc_pgs"]["updates"] = quotient
    return cell


@pytest.mark.parametrize(
    ("updates", "near", "expected"),
    [(1.0, 0.0, HOLDS), (1.1, 0.0, HOLDS), (0.99, 0.0, NOT), (0.99, 1.0, IN_PART), (0.99, 0.99, NOT)],
)
def test_how_much_faster_rnpg_is_than_epirc_pgs(updates, near, expected):
    line = 0.9 * wall_clock.printed("river_swim", 0.9)  # nine tenths of what is printed
    cells = [timed("river_swim", updates * line, near * line)]
    assert named(wall_clock.claims({"cells": cells}), "as fast as EPIRC-PGS") == expected


@pytest.mark.parametrize(
    ("river", "other", "expected"),
    [
        (0.9 * wall_clock.RPPG, wall_clock.SIMILAR, [HOLDS, HOLDS]),  # on both lines
        (0.89 * wall_clock.RPPG, 1.01 * wall_clock.SIMILAR, [NOT, NOT]),
        (0.9 * wall_clock.RPPG, 1 / wall_clock.SIMILAR, [HOLDS, HOLDS]),
        (0.9 * wall_clock.RPPG, 0.99 / wall_clock.SIMILAR, [HOLDS, NOT]),
    ],
)
def test_the_lines_of_rnpg_and_rppg_by_the_clock(river, other, expected):
    found = wall_clock.claims({"cells": [clock("river_swim", river), clock("garnet", other)]})
    assert [claim.verdict for claim in found[-2:]] == expected


def best_cell(rnpg, epirc_pgs=-2.0, rsqp=1.0, feasible=True):
    values = {"rnpg": rnpg, "rppg": -2.0, "epirc_pgs": epirc_pgs, "robust_crpo": -2.0, "rsqp": rsqp}
    methods = {
        m: {
            "objective": v,
            "feasible": feasible or m != "rnpg",
            "violation": 0.0 if feasible or m != "rnpg" else 1.0,
            "evaluations": 9,
        }
        for m, v in values.items()
    }
    return {"problem": "river_swim", "discount": 0.99, "methods": methods}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([best_cell(-1.9)], HOLDS),
        ([best_cell(-2.0)], NOT),  # as much is not more
        ([best_cell(-1.9), best_cell(-2.0)], IN_PART),  # half of them
        ([best_cell(-1.9), best_cell(-2.0), best_cell(-2.0)], NOT),
        ([best_cell(-1.0, feasible=False)], NOT),
    ],
)
def test_whose_best_policy_earns_more(cells, expected):
    found = best_policy.claims({"cells": cells, "checks": []})
    assert named(found, "earns more than that of EPIRC-PGS") == expected


@pytest.mark.parametrize(("rsqp", "expected"), [(0.0, HOLDS), (-1e-6, HOLDS), (-2e-6, NOT)])
def test_rsqp_against_the_best_tuned(rsqp, expected):
    assert named(best_policy.claims({"cells": [best_cell(0.0, rsqp=rsqp)], "checks": []}), "(Ours)") == expected


@pytest.mark.parametrize(("printed", "expected"), [([50, 50], HOLDS), ([50.1, 50], IN_PART), ([50.1, 50.1, 50], NOT)])
def test_printed_pairs_are_possible_up_to_what_the_program_allows(printed, expected):
    row = {"problem": "river_swim", "discount": 0.99, "method": "rnpg", "constraint": 42.2, "allowed": 50.0}
    checks = [row | {"objective": value} for value in printed]
    assert named(best_policy.claims({"cells": [best_cell(0.0)], "checks": checks}), "printed rewards") == expected


def curves_of(lambdas=((40, 40), (41, 41)), fifty=(True,), constraint=50.0, floor=False):
    """A result of the learning curves: (reward, cost) by λ, RNPG's feasibility by problem, and one constraint for all."""
    rows = dict.fromkeys(["rnpg", "rppg", "epirc_pgs"], late_stats())
    problems = [curve_problem(problem, floor, **rows) for problem, _ in zip(tabular.PROBLEMS, fifty, strict=False)]
    for problem, feasible in zip(problems, fifty, strict=True):
        problem["runs"] = [run | {"feasible": feasible, "constraint": [constraint]} for run in problem["runs"]]
    runs = [{"answer": list(pair), "feasible": True} for pair in lambdas]
    return curves.claims(
        {"lambdas": runs, "problems": problems, "garnet": curve_problem("garnet", True, **rows) | {"lam": 30.0}}
    )


@pytest.mark.parametrize(
    ("last", "expected"),
    [((39, 39), HOLDS), ((40, 40), NOT), ((39, 40), IN_PART), ((41, 39), IN_PART), ((41, 41), NOT)],
)
def test_does_a_larger_lambda_lower_both(last, expected):
    assert named(curves_of(((40, 40), last)), "A larger λ") == expected


@pytest.mark.parametrize(("fifty", "expected"), [((True, True), HOLDS), ((True, False), IN_PART), ((False,), NOT)])
def test_is_lambda_fifty_feasible(fifty, expected):
    assert named(curves_of(fifty=fifty), "λ = 50") == expected


@pytest.mark.parametrize(
    ("constraint", "floor", "expected"), [(74, False, NOT), (75, False, HOLDS), (126, True, NOT), (125, True, HOLDS)]
)
def test_a_constraint_a_quarter_away_does_not_matter(constraint, floor, expected):
    assert named(curves_of(constraint=constraint, floor=floor), "The constraint matters") == expected


def test_half_of_the_late_policies_is_not_more_than_half():
    half, more = late_stats(late=0.5, last=True), late_stats(late=0.51, last=True)
    for late, expected in ((half, NOT), (more, HOLDS)):
        found = late_iterates._ends_infeasible(curve_problem(rnpg=late_stats(), rppg=late, epirc_pgs=late))
        assert found.verdict == expected


@pytest.mark.parametrize(("rival", "expected"), [(50, NOT), (51, HOLDS)])
def test_the_least_difference_in_stability(rival, expected, monkeypatch):
    monkeypatch.setattr(late_iterates, "MIN_CHANGE", 0.25)
    changes = {"rnpg": 25, "rppg": rival, "epirc_pgs": rival}  # of 100
    found = late_iterates._stable([curve_problem(**{m: late_stats(change=(c, 0)) for m, c in changes.items()})])
    assert found.verdict == expected


@pytest.mark.parametrize(
    ("rnpg", "rsqp", "expected"), [(41, 41, [HOLDS, HOLDS]), (40, 40, [NOT, HOLDS]), (41, 40.9, [HOLDS, NOT])]
)
def test_whose_switch_earns_more(rnpg, rsqp, expected):
    values = {"rnpg": rnpg, "robust_crpo": 40, "rsqp": rsqp}
    runs = [{"method": m, "answer": [v, 42], "index": [0, 0, 1], "feasible": True} for m, v in values.items()]
    result = {"sets": [{"set": "kl_ball", "runs": runs}]}
    assert [claim.verdict for claim in switch.claims(result)] == expected
    runs[0]["feasible"] = False  # then what it earns does not count
    found = switch.claims(result)
    assert (found[0].verdict, "over the budget: 42.00" in found[0].evidence) == (NOT, True)


def test_level_on_other_sets_up_to_the_line():
    rival = 30.0
    for reward, expected in ((rival - other_sets.LEVEL * rival, HOLDS), (rival - 1.01 * other_sets.LEVEL * rival, NOT)):
        group = [(reward, True), (rival, True), (1.0, True), (1.0, True), (rival, True)]
        assert other_sets.claims(on_other_sets(group))[1].verdict == expected


@pytest.mark.parametrize(("beyond", "slope", "expected"), [(0.0, -0.5, [HOLDS, HOLDS]), (1.0, -0.49, [NOT, NOT])])
def test_the_lines_of_the_rate(beyond, slope, expected):
    """A gap on the bound is within it, a slope as promised is as fast."""
    curves_ = {}
    for variant in rate.VARIANTS:
        gap = rate.bound(variant, 100, rate.positive_costs()) + beyond
        for name in ("theory", "tuned"):
            curves_[f"{variant} {name}"] = {"multiple": 1.0, "gaps": [gap], "slope": slope}
    betas = [{"problem": "river_swim", "set": "kl_ball", "beta": 1.4}]
    result = {"sets": [{"set": "kl_ball", "curves": curves_}], "iterations": [100], "assumption": betas}
    assert [claim.verdict for claim in rate.claims(result)[1:3]] == expected


# Sections


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    found = {name: section.compute(TINY[name], PieceCache(folder)) for name, section in SECTIONS.items()}
    for name in ("cartpole", "tradeoff"):  # a second seed without a second training
        again = [found[name].get(key, {}) for key in ("methods", "radius_ablation", "clean")]
        for runs in [runs for group in again for runs in group.values()]:
            runs.append({**runs[0], "seed": 11, "seconds": 2 * runs[0]["seconds"]})
    return found


@pytest.mark.parametrize("name", list(SECTIONS))
def test_section(name, results, tmp_path):
    """Plain data; a table, figures and verdicts from what comes back from the disk."""
    section = SECTIONS[name]
    result = json.loads(json.dumps(results[name], allow_nan=False))
    lines = section.tables(result).split("\n")
    assert sum(line.startswith("| ---") for line in lines) >= 1
    for before, line in itertools.pairwise(lines):
        if line.startswith("|") and before.startswith("|"):
            assert line.count(" | ") == before.count(" | ")
    for fig in section.figures(result).values():
        fig.savefig(tmp_path / "figure.png", dpi=40)
        assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    found = section.claims(result)
    assert found
    assert {claim.verdict for claim in found} <= {HOLDS, IN_PART, NOT, UNDECIDED}


def test_settings_of_quick_full_and_tiny_have_the_same_keys():
    for name, section in SECTIONS.items():
        assert section.settings.keys() == {*command.SETTINGS}
        assert section.settings["quick"].keys() == section.settings["full"].keys() == TINY[name].keys()


def test_cartpole_is_trained_and_tested(results):
    runs = results["cartpole"]["methods"]["rcac_npg"]
    assert [run["seed"] for run in runs] == [10, 11]
    for run in runs:
        assert run["summary"]["steps"] <= 1024
        assert len(run["curve"]["steps"]) == len(run["curve"]["cost"]) > 0
        for test in run["tests"]:
            assert len(test["returns"]) == len(test["costs"]) == 2
            assert all(1 <= value <= 500 for value in test["returns"])


# The store


class Counted:
    """A section of three pieces that counts what it computes, and can be stopped before any of them."""

    def __init__(self):
        self.computed, self.stop_before = [], None
        self.section = Section(
            "counted", "Counted", "", "tabular", {}, self.compute, self._tables, lambda r: {}, self._claims
        )

    def compute(self, settings, cache):
        return {"pieces": [cache(f"piece {k}", self.piece, k, settings["factor"]) for k in range(3)]}

    def piece(self, k, factor):
        if k == self.stop_before:
            raise KeyboardInterrupt
        self.computed.append(k)
        return {"value": (k * factor, 0.1)}

    def _tables(self, result):
        return markdown(["a"], [[str(len(result["pieces"]))]])

    def _claims(self, result):
        return [Claim("It counts", HOLDS, "it does")]


def test_a_second_start_computes_only_what_is_missing(tmp_path):
    counted, logged = Counted(), []
    counted.stop_before = 2
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).compute(counted.section, {"factor": 2})
    assert counted.computed == [0, 1]
    assert Store(tmp_path).result(counted.section, {"factor": 2}) is None
    counted.stop_before = None
    first = Store(tmp_path, logged.append).compute(counted.section, {"factor": 2})
    assert counted.computed == [0, 1, 2]
    assert logged == ["counted: piece 2"]
    assert Store(tmp_path).compute(counted.section, {"factor": 2}) == first
    assert Store(tmp_path).result(counted.section, {"factor": 2}) == first
    assert counted.computed == [0, 1, 2]
    assert first == {"pieces": [{"value": [0, 0.1]}, {"value": [2, 0.1]}, {"value": [4, 0.1]}]}


def interrupted_when_done(settings, cache):
    def last():
        raise Interrupted({"value": 2})

    return [cache("first", lambda: {"value": 1}), cache("last", last)]


def test_a_piece_that_is_finished_as_ctrl_c_arrives_is_stored(tmp_path):
    section, logged = Counted().section._replace(compute=interrupted_when_done), []
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).compute(section, {})
    assert Store(tmp_path, logged.append).compute(section, {}) == [{"value": 1}, {"value": 2}]
    assert logged == []


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome(130, 512, "SIGINT"), KeyboardInterrupt),
        (Outcome(143, 512, "SIGTERM"), TrainingStopped),
        (Outcome(130, 1024, "finished"), Interrupted),  # the signal came as the training ended
    ],
)
def test_signals_in_a_training(outcome, error, tmp_path, monkeypatch):
    real = deep.training.train
    monkeypatch.setattr(deep.training, "train", lambda config: real(config)._replace(outcome=outcome))
    spec = deep.TrainingSpec("cartpole", "cac", 10)
    with pytest.raises(error) as found:
        deep.train_and_test(
            {"group": [spec]}, deep.perturbation_tests("noise", "noise_high", [0.0]), DEEP, PieceCache(tmp_path)
        )
    if error is Interrupted:
        assert found.value.piece["tests"][0]["strength"] == 0
    else:
        assert not isinstance(found.value, Interrupted)


def test_parallel_pieces_are_stored_and_stay_in_order(tmp_path):
    def compute(settings, cache):
        return {"powers": cache.compute_all({f"power {k}": partial(math.pow, 2, k) for k in settings["powers"]})}

    section = Counted().section._replace(compute=compute)
    logged = []
    with pytest.raises(OverflowError):
        Store(tmp_path, jobs=2).compute(section, {"powers": [1, 1e9]})
    found = Store(tmp_path, logged.append, jobs=2).compute(section, {"powers": [3, 1, 2]})
    assert found == {"powers": [8.0, 2.0, 4.0]}
    assert sorted(logged) == ["counted: power 1", "counted: power 2", "counted: power 3"]
    again = Store(tmp_path, logged.append, jobs=2).compute(section, {"powers": [3, 1, 2]})
    assert again == found
    assert len(logged) == 3


def test_workers_find_the_studies(tmp_path):
    """A piece that is a function of `reproduction` runs in a process of its own."""

    def compute(settings, cache):
        pieces = {algo: partial(tuning.grid, algo) for algo in ("cac", "rcac_sqp")}
        return {"grids": cache.compute_all(pieces)}

    found = Store(tmp_path, jobs=2).compute(Counted().section._replace(compute=compute), {})
    assert found == {"grids": [[list(row) for row in tuning.grid(algo)] for algo in ("cac", "rcac_sqp")]}


@pytest.mark.slow
def test_the_script_trains_two_at_a_time(tmp_path):
    done = run("quick", "cartpole", "jobs=2", f"runs={tmp_path}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reproduction" / "quick" / "cartpole_noise.png").exists()


def test_other_settings_or_another_version_start_over(tmp_path, monkeypatch):
    counted = Counted()
    Store(tmp_path).compute(counted.section, {"factor": 2})
    assert Store(tmp_path).result(counted.section, {"factor": 3}) is None
    Store(tmp_path).compute(counted.section, {"factor": 3})
    assert counted.computed == [0, 1, 2] * 2
    monkeypatch.setattr("reproduction.store.__version__", "9.9")
    Store(tmp_path).compute(counted.section, {"factor": 3})
    assert counted.computed == [0, 1, 2] * 3


def test_other_defaults_of_a_method_start_over_only_in_its_own_family(monkeypatch):
    before = {family: defaults(family) for family in ("tabular", "deep")}
    assert before["tabular"] != before["deep"]
    rows = {name: {**row} for name, row in registry.algorithms("tabular").items()}
    rows["rnpg"]["step_size"] = 2.0
    other = registry.algorithms
    monkeypatch.setattr(registry, "algorithms", lambda family: rows if family == "tabular" else other(family))
    assert defaults("tabular") != before["tabular"]
    assert defaults("deep") == before["deep"]


def test_a_damaged_file_is_named(tmp_path):
    counted = Counted()
    (tmp_path / "counted.json").write_text('{"key": ')
    with pytest.raises(InputError, match=r"counted\.json: cannot be read"):
        Store(tmp_path).compute(counted.section, {"factor": 2})


def test_the_report_says_what_is_there_and_what_is_not(tmp_path):
    counted, other = Counted(), Counted()
    sections = [
        counted.section._replace(settings={"quick": {"factor": 2}}),
        other.section._replace(name="other", title="Other", settings={"quick": {"factor": 2}}),
    ]
    store = Store(tmp_path)
    store.compute(sections[0], {"factor": 2})
    text = report.write(store, sections, "quick", tmp_path).read_text()
    assert "- *holds*: It counts. It does." in text
    assert "## Other\n\nNot computed yet" in text


# The command


def run(*arguments, cwd):
    command_line = [sys.executable, str(ROOT / "scripts" / "reproduce.py"), *arguments]
    return subprocess.run(command_line, capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "nothing given"),
        (["qick"], "qick"),
        (["quick", "full"], "full"),
        (["runs="], "runs="),
        (["jobs=0"], "jobs: '0' given, a whole number ≥ 1"),
        (["--fast"], "--fast"),
    ],
)
def test_bad_arguments_are_one_line(arguments, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert word in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert command.main(["quick", "switch", f"runs={tmp_path / 'file'}"]) == 2
    assert capsys.readouterr().err.strip().split("\n")[-1].startswith(str(tmp_path / "file"))


def test_help(capsys):
    assert command.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in [*SECTIONS, *command.SETTINGS])


def test_the_report_of_a_full_run_is_above_its_results(tmp_path, monkeypatch):
    counted = Counted()
    section = counted.section._replace(
        settings={"full": {"factor": 2}, "quick": {"factor": 2}},
        figures=lambda result: {"counted": style.figure(6.2, 1.0)},
    )
    monkeypatch.setattr("reproduction.sections.SECTIONS", {"counted": section})
    for setting, place in (("full", "."), ("quick", "quick")):
        assert command.main([setting, "counted", f"runs={tmp_path}"]) == 0
        text = (tmp_path / "reproduction" / place / "report.md").read_text()
        [link] = [line.partition("](")[2].rstrip(")") for line in text.split("\n") if line.startswith("![")]
        assert (tmp_path / "reproduction" / place / link).exists()
        assert (tmp_path / "reproduction" / setting / "counted.json").exists()
    assert not (tmp_path / "reproduction" / "full" / "report.md").exists()


def test_ctrl_c_in_a_training_is_130(tmp_path, monkeypatch, capsys):
    def stopped(config):
        return deep.training.Trained(Outcome(130, 512, "SIGINT"), tmp_path, {}, False)

    monkeypatch.setattr(deep.training, "train", stopped)
    assert command.main(["quick", "cartpole", f"runs={tmp_path}"]) == 130
    assert "finished pieces are stored" in capsys.readouterr().err


def test_the_script_computes_a_section_once(tmp_path, capsys, monkeypatch):
    first = run("quick", "switch", f"runs={tmp_path}", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "switch: kl_ball, rsqp\n" in first.stderr
    folder = tmp_path / "reproduction" / "quick"
    assert first.stdout.strip() == "reproduction/quick/report.md"
    assert {path.name for path in folder.iterdir()} == {"switch.json", "switch.png", "switch.pdf", "report.md"}
    assert (folder / "switch.png").read_bytes()[:4] == b"\x89PNG"
    assert (folder / "switch.pdf").read_bytes()[:4] == b"%PDF"
    stored = (folder / "switch.json").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert command.main(["quick", "switch", "runs=."]) == 0
    assert "kl_ball" not in capsys.readouterr().err
    assert (folder / "switch.json").read_bytes() == stored
