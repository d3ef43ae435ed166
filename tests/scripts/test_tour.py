"""The first run: what it solves exactly is right, and its words follow from its numbers."""

import gymnasium as gym
import pytest
import tour

import rcac
from rcac.uncertainty import KLBall


def test_river_swim_teaches_what_the_bounds_say():
    """The nominal policy is the linear program's optimum and breaks the budget in the worst case; the robust one keeps it."""
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    nominal, robust = (task := tour.river_swim()).tests
    optimum = rcac.nominal_optimum(problem)
    assert nominal.trained[0] == pytest.approx(-optimum.value, rel=1e-4)
    assert rcac.evaluate(problem, optimum.policy, KLBall(tour.RADIUS)).returns[1] == pytest.approx(
        nominal.worst[1], 1e-2
    )
    assert task.broken(nominal) == ["cost"]
    assert task.broken(robust) == []
    assert robust.worst[1] <= task.budget < nominal.worst[1]


@pytest.mark.parametrize(
    ("nominal", "robust", "words"),
    [
        (((9.0, 4.0), (8.0, 6.0), 0.0), ((7.0, 3.0), (6.0, 5.0), 2.0), "only the robust policy keeps its budget"),
        (((9.0, 4.0), (8.0, 6.0), 0.0), ((7.0, 3.0), (6.0, 5.1), 2.0), "neither policy keeps its budget"),
        (((9.0, 4.0), (8.0, 6.0), 0.0), ((7.0, 3.0), (6.0, 5.0), 2.1), "neither policy keeps its budget"),  # it falls
        (((9.0, 4.0), (8.0, 5.0), 0.0), ((7.0, 3.0), (6.0, 5.0), 0.0), "both policies keep their budget"),
        (((9.0, 4.0), (8.0, 5.0), 0.0), ((7.0, 3.0), (6.0, 5.1), 0.0), "only the nominal policy keeps it"),
    ],
)
def test_it_says_what_came_out(nominal, robust, words):
    task = tour.Task("Task", 5.0, 2.0, [tour.Test("nominal", *nominal), tour.Test("robust", *robust)])
    assert words in tour.conclusion([task])


def test_it_runs_and_fits_a_terminal_of_80_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tour, "UNCERTAIN", ("wind",))
    monkeypatch.setattr(tour, "SEARCH", 2)
    monkeypatch.setattr(tour, "FRESH", 2)
    assert tour.main(["--steps", "1", "1", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    shown = said.replace(str(tmp_path), "")  # the test's own folder is long
    assert max(map(len, shown.splitlines())) <= 80
    assert all(words in said for words in ("River-swim", "Cart-pole", "nominal policy", "robust policy", "54.6"))
    assert (tmp_path / "tour.png").exists()
