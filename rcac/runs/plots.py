"""Pictures of a run: return and costs against their budgets over the training, in people's own signs; and, where it was
trained against a box of parameters, costs over contexts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rcac.contexts import Parameters
from rcac.labels import limit_word
from rcac.report import style
from rcac.report.contexts import CostOverContexts, figure
from rcac.report.style import BLUE, BUDGET, INK
from rcac.runs.results import labels

SERIES = {  # what a learner reports under return/… and cost/<n>/…: words, colour, width
    "worst_case": ("present policy, worst case", "#56B4E9", 1.0),
    "episode": ("mean of recent episodes", BLUE, 1.4),
    "best": ("best so far", BLUE, 1.8),
}


class MeasuredCost(NamedTuple):
    """One cost, as measured in M contexts."""

    label: str
    budget: float
    points: np.ndarray  # (M, d) of the unit cube
    means: np.ndarray  # (M,)


Components = Sequence[tuple[str, float | None]]  # of an observation: its name, and the size at which an episode ends


def training(metrics: dict[str, np.ndarray], summary: dict[str, Any], title: str, unit: str, folder: Path) -> None:
    """Write `training.png` and `.pdf`."""
    names = labels(summary)
    shown = Figure(figsize=(7.0, 0.7 + 2.2 * len(names)), layout="constrained")
    shown.suptitle(title, x=0.02, ha="left", fontsize=10, color=INK)
    every = shown.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for index, (axes, label) in enumerate(zip(every, names, strict=True)):
        _panel(axes, metrics, "return" if index == 0 else f"cost/{index}", label)
        budgets = metrics.get(f"budget/{index}", np.zeros(0))  # none in a table that was cut short
        if index and len(budgets):
            _budget(axes, float(budgets[0]), label)
    if every[0].lines:
        every[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SERIES), frameon=False, fontsize=8)
    every[-1].set_xlabel(unit, color=INK, fontsize=9)
    style.save(shown, folder, "training")


def contexts(box: Parameters, costs: Sequence[MeasuredCost], title: str, folder: Path) -> None:
    """Write `contexts.png` and `.pdf`: what each context cost that a training with uncertain parameters has measured."""
    rows = []
    for cost in costs:
        worst = int(np.argmax(cost.means))
        words = f"{cost.label}: {cost.means[worst]:.4g} at the worst context"
        rows.append(CostOverContexts(*cost, cost.points[worst], float(cost.means[worst]), title=words))
    note = (
        "Dots: contexts of the training, mean of their latest episodes by the policy in training (the one handed out was chosen "
        "later, by trials). Map: mean of contexts near by. Star: worst context."
    )
    style.save(figure(box, rows, note, title), folder, "contexts")


def _panel(axes: Axes, metrics: dict[str, np.ndarray], name: str, label: str) -> None:
    for key, (words, colour, width) in SERIES.items():
        if f"{name}/{key}" in metrics:
            there = np.isfinite(metrics[f"{name}/{key}"])
            position, values = metrics["position"][there], metrics[f"{name}/{key}"][there]
            axes.plot(position, values, color=colour, linewidth=width, label=words)
    style.panel(axes, y=label)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def _budget(axes: Axes, budget: float, label: str) -> None:
    """The line, named at its end."""
    axes.axhline(budget, color=BUDGET, linestyle="--", linewidth=1.2)
    at: Any = ("axes fraction", "data")
    text: Any = dict(textcoords="offset points", va="center", fontsize=8, color=BUDGET)
    axes.annotate(f"{limit_word(label)} {budget:g}", (1, budget), (4, 0), xycoords=at, **text)


def histogram(visited: np.ndarray, components: Components) -> np.ndarray:
    """What was observed in the last rollout, (k, d), against the limits at which an episode ends: uint8 (H, W, 3)."""
    shown = Figure(figsize=(3.2 * len(components), 2.4), dpi=100, layout="constrained")
    for axes, values, (name, limit) in zip(shown.subplots(1, len(components)), visited.T, components, strict=True):
        reach = max(float(np.abs(values).max()), 1e-9) if limit is None else 1.15 * limit
        axes.hist(np.clip(values, -reach, reach), bins=60, range=(-reach, reach), color=BLUE)
        for side in () if limit is None else (-limit, limit):
            axes.axvline(side, color=BUDGET, linestyle="--", linewidth=1.2)
        axes.set_xlabel(name, color=INK, fontsize=9)
        axes.set_yticks([])
        axes.tick_params(colors=INK, labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
    canvas = FigureCanvasAgg(shown)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
