"""The style of every figure, legible in print and for colour-blind readers.

A method has a colour of Okabe and Ito's, and a marker and a dash of its own, so that it is told apart without colour.
Budgets are dashed vermilion, bounds dotted grey, and both are labelled in place.
"""

import io
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from rcac.files import replace_file

# Okabe and Ito's colours, which colour-blind people can tell apart; widths and dashes tell them apart without colour
BLUE, BUDGET, INK = "#0072B2", "#D55E00", "#333333"
GRID, FAINT = "#E5E5E5", "#999999"
BOUND = "#777777"
NOTE_LETTERS = 18  # of small print, to an inch
HALO = withStroke(linewidth=2.5, foreground="white")  # behind words that cross lines

AXES = {  # parameters and perturbations, in words with their units
    "noise": "noise δ",
    "noise_high": "noise δ",
    "action_flip": "probability of the other action",
    "wind": "wind (N, to the right)",
    "mass": "mass of the pole (factor)",
    "length": "length of the pole (factor)",
    "gravity": "gravity (factor)",
    "force": "force of a push (factor)",
    "observation_noise": "noise ±δ on the observation",
    "action_noise": "noise on the action",
    "radius": "radius of the set",
    "temperature": "temperature θ of the set",
    "random": "radius of the set",
}


class Look(NamedTuple):
    name: str
    colour: str
    marker: str
    dash: Any  # matplotlib's line style

    def line(self, **more: Any) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash, "linewidth": 1.6, **more}


LOOKS = {
    "rsqp": Look("RSQP", "#0072B2", "D", "-"),
    "rnpg": Look("RNPG", "#009E73", "o", "-"),
    "rppg": Look("RPPG", "#E69F00", "s", (0, (5, 1.5))),
    "epirc_pgs": Look("EPIRC-PGS", "#CC79A7", "^", (0, (1.5, 1))),
    "robust_crpo": Look("robust CRPO", "#56B4E9", "v", (0, (4, 1, 1, 1))),
    "primal_dual": Look("primal-dual", "#999999", "X", (0, (1, 1))),
    "rcac_sqp": Look("RCAC-SQP", "#0072B2", "D", "-"),
    "rcac_npg": Look("RCAC-NPG", "#009E73", "o", "-"),
    "rcac": Look("RCAC", "#E69F00", "s", (0, (5, 1.5))),
    "cac": Look("CAC", "#444444", "X", (0, (6, 1, 1, 1))),
    "rcac_clean": Look("RCAC, trained without noise", "#E69F00", "+", ":"),
    "cac_clean": Look("CAC, trained without noise", "#444444", "x", ":"),
    "epirc_pgs_deep": Look("EPIRC-PGS", "#CC79A7", "^", (0, (1.5, 1))),
    "robust_crpo_deep": Look("robust CRPO", "#56B4E9", "v", (0, (4, 1, 1, 1))),
    "ppo_lagrangian": Look("PPO-Lagrangian", "#CC79A7", "p", (0, (3, 1))),
    "trpo_lagrangian": Look("TRPO-Lagrangian", "#D55E00", "h", (0, (3, 1, 1, 1))),
    "cpo": Look("CPO", "#56B4E9", ">", (0, (2, 1))),
}


def look(method: str) -> Look:
    return LOOKS.get(method, Look(method, INK, "P", "-"))


def figure(width: float, height: float) -> Figure:
    return Figure(figsize=(max(width, 6.2), height), layout="constrained")  # wide enough for a legend


def panel(axes: Axes, title: str = "", x: str = "", y: str = "") -> Axes:
    """Quiet axes: no box, a faint grid, small words."""
    axes.set_title(title, loc="left", fontsize=9, color=INK)
    axes.set_xlabel(x, fontsize=8.5, color=INK)
    axes.set_ylabel(y, fontsize=8.5, color=INK)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK, labelsize=8)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    return axes


def level(
    axes: Axes, value: float, words: str, colour: str = BUDGET, *, below: bool = False, left: bool = False
) -> None:
    """A horizontal line, named inside the panel at one of its ends."""
    axes.axhline(value, color=colour, linestyle="--" if colour == BUDGET else ":", linewidth=1.2, zorder=1.5)
    side: Any = dict(va="top" if below else "bottom", ha="left" if left else "right", fontsize=7.5, color=colour)
    offset = (2 if left else -2, -2 if below else 2)
    at: Any = ("axes fraction", "data")
    text = axes.annotate(
        words, (0 if left else 1, value), offset, xycoords=at, textcoords="offset points", zorder=6, **side
    )
    text.set_path_effects([HALO])


def legend(shown: Figure, methods: list[str], *, markers: bool = False, lines: bool = True, rows: int = 1) -> None:
    """The methods, above the panels."""
    handles = []
    for method in methods:
        own = look(method)
        drawn: dict[str, Any] = own.line() if lines else dict(color=own.colour, linestyle="none")
        drawn |= dict(marker=own.marker, markersize=5) if markers else {}
        handles.append(Line2D([], [], label=own.name, **drawn))
    shown.legend(
        handles=handles,
        loc="outside upper left",
        ncols=-(-len(handles) // rows),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handlelength=2.6 if lines else 1.0,
    )


def note(shown: Figure, words: str) -> None:
    """Small print below the panels, as many lines as the figure's width asks for."""
    wide = int(NOTE_LETTERS * shown.get_figwidth())
    lines = [part for line in words.split("\n") for part in textwrap.wrap(line, wide)]
    shown.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color=BOUND)


def save(shown: Figure, folder: Path, name: str) -> None:
    """`name`.png and `name`.pdf."""
    with mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "rcac"}):
        for suffix in ("png", "pdf"):
            content = io.BytesIO()
            date: Any = {"metadata": {"CreationDate": None}} if suffix == "pdf" else {}
            shown.savefig(content, format=suffix, dpi=160, **date)
            replace_file(folder / f"{name}.{suffix}", content.getvalue())
