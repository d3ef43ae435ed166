"""Costs over contexts: for each cost, against its most important axis and over its two most important axes.

The two most important axes of a cost C(u), u in the unit cube, are those whose quadratic explains the measured means best,

    min over j < k, a    Σ_i (C_i − a·(1, u_j, u_k, u_j², u_j u_k, u_k²))²

and the first of them is the one that does better alone. The map's colour is the mean of contexts near by, whatever their other
parameters are; the dots are what was measured.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure

from rcac.contexts import Parameters
from rcac.report import style
from rcac.report.style import AXES, BLUE, BUDGET, HALO, INK

NEAR = 0.12  # standard deviation of "near by", in the unit cube
GRID = 80  # points of the map along an axis
COLOURS = LinearSegmentedColormap.from_list("budget", [BLUE, "#F7F7F7", BUDGET])  # within, at, beyond the budget
SMALLEST = 1e-9  # what is no better by more than this share of the variance is no better


class CostOverContexts(NamedTuple):
    label: str
    budget: float
    points: np.ndarray  # (M, d) of the unit cube
    means: np.ndarray  # (M,)
    worst: np.ndarray  # (d,) the worst context
    worst_mean: float
    worst_bound: float | None = None  # on the mean there
    title: str = ""


def most_important(points: np.ndarray, means: np.ndarray) -> tuple[int, ...]:
    """The two axes, the more important one first; one, if no other varies."""
    varying = [j for j in range(points.shape[1]) if np.ptp(points[:, j]) > 0]
    if len(varying) < 2:
        return tuple(varying) or (0,)
    left = {j: _unexplained(points[:, [j]], means) for j in varying}
    slack = SMALLEST * float(means.var()) * len(means)
    ordered = sorted(varying, key=lambda j: (left[j] > min(left.values()) + slack, left[j]))
    pairs = list(combinations(ordered, 2))
    remaining = [_unexplained(points[:, pair], means) for pair in pairs]
    return next(pair for pair, rest in zip(pairs, remaining, strict=True) if rest <= min(remaining) + slack)


def _unexplained(columns: np.ndarray, means: np.ndarray) -> float:
    """The sum of squares that the best quadratic in one or two columns leaves."""
    terms = [np.ones(len(means)), *columns.T, *(columns.T**2)]
    if columns.shape[1] == 2:
        terms.append(columns[:, 0] * columns[:, 1])
    design = np.stack(terms, axis=1)
    return float(np.sum((means - design @ np.linalg.lstsq(design, means, rcond=None)[0]) ** 2))


def smoothed(points: np.ndarray, means: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(K,) the mean near each of the places (K, 2), of points (M, 2)."""
    distance = np.sum((at[:, None] - points[None]) ** 2, axis=2) / (2 * NEAR**2)
    weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
    return np.asarray(weights @ means / weights.sum(axis=1))


def figure(box: Parameters, costs: list[CostOverContexts], note: str, title: str = "") -> Figure:
    """A row for each cost."""
    shown = style.figure(7.4, 0.75 + 2.6 * len(costs))
    shown.suptitle(title, x=0.02, ha="left", fontsize=10, color=INK)
    rows = shown.subplots(len(costs), 2, squeeze=False, width_ratios=[1, 1.15])
    for cost, (left, right) in zip(costs, rows, strict=True):
        chosen = most_important(cost.points, cost.means)
        _against(left, box, cost, chosen[0])
        if len(chosen) > 1:
            _map(shown, right, box, cost, chosen)
        else:
            right.set_axis_off()
    style.note(shown, note)
    return shown


def _axis(axes: Axes, box: Parameters, axis: int, which: str) -> Any:
    """Name and scale an axis; the function from the unit interval to its values."""
    name = box.names[axis]
    known = box.ranges[name]
    getattr(axes, f"set_{which}label")(AXES.get(name, name), fontsize=8.5, color=INK)
    if known.log:
        getattr(axes, f"set_{which}scale")("log")
        ticks = known.from_unit(np.linspace(0, 1, 5))
        getattr(axes, f"set_{which}ticks")(ticks, [f"{tick:.3g}" for tick in ticks])
        getattr(axes, f"set_{which}ticks")([], minor=True)
    return known.from_unit


def _against(axes: Axes, box: Parameters, cost: CostOverContexts, axis: int) -> None:
    style.panel(axes, cost.title, y=f"mean {cost.label} of an episode")
    values = _axis(axes, box, axis, "x")
    colours: Any = dict(c=cost.means, cmap=COLOURS, norm=_norm(cost), edgecolors=INK, linewidths=0.3)
    axes.scatter(values(cost.points[:, axis]), cost.means, s=14, zorder=2, **colours)
    x = float(values(cost.worst[[axis]])[0])
    if cost.worst_bound is not None:
        reach = [[0.0], [max(cost.worst_bound - cost.worst_mean, 0.0)]]
        axes.errorbar(x, cost.worst_mean, reach, color=INK, linewidth=1.2, capsize=3, zorder=3)
    axes.plot(x, cost.worst_mean, **_star())
    style.level(axes, cost.budget, f"budget {cost.budget:g}", left=x > float(values(np.array([0.5]))[0]))


def _map(shown: Figure, axes: Axes, box: Parameters, cost: CostOverContexts, chosen: tuple[int, ...]) -> None:
    style.panel(axes)
    axes.grid(False)
    pair, norm = list(chosen), _norm(cost)
    to_x, to_y = (_axis(axes, box, axis, which) for axis, which in zip(pair, "xy", strict=True))
    along = (np.arange(GRID) + 0.5) / GRID
    places = np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
    surface = smoothed(cost.points[:, pair], cost.means, places).reshape(GRID, GRID)
    edges = np.linspace(0, 1, GRID + 1)
    drawn = axes.pcolormesh(to_x(edges), to_y(edges), surface, cmap=COLOURS, norm=norm, rasterized=True)
    x, y = to_x(cost.points[:, pair[0]]), to_y(cost.points[:, pair[1]])
    inside: Any = dict(cmap=COLOURS, norm=norm, edgecolors=INK, linewidths=0.4, clip_on=False)
    axes.scatter(x, y, c=cost.means, s=16, zorder=3, **inside)
    worst = cost.worst[pair]
    axes.plot(to_x(worst[:1])[0], to_y(worst[1:])[0], **_star())
    bar = shown.colorbar(drawn, ax=axes, pad=0.03)
    bar.set_label(f"mean {cost.label}", fontsize=8.5, color=INK)
    bar.ax.tick_params(colors=INK, labelsize=8)
    bar.ax.axhline(cost.budget, color=INK, linewidth=1.2)
    bar.outline.set_visible(False)


def _norm(cost: CostOverContexts) -> TwoSlopeNorm:
    low, high = float(cost.means.min()), float(cost.means.max())
    little = 0.05 * max(abs(cost.budget), high - low, 1e-6)
    least = low if low < cost.budget else cost.budget - little
    return TwoSlopeNorm(cost.budget, least, high if high > cost.budget else cost.budget + little)


def _star() -> dict[str, Any]:
    return dict(marker="*", markersize=13, markerfacecolor="white", markeredgecolor=INK, linestyle="none",
                clip_on=False, zorder=5, path_effects=[HALO])  # fmt: skip
