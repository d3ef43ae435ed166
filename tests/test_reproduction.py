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

from rcac import nominal_optimum, registry
from rcac.errors import InputError
from rcac.experiment import style
from rcac.experiment.config import compose
from rcac.experiment.reproduction import (
    best_policy,
    cartpole,
    command,
    deep,
    equal_return,
    labels,
    margins,
    rate,
    report,
    river_swim,
    switch,
    tabular,
    tradeoff,
    tuning,
    twins,
    wall_clock,
)
from rcac.experiment.reproduction.section import HOLDS, IN_PART, NOT, Claim, Once, Section, markdown, verdict
from rcac.experiment.reproduction.sections import SECTIONS
from rcac.experiment.reproduction.store import Store, defaults
from rcac.tabular.solve import solve

ROOT = Path(__file__).parents[1]
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
    "step_sizes": {"iterations": 5, "worlds": ["river_swim", "garnet"], "methods": ["rnpg", "epirc_pgs"]},
    "river_swim": {"radii": [1e-2], "iterations": 20, "every": 9},
    "wall_clock": {"worlds": ["river_swim"], "discounts": [0.9, 0.99], "iterations": 10, "repetitions": 1, "every": 6},
    "best_policy": {
        "worlds": ["river_swim", "garnet"],
        "discounts": [0.9, 0.99],
        "iterations": 10,
        "step_sizes": [1.0],
    },
    "curves": {"worlds": ["river_swim", "garnet"], "iterations": 30},
    "rate": {"sets": ["kl_ball"], "iterations": [5, 100, 200], "tune_at": 10},
    "switch": {"iterations": 60},
    "cartpole": {"algorithms": ["rcac_npg", "epirc_pgs_deep"], **DEEP},
    "tradeoff": {
        "algorithms": ["cac", "rcac_sqp"],
        **DEEP,
        "wind": [0.0, 2.0],
        "length": [1.0],
        "twins": ["rcac_sqp"],
        "radii": [0.0, 1e-3],
        "slacks": [0.0, 15.0],
        "sweep_seeds": 1,
    },
}


# Parts


def test_budgets_keep_their_meaning_at_every_discount():
    """A cost of c at every step is c/(1−γ): the budget per step is the same."""
    for world in tabular.WORLDS:
        per_step = [tabular.problem(world, g).budgets * (1 - g) for g in (0.9, 0.99, 0.995)]
        np.testing.assert_allclose(per_step, [per_step[1]] * 3)
    assert tabular.problem("river_swim").budgets == pytest.approx([42.0])


def test_the_linear_program_allows_what_the_design_says():
    model = tabular.problem("river_swim", initial="uniform")
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


def test_an_attempt_tells_what_the_solver_found():
    model, uncertain = tabular.problem("garnet"), tabular.penalty("garnet")
    run, found = tabular.attempt(model, "rsqp", uncertain), solve(model, "rsqp", uncertain)
    assert run["objective"] == pytest.approx(-found.returns[0])
    assert run["constraint"] == pytest.approx(-found.returns[1])  # a utility, in its own sign
    assert run["feasible"]
    assert run["constraint"] >= 90


def test_first_near_policy_must_be_feasible():
    returns = np.array([[-5.0, 3.0], [-4.0, 1.0], [-4.9, 2.0]])
    assert wall_clock.reached(returns, np.array([2.0]), goal=-4.5) == 2
    assert wall_clock.reached(returns, np.array([2.0]), goal=-5.0) is None


def test_the_surrogates_minimum_is_below_every_policys():
    model, uncertain = rate.positive_costs(), tabular.penalty("river_swim")
    lam, slack = 200.0, 1.0
    least = rate.least_surrogate(model, uncertain, lam, slack)
    found = solve(model, "rnpg", uncertain, iterations=400, step_size=20.0, lam=lam, slack=slack)
    excess = found.history["returns"] @ np.diag([1 / lam, 1.0]) + np.array([0.0, slack - model.budgets[0]])
    reached = excess.max(axis=1)
    assert (reached >= least - 1e-6).all()
    assert reached.min() <= least + 0.05


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
        own = tuning.spread(algo, 6)
        assert own == tuning.grid(algo)
        assert len(set(own)) == 6
        assert tuning.spread(algo, 2) == [own[0], own[-1]]
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


# The trade-off study's causes, on made-up results


def made_up(seed, scores):
    """A run whose tests are {(kind, strength): (return, cost)}."""
    tests = [{"kind": k, "strength": s, "returns": [v], "costs": [c]} for (k, s), (v, c) in scores.items()]
    return {"seed": seed, "tests": tests}


def runs_of(*columns):
    """A run for each seed from 10 on, of (return, cost) as trained, at δ .1 and under wind of 2 N."""
    at = [("noise", 0.04), ("noise", 0.1), ("wind", 2.0)]
    return [made_up(10 + k, dict(zip(at, scores, strict=True))) for k, scores in enumerate(columns)]


def test_paired_differences_are_of_the_same_seeds():
    method = runs_of(*[((600 + k, 100), (700, 150 + k), (650, 190)) for k in range(4)])
    twin = runs_of(*[((610 + k, 100), (700, 250 + k * k), (650, 190)) for k in range(4)])
    value, cost = twins.paired(method, twin[::-1], ("noise", 0.04))
    assert value == pytest.approx((-10, -10, -10))
    assert cost == pytest.approx((0, 0, 0))
    _, cost = twins.paired(method, twin[::-1], ("noise", 0.1))
    assert cost.estimate == pytest.approx(-101)  # −100, −100, −102, −106: the mean of the middle two
    assert -106 <= cost.low <= cost.high <= -100


BREAKS, HOLDS_IT = ((600, 150), (700, 260), (650, 240)), ((600, 150), (650, 190), (640, 180))


@pytest.mark.parametrize(
    ("twin", "expected"),
    [
        (BREAKS, HOLDS),  # at both perturbations that CAC breaks
        (((600, 150), (700, 260), (650, 199)), IN_PART),  # at one of two
        (((600, 150), (300, 150), (650, 199)), NOT),  # a twin that falls does not break the budget
        (HOLDS_IT, NOT),
    ],
)
def test_the_norm_gets_credit_only_where_the_twin_breaks_the_budget(twin, expected):
    methods = {"cac": runs_of(*[BREAKS] * 3), "rcac_sqp": runs_of(*[HOLDS_IT] * 3)}
    found = twins.claim(methods, {"rcac_sqp": runs_of(*[twin] * 3)})
    assert found.verdict == expected
    assert "RCAC-SQP holds it at 2" in found.evidence


def test_a_difference_that_is_not_clear_earns_no_credit():
    """The twin costs 201 in the middle, but is below its method on one seed of four."""
    methods = {"cac": runs_of(*[BREAKS] * 4), "rcac": runs_of(*[HOLDS_IT] * 4)}
    unclear = [((600, 150), (650, cost), (640, 180)) for cost in (201, 201, 201, 120)]
    assert twins.claim(methods, {"rcac": runs_of(*unclear)}).verdict == NOT


def test_no_perturbation_to_count_is_no_credit():
    methods = {"cac": runs_of(HOLDS_IT, HOLDS_IT), "rcac": runs_of(HOLDS_IT, HOLDS_IT)}
    assert twins.claim(methods, {"rcac": runs_of(BREAKS, BREAKS)}).verdict == NOT


def point(value, cost, seeds=3, stands=600):
    return runs_of(*[((value, 100), (stands, cost), (stands, cost))] * seeds)


def swept(radii, slacks):
    first = [{"scope": "last_layer", "radius": radius, "runs": runs} for radius, runs in radii.items()]
    return first, [{"slack": slack, "runs": runs} for slack, runs in slacks.items()]


SLACKS = {0.0: point(640, 400), 15.0: point(600, 300), 45.0: point(500, 200)}


def test_slacks_are_interpolated_at_the_radiuss_return():
    radii = {0.0: point(640, 400), 1e-4: point(620, 340), 1e-3: point(550, 260), 1e-2: point(499, 10)}
    found = equal_return.compare(*swept(radii, SLACKS), margins.JUDGED)
    assert found.left_out == [1e-2]  # no slack returns so little
    assert [c.slack_cost for c in found.compared] == pytest.approx([350, 250])
    assert [c.difference.estimate for c in found.compared] == pytest.approx([-10, 10])
    assert found.mean == pytest.approx((0, 0, 0))


def test_what_falls_is_compared_with_nothing():
    radii = {0.0: point(640, 400), 1e-3: point(620, 5, stands=100)}
    assert equal_return.compare(*swept(radii, SLACKS), margins.JUDGED).left_out == [1e-3]
    fallen = {slack: point(550, 5, stands=100) for slack in SLACKS}
    found = equal_return.compare(*swept({1e-3: point(550, 260)}, fallen), margins.JUDGED)
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
    _, found = margins.claims(*swept(radii, SLACKS))
    assert found.verdict == expected


def test_an_interval_of_radius_against_slack_draws_the_same_seeds_for_both():
    """Seeds that move radius and slacks alike leave the difference as it is."""

    def moved(value, cost):
        return runs_of(*[((value, 100), (600, cost + k), (600, cost + k)) for k in (0, 50, 90, 7)])

    found = equal_return.compare(
        *swept({1e-3: moved(620, 300)}, {0.0: moved(640, 400), 15.0: moved(600, 300)}), margins.JUDGED
    )
    assert found.mean == pytest.approx((-50, -50, -50))


def test_slack_in_units_of_an_episodes_cost():
    share = (1 - 0.995**500) / (0.005 * 500)
    assert margins.aimed_cost(15.0) == pytest.approx(200 - 15 / share)
    assert margins.aimed_cost(0.0) == 200
    assert SECTIONS["tradeoff"].settings["full"]["slacks"][0] == 0


def test_equal_trainings_are_made_once():
    settings = SECTIONS["tradeoff"].settings["full"]
    best = {algo: tuning.grid(algo)[0] for algo in deep.ALGORITHMS}
    groups = tradeoff._groups(settings, best)
    seeds = slice(0, settings["sweep_seeds"])
    zero = groups["twin", "rcac_npg"][seeds]
    assert zero == groups["slack", 0.0] == groups["radius", "last_layer", 0.0] == groups["radius", "all", 0.0]
    assert groups["method", "rcac_npg"][seeds] == groups["radius", "last_layer", 1e-3]  # the default
    jobs = {job for group in groups.values() for job in group}
    assert len({job.label for job in jobs}) == len(jobs) == 60 + 50 + 35 + 25  # methods, twins, radii, slacks
    different = {(job.algo, job.changes) for job in jobs}
    composed = {str(compose([f"env={tradeoff.ENV}", f"algo={algo}", *changes]).algo) for algo, changes in different}
    assert len(composed) == len(different)


def test_a_repeated_job_is_one_piece(tmp_path):
    class Counting(Once):
        def many(self, pieces):
            self.names = list(pieces)
            return self.names

    once = Counting(tmp_path)
    first, second = deep.Job("cartpole", "cac", 10), deep.Job("cartpole", "cac", 11)
    assert deep.studies([first, second, first], [], {}, once) == [first.label, second.label, first.label]
    assert once.names == [first.label, second.label]


def test_names_of_points_do_not_cover_each_other():
    shown = style.figure(6.2, 3.0)
    axes = shown.subplots()
    places = [(0, 0), (0.01, 0.01), (0.02, 0), (1, 1), (1, 1.01)]
    axes.plot(*zip(*places, strict=True))
    labels.label(axes, [labels.Name("0.0001", x, y, "black") for x, y in places])
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
        assert f"| {style.look(algo).name} | **{tuning.told_setting(tuned['best'])}** |" in text


def test_printed_numbers_against_the_program():
    [check] = [c for c in best_policy._checks("river_swim", 0.99) if c["method"] == "rnpg"]
    assert (check["objective"], check["constraint"]) == (102.1, 42.2)
    assert check["allowed"] < 50 < check["objective"]
    assert best_policy._impossible(check)
    assert not best_policy._impossible({**check, "objective": 40.0})


def test_verdicts_and_tables():
    assert [verdict(True, True), verdict(False, True), verdict(False, False)] == [HOLDS, IN_PART, NOT]
    assert markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_every_method_has_a_look_of_its_own():
    for group in (tabular.METHODS, SECTIONS["cartpole"].settings["full"]["algorithms"]):
        looks = [style.look(method) for method in group]
        for part in ("name", "colour", "marker"):
            assert len({getattr(own, part) for own in looks}) == len(group)


# Sections


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    found = {name: section.compute(TINY[name], Once(folder)) for name, section in SECTIONS.items()}
    for name in ("cartpole", "tradeoff"):  # a second seed without a second training
        for runs in [*found[name]["methods"].values(), *found[name].get("twins", {}).values()]:
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
    for shown in section.figures(result).values():
        shown.savefig(tmp_path / "figure.png", dpi=40)
        assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    found = section.claims(result)
    assert found
    assert {claim.verdict for claim in found} <= {HOLDS, IN_PART, NOT}


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

    def compute(self, settings, once):
        return {"pieces": [once(f"piece {k}", self.piece, k, settings["factor"]) for k in range(3)]}

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
    counted, said = Counted(), []
    counted.stop_before = 2
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).compute(counted.section, {"factor": 2})
    assert counted.computed == [0, 1]
    assert Store(tmp_path).result(counted.section, {"factor": 2}) is None
    counted.stop_before = None
    first = Store(tmp_path, said.append).compute(counted.section, {"factor": 2})
    assert counted.computed == [0, 1, 2]
    assert said == ["counted: piece 2"]
    assert Store(tmp_path).compute(counted.section, {"factor": 2}) == first
    assert Store(tmp_path).result(counted.section, {"factor": 2}) == first
    assert counted.computed == [0, 1, 2]
    assert first == {"pieces": [{"value": [0, 0.1]}, {"value": [2, 0.1]}, {"value": [4, 0.1]}]}


def test_pieces_side_by_side_are_kept_and_stay_in_order(tmp_path):
    def compute(settings, once):
        return {"powers": once.many({f"power {k}": partial(math.pow, 2, k) for k in settings["powers"]})}

    section = Counted().section._replace(compute=compute)
    said = []
    with pytest.raises(OverflowError):
        Store(tmp_path, jobs=2).compute(section, {"powers": [1, 1e9]})
    found = Store(tmp_path, said.append, jobs=2).compute(section, {"powers": [3, 1, 2]})
    assert found == {"powers": [8.0, 2.0, 4.0]}
    assert sorted(said) == ["counted: power 1", "counted: power 2", "counted: power 3"]
    again = Store(tmp_path, said.append, jobs=2).compute(section, {"powers": [3, 1, 2]})
    assert again == found
    assert len(said) == 3


def test_other_settings_or_another_version_start_anew(tmp_path, monkeypatch):
    counted = Counted()
    Store(tmp_path).compute(counted.section, {"factor": 2})
    assert Store(tmp_path).result(counted.section, {"factor": 3}) is None
    Store(tmp_path).compute(counted.section, {"factor": 3})
    assert counted.computed == [0, 1, 2] * 2
    monkeypatch.setattr("rcac.experiment.reproduction.store.__version__", "9.9")
    Store(tmp_path).compute(counted.section, {"factor": 3})
    assert counted.computed == [0, 1, 2] * 3


def test_other_defaults_of_a_method_start_anew_and_only_its_own_family(monkeypatch):
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
    text = report.write(store, sections, "quick").read_text()
    assert "- *holds*: It counts. It does." in text
    assert "## Other\n\nNot computed yet" in text


# The command


def run(*arguments, cwd):
    command_line = [sys.executable, str(ROOT / "scripts" / "reproduce.py"), *arguments]
    return subprocess.run(command_line, capture_output=True, text=True, cwd=cwd, timeout=120)


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


def test_the_script_computes_a_section_once(tmp_path, capsys, monkeypatch):
    first = run("quick", "switch", f"runs={tmp_path}", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "switch: kl_ball\n" in first.stderr
    folder = tmp_path / "reproduction" / "quick"
    assert first.stdout.strip() == "reproduction/quick/report.md"
    assert {path.name for path in folder.iterdir()} == {"switch.json", "switch.png", "switch.pdf", "report.md"}
    assert (folder / "switch.png").read_bytes()[:4] == b"\x89PNG"
    assert (folder / "switch.pdf").read_bytes()[:4] == b"%PDF"
    kept = (folder / "switch.json").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert command.main(["quick", "switch", "runs=."]) == 0
    assert "kl_ball" not in capsys.readouterr().err
    assert (folder / "switch.json").read_bytes() == kept
