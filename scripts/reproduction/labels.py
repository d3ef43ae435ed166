"""Labels of points in a panel, placed where they cover no other label, no marker, and as little of a line as possible."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from rcac.report import style

SIZE = 7.5  # of the words, in points
PLACES = [  # offsets in points, nearest first
    (round(distance * np.cos(angle)), round(distance * np.sin(angle)))
    for distance in (9, 14, 20, 27)
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False)
]
MARKER = 4.0  # half a marker's width, in points


class PointLabel(NamedTuple):
    text: str
    x: float
    y: float
    colour: str


def place_labels(axes: Axes, labels: Sequence[PointLabel]) -> None:
    """All labels at once; call it last, when the figure's limits are final."""
    fig = axes.get_figure(root=True)
    assert fig is not None
    fig.draw_without_rendering()  # sizes are known from here on
    point = fig.dpi / 72
    positions = axes.transData.transform([(label.x, label.y) for label in labels])
    occupied = [Bbox.from_extents(*(position - MARKER * point), *(position + MARKER * point)) for position in positions]
    occupied += [text.get_window_extent() for text in axes.texts]
    traces = np.concatenate([_trace(line.get_transform().transform(line.get_xydata())) for line in axes.lines])
    inside = axes.get_window_extent()
    for label in labels:
        text = axes.annotate(
            label.text, (label.x, label.y), (0, 0), textcoords="offset points", fontsize=SIZE, ha="center", va="center"
        )
        text.set(color=label.colour, path_effects=[style.HALO], zorder=7)
        box = text.get_window_extent().padded(0.5 * point)
        candidates, wider = [], 1 + box.width / box.height / 6  # long words go further to the sides
        for right, up in PLACES:
            offset = np.array([right * wider, up]) * point
            moved = box.translated(*offset)
            covered = sum(moved.overlaps(other) for other in occupied) + (not _within(moved, inside))
            crossed = np.all((traces >= moved.min) & (traces <= moved.max), axis=1).sum()
            candidates.append((10 * covered + 0.15 * crossed + np.hypot(*offset) / (20 * point), moved, offset / point))
        _, chosen, shift = min(candidates, key=lambda place: place[0])
        text.set_position(tuple(shift))
        occupied.append(chosen)


def _trace(corners: np.ndarray) -> np.ndarray:
    """(n, 2) points along a line, close together."""
    fractions = np.linspace(0, 1, 60)
    pieces = [a + (b - a) * fractions[:, None] for a, b in pairwise(corners)]
    points = np.concatenate([corners, *pieces])
    return points[np.isfinite(points).all(axis=1)]


def _within(box: Bbox, outer: Bbox) -> bool:
    return bool(box.x0 >= outer.x0 and box.x1 <= outer.x1 and box.y0 >= outer.y0 and box.y1 <= outer.y1)
