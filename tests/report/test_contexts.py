"""Costs over contexts: which axes matter, by functions where that is known, and the figure."""

import numpy as np
import pytest
from matplotlib.image import imread

from rcac.contexts import Parameters
from rcac.report import style
from rcac.report.contexts import COLOURS, CostOverContexts, _norm, figure, most_important, smoothed
from rcac.report.style import BLUE, BUDGET

BOX = Parameters({"wind": (-2, 2), "length": (0.5, 2, "log"), "noise_high": (0, 0.1), "gravity": (1, 1)})


@pytest.fixture
def points(rng):
    return np.column_stack([rng.random((200, 3)), np.full(200, 0.5)])


@pytest.mark.parametrize(
    ("cost", "axes"),
    [
        (lambda u: 10 * u[:, 2] + u[:, 0], (2, 0)),
        (lambda u: (u[:, 1] - 0.5) ** 2 + 0.01 * u[:, 2], (1, 2)),  # symmetric: no slope
        (lambda u: (u[:, 0] - 0.5) * (u[:, 2] - 0.5) + 0.01 * u[:, 1], (0, 2)),  # nothing of an axis alone
    ],
)
def test_the_two_most_important_axes(points, rng, cost, axes):
    found = most_important(points, cost(points) + 1e-3 * rng.standard_normal(len(points)))
    assert set(found) == set(axes)
    if len(axes) == 2 and axes != (0, 2):
        assert found == axes


def test_axes_that_do_not_vary_are_never_chosen(points):
    assert 3 not in most_important(points, np.zeros(len(points)))
    assert most_important(points[:, [1, 3]], points[:, 1]) == (0,)
    assert most_important(points[:, [3]], points[:, 1]) == (0,)


def test_the_map_is_the_mean_near_by():
    points, means = np.array([[0.1, 0.1], [0.9, 0.9]]), np.array([10.0, 20.0])
    found = smoothed(points, means, np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]]))
    np.testing.assert_allclose(found, [10, 15, 20], atol=1e-6)


@pytest.mark.parametrize("means", [[50.0, 150.0], [50.0, 60.0], [150.0, 160.0], [100.0, 100.0]])
def test_within_is_blue_and_beyond_vermilion(means):
    """The budget is in the middle of the colours, also where all contexts are on one side."""
    norm = _norm(CostOverContexts("cost", 100.0, np.zeros((2, 1)), np.array(means), np.zeros(1), max(means)))
    assert norm(100.0) == 0.5
    for value in means:
        assert (norm(value) < 0.5) == (value < 100)
        assert (norm(value) > 0.5) == (value > 100)
    assert [COLOURS(x) for x in (0.0, 1.0)] == [pytest.approx(rgb(colour), abs=0.01) for colour in (BLUE, BUDGET)]


def rgb(colour: str) -> tuple[float, ...]:
    return (*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0)


def test_a_row_for_each_cost_with_its_own_axes(points):
    rows = [
        CostOverContexts("cost", 5.0, points, 10 * points[:, 2] + points[:, 0], points[0], 9.0, 11.0, "certified"),
        CostOverContexts("steps lost", 0.5, points, points[:, 1] + 0.1 * points[:, 0], points[1], 1.0),
    ]
    shown = figure(BOX, rows, "small print", "title")
    left, right = shown.axes[0], shown.axes[1]
    assert left.get_ylabel() == "mean cost of an episode"
    assert left.get_title("left") == "certified"
    assert (left.get_xlabel(), right.get_xlabel(), right.get_ylabel()) == (
        "noise δ",
        "noise δ",
        "wind (N, to the right)",
    )
    second = shown.axes[2]
    assert (second.get_xlabel(), second.get_xscale()) == ("length of the pole (factor)", "log")
    assert {text.get_text() for text in left.texts} == {"budget 5"}


@pytest.mark.pictures
def test_one_parameter_is_drawn_too(tmp_path, points):
    box = Parameters({"wind": (-2, 2)})
    row = CostOverContexts("cost", 5.0, points[:, :1], points[:, 0], points[0, :1], 9.0)
    style.save(figure(box, [row], "small print"), tmp_path, "contexts")
    picture = imread(tmp_path / "contexts.png")
    assert picture.std() > 0.05
    assert (tmp_path / "contexts.pdf").read_bytes().startswith(b"%PDF")
