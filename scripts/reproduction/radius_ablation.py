"""What the IPM norm does, all else equal: every robust method beside itself with radius 0, its ablation.

An ablation keeps the settings that its method was tuned to with the norm, and the seeds. Differences are taken seed by
seed, method minus ablation; over seeds they are interquartile means with bootstrap intervals.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from rcac.report import style
from rcac.report.statistics import Interval, interval
from rcac.report.tables import markdown
from reproduction.deep import ROBUST, format_interval, mean_scores, over_seeds
from reproduction.perturbed import (
    AS_TRAINED,
    Condition,
    Runs,
    conditions_over_budget,
    describe,
    format_scores,
    over_budget,
    tested_conditions,
    within_budget,
)
from reproduction.section import Claim, verdict

CHANGE = "algo.radius=0"  # the ablation
SHOWN: list[Condition] = [AS_TRAINED, ("noise", 0.06), ("noise", 0.1), ("wind", 2.0)]
RULE = (
    "counted is every perturbation where CAC breaks the budget and the method holds it; the norm is what holds it where "
    "its ablation's cost is above the budget and the paired difference of cost is below 0 with its whole 95 % interval; if "
    "that is so at all that are counted, RCAC's, RCAC-NPG's and RCAC-SQP's together, the claim holds, if at half of them "
    "or more, in part"
)


def paired(method: Runs, ablated: Runs, condition: Condition) -> tuple[Interval, Interval]:
    """Of return and cost, the difference that the norm makes, over seeds."""
    without = {run["seed"]: mean_scores(run, *condition) for run in ablated}
    differences = np.array([np.subtract(mean_scores(run, *condition), without[run["seed"]]) for run in method])
    return interval([differences[:, 0]]), interval([differences[:, 1]])


def _shown_conditions(methods: Mapping[str, Runs]) -> list[Condition]:
    tested = tested_conditions(next(iter(methods.values())))
    return [condition for condition in SHOWN if condition in tested]


def tables(methods: Mapping[str, Runs], ablations: Mapping[str, Runs]) -> str:
    broken = {condition for runs in ablations.values() for condition in conditions_over_budget(runs)} - {AS_TRAINED}
    shown = [AS_TRAINED, *(c for c in tested_conditions(next(iter(ablations.values()))) if c in broken)]
    sides, differences = [], []
    for algo, ablated in ablations.items():
        name, runs = style.look(algo).name, methods[algo]
        sides.append([name, "with", *(format_scores(runs, condition) for condition in shown)])
        sides.append([name, "without", *(format_scores(ablated, condition) for condition in shown)])
        pairs = [paired(runs, ablated, condition) for condition in _shown_conditions(methods)]
        differences.append([name, "return", *(format_interval(value, sign="+") for value, _ in pairs)])
        differences.append([name, "cost", *(format_interval(cost, sign="+") for _, cost in pairs)])
    count = len(next(iter(ablations.values())))
    return "\n\n".join(
        [
            "With the IPM norm and without it: every robust method beside its ablation, radius 0 and all else equal, the "
            f"settings included that the method was tuned to with the norm; {count} seeds each. Return and cost as trained "
            "and wherever an ablation breaks the budget.",
            markdown(["method", "norm", *map(describe, shown)], sides, left=2),
            "The difference that the norm makes, method minus ablation, seed by seed: interquartile means of the differences "
            "with 95 % bootstrap intervals.",
            markdown(["method", "difference of", *map(describe, _shown_conditions(methods))], differences, left=2),
        ]
    )


def figure(methods: Mapping[str, Runs], ablations: Mapping[str, Runs]) -> Figure:
    """Paired differences, a row for each perturbation: cost to the left, return to the right."""
    fig, conditions = style.figure(7.4, 3.6), _shown_conditions(methods)
    panels = fig.subplots(1, 2, sharey=True)
    style.panel(panels[0], "cost with the norm minus without", "difference of mean cost, Σ|x| (m)")
    style.panel(panels[1], "return with the norm minus without", "difference of mean return")
    places = np.linspace(-0.3, 0.3, len(ablations)) if len(ablations) > 1 else np.zeros(1)
    for place, (algo, ablated) in zip(places, ablations.items(), strict=True):
        look = style.look(algo)
        for row, condition in enumerate(conditions):
            value, cost = paired(methods[algo], ablated, condition)
            for axes, found in zip(panels, (cost, value), strict=True):
                axes.plot([found.low, found.high], [row + place] * 2, color=look.colour, linewidth=1.6)
                axes.plot(found.estimate, row + place, look.marker, color=look.colour, markersize=5)
    for axes in panels:
        axes.axvline(0, color=style.BOUND, linewidth=1, zorder=1)
        axes.grid(False, axis="y")
        for row in range(1, len(conditions)):
            axes.axhline(row - 0.5, color=style.GRID, linewidth=0.6, zorder=0)
    panels[0].set_yticks(range(len(conditions)), list(map(describe, conditions)))
    panels[0].set_ylim(len(conditions) - 0.5, -0.5)
    style.legend(fig, list(ablations), markers=True, lines=False)
    style.note(
        fig, "Left of 0: less with the norm. Interquartile means of differences seed by seed, 95 % bootstrap intervals."
    )
    return fig


def claim(methods: Mapping[str, Runs], ablations: Mapping[str, Runs]) -> Claim:
    """The verdict by `RULE`."""
    cac_over, outcomes = conditions_over_budget(methods["cac"]), {}
    for algo in (name for name in ROBUST if name in ablations):
        within = [condition for condition in cac_over if within_budget(over_seeds(methods[algo], *condition))]
        ablated_over = [condition for condition in within if over_budget(over_seeds(ablations[algo], *condition))]
        clear = [
            condition for condition in ablated_over if paired(methods[algo], ablations[algo], condition)[1].high < 0
        ]
        outcomes[algo] = within, ablated_over, clear
    counted, credited = (sum(len(row[k]) for row in outcomes.values()) for k in (0, 2))
    counts_text = "; ".join(
        f"{style.look(algo).name} holds it at {len(within)}, its ablation breaks it at {len(ablated_over)} of these"
        + (f", by a difference whose interval is below 0 at {len(clear)}" if ablated_over else "")
        + (f" ({', '.join(map(describe, clear))})" if clear else "")
        for algo, (within, ablated_over, clear) in outcomes.items()
    )
    return Claim(
        "The IPM norm is what holds the budget there: with radius 0 and all else equal the same method breaks it",
        verdict(0 < counted == credited, 0 < counted <= 2 * credited),
        f"of the {len(cac_over)} perturbations where CAC breaks the budget, {counts_text}",
    )
