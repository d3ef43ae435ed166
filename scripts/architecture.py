"""Draw the rooms of the package and what imports what: `python scripts/architecture.py` writes docs/architecture.svg.

The order from top to bottom is that of the import-linter contract in pyproject.toml; the lines are the imports of the code,
without those that follow from others. The last three rows are used everywhere, and have no lines.
"""

import sys
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT, GAP = 132, 34, 40  # of a box, and between rows


def layers() -> list[list[str]]:
    """Rooms by row, as the contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [contract] = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return [[room.strip() for room in row.split("|")] for row in contract["layers"]]


def imports(rooms: set[str]) -> set[tuple[str, str]]:
    """Which room imports which, lazily or not."""
    graph = grimp.build_graph("rcac", exclude_type_checking_imports=True)
    found = set()
    for module in graph.modules:
        for target in graph.find_modules_directly_imported_by(module):
            pair = tuple(name.split(".")[1] for name in (module, target) if "." in name)
            if len(pair) == 2 and pair[0] != pair[1] and {*pair} <= rooms:
                found.add(pair)
    return found


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Without those that follow from others: a → c where a → b → … → c."""
    below: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in below:
            direct = {b for a, b in edges if a == room}
            below[room] = direct | {far for near in direct for far in reach(near)}
        return below[room]

    return {(a, b) for a, b in edges if not any(b in reach(c) for x, c in edges if x == a and c != b)}


def drawing() -> str:
    *rows, helpers, bottom = layers()
    edges = reduced(imports({room for row in rows for room in row}))
    wide = (len(helpers) // 2) * (WIDTH + 12)
    place = {}
    for r, row in enumerate([*rows, helpers[::2], helpers[1::2], bottom]):
        aside = (WIDTH + 24) * (-1) ** r if len(row) == 1 and r < len(rows) else 0  # so that lines pass beside it
        gap = GAP if r < len(rows) else 12
        top = 20 + min(r, len(rows)) * (HEIGHT + GAP) + max(0, r - len(rows)) * (HEIGHT + gap)
        for k, room in enumerate(row):
            place[room] = (wide / 2 + aside + (k - (len(row) - 1) / 2) * (WIDTH + 12), top)
    parts = []
    for a, b in sorted(edges):
        (x, y), (u, v) = place[a], place[b]
        bend = (y + HEIGHT + v) / 2
        parts.append(f'<path d="M{x:.0f} {y + HEIGHT} C{x:.0f} {bend:.0f} {u:.0f} {bend:.0f} {u:.0f} {v}"/>')
    for room, (x, y) in place.items():
        parts.append(f'<rect x="{x - WIDTH / 2:.0f}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + HEIGHT / 2 + 5:.0f}">{escape(room)}</text>')
    style = (
        "path{fill:none;stroke:#8a8a8a;stroke-width:1.2}rect{fill:#eaf2f8;stroke:#0072b2}"
        "text{font:14px sans-serif;text-anchor:middle;fill:#222}"
    )
    high = max(y for _, y in place.values()) + HEIGHT + 20
    back = f'<rect width="{wide}" height="{high}" style="fill:#fff;stroke:none"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
    return "\n".join([head, f"<style>{style}</style>", back, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    path = ROOT / "docs" / "architecture.svg"
    path.write_text(drawing(), "utf-8")
    sys.exit(0)
