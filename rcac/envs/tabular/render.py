"""Pictures and texts of a tabular environment: its states as cells of a grid, what lies on them, the agent, a policy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from PIL import ImageDraw

from rcac.errors import InputError

from . import shapes
from .shapes import CELL, KINDS, Cell

PART_WIDTH = 192  # pixels for each part of a title; a frame's size never depends on what it says
PAGE = 12  # columns and rows, at most, of what is drawn when actions have no direction
POINTERS = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}


class Thing(NamedTuple):
    kind: str  # a key of KINDS
    state: int
    size: float = 1.0  # in (0, 1]


class Words(NamedTuple):
    """What stands below a picture."""

    title: Sequence[str]
    kinds: Sequence[str]  # of things, for the legend, whether or not they are there just now


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

    def with_marks(self, names: Sequence[str], marked: np.ndarray) -> "Layout":
        """The layout with a thing for each mark (S, K) that is set."""
        return replace(self, things=self.things + tuple(Thing(names[k], int(s)) for s, k in np.argwhere(marked)))

    def page(self, state: int | None) -> range:
        """The states to draw: all on a grid, at most PAGE rows, those with `state`, on a strip."""
        size = self.num_states if self.directions else PAGE * self.columns
        first = (state or 0) // size * size
        return range(first, min(first + size, self.num_states))


def picture(
    layout: Layout,
    state: int | None = None,
    policy: np.ndarray | None = None,
    values: np.ndarray | None = None,
    words: Words | None = None,
) -> np.ndarray:
    """uint8 (H, W, 3): cells (shaded by values (S,) if given), things on them, the policy (S, A), the agent, words below."""
    page = layout.page(state)
    image = shapes.blank(layout.columns, -(-len(page) // layout.columns))
    draw = ImageDraw.Draw(image)
    cells = {s: Cell(draw, (i % layout.columns * CELL, i // layout.columns * CELL)) for i, s in enumerate(page)}
    for s, cell in cells.items():
        cell.rectangle(1, 1, CELL - 2, CELL - 2, shapes.GROUND if values is None else _shade(values, s))
        cell.text(str(s), CELL - 6, 6, "rt")
    for thing in layout.things:
        if thing.state in cells:
            KINDS[thing.kind].paint(cells[thing.state], thing.size)
    for s, cell in cells.items():
        if policy is not None and layout.directions:
            shapes.arrows(cell, policy[s], layout.directions)
        elif policy is not None:
            shapes.bars(cell, policy[s])
        if values is not None:
            cell.text(_number(values[s]), 5, CELL - 5, "lb")
    if state is not None:
        shapes.agent(cells[state])
    if words is not None:
        width, title = image.width // shapes.SCALE, [*map(shapes.Sign, words.title)]
        columns = max(1, width // PART_WIDTH)
        lines = [title[i : i + columns] for i in range(0, len(title), columns)]
        image = shapes.with_lines(image, [*lines, *_broken(_legend(layout, words.kinds, policy), width)])
    return shapes.finish(image)


def _legend(layout: Layout, kinds: Iterable[str], policy: np.ndarray | None) -> list[shapes.Sign]:
    signs = [shapes.Sign("agent", lambda cell, _: shapes.agent(cell)), shapes.Sign("numbers: states")]
    signs += [shapes.Sign(kind, KINDS[kind].paint) for kind in kinds]
    if policy is not None:
        signs.append(shapes.Sign(f"{'arrows' if layout.directions else 'bars'}: policy"))
    return signs


def _broken(signs: Sequence[shapes.Sign], width: int) -> list[list[shapes.Sign]]:
    """In lines of this width in pixels."""
    lines: list[list[shapes.Sign]] = [[]]
    left = float(width)
    for sign in signs:
        needed = shapes.width(sign)
        if needed > left and lines[-1]:
            lines.append([])
            left = width
        lines[-1].append(sign)
        left -= needed
    return lines


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
    """The grid in letters: what lies on a cell, or a dot, and the policy's mode; the agent in brackets."""
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


def _shade(values: np.ndarray, state: int) -> shapes.Colour:
    """From GROUND at the least value to HIGH at the largest."""
    low, high = float(np.min(values)), float(np.max(values))
    fraction = (float(values[state]) - low) / (high - low) if high > low else 0.0
    red, green, blue = (round(a + fraction * (b - a)) for a, b in zip(shapes.GROUND, shapes.HIGH, strict=True))
    return red, green, blue


def _number(value: float) -> str:
    """At most six characters or so."""
    size = abs(value)
    if size >= 1e5 or 0 < size < 5e-3:
        return f"{value:.0e}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
