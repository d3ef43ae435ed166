"""Pictures and texts of a tabular environment: its states as cells of a grid, what lies on them, the agent, a policy.

Colours are Okabe and Ito's, which colour-blind people can tell apart; every kind of thing has a shape of its own too.
Arrows (or, where actions have no direction, bars) are as long as an action is probable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rcac.errors import InputError

from .canvas import Canvas, Colour

GROUND: Colour = (232, 239, 245)
LINE: Colour = (255, 255, 255)
INK: Colour = (60, 60, 60)
AGENT: Colour = (0, 114, 178)  # blue
GOAL: Colour = (0, 158, 115)  # bluish green
HAZARD: Colour = (213, 94, 0)  # vermillion
GARBAGE: Colour = (230, 159, 0)  # orange
HOLE: Colour = (125, 140, 155)
HIGH: Colour = (86, 180, 233)  # sky blue, the ground of the largest value; the least has GROUND

CELL = 96  # pixels
PAGE = 12  # columns and rows, at most, of what is drawn when actions have no direction


class Thing(NamedTuple):
    kind: str  # a key of KINDS
    state: int
    size: float = 1.0  # in (0, 1]


@dataclass(frozen=True)
class Layout:
    """Where the states are: state s in cell (s // columns, s % columns)."""

    num_states: int
    columns: int
    directions: tuple[tuple[int, int], ...] | None = None  # (row, column) step of each action, if actions are moves
    things: tuple[Thing, ...] = ()

    @classmethod
    def strip(cls, num_states: int) -> "Layout":
        """States in reading order."""
        return cls(num_states, min(num_states, PAGE))

    def scatter(self, names: Sequence[str], marked: np.ndarray) -> "Layout":
        """The layout with a thing for each mark (S, K) that is set."""
        return replace(self, things=self.things + tuple(Thing(names[k], int(s)) for s, k in np.argwhere(marked)))

    def page(self, state: int | None) -> range:
        """The states to draw: all on a grid, at most PAGE rows, those with `state`, on a strip."""
        size = self.num_states if self.directions else PAGE * self.columns
        first = (state or 0) // size * size
        return range(first, min(first + size, self.num_states))


def picture(
    layout: Layout, state: int | None = None, policy: np.ndarray | None = None, values: np.ndarray | None = None
) -> np.ndarray:
    """uint8 (H, W, 3): cells (shaded by values (S,) if given), things on them, the policy (S, A), the agent."""
    page = layout.page(state)
    canvas = Canvas(layout.columns * CELL, -(-len(page) // layout.columns) * CELL, LINE)
    corner = {s: ((s - page[0]) % layout.columns * CELL, (s - page[0]) // layout.columns * CELL) for s in page}
    shades = np.tile(GROUND, (layout.num_states, 1)) if values is None else _shades(values)
    for s, (x, y) in corner.items():
        canvas.rectangle(x + 1, y + 1, CELL - 2, CELL - 2, shades[s])
        canvas.text((x + CELL - 6, y + 6), str(s), 10, INK, right=True)
    for thing in layout.things:
        if thing.state in corner:
            KINDS[thing.kind].paint(canvas, *corner[thing.state], thing.size)
    for s, (x, y) in corner.items():
        if policy is not None and layout.directions:
            _arrows(canvas, x + CELL / 2, y + CELL / 2, policy[s], layout.directions)
        elif policy is not None:
            _bars(canvas, x + 6, y + CELL * 0.72, policy[s])
        if values is not None:
            canvas.text((x + 4, y + CELL - 14), _number(values[s]), 10, INK)
    if state is not None:
        x, y = corner[state]
        canvas.disc((x + CELL / 2, y + CELL / 2), CELL * 0.19, LINE)
        canvas.disc((x + CELL / 2, y + CELL / 2), CELL * 0.16, AGENT)
    return canvas.image()


def policy_image(where: Any, policy: np.ndarray | None = None, values: np.ndarray | None = None) -> np.ndarray:
    """uint8 (H, W, 3): a policy (S, A) and values (S,) on the states of an environment, or of (rows, columns)."""
    if isinstance(where, tuple):
        layout = Layout(where[0] * where[1], where[1])
    else:
        layout = where.unwrapped.layout
    for name, array, ndim in (("policy", policy, 2), ("values", values, 1)):
        if array is not None and (np.ndim(array) != ndim or len(array) != layout.num_states):
            raise InputError(f"{name}: shape {np.shape(array)} given, {layout.num_states} states expected")
        if array is not None and not np.isfinite(array).all():
            raise InputError(f"{name}: not finite at index {np.argwhere(~np.isfinite(array))[0].tolist()}")
    return picture(layout, None, policy, values)


def text(layout: Layout, state: int, policy: np.ndarray | None = None) -> str:
    """The grid in letters: what lies on a cell, or a dot, and the policy's likeliest move; the agent in brackets."""
    page = layout.page(state)
    cells = dict.fromkeys(page, "")
    for thing in layout.things:
        cells[thing.state] += KINDS[thing.kind].letter
    cells = {s: cell or "." for s, cell in cells.items()}
    if policy is not None and layout.directions:
        cells = {s: cell + POINTERS[layout.directions[int(policy[s].argmax())]] for s, cell in cells.items()}
    width = max(map(len, cells.values()))
    framed = [("[{}]" if s == state else " {} ").format(cell.center(width)) for s, cell in cells.items()]
    lines = ["".join(framed[i : i + layout.columns]) for i in range(0, len(framed), layout.columns)]
    lines.append(f"state {state} of 0 to {layout.num_states - 1}")
    if len(page) < layout.num_states:
        lines[-1] += f", shown are {page[0]} to {page[-1]}"
    if kinds := dict.fromkeys(thing.kind for thing in layout.things):
        lines.append(", ".join(f"{KINDS[kind].letter} {kind}" for kind in kinds))
    if policy is not None:
        lines.append("policy " + " ".join(f"{p:.3f}" for p in policy[state]))
    return "\n".join(lines) + "\n"


POINTERS = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}


class Kind(NamedTuple):
    letter: str
    paint: Callable[[Canvas, float, float, float], None]  # canvas, the cell's corner, size


def _flag(canvas: Canvas, x: float, y: float, size: float) -> None:
    height = 26 * size
    canvas.rectangle(x + 7, y + 6, 3, height, INK)
    canvas.polygon(
        [(x + 10, y + 6), (x + 10 + 0.7 * height, y + 6 + 0.3 * height), (x + 10, y + 6 + 0.6 * height)], GOAL
    )


def _warning(canvas: Canvas, x: float, y: float, size: float) -> None:
    right, bottom, width = x + CELL - 6, y + CELL - 6, 26 * size
    canvas.polygon([(right - width, bottom), (right, bottom), (right - width / 2, bottom - 0.87 * width)], HAZARD)


def _cross(canvas: Canvas, x: float, y: float, size: float) -> None:
    left, top, width, thick = x + CELL - 6 - 20 * size, y + CELL - 6 - 20 * size, 20 * size, 3.5
    for low, high in ((top, top + width), (top + width, top)):
        sign = 1 if high > low else -1
        canvas.polygon(
            [(left, low + sign * thick), (left + thick, low), (left + width, high - sign * thick),
             (left + width - thick, high)], HAZARD)  # fmt: skip


def _diamond(canvas: Canvas, x: float, y: float, size: float) -> None:
    cx, cy, r = x + 17, y + CELL - 17, 11 * size
    canvas.polygon([(cx - r, cy), (cx, cy - r), (cx + r, cy), (cx, cy + r)], GARBAGE)


def _pit(canvas: Canvas, x: float, y: float, size: float) -> None:
    canvas.disc((x + CELL / 2, y + CELL / 2), 0.33 * CELL * size, HOLE)


KINDS = {
    "goal": Kind("G", _flag),
    "hole": Kind("H", _pit),
    "hazard": Kind("!", _warning),
    "obstacle": Kind("#", _warning),
    "blockage": Kind("x", _cross),
    "garbage": Kind("*", _diamond),
}


def _arrows(canvas: Canvas, x: float, y: float, row: np.ndarray, directions: Sequence[tuple[int, int]]) -> None:
    """From around the agent's place towards where each action leads."""
    near, far, half, head = 0.21 * CELL, 0.47 * CELL, 2.0, 6.0
    for p, (down, right) in zip(row, directions, strict=True):
        length = p * (far - near)
        if length < 1:
            continue
        neck = max(length - head, 0.0)

        def at(along: float, across: float, right: int = right, down: int = down) -> tuple[float, float]:
            along += near
            return (x + right * along - down * across, y + down * along + right * across)

        canvas.polygon([at(0, -half), at(neck, -half), at(neck, half), at(0, half)], INK)
        width = head * 0.75 * min(1.0, length / head)
        canvas.polygon([at(neck, -width), at(length, 0), at(neck, width)], INK)


def _bars(canvas: Canvas, x: float, bottom: float, row: np.ndarray) -> None:
    """One bar for each action, side by side."""
    width, full = (CELL - 12) / len(row), 0.42 * CELL
    canvas.rectangle(x, bottom, CELL - 12, 1, INK)
    for action, p in enumerate(row):
        canvas.rectangle(x + action * width, bottom - p * full, max(width - 1, 0.5), p * full, INK)


def _shades(values: np.ndarray) -> np.ndarray:
    """(S, 3): from GROUND at the least value to HIGH at the largest."""
    values = np.asarray(values, dtype=float)
    span = np.ptp(values)
    share = (values - values.min()) / span if span > 0 else np.zeros_like(values)
    return np.rint(np.array(GROUND) + share[:, None] * (np.array(HIGH) - np.array(GROUND))).astype(np.uint8)


def _number(value: float) -> str:
    """At most six characters or so, of those that the canvas has."""
    size = abs(value)
    if size >= 1e5 or 0 < size < 5e-3:
        return f"{value:.0e}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
