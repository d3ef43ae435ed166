"""The drawing of the rooms has all of them."""

import re
from pathlib import Path

import architecture

DRAWING = Path(__file__).parents[2] / "docs" / "architecture.svg"


def test_every_room_is_drawn():
    drawn = re.findall(r"<text[^>]*>(.*?)</text>", DRAWING.read_text("utf-8"))
    assert sorted(drawn) == sorted(room for row in architecture.layers() for room in row)


def test_lines_that_follow_from_others_are_left_out():
    assert architecture.reduced({("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")}) == {
        ("a", "b"),
        ("b", "c"),
        ("d", "c"),
    }
