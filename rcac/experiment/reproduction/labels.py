"""Names of points in a panel, put where they cover no other name, no marker, and as little of a line as can be."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from rcac.experiment import style

SIZE = 7.5  # of the words, in points
PLACES = [  # offsets in points, nearest first
    (round(distance * np.cos(angle)), round(distance * np.sin(angle)))
    for distance in (9, 14, 20, 27)
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False)
]
MARKER = 4.0  # half a marker's width, in points


class Name(NamedTuple):
    words: str
    x: float
    y: float
    colour: str


def label(axes: Axes, names: Sequence[Name]) -> None:
    """All names at once, when everything else of the figure is drawn and its limits stand."""
    shown = axes.get_figure(root=True)
    assert shown is not None
    shown.draw_without_rendering()  # sizes are known from here on
    point = shown.dpi / 72
    spots = axes.transData.transform([(name.x, name.y) for name in names])
    taken = [Bbox.from_extents(*(spot - MARKER * point), *(spot + MARKER * point)) for spot in spots]
    taken += [text.get_window_extent() for text in axes.texts]
    traces = np.concatenate([_trace(line.get_transform().transform(line.get_xydata())) for line in axes.lines])
    inside = axes.get_window_extent()
    for name in names:
        text = axes.annotate(
            name.words, (name.x, name.y), (0, 0), textcoords="offset points", fontsize=SIZE, ha="center", va="center"
        )
        text.set(color=name.colour, path_effects=[style.HALO], zorder=7)
        box = text.get_window_extent().padded(0.5 * point)
        found, wider = [], 1 + box.width / box.height / 6  # long words go further to the sides
        for right, up in PLACES:
            away = np.array([right * wider, up]) * point
            moved = box.translated(*away)
            covered = sum(moved.overlaps(other) for other in taken) + (not _within(moved, inside))
            crossed = np.all((traces >= moved.min) & (traces <= moved.max), axis=1).sum()
            found.append((10 * covered + 0.15 * crossed + np.hypot(*away) / (20 * point), moved, away / point))
        _, chosen, shift = min(found, key=lambda place: place[0])
        text.set_position(tuple(shift))
        taken.append(chosen)


def _trace(corners: np.ndarray) -> np.ndarray:
    """(n, 2) points along a line, close together."""
    share = np.linspace(0, 1, 60)
    pieces = [a + (b - a) * share[:, None] for a, b in pairwise(corners)]
    found = np.concatenate([corners, *pieces])
    return found[np.isfinite(found).all(axis=1)]


def _within(box: Bbox, outer: Bbox) -> bool:
    return bool(box.x0 >= outer.x0 and box.x1 <= outer.x1 and box.y0 >= outer.y0 and box.y1 <= outer.y1)
