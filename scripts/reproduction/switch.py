"""Which term is descended, and when: the switching methods beside RSQP, which descends all terms at once."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import BUDGET, INK
from reproduction import forms
from reproduction.section import Claim, PieceCache, Result, Section, verdict
from reproduction.tabular import SETS, display_bounds, load_problem, make_uncertainty, trace

SWITCHING = ["rnpg", "robust_crpo"]
OURS = "rsqp"
OBJECTIVE = "#0072B2"
POINTS = 400


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    model, methods = load_problem("river_swim", initial="uniform"), [*SWITCHING, OURS]
    sets: list[dict[str, Any]] = []
    for kind in SETS:
        uncertainty, runs = make_uncertainty(kind, "river_swim"), []
        for method in forms.changed(form, methods):
            given = forms.options(form, method, "river_swim") | {"iterations": settings["iterations"]}
            own, name = forms.in_form(form, uncertainty), forms.label(form, f"{kind}, {method}")
            runs.append(cache(name, trace, model, method, own, POINTS, **given))
        runs = forms.merged(ours["sets"][len(sets)]["runs"], runs, "method") if ours else runs
        sets.append({"set": kind, "runs": runs, **display_bounds(model, uncertainty)})
    return {"sets": sets, "iterations": settings["iterations"]}


def shares(index: list[int]) -> tuple[float, int]:
    """Share of steps on a constraint, and the number of changes between terms. The first entry is no step."""
    chosen = np.array(index[1:]) > 0
    return float(chosen.mean()), int(np.count_nonzero(np.diff(chosen.astype(int))))


def tables(result: Result) -> str:
    rows = []
    for group in result["sets"]:
        for run in group["runs"]:
            name, count = style.look(run["method"]).name, f"{run['evaluations']:,}"
            if run["method"] == OURS:
                cells = ["both at once", f"multiplier {run['multiplier'][-1]:.3f}"]
            else:
                share, changes = shares(run["index"])
                cells = [f"{100 * share:.1f} %", f"{changes:,}"]
            rows.append([SETS[group["set"]], name, count, *cells, f"{run['answer'][0]:.2f}", f"{run['answer'][1]:.3f}"])
    header = ["set", "method", "evaluations", "steps on the constraint", "changes", "reward", "cost (≤ 42)"]
    return markdown(header, rows, left=2)


def figures(result: Result) -> dict[str, Figure]:
    count = len(result["sets"])
    fig = style.figure(4.0 * count + 0.6, 4.4)
    grid = fig.add_gridspec(4, count, height_ratios=[0.6, 0.6, 1.9, 1.9])
    for column, group in enumerate(result["sets"]):
        switching, ours = group["runs"][:-1], group["runs"][-1]
        for row, run in enumerate(switching):
            axes = fig.add_subplot(grid[row, column])
            _strip(axes, run, SETS[group["set"]] if row == 0 else "", named=column == 0)
        cost = style.panel(fig.add_subplot(grid[2, column]), "", "", "worst-case cost" if column == 0 else "")
        for run in group["runs"]:
            cost.plot(run["evaluation"], run["constraint"], **style.look(run["method"]).line(linewidth=1.2))
        style.level(cost, group["budget"], f"budget {group['budget']:g}")
        cost.margins(y=0.15)
        weight = fig.add_subplot(grid[3, column], sharex=cost)
        style.panel(weight, "", "robust evaluations", "weight of the constraint" if column == 0 else "")
        _weights(weight, switching, ours)
        cost.set_xscale("log")
        cost.set_xlim(1, result["iterations"])
        cost.tick_params(labelbottom=False)
        weight.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    style.legend(fig, [*SWITCHING, OURS])
    return {"switch": fig}


def _strip(axes: Axes, run: dict[str, Any], title: str, named: bool) -> None:
    """A column for every step, blue for the objective, vermilion for the constraint, on a logarithmic axis."""
    chosen = (np.array(run["index"][1:]) > 0).astype(int)[None]
    edges = np.arange(1, chosen.shape[1] + 2)
    axes.pcolormesh(edges, [0, 1], chosen, cmap=ListedColormap([OBJECTIVE, BUDGET]), vmin=0, vmax=1, rasterized=True)
    axes.set_xscale("log")
    axes.set_xlim(1, edges[-1])
    axes.set_yticks([0.5], [style.look(run["method"]).name] if named else [""])
    axes.tick_params(which="both", left=False, bottom=False, labelbottom=False, colors=INK, labelsize=8)
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(f"{title}:  blue, a step on the reward;  red, on the cost", loc="left", fontsize=9, color=INK)


def _weights(axes: Axes, switching: list[dict[str, Any]], ours: dict[str, Any]) -> None:
    """Share of the last fifty steps that were on the constraint; and RSQP's μ/(1 + μ), which is the same in spirit."""
    for run in switching:
        chosen = (np.array(run["index"][1:]) > 0).astype(float)
        total = np.concatenate([[0.0], np.cumsum(chosen)])
        steps = np.arange(1, len(chosen) + 1)
        since = np.maximum(steps - 50, 0)
        axes.plot(
            steps + 1, (total[steps] - total[since]) / (steps - since), **style.look(run["method"]).line(linewidth=1.2)
        )
    known = [(k, m / (1 + m)) for k, m in enumerate(ours["multiplier"], start=1) if m is not None]
    look = style.look(ours["method"])
    axes.plot(*zip(*known, strict=True), marker=look.marker, markersize=3.5, **look.line(linewidth=1.2))
    axes.set_ylim(-0.05, 1.05)


def _reward(run: dict[str, Any]) -> str:
    over = "" if run["feasible"] else f" (over the budget: {run['answer'][1]:.2f})"
    return f"{style.look(run['method']).name} {run['answer'][0]:.2f}{over}"


def claims(result: Result) -> list[Claim]:
    """A policy over its budget earns nothing that counts."""
    found, order, shown = [], [], []
    for group in result["sets"]:
        by_name = {run["method"]: run for run in group["runs"]}
        runs = [by_name[m] for m in (*SWITCHING, OURS)]
        order.append([run["answer"][0] if run["feasible"] else -np.inf for run in runs])
        shown.append(f"{SETS[group['set']]}: " + ", ".join(map(_reward, runs)))
    evidence = "; ".join(shown)
    ahead = [o[0] > o[1] for o in order]
    found.append(
        Claim(
            "RNPG's switch earns more than robust CRPO's, both at their defaults",
            verdict(all(ahead), any(ahead)),
            evidence,
        )
    )
    best = [o[2] >= max(o[:2]) for o in order]
    changes = [shares(run["index"])[1] for g in result["sets"] for run in g["runs"][:-1]]
    found.append(
        Claim(
            "(Ours) Descending all terms at once beats switching, which zigzags at the boundary",
            verdict(all(best), any(best)),
            f"{evidence}; the switching methods change terms {min(changes):,} to {max(changes):,} times",
        )
    )
    return found


def _answers(result: Result) -> forms.Answers:
    return {
        (SETS[group["set"]], style.look(run["method"]).name): forms.pair(run["answer"], run["feasible"])
        for group in result["sets"]
        for run in group["runs"]
    }


SECTION = forms.in_forms(
    Section(
        "switch",
        "Switch behaviour",
        "River-swim from a uniform start, γ .99, default settings. The lowest panels have, for the switching methods, the share "
        "of the last fifty steps that went to the constraint, and for RSQP μ/(1+μ) of its multiplier μ.",
        "tabular",
        {"quick": {"iterations": 200}, "full": {"iterations": 1000}},
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["set", "method"],
    _answers,
)
