"""CartPole with a reward for being off-centre, where the budget costs something: what robustness buys, and its price.

Every method under noise, wind and another pole; and a sweep of the radius and scope of RCAC-NPG's IPM norm.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac.experiment import style
from rcac.experiment.plots import INK
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
    told,
    tune,
)
from rcac.experiment.reproduction.section import Claim, Once, Result, Section, markdown, verdict

ENV = "cartpole_tradeoff"
KINDS = {  # words for the axis, argument of the environment
    "noise": ("noise δ on the observation", "noise_high"),
    "wind": ("wind (N, to the right)", "wind"),
    "length": ("length of the pole (factor)", "length"),
}
BEST = 652.8  # no policy has a larger mean return at a mean cost of 200 (see the environment)
STANDING = 450.0  # return of a policy that hardly ever falls, as every step earns at least 1
TRAINED = 0.04  # δ
SWEPT = "rcac_npg"
SCOPES = {"last_layer": ("last layer's weights", "#009E73", "o"), "all": ("all weights", "#CC79A7", "^")}


def _tests(settings: dict[str, Any]) -> list[Test]:
    return [test for kind, (_, argument) in KINDS.items() for test in sweep(kind, argument, settings[kind])]


def compute(settings: dict[str, Any], once: Once) -> Result:
    tests, algorithms = _tests(settings), settings["algorithms"]
    tuned = tune(ENV, algorithms, settings, once)

    def jobs(algo: str, count: int, changes: tuple[str, ...] = ()) -> list[Job]:
        own = tuple(tuned[algo]["best"]) if algo in tuned else ()
        return [Job(ENV, algo, seed, own + changes) for seed in seeds({"seeds": count})]

    methods = {algo: studies(jobs(algo, settings["seeds"]), tests, settings, once) for algo in algorithms}
    radii = []
    for scope in SCOPES:
        for radius in settings["radii"]:
            changes = (f"algo.scope={scope}", f"algo.radius={radius:g}") if radius else ("algo.radius=0",)
            runs = studies(jobs(SWEPT, settings["radius_seeds"], changes), tests, settings, once)
            radii.append({"scope": scope, "radius": radius, "runs": runs})
    about = {key: settings[key] for key in ("steps", "episodes", "tuning_steps", "tuning_seeds")}
    return {"tuned": tuned, "methods": methods, "radii": radii, **about}


def _cells(runs: list[dict[str, Any]], kind: str) -> list[str]:
    told_pairs = []
    for strength in strengths(runs, kind):
        value, cost = over_seeds(runs, kind, strength)
        told_pairs.append(
            f"{value.estimate:.0f}, {'**' * (cost.estimate > BUDGET)}{cost.estimate:.0f}{'**' * (cost.estimate > BUDGET)}"
        )
    return told_pairs


def tables(result: Result) -> str:
    methods = result["methods"]
    first = next(iter(methods.values()))
    parts = [
        f"{len(first)} seeds × {result['steps']:,} steps, {result['episodes']} test episodes for each seed and strength. "
        "Return and cost, interquartile means over seeds; bold: above the budget of 200."
    ]
    for kind, (words, _) in KINDS.items():
        rows = [[style.look(algo).name, *_cells(runs, kind)] for algo, runs in methods.items()]
        parts.append(markdown([words, *(f"{s:g}" for s in strengths(first, kind))], rows))
    calm = [
        [style.look(algo).name, *(told(x) for x in over_seeds(runs, "noise", 0.0))] for algo, runs in methods.items()
    ]
    parts.append(
        "Without any perturbation: the price of robustness.\n\n" + markdown(["method", "return", "cost"], calm)
    )
    if result["radii"]:
        header = [
            "weights in the norm",
            "radius",
            *(f"δ = {s:g}" for s in strengths(result["radii"][0]["runs"], "noise")),
        ]
        rows = [[SCOPES[r["scope"]][0], f"{r['radius']:g}", *_cells(r["runs"], "noise")] for r in result["radii"]]
        count = len(result["radii"][0]["runs"])
        words = f"What the IPM norm contributes to {style.look(SWEPT).name}: return and cost under noise, {count} seeds.\n\n"
        parts.append(words + markdown(header, rows, left=2))
    parts.append(_tuning(result))
    return "\n\n".join(parts)


def _tuning(result: Result) -> str:
    rows = []
    for algo, tuned in result["tuned"].items():
        for tried in tuned["tried"]:
            mark = "**" if tried["changes"] == tuned["best"] else ""
            words = ", ".join(change.removeprefix("algo.") for change in tried["changes"])
            rows.append(
                [style.look(algo).name, f"{mark}{words}{mark}", f"{tried['return']:.1f}", f"{tried['cost']:.1f}"]
            )
    return (
        f"Tuning, the same for every method: six settings × {result['tuning_seeds']} seeds (others than those above) × "
        f"{result['tuning_steps']:,} steps, tested as trained. Bold: chosen, the largest return among those with a cost "
        "within the budget.\n\n" + markdown(["method", "setting", "return", "cost"], rows, left=2)
    )


def figures(result: Result) -> dict[str, Figure]:
    found = {"tradeoff": _sweeps(result, list(KINDS)), "tradeoff_noise": _sweeps(result, ["noise"])}
    if result["radii"]:
        found["tradeoff_radius"] = _radius(result)
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
        style.level(top, BEST, f"best at the budget {BEST:g}", style.BOUND)
        style.level(bottom, BUDGET, f"budget {BUDGET:g}")
    for axes in every[1]:
        axes.set_ylim(bottom=0)
    style.legend(shown, list(result["methods"]), markers=True, rows=2 if alone else 1)
    return shown


def _radius(result: Result) -> Figure:
    shown = style.figure(7.4, 3.1)
    left, right = shown.subplots(1, 2, sharex=True)
    style.panel(left, "RCAC-NPG", "radius of the IPM set", "mean return")
    style.panel(right, "", "radius of the IPM set", "mean cost, Σ|x| (m)")
    strongest = strengths(result["radii"][0]["runs"], "noise")[-1]
    radii = list(dict.fromkeys(r["radius"] for r in result["radii"]))
    places = np.arange(len(radii))
    for scope, (words, colour, marker) in SCOPES.items():
        for noise, dash in ((TRAINED, "-"), (strongest, ":")):
            found = [over_seeds(r["runs"], "noise", noise) for r in result["radii"] if r["scope"] == scope]
            for axes, index in ((left, 0), (right, 1)):
                values = [pair[index].estimate for pair in found]
                axes.plot(
                    places, values, dash, color=colour, marker=marker, markersize=4, label=f"{words}, δ {noise:g}"
                )
    style.level(right, BUDGET, f"budget {BUDGET:g}")
    for axes in (left, right):
        axes.set_xticks(places, [f"{radius:g}" for radius in radii])
    right.set_ylim(bottom=0)
    handles, labels = left.get_legend_handles_labels()
    shown.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return shown


def claims(result: Result) -> list[Claim]:
    found = []
    if "cac" in result["methods"]:
        found += _held(result["methods"])
    if result["radii"]:
        found.append(_norm(result["radii"]))
    return found


def _held(methods: dict[str, Any]) -> list[Claim]:
    """Where CAC breaks the budget: who holds it, still standing? (An episode that ends early costs little.)"""
    robust = [algo for algo in ROBUST if algo in methods]
    every = [(kind, strength) for kind in KINDS for strength in strengths(methods["cac"], kind)]
    scores = {algo: {at: over_seeds(methods[algo], *at) for at in every} for algo in ("cac", *robust)}
    broken = [at for at in every if scores["cac"][at][1].estimate > BUDGET]

    def held(algo: str) -> int:
        pairs = [scores[algo][at] for at in broken]
        return sum(value.estimate >= STANDING and cost.estimate <= BUDGET for value, cost in pairs)

    counts = {algo: held(algo) for algo in robust}
    calm = {algo: scores[algo]["noise", 0.0][0].estimate for algo in scores}
    told = ", ".join(f"{style.look(algo).name} {n}" for algo, n in counts.items())
    price = ", ".join(f"{style.look(algo).name} {calm['cac'] - calm[algo]:.1f}" for algo in robust)
    return [
        Claim(
            "The robust methods hold the budget under perturbations where CAC breaks it",
            verdict(bool(broken) and all(n == len(broken) for n in counts.values()), any(counts.values())),
            f"CAC breaks it at {len(broken)} of {len(every)} perturbations; of these hold it, with a return of at least "
            f"{STANDING:g}: {told}. Return given up against CAC without noise: {price}",
        )
    ]


def _norm(radii: list[dict[str, Any]]) -> Claim:
    """Does a radius lower the cost under the strongest noise, at nine tenths of the return or more?"""
    strongest = strengths(radii[0]["runs"], "noise")[-1]
    pairs = [over_seeds(r["runs"], "noise", strongest) for r in radii]
    values, costs = ([pair[k].estimate for pair in pairs] for k in (0, 1))
    zero = next(k for k, r in enumerate(radii) if r["radius"] == 0)
    best = min((k for k in range(len(radii)) if values[k] >= 0.9 * values[zero]), key=lambda k: costs[k])
    return Claim(
        "The IPM norm lowers the cost under noise stronger than in training",
        verdict(costs[best] <= BUDGET < costs[zero], costs[best] < 0.95 * costs[zero]),
        f"at δ {strongest:g} a return of {values[zero]:.0f} at cost {costs[zero]:.0f} with radius 0; {values[best]:.0f} at "
        f"{costs[best]:.0f} with {radii[best]['radius']:g} ({SCOPES[radii[best]['scope']][0]}), the least cost among those "
        "with nine tenths of that return",
    )


SECTION = Section(
    "tradeoff",
    "CartPole where the budget costs something",
    "`env=cartpole_tradeoff`: the reward grows to the left of the centre, so that return and cost pull apart. Trained with "
    "observation noise of δ .04 and nothing else; tested under other noise, wind, and other lengths of the pole, each alone "
    "beside the noise of training. An episode that ends early costs little: cost is to be read beside return.",
    "deep",
    {
        "quick": {
            "algorithms": ALGORITHMS,
            "seeds": 2,
            "steps": 20_000,
            "episodes": 10,
            "noise": [0.0, 0.04, 0.1],
            "wind": [0.0, 1.0],
            "length": [1.0, 2.0],
            "radii": [0.0, 0.001],
            "radius_seeds": 1,
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
            "radii": [0.0, 1e-4, 1e-3, 1e-2, 1e-1],
            "radius_seeds": 5,
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
