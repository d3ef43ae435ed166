"""Pictures of a run: return and costs against their budgets over the training, in people's own signs."""

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rcac.experiment.results import terms
from rcac.experiment.runfolder import RunFolder

# Okabe and Ito's colours, which colour-blind people can tell apart; line styles tell them apart without colour
SERIES = {
    "worst_case": ("worst case", "#56B4E9", "-", 1.0),
    "episode": ("mean of recent episodes", "#56B4E9", "-", 1.2),
    "best": ("best so far", "#0072B2", "-", 1.8),
}
BUDGET = "#D55E00"
INK = "#333333"


def training(metrics: dict[str, np.ndarray], summary: dict[str, Any], unit: str, folder: RunFolder) -> None:
    """Write `plots/training.png` and `.pdf`."""
    labels = [term.label for term in terms(summary)]
    figure = Figure(figsize=(7.0, 2.4 * len(labels)), layout="constrained")
    every = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
    for index, (axes, label) in enumerate(zip(every, labels, strict=True)):
        _panel(axes, metrics, "return" if index == 0 else f"cost/{index}", label)
        if index:
            _budget(axes, metrics[f"budget/{index}"][-1], label)
        axes.legend(loc="best", frameon=False, fontsize=8)
    every[-1].set_xlabel(unit, color=INK)
    for suffix in ("png", "pdf"):
        content = io.BytesIO()
        figure.savefig(content, format=suffix, dpi=150)
        folder.write_bytes(f"plots/training.{suffix}", content.getvalue())


def _panel(axes: Axes, metrics: dict[str, np.ndarray], name: str, label: str) -> None:
    for key, (words, colour, style, width) in SERIES.items():
        if f"{name}/{key}" in metrics:
            axes.plot(metrics["position"], metrics[f"{name}/{key}"], style, color=colour, linewidth=width, label=words)
    axes.set_ylabel(label, color=INK)
    axes.grid(True, color="#E5E5E5", linewidth=0.6)
    axes.tick_params(colors=INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.margins(x=0.01)


def _budget(axes: Axes, budget: float, label: str) -> None:
    word = "floor" if label.startswith("utility") else "budget"
    axes.axhline(budget, color=BUDGET, linestyle="--", linewidth=1.2, label=f"{word} {budget:g}")
