"""Two ways to stay below the budget: the radius of the IPM norm, and aiming below the budget with radius 0.

A slack ξ makes the surrogate aim at a discounted cost of κ·budget − ξ, that is at a plain cost of budget − ξ/κ, where
κ = (1 − γ^L)/((1 − γ) L). Anyone can do that without a robust method, so it is what a radius has to beat: at the same
return as trained, the less cost under a strong perturbation.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rcac.deep.returns import kappa_of
from rcac.deep.settings import DeepSettings
from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import INK
from reproduction import labels
from reproduction.deep import BUDGET, TRAINED, format_interval, over_seeds, strengths
from reproduction.equal_return import Comparison, compare
from reproduction.perturbed import AS_TRAINED, UPRIGHT_RETURN, Condition, Runs, describe, format_scores
from reproduction.section import Claim, verdict

SWEPT_ALGO = "rcac_npg"
STEPS = 500  # of an episode
SCOPES = {  # words, colour, marker
    "last_layer": ("last layer's weights", "#009E73", "o"),
    "all": ("all weights", "#CC79A7", "^"),
}
SLACK_STYLE = ("aiming below the budget: slack, radius 0", "#444444", "s")
STRONG: list[Condition] = [("noise", 0.1), ("wind", 2.0)]
JUDGED: Condition = STRONG[0]
RADIUS_RULE = (
    "of the radii that keep nine tenths of the return that radius 0 has at the strongest noise, the one with the least "
    "cost there is looked at: the claim holds if that is within the budget and radius 0 is not, in part if it is more than "
    "5 % below the cost of radius 0"
)
SLACK_RULE = (
    f"at {describe(JUDGED)}, over the radii above 0 on the last layer's weights, the cost with the radius minus the cost that "
    "slacks have at the same return as trained (linear between neighbours by return, never beyond their range; only what "
    f"returns at least {UPRIGHT_RETURN:g} both as trained and there): the claim holds if the mean of these differences is below 0 "
    "with its whole 95 % interval (bootstrap over seeds, the same resample for radii and slacks), in part if that of a single radius is"
)


def target_cost(slack: float) -> float:
    """The plain episode cost that a slack aims at."""
    return BUDGET - slack / kappa_of(DeepSettings().gamma, STEPS)


# Tables


def tables(radii: Sequence[dict[str, Any]], slacks: Sequence[dict[str, Any]]) -> str:
    first, name = radii[0]["runs"], style.look(SWEPT_ALGO).name
    noise: list[Condition] = [("noise", s) for s in strengths(first, "noise")]
    by_noise = [
        [SCOPES[r["scope"]][0], f"{r['radius']:g}", *(format_scores(r["runs"], condition) for condition in noise)]
        for r in radii
    ]
    parts = [
        f"What the radius of the IPM norm contributes to {name}: return and cost under noise, {len(first)} seeds.\n\n"
        + markdown(["weights in the norm", "radius", *(f"δ = {s:g}" for _, s in noise)], by_noise, left=2)
    ]
    rows = [[f"norm, {SCOPES[r['scope']][0]}", f"radius {r['radius']:g}", "–", *_cells(r["runs"])] for r in radii]
    rows += [
        ["aim below the budget", f"slack {s['slack']:g}", f"{target_cost(s['slack']):.0f}", *_cells(s["runs"])]
        for s in slacks
    ]
    header = ["protection", "strength", "cost aimed at", "return as trained", "cost as trained"]
    parts.append(
        f"{name} with a radius, and with radius 0 and a slack, which aims below the budget instead; {len(first)} seeds, "
        "settings as tuned with the norm.\n\n"
        + markdown([*header, *(f"{what}, {describe(c)}" for c in STRONG for what in ("return", "cost"))], rows, left=2)
    )
    return "\n\n".join([*parts, *(_compared(compare(radii, slacks, condition), condition) for condition in STRONG)])


def _cells(runs: Runs) -> list[str]:
    return [format_interval(found, 0) for condition in [AS_TRAINED, *STRONG] for found in over_seeds(runs, *condition)]


def _compared(found: Comparison, condition: Condition) -> str:
    rows = [
        [
            f"{c.radius:g}",
            *(f"{x:.0f}" for x in (c.value, c.cost, c.slack_cost)),
            format_interval(c.difference, sign="+"),
        ]
        for c in found.compared
    ]
    if found.mean is not None:
        rows.append(["mean", "", "", "", format_interval(found.mean, sign="+")])
    header = ["radius", "return as trained", "cost with the radius", "cost with slack at that return", "difference"]
    left_out = f" Not compared (fallen, or a return that no slack has): {_join(found.left_out)}." * bool(found.left_out)
    table = "\n\n" + markdown(header, rows) if rows else " Nothing can be compared."
    return f"Radius (last layer's weights) beside slack at the same return as trained, {describe(condition)}.{left_out}{table}"


def _join(radii: Sequence[float]) -> str:
    return ", ".join(f"{radius:g}" for radius in radii)


# Figures


def radius_figure(radii: Sequence[dict[str, Any]]) -> Figure:
    """Return and cost against the radius, as trained and under the strongest noise."""
    fig = style.figure(7.4, 3.1)
    left, right = fig.subplots(1, 2, sharex=True)
    style.panel(left, style.look(SWEPT_ALGO).name, "radius of the IPM set", "mean return")
    style.panel(right, "", "radius of the IPM set", "mean cost, Σ|x| (m)")
    strongest = strengths(radii[0]["runs"], "noise")[-1]
    values = list(dict.fromkeys(r["radius"] for r in radii))
    places = np.arange(len(values))
    for scope, (named, colour, marker) in SCOPES.items():
        for noise, dash in ((TRAINED, "-"), (strongest, ":")):
            found = [over_seeds(r["runs"], "noise", noise) for r in radii if r["scope"] == scope]
            for axes, index in ((left, 0), (right, 1)):
                series, label = [pair[index].estimate for pair in found], f"{named}, δ {noise:g}"
                axes.plot(places, series, dash, color=colour, marker=marker, markersize=4, label=label)
    style.level(right, BUDGET, f"budget {BUDGET:g}")
    for axes in (left, right):
        axes.set_xticks(places, [f"{value:g}" for value in values])
    right.set_ylim(bottom=0)
    handles, labels = left.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return fig


class TradeoffCurve(NamedTuple):
    label: str
    colour: str
    marker: str
    points: list[tuple[float, Runs]]  # a radius or slack, and its runs


def protection_figure(radii: Sequence[dict[str, Any]], slacks: Sequence[dict[str, Any]]) -> Figure:
    """Cost under a strong perturbation against the return as trained: lower and further to the right is better."""
    curves = [TradeoffCurve(*SLACK_STYLE, [(s["slack"], s["runs"]) for s in slacks])]
    for scope, (named, colour, marker) in SCOPES.items():
        own = [(r["radius"], r["runs"]) for r in radii if r["scope"] == scope]
        curves.append(TradeoffCurve(f"IPM norm: radius, {named}", colour, marker, own))
    curves, fallen = _drop_fallen([curve for curve in curves if curve.points])
    fig = style.figure(7.8, 3.9)
    panels = fig.subplots(1, len(STRONG), squeeze=False)[0]
    names = []
    for axes, condition in zip(panels, STRONG, strict=True):
        style.panel(
            axes,
            f"tested at {describe(condition)}",
            "mean return as trained",
            f"mean cost at {describe(condition)}, Σ|x| (m)",
        )
        names.append([name for curve in curves for name in _draw(axes, curve, condition)])
        style.level(axes, BUDGET, f"budget {BUDGET:g}", left=True)
        axes.margins(0.1, 0.12)
    handles, legend = panels[0].get_legend_handles_labels()
    fig.legend(handles, legend, loc="outside upper left", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    left_out = f" Left out, as they fall: {'; '.join(fallen)}." if fallen else ""
    style.note(
        fig,
        f"{style.look(SWEPT_ALGO).name}, interquartile means and 95 % bootstrap intervals over seeds. Lower and further right is "
        f"better.\nThe point without a number is radius 0, slack 0.{left_out}",
    )
    for axes, own_names in zip(panels, names, strict=True):
        labels.place_labels(axes, own_names)
    return fig


def _drop_fallen(curves: list[TradeoffCurve]) -> tuple[list[TradeoffCurve], list[str]]:
    """Without the points that fall already as trained, which would take most of the axis; and their names."""

    def upright(runs: Runs) -> bool:
        return over_seeds(runs, *AS_TRAINED)[0].estimate >= UPRIGHT_RETURN

    kept = [curve._replace(points=[point for point in curve.points if upright(point[1])]) for curve in curves]
    if sum(len(curve.points) for curve in kept) < 2:  # nothing has been learnt: show what there is
        return curves, []
    fallen = []
    for curve in curves:
        gone = [value for value, runs in curve.points if not upright(runs)]
        fallen += [f"{curve.label.partition(': ')[2]} {_join(gone)}"] if gone else []
    return [curve for curve in kept if curve.points], fallen


def _draw(axes: Axes, curve: TradeoffCurve, condition: Condition) -> list[labels.PointLabel]:
    """Points with intervals, joined in the order of their returns, as they are compared; and what to call them."""
    found = [(value, over_seeds(runs, *AS_TRAINED)[0], over_seeds(runs, *condition)[1]) for value, runs in curve.points]
    found.sort(key=lambda point: point[1].estimate)
    x, y = [gain.estimate for _, gain, _ in found], [cost.estimate for _, _, cost in found]
    axes.plot(x, y, color=curve.colour, marker=curve.marker, markersize=5, linewidth=1.4, label=curve.label)
    thin: Any = dict(color=curve.colour, linewidth=0.8, alpha=0.5)
    for _, gain, cost in found:
        axes.plot([gain.low, gain.high], [cost.estimate] * 2, **thin)
        axes.plot([gain.estimate] * 2, [cost.low, cost.high], **thin)
    return [labels.PointLabel(f"{value:g}", g.estimate, c.estimate, curve.colour) for value, g, c in found if value]


# Claims


def claims(radii: Sequence[dict[str, Any]], slacks: Sequence[dict[str, Any]]) -> list[Claim]:
    return [_lowers_cost(radii), _beats_slack(compare(radii, slacks, JUDGED))]


def _lowers_cost(radii: Sequence[dict[str, Any]]) -> Claim:
    """The verdict by `RADIUS_RULE`."""
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


def _beats_slack(found: Comparison) -> Claim:
    """The verdict by `AIM_RULE`."""
    each = [
        f"radius {c.radius:g}, return {c.value:.0f} as trained: cost {c.cost:.0f} against {c.slack_cost:.0f} with slack, "
        f"difference {format_interval(c.difference, sign='+')}"
        for c in found.compared
    ]
    each += [] if found.mean is None else [f"mean difference {format_interval(found.mean, sign='+')}"]
    each += [f"not compared (fallen, or a return that no slack has): {_join(found.left_out)}"] if found.left_out else []
    return Claim(
        "The IPM norm protects better than simply aiming below the budget",
        verdict(found.mean is not None and found.mean.high < 0, any(c.difference.high < 0 for c in found.compared)),
        f"at {describe(JUDGED)}, {'; '.join(each)}",
    )
