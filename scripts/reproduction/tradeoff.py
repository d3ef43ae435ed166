"""CartPole with a reward for being off-centre, where the budget costs something: what robustness buys, and its price.

Every method under noise, wind and another pole. Then, to separate causes: every robust method without its IPM norm
(`radius_ablation`), and the radius of that norm beside simply aiming below the budget (`slack_vs_radius`).
"""

from typing import Any

from matplotlib.figure import Figure

from rcac.deep.settings import DeepSettings
from rcac.report import style
from rcac.report.tables import markdown
from reproduction import deep, perturbed, radius_ablation, slack_vs_radius
from reproduction.section import BUDGET_RULE, Claim, PieceCache, Result, Section, decide
from reproduction.tuning import EFFORT, tune, tuning_table

ENV = "cartpole_tradeoff"
ABLATED = ["rcac", "rcac_npg", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp"]  # the robust methods
BEST_RETURN = 652.8  # no policy has a larger mean return at a mean cost of 200 (see the environment)
BUDGET_RULE = (
    f"a method holds the budget where its cost is at most {deep.BUDGET:g} and its return at least {perturbed.UPRIGHT_RETURN:g}, as a policy that "
    "falls costs little; the claim holds if RCAC, RCAC-NPG and RCAC-SQP all do so wherever CAC breaks it, "
    f"in part if they do so at some of these perturbations and not at others; {BUDGET_RULE}"
)
RULES = f"""\
The rules behind the verdicts stand in the code. All numbers are interquartile means over seeds.

- *The robust methods hold the budget where CAC breaks it*: {BUDGET_RULE}. (The minimum return was added after an earlier run had been seen.)
- *The IPM norm is what holds it*: {radius_ablation.RULE}. (Fixed before the ablations were trained; earlier runs of RCAC-NPG with radius 0 had been seen.)
- *The IPM norm lowers the cost under stronger noise*: {slack_vs_radius.RADIUS_RULE}. (The minimum return was added after an earlier run had been seen.)
- *The IPM norm protects better than aiming below the budget*: {slack_vs_radius.SLACK_RULE}. (Fixed before the slacks were run; earlier runs of the radii had been seen.)"""


def _tests(settings: dict[str, Any]) -> list[deep.PerturbationTest]:
    return [
        test
        for kind, (_, argument, _) in perturbed.KINDS.items()
        for test in deep.perturbation_tests(kind, argument, settings[kind])
    ]


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    tuned = tune(ENV, settings["algorithms"], settings, cache)
    groups = _groups(settings, {algo: tuple(tuned[algo]["best"]) for algo in tuned})
    found = deep.train_and_test(groups, _tests(settings), settings, cache)
    about = {key: settings[key] for key in ("steps", "episodes", "tuning_steps", "tuning_seeds")}
    return {
        "tuned": tuned,
        "methods": {algo: found["method", algo] for algo in settings["algorithms"]},
        "radius_ablation": {algo: found["radius_ablation", algo] for algo in settings["radius_ablation"]},
        "radii": [
            {"scope": scope, "radius": radius, "runs": found["radius", scope, radius]}
            for scope in slack_vs_radius.SCOPES
            for radius in settings["radii"]
        ],
        "slacks": [{"slack": slack, "runs": found["slack", slack]} for slack in settings["slacks"]],
        **about,
    }


def _groups(
    settings: dict[str, Any], best: dict[str, tuple[str, ...]]
) -> dict[tuple[Any, ...], list[deep.TrainingSpec]]:
    """All trainings. Equal ones have equal labels, so that they are made once: radius 0, slack 0 and the ablation; and the
    default radius and the method itself."""

    def specs(algo: str, count: int, *changes: str) -> list[deep.TrainingSpec]:
        return [
            deep.TrainingSpec(ENV, algo, seed, best.get(algo, ()) + changes) for seed in deep.seeds({"seeds": count})
        ]

    count, swept = settings["seeds"], slack_vs_radius.SWEPT_ALGO
    groups: dict[tuple[Any, ...], list[deep.TrainingSpec]] = {
        ("method", algo): specs(algo, count) for algo in settings["algorithms"]
    }
    groups |= {
        ("radius_ablation", algo): specs(algo, count, radius_ablation.CHANGE) for algo in settings["radius_ablation"]
    }
    for scope in slack_vs_radius.SCOPES:
        for radius in settings["radii"]:
            changes = _radius_changes(scope, radius)
            groups["radius", scope, radius] = specs(swept, settings["sweep_seeds"], *changes)
    for slack in settings["slacks"]:
        changes = (radius_ablation.CHANGE, f"algo.slack={slack:g}") if slack else (radius_ablation.CHANGE,)
        groups["slack", slack] = specs(swept, settings["sweep_seeds"], *changes)
    return groups


def _radius_changes(scope: str, radius: float) -> tuple[str, ...]:
    if radius == 0:
        return (radius_ablation.CHANGE,)
    default = DeepSettings()
    if (scope, radius) == (default.scope, default.radius):
        return ()
    return (f"algo.scope={scope}", f"algo.radius={radius:g}")


def tables(result: Result) -> str:
    methods = result["methods"]
    first = next(iter(methods.values()))
    parts = [
        RULES,
        f"{len(first)} seeds × {result['steps']:,} steps, {result['episodes']} test episodes for each seed and strength. "
        "Return and cost, interquartile means over seeds; bold: above the budget of 200.",
    ]
    for kind, (axis, *_) in perturbed.KINDS.items():
        levels = deep.strengths(first, kind)
        rows = [
            [style.look(algo).name, *(perturbed.format_scores(runs, (kind, s)) for s in levels)]
            for algo, runs in methods.items()
        ]
        parts.append(markdown([axis, *(f"{s:g}" for s in levels)], rows))
    unperturbed = [
        [style.look(algo).name, *(deep.format_interval(x) for x in deep.over_seeds(runs, "noise", 0.0))]
        for algo, runs in methods.items()
    ]
    parts.append(
        "Without any perturbation: the price of robustness.\n\n" + markdown(["method", "return", "cost"], unperturbed)
    )
    if result["radius_ablation"]:
        parts.append(radius_ablation.tables(methods, result["radius_ablation"]))
    if result["radii"]:
        parts.append(slack_vs_radius.tables(result["radii"], result["slacks"]))
    parts.append(tuning_table(result))
    return "\n\n".join(parts)


def figures(result: Result) -> dict[str, Figure]:
    found = {"tradeoff": _sweeps(result, list(perturbed.KINDS)), "tradeoff_noise": _sweeps(result, ["noise"])}
    if result["radius_ablation"]:
        found["tradeoff_radius_ablation"] = radius_ablation.figure(result["methods"], result["radius_ablation"])
    if result["radii"]:
        found["tradeoff_radius"] = slack_vs_radius.radius_figure(result["radii"])
        found["tradeoff_protection"] = slack_vs_radius.protection_figure(result["radii"], result["slacks"])
    return found


def _sweeps(result: Result, kinds: list[str]) -> Figure:
    """Return above, cost below; side by side if there is one perturbation only."""
    alone = len(kinds) == 1
    fig = style.figure(7.4, 3.1) if alone else style.figure(9.4, 5.0)
    axes_grid = (
        fig.subplots(1, 2, squeeze=False).T if alone else fig.subplots(2, len(kinds), sharey="row", squeeze=False)
    )
    for column, kind in enumerate(kinds):
        top, bottom = axes_grid[:, column]
        axis_label = perturbed.KINDS[kind][0]
        title = "off-centre pays; trained at δ .04" if column == 0 else ""
        style.panel(top, title, axis_label if alone else "", "mean return" if column == 0 else "")
        style.panel(bottom, "", axis_label, "mean cost, Σ|x| (m)" if column == 0 else "")
        for algo, runs in result["methods"].items():
            deep.draw_sweep((top, bottom), runs, algo, kind)
        style.level(
            top, BEST_RETURN, f"best at the budget {BEST_RETURN:g}", style.BOUND, left=True
        )  # where lines are low
        style.level(bottom, deep.BUDGET, f"budget {deep.BUDGET:g}", left=True)
    for axes in axes_grid[1]:
        axes.set_ylim(bottom=0)
    style.legend(fig, list(result["methods"]), markers=True, rows=2 if alone else 1)
    style.note(fig, deep.sweep_note(result["methods"], result["episodes"]))
    return fig


def claims(result: Result) -> list[Claim]:
    methods, found = result["methods"], []
    if "cac" in methods:
        found.append(_robust_within_budget(methods))
        if result["radius_ablation"]:
            found.append(radius_ablation.claim(methods, result["radius_ablation"]))
    if result["radii"]:
        found += slack_vs_radius.claims(result["radii"], result["slacks"])
    return found


def _robust_within_budget(methods: dict[str, Any]) -> Claim:
    """The verdict by `HELD_RULE`."""
    robust = [algo for algo in deep.ROBUST if algo in methods]
    conditions = perturbed.tested_conditions(methods["cac"])
    scores = {
        algo: {condition: deep.over_seeds(methods[algo], *condition) for condition in conditions}
        for algo in ("cac", *robust)
    }
    cac_over = [condition for condition in conditions if perturbed.seed_costs(methods["cac"], condition).breaks]
    held = {algo: [perturbed.held(methods[algo], condition) for condition in cac_over] for algo in robust}
    counts = {algo: held[algo].count(True) for algo in robust}
    open_ones = sum(own.count(None) for own in held.values())
    unperturbed = {algo: scores[algo]["noise", 0.0][0].estimate for algo in scores}
    counts_text = ", ".join(f"{style.look(algo).name} {n}" for algo, n in counts.items())
    price = ", ".join(f"{style.look(algo).name} {unperturbed['cac'] - unperturbed[algo]:.1f}" for algo in robust)
    return Claim(
        "The robust methods hold the budget under perturbations where CAC breaks it",
        decide([part for own in held.values() for part in own]),
        f"CAC breaks it at {len(cac_over)} of {len(conditions)} perturbations; of these hold it, with a return of at least "
        f"{perturbed.UPRIGHT_RETURN:g}: {counts_text}; undecided: {open_ones} of {len(cac_over) * len(robust)}. Return given up against CAC without noise: {price}",
    )


SECTION = Section(
    "tradeoff",
    "CartPole where the budget costs something",
    "`env=cartpole_tradeoff`: the reward grows to the left of the centre, so that return and cost pull apart. Trained with "
    "observation noise of δ .04 and nothing else; tested under other noise, wind, and other lengths of the pole, each alone "
    "beside the noise of training. An episode that ends early costs little: read cost beside return. To separate "
    "causes, every robust method is trained again without its norm, and RCAC-NPG with other radii and, without the "
    "norm, with slacks that aim below the budget.",
    "deep",
    {
        "quick": {
            "algorithms": deep.ALGORITHMS,
            "seeds": 2,
            "steps": 20_000,
            "episodes": 10,
            "noise": [0.0, 0.04, 0.06, 0.1],
            "wind": [0.0, 2.0],
            "length": [1.0, 2.0],
            "radius_ablation": ABLATED,
            "radii": [0.0, 1e-3, 1e-2],
            "slacks": [0.0, 15.0, 45.0],
            "sweep_seeds": 1,
            **EFFORT["quick"],
            "changes": [],
        },
        "full": {
            "algorithms": deep.ALGORITHMS,
            "seeds": 10,
            "steps": 1_000_000,
            "episodes": 100,
            "noise": [0.0, 0.02, 0.04, 0.06, 0.08, 0.1],
            "wind": [0.0, 0.5, 1.0, 1.5, 2.0],
            "length": [0.5, 0.75, 1.0, 1.5, 2.0],
            "radius_ablation": ABLATED,
            "radii": [0.0, 1e-4, 1e-3, 1e-2, 1e-1],
            "slacks": [0.0, 7.0, 15.0, 30.0, 45.0, 65.0],  # aims at a cost of 200 to 23, whose returns span the radii's
            "sweep_seeds": 5,
            **EFFORT["full"],
            "changes": [],
        },
    },
    compute,
    tables,
    figures,
    claims,
)
