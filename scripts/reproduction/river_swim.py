"""Robust river-swim: the best that every method can do, after the same tuning, beside RSQP untuned.

Eighteen settings each: six step sizes times three of the method's own other number (λ, or the number K of levels);
CRPO has no other number, so it gets eighteen step sizes.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import BUDGET
from rcac.uncertainty.kl import KLBall
from reproduction import forms
from reproduction.section import Claim, PieceCache, Result, Section, verdict, yes_no
from reproduction.tabular import METHODS, STEP_SIZES, display_bounds, load_problem, rank_key, run_grid

RIVALS = ["epirc_pgs", "rppg"]  # of RNPG, in the paper
EVALUATIONS = 30  # within which RSQP is to be done

GRIDS: dict[str, list[dict[str, float]]] = {
    "rnpg": [{"lam": lam, "step_size": a} for lam in (10.0, 50.0, 500.0) for a in STEP_SIZES],
    "rppg": [{"lam": lam, "step_size": a} for lam in (10.0, 50.0, 500.0) for a in STEP_SIZES],
    "epirc_pgs": [{"levels": k, "step_size": a} for k in (5, 10, 20) for a in STEP_SIZES],
    "robust_crpo": [{"step_size": float(a)} for a in np.geomspace(STEP_SIZES[0], STEP_SIZES[-1], 18)],
    "rsqp": [{}],
}


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    model = load_problem("river_swim", initial="uniform")
    radii: list[dict[str, Any]] = []
    for radius in settings["radii"]:
        uncertainty, methods = KLBall(radius), {}
        for method in forms.changed(form, METHODS):
            grid = [{}] if form == "paper" else GRIDS[method][:: settings["stride"]]
            given = forms.options(form, method, "river_swim") | {"iterations": settings["iterations"]}
            name = forms.label(form, f"radius {radius:g}, {method}")
            methods[method] = cache(name, run_grid, model, method, uncertainty, [given | row for row in grid])
        own = ours["radii"][len(radii)]["methods"] if ours else {}
        radii.append({"radius": radius, "methods": own | methods, **display_bounds(model, uncertainty)})
    return {"radii": radii, "iterations": settings["iterations"]}


def _best(radius: dict[str, Any], method: str) -> dict[str, Any]:
    return max(radius["methods"][method], key=rank_key)


SYMBOLS = {"lam": "λ", "step_size": "α", "levels": "K"}


def _setting(run: dict[str, Any]) -> str:
    parts = [f"{SYMBOLS[key]} = {value:.3g}" for key, value in run["options"].items() if key in SYMBOLS]
    return ", ".join(parts) or "default"


def tables(result: Result) -> str:
    rows = []
    for radius in result["radii"]:
        for method in METHODS:
            runs, best = radius["methods"][method], _best(radius, method)
            name = style.look(method).name
            cells = [
                f"{radius['radius']:g}",
                f"**{name}**" if len(runs) == 1 else name,
                f"{best['objective']:.3f}",
                f"{best['constraint']:.3f}",
                yes_no(best["feasible"]),
                f"{best['evaluations']:,}",
                f"{sum(run['evaluations'] for run in runs):,}",
                _setting(best),
            ]
            rows.append(cells)
    header = ["radius", "method", "reward", "cost (≤ 42)", "feasible", "evaluations", "with tuning", "best setting"]
    bounds = ", ".join(f"{radius['best']:.2f}" for radius in result["radii"])
    return markdown(header, rows, left=2) + f"\n\nNo policy can earn more than {bounds} at these radii."


def figures(result: Result) -> dict[str, Figure]:
    count = len(result["radii"])
    fig = style.figure(3.1 * count + 0.9, 3.7)
    panels = fig.subplots(1, count, sharex=True, sharey=True, squeeze=False)[0]
    for column, (axes, radius) in enumerate(zip(panels, result["radii"], strict=True)):
        y = "worst-case reward (discounted)" if column == 0 else ""
        style.panel(axes, f"KL ball of radius {radius['radius']:g}", "worst-case cost (discounted)", y)
        _draw_runs(axes, radius)
    style.legend(fig, METHODS, markers=True, lines=False)
    used = [_best(radius, METHODS[-1])["evaluations"] for radius in result["radii"]]
    tried = len(result["radii"][0]["methods"][METHODS[0]])
    ours = f"RSQP: one run of {min(used)} to {max(used)} robust evaluations at its default"
    style.note(
        fig,
        f"{ours}. Others: a dot for each of {tried} settings × {result['iterations']:,} evaluations, the best one large.",
    )
    return {"river_swim": fig}


def _draw_runs(axes: Axes, radius: dict[str, Any]) -> None:
    """A dot for every run, a large one for each method's best, which is named beside the budget's line."""
    budget, best = radius["budget"], {method: _best(radius, method) for method in METHODS}
    axes.set_xlim(budget - 14.5, budget + 9)
    axes.set_ylim(0, 1.12 * radius["nominal"])
    axes.set_xticks(budget - np.arange(12, -1, -4))
    for order, method in enumerate(METHODS):
        look, runs, winner = style.look(method), radius["methods"][method], best[method]
        dots: Any = dict(marker=look.marker, s=14, color=look.colour, alpha=0.45, linewidths=0)
        axes.scatter([r["constraint"] for r in runs], [r["objective"] for r in runs], zorder=2, **dots)
        big: Any = dict(marker=look.marker, s=52, color=look.colour, edgecolor="white", linewidths=0.9)
        axes.scatter([winner["constraint"]], [winner["objective"]], zorder=4 + order, **big)
    axes.axvline(budget, color=BUDGET, linestyle="--", linewidth=1.2, zorder=1.5)
    text_style: Any = dict(xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=7.5, color=BUDGET)
    axes.annotate(f"budget {budget:g}", (budget, 0), (-3, 3), ha="right", va="bottom", **text_style)
    style.level(axes, radius["nominal"], f"nominal linear program {radius['nominal']:.1f}", style.BOUND, left=True)
    if radius["objective_alone"] < radius["nominal"]:
        label = f"robust, without budget {radius['objective_alone']:.1f}"
        style.level(axes, radius["objective_alone"], label, style.BOUND, left=True, below=True)
    _draw_names(axes, budget, best, radius["nominal"])


def _draw_names(axes: Axes, budget: float, best: dict[str, Any], top: float) -> None:
    """Method and reward to the right of the line, apart from each other."""
    room, height = 0.062 * top, np.inf
    lowest = room * 0.5
    order = sorted(METHODS, key=lambda method: best[method]["objective"], reverse=True)
    for rank, method in enumerate(order):
        value = best[method]["objective"]
        height = max(min(value, height - room), lowest + room * (len(order) - 1 - rank))
        text_style: Any = dict(
            fontsize=7.5, va="center", ha="left", color=style.look(method).colour, path_effects=[style.HALO]
        )
        axes.text(budget + 1.0, height, f"{style.look(method).name} {value:.2f}", **text_style)


def claims(result: Result) -> list[Claim]:
    others = METHODS[:-1]
    lead, wins, within, feasible = [], [], [], []
    for radius in result["radii"]:
        ours, rest = _best(radius, METHODS[-1]), {m: _best(radius, m) for m in others}
        reached = max(r["objective"] for r in rest.values() if r["feasible"])
        lead.append(f"{ours['objective']:.3f} against {reached:.3f} at radius {radius['radius']:g}")
        wins.append(ours["feasible"] and ours["objective"] >= reached)
        within.append(ours["evaluations"] <= EVALUATIONS)
        feasible.append([m for m, r in rest.items() if r["feasible"]])
    used = max(_best(r, METHODS[-1])["evaluations"] for r in result["radii"])
    rnpg_feasible = ["rnpg" in names for names in feasible]
    counts = {m: sum(_earns_more(radius, "rnpg", m) for radius in result["radii"]) for m in RIVALS}
    beaten = ", ".join(f"{style.look(m).name} at {n} of {len(result['radii'])}" for m, n in counts.items())
    return [
        Claim(
            f"(Ours) RSQP earns at least what every other method does at its best setting, within {EVALUATIONS} evaluations",
            verdict(all(wins) and all(within), any(wins)),
            f"{'; '.join(lead)}; {used} evaluations at most",
        ),
        Claim(
            "RNPG's best policy on river-swim is feasible",
            verdict(all(rnpg_feasible), any(rnpg_feasible)),
            "feasible at their best setting, by radius: "
            + "; ".join(", ".join(style.look(m).name for m in names) for names in feasible)
            + ". These are the best policies that the runs meet; where the methods end up is judged with the learning curves",
        ),
        Claim(
            "RNPG earns more than EPIRC-PGS and RPPG among feasible policies",
            verdict(all(n == len(result["radii"]) for n in counts.values()), any(counts.values())),
            f"RNPG's best policy is feasible and earns more than {beaten} radii",
        ),
    ]


def _earns_more(radius: dict[str, Any], one: str, other: str) -> bool:
    """Its best policy is feasible, and earns more than the other's, if that one is feasible."""
    ours, theirs = _best(radius, one), _best(radius, other)
    return ours["feasible"] and (not theirs["feasible"] or ours["objective"] > theirs["objective"])


def _answers(result: Result) -> forms.Answers:
    found: forms.Answers = {}
    for radius in result["radii"]:
        for method in METHODS:
            best = _best(radius, method)
            numbers = forms.pair((best["objective"], best["constraint"]), best["feasible"])
            found[f"{radius['radius']:g}", style.look(method).name] = numbers
    return found


SECTION = forms.in_forms(
    Section(
        "river_swim",
        "Robust river-swim, every method at its best",
        "River-swim from a uniform start, γ .99, budget 42, KL balls. Eighteen settings for each method, the best feasible "
        "iterate of each run; RSQP runs once, at its default. The figure has a dot for every run and a large one for each "
        "method's best.",
        "tabular",
        {
            "quick": {"radii": [1e-4, 1e-2], "iterations": 150, "stride": 3},
            "full": {"radii": [1e-4, 1e-3, 1e-2], "iterations": 1000, "stride": 1},
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["radius", "method"],
    _answers,
)
