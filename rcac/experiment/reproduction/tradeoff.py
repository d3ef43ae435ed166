"""CartPole with a reward for being off-centre, where the budget costs something: what robustness buys, and its price.

Every method under noise, wind and another pole. Then, to tell causes apart: every robust method without its IPM norm
(`twins`), and the radius of that norm beside simply aiming below the budget (`margins`).
"""

from typing import Any

from matplotlib.figure import Figure

from rcac.deep.settings import DeepSettings
from rcac.experiment import style
from rcac.experiment.reproduction import margins, twins
from rcac.experiment.reproduction.deep import (
    ALGORITHMS,
    BUDGET,
    ROBUST,
    Job,
    Test,
    draw_sweep,
    over_seeds,
    seeds,
    strengths,
    studies,
    sweep,
    sweep_note,
    told,
)
from rcac.experiment.reproduction.perturbed import KINDS, STANDING, breaks, cell, holds, tested
from rcac.experiment.reproduction.section import Claim, Once, Result, Section, markdown, verdict
from rcac.experiment.reproduction.tuning import tune, tuning_table

ENV = "cartpole_tradeoff"
TWINS = ["rcac", "rcac_npg", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp"]  # the robust methods
BEST = 652.8  # no policy has a larger mean return at a mean cost of 200 (see the environment)
HELD_RULE = (
    f"a method holds the budget where its cost is at most {BUDGET:g} and its return at least {STANDING:g}, as a policy that "
    "falls costs little; the claim holds if RCAC, RCAC-NPG and RCAC-SQP all do so wherever CAC's cost is above the budget, "
    "in part if one of them does so somewhere there"
)
RULES = f"""\
The rules behind the verdicts stand in the code. All numbers are interquartile means over seeds.

- *The robust methods hold the budget where CAC breaks it*: {HELD_RULE}. (The minimum return was added after an earlier run had been seen.)
- *The IPM norm is what holds it*: {twins.RULE}. (Fixed before the twins were trained; earlier runs of RCAC-NPG with radius 0 had been seen.)
- *The IPM norm lowers the cost under stronger noise*: {margins.RADIUS_RULE}. (The minimum return was added after an earlier run had been seen.)
- *The IPM norm protects better than aiming below the budget*: {margins.AIM_RULE}. (Fixed before the slacks were run; earlier runs of the radii had been seen.)"""


def _tests(settings: dict[str, Any]) -> list[Test]:
    return [test for kind, (_, argument, _) in KINDS.items() for test in sweep(kind, argument, settings[kind])]


def compute(settings: dict[str, Any], once: Once) -> Result:
    tuned = tune(ENV, settings["algorithms"], settings, once)
    groups = _groups(settings, {algo: tuple(tuned[algo]["best"]) for algo in tuned})
    jobs = [job for group in groups.values() for job in group]
    runs = dict(zip((job.label for job in jobs), studies(jobs, _tests(settings), settings, once), strict=True))
    found = {key: [runs[job.label] for job in group] for key, group in groups.items()}
    about = {key: settings[key] for key in ("steps", "episodes", "tuning_steps", "tuning_seeds")}
    return {
        "tuned": tuned,
        "methods": {algo: found["method", algo] for algo in settings["algorithms"]},
        "twins": {algo: found["twin", algo] for algo in settings["twins"]},
        "radii": [
            {"scope": scope, "radius": radius, "runs": found["radius", scope, radius]}
            for scope in margins.SCOPES
            for radius in settings["radii"]
        ],
        "slacks": [{"slack": slack, "runs": found["slack", slack]} for slack in settings["slacks"]],
        **about,
    }


def _groups(settings: dict[str, Any], best: dict[str, tuple[str, ...]]) -> dict[tuple[Any, ...], list[Job]]:
    """All trainings. Equal ones have equal labels, so that they are made once: radius 0, slack 0 and the twin; and the
    default radius and the method itself."""

    def jobs(algo: str, count: int, *changes: str) -> list[Job]:
        return [Job(ENV, algo, seed, best.get(algo, ()) + changes) for seed in seeds({"seeds": count})]

    count, swept = settings["seeds"], margins.SWEPT
    groups: dict[tuple[Any, ...], list[Job]] = {("method", algo): jobs(algo, count) for algo in settings["algorithms"]}
    groups |= {("twin", algo): jobs(algo, count, twins.CHANGE) for algo in settings["twins"]}
    for scope in margins.SCOPES:
        for radius in settings["radii"]:
            changes = _radius_changes(scope, radius)
            groups["radius", scope, radius] = jobs(swept, settings["sweep_seeds"], *changes)
    for slack in settings["slacks"]:
        changes = (twins.CHANGE, f"algo.slack={slack:g}") if slack else (twins.CHANGE,)
        groups["slack", slack] = jobs(swept, settings["sweep_seeds"], *changes)
    return groups


def _radius_changes(scope: str, radius: float) -> tuple[str, ...]:
    if radius == 0:
        return (twins.CHANGE,)
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
    for kind, (axis, *_) in KINDS.items():
        at = strengths(first, kind)
        rows = [[style.look(algo).name, *(cell(runs, (kind, s)) for s in at)] for algo, runs in methods.items()]
        parts.append(markdown([axis, *(f"{s:g}" for s in at)], rows))
    calm = [
        [style.look(algo).name, *(told(x) for x in over_seeds(runs, "noise", 0.0))] for algo, runs in methods.items()
    ]
    parts.append(
        "Without any perturbation: the price of robustness.\n\n" + markdown(["method", "return", "cost"], calm)
    )
    if result["twins"]:
        parts.append(twins.tables(methods, result["twins"]))
    if result["radii"]:
        parts.append(margins.tables(result["radii"], result["slacks"]))
    parts.append(tuning_table(result))
    return "\n\n".join(parts)


def figures(result: Result) -> dict[str, Figure]:
    found = {"tradeoff": _sweeps(result, list(KINDS)), "tradeoff_noise": _sweeps(result, ["noise"])}
    if result["twins"]:
        found["tradeoff_twins"] = twins.figure(result["methods"], result["twins"])
    if result["radii"]:
        found["tradeoff_radius"] = margins.radius_figure(result["radii"])
        found["tradeoff_protection"] = margins.protection_figure(result["radii"], result["slacks"])
    return found


def _sweeps(result: Result, kinds: list[str]) -> Figure:
    """Return above, cost below; side by side if there is one perturbation only."""
    alone = len(kinds) == 1
    shown = style.figure(7.4, 3.1) if alone else style.figure(9.4, 5.0)
    every = (
        shown.subplots(1, 2, squeeze=False).T if alone else shown.subplots(2, len(kinds), sharey="row", squeeze=False)
    )
    for column, kind in enumerate(kinds):
        top, bottom = every[:, column]
        words = KINDS[kind][0]
        title = "off-centre pays; trained at δ .04" if column == 0 else ""
        style.panel(top, title, words if alone else "", "mean return" if column == 0 else "")
        style.panel(bottom, "", words, "mean cost, Σ|x| (m)" if column == 0 else "")
        for algo, runs in result["methods"].items():
            draw_sweep((top, bottom), runs, algo, kind)
        style.level(top, BEST, f"best at the budget {BEST:g}", style.BOUND, left=True)  # where lines are low
        style.level(bottom, BUDGET, f"budget {BUDGET:g}", left=True)
    for axes in every[1]:
        axes.set_ylim(bottom=0)
    style.legend(shown, list(result["methods"]), markers=True, rows=2 if alone else 1)
    style.note(shown, sweep_note(result["methods"], result["episodes"]))
    return shown


def claims(result: Result) -> list[Claim]:
    methods, found = result["methods"], []
    if "cac" in methods:
        found.append(_held(methods))
        if result["twins"]:
            found.append(twins.claim(methods, result["twins"]))
    if result["radii"]:
        found += margins.claims(result["radii"], result["slacks"])
    return found


def _held(methods: dict[str, Any]) -> Claim:
    """The verdict by `HELD_RULE`."""
    robust = [algo for algo in ROBUST if algo in methods]
    every = tested(methods["cac"])
    scores = {algo: {at: over_seeds(methods[algo], *at) for at in every} for algo in ("cac", *robust)}
    broken = [at for at in every if breaks(scores["cac"][at])]
    counts = {algo: sum(holds(scores[algo][at]) for at in broken) for algo in robust}
    calm = {algo: scores[algo]["noise", 0.0][0].estimate for algo in scores}
    told_counts = ", ".join(f"{style.look(algo).name} {n}" for algo, n in counts.items())
    price = ", ".join(f"{style.look(algo).name} {calm['cac'] - calm[algo]:.1f}" for algo in robust)
    return Claim(
        "The robust methods hold the budget under perturbations where CAC breaks it",
        verdict(bool(broken) and all(n == len(broken) for n in counts.values()), any(counts.values())),
        f"CAC breaks it at {len(broken)} of {len(every)} perturbations; of these hold it, with a return of at least "
        f"{STANDING:g}: {told_counts}. Return given up against CAC without noise: {price}",
    )


SECTION = Section(
    "tradeoff",
    "CartPole where the budget costs something",
    "`env=cartpole_tradeoff`: the reward grows to the left of the centre, so that return and cost pull apart. Trained with "
    "observation noise of δ .04 and nothing else; tested under other noise, wind, and other lengths of the pole, each alone "
    "beside the noise of training. An episode that ends early costs little: cost is to be read beside return. To tell "
    "causes apart, every robust method is trained again without its norm, and RCAC-NPG with other radii and, without the "
    "norm, with slacks that aim below the budget.",
    "deep",
    {
        "quick": {
            "algorithms": ALGORITHMS,
            "seeds": 2,
            "steps": 20_000,
            "episodes": 10,
            "noise": [0.0, 0.04, 0.06, 0.1],
            "wind": [0.0, 2.0],
            "length": [1.0, 2.0],
            "twins": TWINS,
            "radii": [0.0, 1e-3, 1e-2],
            "slacks": [0.0, 15.0, 45.0],
            "sweep_seeds": 1,
            "tuning_settings": 2,
            "tuning_seeds": 1,
            "tuning_steps": 10_000,
            "changes": [],
        },
        "full": {
            "algorithms": ALGORITHMS,
            "seeds": 10,
            "steps": 1_000_000,
            "episodes": 100,
            "noise": [0.0, 0.02, 0.04, 0.06, 0.08, 0.1],
            "wind": [0.0, 0.5, 1.0, 1.5, 2.0],
            "length": [0.5, 0.75, 1.0, 1.5, 2.0],
            "twins": TWINS,
            "radii": [0.0, 1e-4, 1e-3, 1e-2, 1e-1],
            "slacks": [0.0, 7.0, 15.0, 30.0, 45.0, 65.0],  # aims at a cost of 200 to 23, whose returns span the radii's
            "sweep_seeds": 5,
            "tuning_settings": 6,
            "tuning_seeds": 2,
            "tuning_steps": 500_000,
            "changes": [],
        },
    },
    compute,
    tables,
    figures,
    claims,
)
