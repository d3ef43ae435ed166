"""Figures of a study: return, costs and feasible fraction against the strength of a perturbation, and the worst of it."""

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rcac.labels import larger_is_better, limit_word, within
from rcac.policies.robustness_summary import Method, MethodCurve, PerturbationSweep
from rcac.policies.robustness_tables import method_name
from rcac.report import style
from rcac.report.style import AXES, BUDGET, INK, Look

MARKERS, DASHES = "Dos^vXP*<>", ["-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (4, 1, 1, 1)), (0, (6, 1, 1, 1))]
WIDE = 50.0  # strengths whose sizes differ by more than this are drawn side by side, not to scale
INTERVALS = "interquartile means over seeds, 95 % bootstrap intervals"
PANEL, NAME = 3.0, 2.4  # inches: width of a panel, and of a method's name before it is wrapped
LETTER, LINE = 0.0078, 0.0175  # inches for each point of size: width of a letter at most, height of a line


def draw(sweeps: list[PerturbationSweep], folder: Path) -> None:
    """Figures of each sweep: against the strength, where there are several; the worst of it; and every run, return against cost."""
    for sweep in sweeps:
        parts = [sweep.env, sweep.perturbation, "" if sweep.sampled == "episodes" else sweep.series]
        name = re.sub(r"[^\w.+-]+", "_", " ".join(parts).replace("/", "-")).strip("_")
        looks = choose_looks([curve.method for curve in sweep.curves])
        name, several = f"evaluation_{name}", len(sweep.strengths) > 1
        if several:
            style.save(_against_strength(sweep, looks), folder, name)
        style.save(_worst(sweep, looks), folder, f"{name}_worst" if several else name)
        if sweep.constrained and sum(curve.seeds for curve in sweep.curves) > 1:
            style.save(_pareto(sweep, looks), folder, f"{name}_pareto")


def choose_looks(methods: list[Method]) -> dict[Method, Look]:
    """Each algorithm's own look; other settings of it, and whatever would look the same, get what is free."""
    looks: dict[Method, Look] = {}
    usual = [style.look(method.algo).colour for method in methods]
    colours = dict.fromkeys([*(look.colour for look in style.LOOKS.values()), INK])
    for method in methods:
        own = style.look(method.algo)
        taken = [look.colour for look in looks.values()]
        if own.colour in taken:
            spare = [colour for colour in colours if colour not in usual and colour not in taken]
            used = {look.marker for look in looks.values()} | {style.look(other.algo).marker for other in methods}
            marker = next((m for m in MARKERS if m not in used), MARKERS[len(taken) % len(MARKERS)])
            own = Look(own.name, spare[0] if spare else own.colour, marker, DASHES[len(taken) % len(DASHES)])
        looks[method] = own._replace(name=method_name(method))
    return looks


def _against_strength(sweep: PerturbationSweep, looks: dict[Method, Look]) -> Figure:
    panels = len(sweep.labels) + sweep.constrained
    shown = _canvas(PANEL * panels, 2.3, sweep, _small_print(sweep))
    _legend(shown, list(looks.values()))
    every = shown.subplots(1, panels, squeeze=False)[0]
    places, ticks = _places(sweep.strengths)
    words = AXES.get(sweep.perturbation, sweep.perturbation)
    for index, (axes, label) in enumerate(zip(every, sweep.labels, strict=False)):
        style.panel(axes, _title(sweep) if index == 0 else "", words, _quantity(sweep, index))
        for curve in sweep.curves:
            _line(axes, places, curve, index, looks[curve.method])
        if index:
            _limits(axes, places, sweep.budgets[index], label)
    if sweep.constrained:
        style.panel(every[-1], "", words, "within every budget")
        _shares(every[-1], places, sweep, looks)
    for axes in every:
        if ticks:
            axes.set_xticks(places, ticks)
    return shown


def _places(strengths: list[float | None]) -> tuple[np.ndarray, list[str]]:
    """Where strengths are drawn, and what is written there (nothing: as the axis has it)."""
    values = np.array(strengths, dtype=float)
    sizes = np.abs(values[values != 0])
    if len(sizes) and sizes.max() / sizes.min() > WIDE:
        return np.arange(len(values)), [f"{value:g}" for value in values]
    return values, []


def _line(axes: Axes, places: np.ndarray, curve: MethodCurve, index: int, look: Look) -> None:
    found = [point.terms[index] for point in curve.points]
    axes.plot(places, [x.estimate for x in found], marker=look.marker, markersize=4, **look.line(linewidth=1.4))
    if curve.spread:
        band: Any = dict(color=look.colour, alpha=0.13, linewidth=0)
        axes.fill_between(places, [x.low for x in found], [x.high for x in found], **band)


def _limits(axes: Axes, places: np.ndarray, limits: list[float | None], label: str) -> None:
    word = limit_word(label)
    values = np.array(limits, dtype=float)
    if (values == values[0]).all():
        axes.axhline(values[0], color=BUDGET, linestyle="--", linewidth=1.2, zorder=1.5)
        word = f"{word}\n{values[0]:g}"
    else:  # it is what is swept
        axes.plot(places, values, color=BUDGET, linestyle="--", linewidth=1.2, zorder=1.5)
    at: Any = dict(xycoords=("axes fraction", "data"), textcoords="offset points", va="center")
    axes.annotate(word, (1, values[-1]), (3, 0), fontsize=7.5, color=BUDGET, **at)  # outside, where no line passes


def _shares(axes: Axes, places: np.ndarray, sweep: PerturbationSweep, looks: dict[Method, Look]) -> None:
    """Lines that coincide, as shares do, are drawn a little apart."""
    for number, curve in enumerate(sweep.curves):
        look, apart = looks[curve.method], min(1.2, 10 / len(sweep.curves)) * (number - (len(sweep.curves) - 1) / 2)
        share = [100 * point.feasible / curve.seeds + apart for point in curve.points]
        axes.plot(places, share, marker=look.marker, markersize=4, **look.line(linewidth=1.4))
        if sweep.sampled:
            single = [np.nan if point.share is None else 100 * point.share for point in curve.points]
            axes.plot(places, single, color=look.colour, linestyle=":", linewidth=1.0)
    axes.set_ylim(-6, 106)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0f} %")


def _worst(sweep: PerturbationSweep, looks: dict[Method, Look]) -> Figure:
    """A line for each method, with its worst over the strengths."""
    count, names = len(sweep.curves), [wrapped(looks[curve.method].name, NAME, 8) for curve in sweep.curves]
    widest, lines = _letters(names) * 8 * LETTER, max(name.count("\n") for name in names) + 1
    height = 1.0 + (0.14 + 8 * LINE * lines) * count
    shown = _canvas(PANEL * len(sweep.labels) + widest, height, sweep, _small_print(sweep, worst=True))
    every = shown.subplots(1, len(sweep.labels), sharey=True, squeeze=False)[0]
    places = np.arange(count)[::-1]
    one = len(sweep.strengths) == 1
    for index, (axes, label) in enumerate(zip(every, sweep.labels, strict=True)):
        kind = "" if one else ("least " if larger_is_better(label) else "largest ")
        style.panel(axes, _title(sweep) if index == 0 else "", f"{kind}{_quantity(sweep, index)}")
        for place, curve in zip(places, sweep.curves, strict=True):
            look, found = looks[curve.method], curve.worst.terms[index]
            if curve.spread:
                axes.plot([found.low, found.high], [place, place], color=look.colour, linewidth=2.2, alpha=0.5)
            axes.plot(found.estimate, place, marker=look.marker, markersize=6, color=look.colour)
        if index:
            _limit(axes, sweep, index)
        axes.margins(x=0.1)
        axes.set_ylim(-0.6, count - 0.4)
        axes.grid(False, axis="y")
    every[0].set_yticks(places, names)
    return shown


def _pareto(sweep: PerturbationSweep, looks: dict[Method, Look]) -> Figure:
    """A mark for each run, hollow where it breaks a budget; the best are those above, within the line."""
    several = len(sweep.strengths) > 1
    words = f"over {sweep.perturbation} {sweep.strengths[0]:g} to {sweep.strengths[-1]:g}; " if several else ""
    shown = _canvas(
        PANEL * (len(sweep.labels) - 1),
        2.6,
        sweep,
        f"a mark for each run, hollow beyond a budget; {words}{sweep.series}",
    )
    _legend(shown, list(looks.values()), lines=False)
    every = shown.subplots(1, len(sweep.labels) - 1, sharey=True, squeeze=False)[0]
    for index, (axes, label) in enumerate(zip(every, sweep.labels[1:], strict=True), start=1):
        kind = "" if not several else ("least " if larger_is_better(label) else "largest ")
        earned = _quantity(sweep, 0) + (f",\nmean over the {sweep.perturbation}" if several else "")
        head = (_title(sweep), earned) if index == 1 else ("", "")
        style.panel(axes, head[0], f"{kind}{_quantity(sweep, index)}", head[1])
        for curve in sweep.curves:
            look = looks[curve.method]
            for run in curve.runs:
                face = look.colour if _kept(sweep, run) else "white"
                drawn: Any = dict(marker=look.marker, markersize=5, color=look.colour, markerfacecolor=face)
                axes.plot(run[index], run[0], linestyle="none", **drawn)
        _limit(axes, sweep, index, inside=True)
    return shown


def _kept(sweep: PerturbationSweep, run: np.ndarray) -> bool:
    """Whether it is within every budget, of those that stay the same over the sweep."""
    pairs = zip(sweep.labels[1:], run[1:], sweep.budgets[1:], strict=True)
    return all(within(label, value, limits[0]) for label, value, limits in pairs if len({*limits}) == 1)


def _limit(axes: Axes, sweep: PerturbationSweep, index: int, *, inside: bool = False) -> None:
    """The budget as a vertical line, if it is the same over the sweep; named above the panel or inside."""
    if len({*sweep.budgets[index]}) != 1:
        return
    limit = sweep.budgets[index][0]
    assert limit is not None
    axes.axvline(limit, color=BUDGET, linestyle="--", linewidth=1.2, zorder=1.5)
    place: Any = dict(xytext=(3, -2), ha="left", va="top") if inside else dict(xytext=(0, 2), ha="center", va="bottom")
    place |= dict(xycoords=("data", "axes fraction"), textcoords="offset points")
    axes.annotate(f"{limit_word(sweep.labels[index])} {limit:g}", (limit, 1), fontsize=7.5, color=BUDGET, **place)


# Words


def _quantity(sweep: PerturbationSweep, index: int) -> str:
    label, unit = sweep.labels[index], [None, *sweep.units, *[None] * len(sweep.labels)][index]
    words = f"discounted {label}" if sweep.discounted else f"mean {label} of an episode"
    return f"{words},\n{unit}" if unit else words


def _title(sweep: PerturbationSweep) -> str:
    return wrapped(sweep.env, PANEL - 0.6, 9)


def _seeds(sweep: PerturbationSweep) -> str:
    counts = sorted({curve.seeds for curve in sweep.curves})
    n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    alike = any(curve.alike for curve in sweep.curves)
    if any(curve.spread for curve in sweep.curves):
        return f"{INTERVALS}, {n}" + (" (none for seeds whose runs are all alike)" if alike else "")
    return f"{n}, all runs of a method alike, no interval" if alike else "one seed, n = 1, no interval"


def _small_print(sweep: PerturbationSweep, *, worst: bool = False) -> str:
    words = f"{sweep.series}; {_seeds(sweep)}"
    if worst and len(sweep.strengths) > 1:
        return (
            f"worst over {sweep.perturbation} {sweep.strengths[0]:g} to {sweep.strengths[-1]:g} for each seed; {words}"
        )
    if sweep.constrained and not worst:
        dotted = f"; dotted: share of {sweep.sampled}" if sweep.sampled else ""
        words += f"\nwithin every budget: share of seeds (lines that coincide are drawn a little apart){dotted}"
    return words


# Room for words of any length


def wrapped(words: str, inches: float, size: float) -> str:
    """Broken into lines of this width, and not inside of a list: `sizes=[64, 64]`."""
    whole = re.sub(r", (?=[^\[\]]*\])", ",\N{NO-BREAK SPACE}", words)
    return "\n".join(textwrap.wrap(whole, int(inches / (size * LETTER)), break_on_hyphens=False))


def _letters(names: list[str]) -> int:
    """Of the longest line."""
    return max(len(line) for name in names for line in name.split("\n"))


def _canvas(width: float, height: float, sweep: PerturbationSweep, note: str) -> Figure:
    """With its small print. `height` is without that and the title."""
    shown = style.figure(width, height)
    small = "\n".join(wrapped(line, shown.get_figwidth() - 0.1, 7.5) for line in note.split("\n"))
    lines = small.count("\n") + _title(sweep).count("\n") + 2
    shown.set_figheight(height + lines * 9 * LINE)
    style.note(shown, small)
    return shown


def _legend(shown: Figure, looks: list[Look], *, lines: bool = True) -> None:
    """As many columns as there is room for; the figure grows by its height."""
    size, names = 8.5, [wrapped(look.name, NAME, 8.5) for look in looks]
    room = int(shown.get_figwidth() / (_letters(names) * size * LETTER + 0.7))  # with the line before a name
    rows = -(-len(looks) // max(1, min(room, 4)))
    drawn: Any = [
        look.line(marker=look.marker, markersize=5) | ({} if lines else {"linestyle": "none"}) for look in looks
    ]
    handles = [Line2D([], [], label=name, **line) for name, line in zip(names, drawn, strict=True)]
    words: Any = dict(frameon=False, fontsize=size, labelcolor=INK, handlelength=2.6)
    shown.legend(handles=handles, loc="outside upper left", ncols=-(-len(looks) // rows), **words)
    height = max(name.count("\n") for name in names) + 1
    shown.set_figheight(shown.get_figheight() + rows * (0.06 + size * LINE * height))
