"""What the IPM norm does, all else equal: every robust method beside its twin, itself with radius 0.

A twin has the settings that its method was tuned to, norm included, and the same seeds. Differences are taken seed by
seed, method minus twin; over seeds they are interquartile means with bootstrap intervals.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from rcac.experiment import style
from rcac.experiment.reproduction.deep import ROBUST, means, over_seeds, told
from rcac.experiment.reproduction.perturbed import AS_TRAINED, At, Runs, breaks, cell, holds, tested, words
from rcac.experiment.reproduction.section import Claim, markdown, verdict
from rcac.experiment.statistics import Interval, interval

CHANGE = "algo.radius=0"  # what makes a twin
NAMED: list[At] = [AS_TRAINED, ("noise", 0.06), ("noise", 0.1), ("wind", 2.0)]
RULE = (
    "counted is every perturbation where CAC breaks the budget and the method holds it; the norm is what holds it where "
    "its twin's cost is above the budget and the paired difference of cost is below 0 with its whole 95 % interval; if "
    "that is so at all that are counted, RCAC's, RCAC-NPG's and RCAC-SQP's together, the claim holds, if at half of them "
    "or more, in part"
)


def paired(method: Runs, twin: Runs, at: At) -> tuple[Interval, Interval]:
    """Of return and cost, the difference that the norm makes, over seeds."""
    without = {run["seed"]: means(run, *at) for run in twin}
    differences = np.array([np.subtract(means(run, *at), without[run["seed"]]) for run in method])
    return interval([differences[:, 0]]), interval([differences[:, 1]])


def _named(methods: Mapping[str, Runs]) -> list[At]:
    there = tested(next(iter(methods.values())))
    return [at for at in NAMED if at in there]


def tables(methods: Mapping[str, Runs], twins: Mapping[str, Runs]) -> str:
    broken = {at for runs in twins.values() for at in tested(runs) if breaks(over_seeds(runs, *at))}
    shown = [AS_TRAINED] + [at for at in tested(next(iter(twins.values()))) if at in broken and at != AS_TRAINED]
    sides, differences = [], []
    for algo, twin in twins.items():
        name, own = style.look(algo).name, methods[algo]
        sides.append([name, "with", *(cell(own, at) for at in shown)])
        sides.append([name, "without", *(cell(twin, at) for at in shown)])
        pairs = [paired(own, twin, at) for at in _named(methods)]
        differences.append([name, "return", *(told(value, sign="+") for value, _ in pairs)])
        differences.append([name, "cost", *(told(cost, sign="+") for _, cost in pairs)])
    count = len(next(iter(twins.values())))
    return "\n\n".join(
        [
            "With the IPM norm and without it: every robust method beside its twin, radius 0 and all else equal, the "
            f"settings included that the method was tuned to with the norm; {count} seeds each. Return and cost as trained "
            "and wherever a twin breaks the budget.",
            markdown(["method", "norm", *map(words, shown)], sides, left=2),
            "The difference that the norm makes, method minus twin, seed by seed: interquartile means of the differences "
            "with 95 % bootstrap intervals.",
            markdown(["method", "difference of", *map(words, _named(methods))], differences, left=2),
        ]
    )


def figure(methods: Mapping[str, Runs], twins: Mapping[str, Runs]) -> Figure:
    """Paired differences, a row for each perturbation: cost to the left, return to the right."""
    shown, named = style.figure(7.4, 3.6), _named(methods)
    panels = shown.subplots(1, 2, sharey=True)
    style.panel(panels[0], "cost with the norm minus without", "difference of mean cost, Σ|x| (m)")
    style.panel(panels[1], "return with the norm minus without", "difference of mean return")
    places = np.linspace(-0.3, 0.3, len(twins)) if len(twins) > 1 else np.zeros(1)
    for place, (algo, twin) in zip(places, twins.items(), strict=True):
        own = style.look(algo)
        for row, at in enumerate(named):
            value, cost = paired(methods[algo], twin, at)
            for axes, found in zip(panels, (cost, value), strict=True):
                axes.plot([found.low, found.high], [row + place] * 2, color=own.colour, linewidth=1.6)
                axes.plot(found.estimate, row + place, own.marker, color=own.colour, markersize=5)
    for axes in panels:
        axes.axvline(0, color=style.BOUND, linewidth=1, zorder=1)
        axes.grid(False, axis="y")
        for row in range(1, len(named)):
            axes.axhline(row - 0.5, color=style.GRID, linewidth=0.6, zorder=0)
    panels[0].set_yticks(range(len(named)), [words(at) for at in named])
    panels[0].set_ylim(len(named) - 0.5, -0.5)
    style.legend(shown, list(twins), markers=True, lines=False)
    style.note(
        shown,
        "Left of 0: less with the norm. Interquartile means of differences seed by seed, 95 % bootstrap intervals.",
    )
    return shown


def claim(methods: Mapping[str, Runs], twins: Mapping[str, Runs]) -> Claim:
    """The verdict by `RULE`."""
    cac, tally = methods["cac"], {}
    broken = [at for at in tested(cac) if breaks(over_seeds(cac, *at))]
    for algo in (name for name in ROBUST if name in twins):
        held = [at for at in broken if holds(over_seeds(methods[algo], *at))]
        twin_breaks = [at for at in held if breaks(over_seeds(twins[algo], *at))]
        tally[algo] = (
            held,
            twin_breaks,
            [at for at in twin_breaks if paired(methods[algo], twins[algo], at)[1].high < 0],
        )
    counted, credited = (sum(len(row[k]) for row in tally.values()) for k in (0, 2))
    told_counts = "; ".join(
        f"{style.look(algo).name} holds it at {len(held)}, its twin breaks it at {len(twin)} of these"
        + (f", by a difference whose interval is below 0 at {len(clear)}" if twin else "")
        + (f" ({', '.join(map(words, clear))})" if clear else "")
        for algo, (held, twin, clear) in tally.items()
    )
    return Claim(
        "The IPM norm is what holds the budget there: with radius 0 and all else equal the same method breaks it",
        verdict(0 < counted == credited, 0 < counted <= 2 * credited),
        f"of the {len(broken)} perturbations where CAC breaks the budget, {told_counts}",
    )
