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
    strengths,
    study,
    sweep,
    told,
)
from rcac.experiment.reproduction.section import Claim, Once, Result, Section, markdown, verdict

ENV = "cartpole_tradeoff"
KINDS = {  # words for the axis, argument of the environment
    "noise": ("noise δ on the observation", "noise_high"),
    "wind": ("wind (N, to the right)", "wind"),
    "length": ("length of the pole (factor)", "length"),
}
BEST = 652.8  # no policy has a larger mean return at a mean cost of 200 (see the environment)
SWEPT = "rcac_npg"
SCOPES = {"last_layer": ("last layer's weights", "#009E73", "o"), "all": ("all weights", "#CC79A7", "^")}


def _tests(settings: dict[str, Any]) -> list[Test]:
    return [test for kind, (_, argument) in KINDS.items() for test in sweep(kind, argument, settings[kind])]


def compute(settings: dict[str, Any], once: Once) -> Result:
    tests = _tests(settings)
    methods = {
        algo: [study(Job(ENV, algo, seed), tests, settings, once) for seed in range(settings["seeds"])]
        for algo in settings["algorithms"]
    }
    radii = []
    for scope in SCOPES:
        for radius in settings["radii"]:
            changes = (f"algo.scope={scope}", f"algo.radius={radius:g}")
            runs = [
                study(Job(ENV, SWEPT, seed, changes), tests, settings, once) for seed in range(settings["radius_seeds"])
            ]
            radii.append({"scope": scope, "radius": radius, "runs": runs})
    return {"methods": methods, "radii": radii, "steps": settings["steps"], "episodes": settings["episodes"]}


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
    return "\n\n".join(parts)


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
        style.panel(top, "", words if alone else "", "mean return" if column == 0 else "")
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
    noises = strengths(result["radii"][0]["runs"], "noise")
    radii = list(dict.fromkeys(r["radius"] for r in result["radii"]))
    places = np.arange(len(radii))
    for scope, (words, colour, marker) in SCOPES.items():
        for noise, dash in ((noises[len(noises) // 2], "-"), (noises[-1], ":")):
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
    methods, found = result["methods"], []
    robust = [algo for algo in ROBUST if algo in methods]
    if "cac" in methods and robust:
        every = [(kind, s) for kind in KINDS for s in strengths(methods["cac"], kind)]
        broken = [at for at in every if over_seeds(methods["cac"], *at)[1].estimate > BUDGET]
        held = {a: sum(over_seeds(methods[a], *at)[1].estimate <= BUDGET for at in broken) for a in robust}
        price = {
            a: over_seeds(methods["cac"], "noise", 0.0)[0].estimate - over_seeds(methods[a], "noise", 0.0)[0].estimate
            for a in robust
        }
        counts = ", ".join(f"{style.look(a).name} {n}" for a, n in held.items())
        costs = ", ".join(f"{style.look(a).name} {p:.1f}" for a, p in price.items())
        found.append(
            Claim(
                "The robust methods hold the budget under perturbations where CAC breaks it",
                verdict(bool(broken) and all(n == len(broken) for n in held.values()), any(held.values())),
                f"CAC breaks it at {len(broken)} of {len(every)} perturbations; of these hold it: {counts}. Return given up "
                f"against CAC without perturbation: {costs}",
            )
        )
    if result["radii"]:
        noises = strengths(result["radii"][0]["runs"], "noise")
        pairs = {
            (r["scope"], r["radius"]): over_seeds(r["runs"], "noise", noises[-1])[1].estimate for r in result["radii"]
        }
        zero = next(cost for (_, radius), cost in pairs.items() if radius == 0)
        best = min(pairs, key=lambda key: pairs[key])
        found.append(
            Claim(
                "The IPM norm lowers the cost under noise stronger than in training",
                verdict(pairs[best] <= BUDGET < zero, pairs[best] < 0.95 * zero),
                f"cost {zero:.0f} at δ {noises[-1]:g} with radius 0, {pairs[best]:.0f} with {best[1]:g} ({SCOPES[best[0]][0]})",
            )
        )
    return found


SECTION = Section(
    "tradeoff",
    "CartPole where the budget costs something",
    "`env=cartpole_tradeoff`: the reward grows to the left of the centre, so that return and cost pull apart. Trained with "
    "observation noise of δ .04 and nothing else; tested under other noise, wind, and other lengths of the pole, each alone "
    "beside the noise of training.",
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
            "changes": [],
        },
    },
    compute,
    tables,
    figures,
    claims,
)
