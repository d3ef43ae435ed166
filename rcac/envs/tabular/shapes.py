"""What a picture has in a cell, drawn with Pillow.

Colours are Okabe and Ito's, which colour-blind people can tell apart; every kind of thing has a shape of its own too.
Coordinates are (x, y) in pixels of the final picture, from the cell's top left corner, y downwards. Everything is drawn
SCALE times as large and averaged down at the end, so that edges are smooth.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFont

SCALE = 3
CELL = 96  # pixels of a cell's side
LINE_HEIGHT = 22  # of a line of words below the cells
Colour = tuple[int, int, int]
Point = tuple[float, float]

GROUND: Colour = (232, 239, 245)
LINE: Colour = (255, 255, 255)
INK: Colour = (60, 60, 60)
AGENT: Colour = (0, 114, 178)  # blue
GOAL: Colour = (0, 158, 115)  # bluish green
HAZARD: Colour = (213, 94, 0)  # vermillion
GARBAGE: Colour = (230, 159, 0)  # orange
HOLE: Colour = (125, 140, 155)
HIGH: Colour = (86, 180, 233)  # sky blue, the ground of the largest value; the least has GROUND


def blank(columns: int, rows: int) -> Image.Image:
    return Image.new("RGB", (columns * CELL * SCALE, rows * CELL * SCALE), LINE)


def with_lines(image: Image.Image, lines: Sequence[Sequence["Sign"]]) -> Image.Image:
    """The picture with lines of words below it, each word with its sign before it."""
    height = len(lines) * LINE_HEIGHT * SCALE
    whole = Image.new("RGB", (image.width, image.height + height), LINE)
    whole.paste(image)
    draw = ImageDraw.Draw(whole)
    for k, line in enumerate(lines):
        x, middle = 6.0 * SCALE, image.height + (k + 0.5) * LINE_HEIGHT * SCALE
        for sign in line:
            if sign.paint is not None:
                small = Image.new("RGB", (CELL * SCALE, CELL * SCALE), GROUND)
                sign.paint(Cell(ImageDraw.Draw(small), (0, 0)), 1.0)
                small = small.crop(ImageChops.difference(small, Image.new("RGB", small.size, GROUND)).getbbox())
                side = (LINE_HEIGHT - 6) * SCALE
                small.thumbnail((side, side))
                whole.paste(small, (round(x + (side - small.width) / 2), round(middle - small.height / 2)))
                x += side + 4 * SCALE
            draw.text((x, middle), sign.words, fill=INK, font=_font(), anchor="lm")
            x += draw.textlength(sign.words, font=_font()) + 14 * SCALE
    return whole


def width(sign: "Sign") -> float:
    """Pixels that it takes in a line."""
    return _font().getlength(sign.words) / SCALE + 14 + (LINE_HEIGHT if sign.paint else 0)


def finish(image: Image.Image) -> np.ndarray:
    """uint8 (H, W, 3)."""
    return np.array(image.reduce(SCALE))


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=13 * SCALE)


class Cell(NamedTuple):
    draw: ImageDraw.ImageDraw
    corner: Point

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [((self.corner[0] + x) * SCALE, (self.corner[1] + y) * SCALE) for x, y in points]

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        left, top, right, bottom = (round(v) for p in self._scaled([(x, y), (x + width, y + height)]) for v in p)
        if right > left and bottom > top:
            self.draw.rectangle((left, top, right - 1, bottom - 1), fill=colour)  # Pillow paints the last pixel too

    def polygon(self, corners: Sequence[Point], colour: Colour) -> None:
        self.draw.polygon(self._scaled(corners), fill=colour)

    def disc(self, radius: float, colour: Colour) -> None:
        """In the middle of the cell."""
        low, high = CELL / 2 - radius, CELL / 2 + radius
        self.draw.ellipse(self._scaled([(low, low), (high, high)]), fill=colour)

    def text(self, string: str, x: float, y: float, anchor: str) -> None:
        """Pillow's anchors: "rt" is the text's right top corner, "lb" its left bottom one."""
        self.draw.text(self._scaled([(x, y)])[0], string, fill=INK, font=_font(), anchor=anchor)


# Things that lie on states: a size of 1 is their largest


def _flag(cell: Cell, size: float) -> None:
    height = 26 * size
    cell.rectangle(7, 6, 3, height, INK)
    cell.polygon([(10, 6), (10 + 0.7 * height, 6 + 0.3 * height), (10, 6 + 0.6 * height)], GOAL)


def _warning(cell: Cell, size: float) -> None:
    end, width = CELL - 6, 26 * size
    cell.polygon([(end - width, end), (end, end), (end - width / 2, end - 0.87 * width)], HAZARD)


def _cross(cell: Cell, size: float) -> None:
    low, high, thick = CELL - 6 - 20 * size, CELL - 6, 3.5
    stroke = [(low, low + thick), (low + thick, low), (high, high - thick), (high - thick, high)]
    cell.polygon(stroke, HAZARD)
    cell.polygon([(x, low + high - y) for x, y in stroke], HAZARD)


def _diamond(cell: Cell, size: float) -> None:
    x, y, r = 17, CELL - 17, 11 * size
    cell.polygon([(x - r, y), (x, y - r), (x + r, y), (x, y + r)], GARBAGE)


def _pit(cell: Cell, size: float) -> None:
    cell.disc(0.33 * CELL * size, HOLE)


class Sign(NamedTuple):
    """A word of the legend, and what it stands for."""

    words: str
    paint: Callable[[Cell, float], None] | None = None


class Kind(NamedTuple):
    letter: str  # in texts
    paint: Callable[[Cell, float], None]  # cell, size


KINDS = {
    "goal": Kind("G", _flag),
    "hole": Kind("H", _pit),
    "hazard": Kind("!", _warning),
    "obstacle": Kind("#", _warning),
    "blockage": Kind("x", _cross),
    "garbage": Kind("*", _diamond),
}


# The agent and the policy


def agent(cell: Cell) -> None:
    cell.disc(CELL * 0.19, LINE)
    cell.disc(CELL * 0.16, AGENT)


def arrows(cell: Cell, probabilities: np.ndarray, directions: Sequence[tuple[int, int]]) -> None:
    """From around the agent's place towards where each action leads, as long as the action is probable."""
    near, far, half, head = 0.21 * CELL, 0.47 * CELL, 2.0, 6.0
    for p, (down, right) in zip(probabilities, directions, strict=True):
        length = p * (far - near)
        if length < 1:
            continue
        neck = max(length - head, 0.0)
        width = head * 0.75 * min(1.0, length / head)
        outline = [(0, -half), (neck, -half), (neck, -width), (length, 0), (neck, width), (neck, half), (0, half)]
        if neck == 0:
            outline = outline[2:5]
        middle, along = CELL / 2, [(near + a, b) for a, b in outline]
        cell.polygon([(middle + right * a - down * b, middle + down * a + right * b) for a, b in along], INK)


def bars(cell: Cell, probabilities: np.ndarray) -> None:
    """One for each action, side by side, as high as the action is probable."""
    left, bottom, full = 6, CELL * 0.72, 0.42 * CELL
    width = (CELL - 2 * left) / len(probabilities)
    cell.rectangle(left, bottom, CELL - 2 * left, 1, INK)
    for action, p in enumerate(probabilities):
        cell.rectangle(left + action * width, bottom - p * full, max(width - 1, 0.5), p * full, INK)
