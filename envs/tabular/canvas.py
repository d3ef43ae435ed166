"""A picture made of filled shapes, in NumPy alone.

Shapes are drawn on a canvas FINE times as fine, and averaged down at the end, so that edges are smooth.
Coordinates are (x, y) in pixels of the final picture, y downwards.
"""

from collections.abc import Callable, Sequence

import numpy as np

FINE = 3
Colour = tuple[int, int, int]
Point = tuple[float, float]
Inside = Callable[[np.ndarray, np.ndarray], np.ndarray]  # which points (x, y) a shape covers

# 3×5 glyphs, one octal digit for each row, bits from left to right.
GLYPHS = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757", "7": "71222",
    "8": "75757", "9": "75717", ".": "00002", "-": "00700", "+": "02720", "e": "02743",
}  # fmt: skip


class Canvas:
    def __init__(self, width: int, height: int, colour: Colour) -> None:
        self._pixels = np.full((height * FINE, width * FINE, 3), colour, dtype=np.uint8)

    def image(self) -> np.ndarray:
        """uint8 (H, W, 3)."""
        height, width = self._pixels.shape[0] // FINE, self._pixels.shape[1] // FINE
        blocks = self._pixels.reshape(height, FINE, width, FINE, 3).astype(np.uint16)
        return np.rint(blocks.sum(axis=(1, 3)) / FINE**2).astype(np.uint8)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        left, top, right, bottom = (round(v * FINE) for v in (x, y, x + width, y + height))
        self._pixels[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = colour

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return (x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2

        self._fill((centre[0] - radius, centre[1] - radius), (centre[0] + radius, centre[1] + radius), inside, colour)

    def polygon(self, corners: Sequence[Point], colour: Colour) -> None:
        """A convex polygon, its corners in either sense."""
        points = np.array(corners, dtype=float)  # (n, 2)
        edges = np.roll(points, -1, axis=0) - points

        def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            sides = np.stack(
                [edge[0] * (y - p[1]) - edge[1] * (x - p[0]) for p, edge in zip(points, edges, strict=True)]
            )
            return np.logical_or((sides >= 0).all(axis=0), (sides <= 0).all(axis=0))

        self._fill(points.min(axis=0), points.max(axis=0), inside, colour)

    def text(self, corner: Point, string: str, height: float, colour: Colour, *, right: bool = False) -> None:
        """Digits and signs, from their top left corner, or ending at their top right one."""
        dot = height / 5
        x = corner[0] - (4 * len(string) - 1) * dot if right else corner[0]
        for glyph in string:
            for row, bits in enumerate(GLYPHS[glyph]):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self.rectangle(x + column * dot, corner[1] + row * dot, dot, dot, colour)
            x += 4 * dot

    def _fill(self, low: Sequence[float], high: Sequence[float], inside: Inside, colour: Colour) -> None:
        left, top = (max(int(np.floor(v * FINE)), 0) for v in low)
        right, bottom = (max(int(np.ceil(v * FINE)) + 1, 0) for v in high)
        part = self._pixels[top:bottom, left:right]
        y, x = np.mgrid[top : top + part.shape[0], left : left + part.shape[1]]
        part[inside((x + 0.5) / FINE, (y + 0.5) / FINE)] = colour
