"""Switches, number by number."""

import numpy as np
import pytest

from rcac.deep.settings import DeepSettings
from rcac.errors import InputError
from rcac.learner import State
from rcac.switch import (
    CRPO,
    Bisection,
    Complement,
    Epigraph,
    Lagrangian,
    Surrogate,
    Switch,
    automatic_slack,
    one_hot,
    violation,
)

RETURNS, BUDGETS = np.array([-100.0, 12.0, 7.5]), np.array([10.0, 8.0])  # excess 2, −.5


def test_violation():
    assert violation(RETURNS, BUDGETS) == 2.0
    assert violation(RETURNS, BUDGETS + 2.0) == 0.0
    assert violation(RETURNS[:1], BUDGETS[:0]) == 0.0


def test_one_hot():
    assert one_hot(1, 3).tolist() == [0, 1, 0]
    assert one_hot(0, 2, 0.25).tolist() == [0.25, 0]


def test_surrogate():
    switch = Surrogate(lam=50.0, slack=0.25)
    assert switch.terms(RETURNS, BUDGETS).tolist() == [-2.0, 2.25, -0.25]
    assert switch.weights(RETURNS, BUDGETS).tolist() == [0, 1, 0]
    assert switch.merit(RETURNS, BUDGETS) == (2.25,)
    assert Surrogate(lam=50.0).weights(RETURNS, BUDGETS + 20).tolist() == [0.02, 0, 0]
    for bad in ({"lam": 0.0}, {"lam": np.inf}, {"slack": -0.1}, {"slack": np.inf}):
        with pytest.raises(InputError):
            Surrogate(**bad)
    assert (Surrogate().lam, Surrogate(lam=0.5).slack) == (50.0, 0.0)


class Told(Switch):
    """Remembers what it was told."""

    progress = 0.0

    def begin_update(self, progress, costs):
        self.progress = progress

    def metrics(self):
        return {"progress": self.progress}

    def state(self):
        return State({}, {"progress": self.progress})

    def load(self, state):
        self.progress = state.data["progress"]


def test_complement():
    switch = Complement(Surrogate(lam=10.0), steps=30.0)
    switch.begin_update(0.0, np.array([2.0, 1.0]))
    assert switch.largest == 0.0
    switch.begin_update(0.0, np.array([1.0, -2.0, -0.5]))
    assert switch.largest == 2.0
    switch.begin_update(0.0, np.array([1.0, -2.0, -5.0]))
    switch.begin_update(0.1, np.array([-3.0]))
    assert switch.largest == 5.0  # r_max
    assert switch.merit(RETURNS, BUDGETS) == (5.0,)  # (−100 + 150)/10
    assert switch.weights(RETURNS, BUDGETS).tolist() == [0.1, 0, 0]
    again = Complement(Surrogate(lam=10.0), steps=30.0)
    again.load(switch.state())
    assert again.largest == 5.0
    inside = Complement(Told(), steps=1.0)
    inside.begin_update(0.25, np.array([-1.0]))
    again = Complement(Told(), steps=1.0)
    again.load(inside.state())
    assert again.inner.progress == 0.25
    assert again.metrics() == {"progress": 0.25}
    known = Complement(Surrogate(lam=10.0), steps=30.0, largest=1.0)
    known.begin_update(0.0, np.array([-5.0]))
    assert known.largest == 1.0


def test_automatic_slack():
    assert automatic_slack(3.0, 0.9, 50.0) == pytest.approx(0.6)
    assert automatic_slack(-3.0, 0.9, 50.0) == 0.0


def test_crpo_at_its_tolerance():
    """An excess of exactly the tolerance is none, in the weights and in the merit."""
    assert CRPO().weights(RETURNS, BUDGETS).tolist() == [0, 1, 0]
    assert CRPO(2.0).weights(RETURNS, BUDGETS).tolist() == [1, 0, 0]
    assert CRPO(1.5).weights(RETURNS, BUDGETS).tolist() == [0, 1, 0]
    assert CRPO(1.5).merit(RETURNS, BUDGETS) == (0.5, -100.0)
    assert CRPO(2.0).merit(RETURNS, BUDGETS) == (0.0, -100.0)
    assert CRPO().weights(RETURNS, RETURNS[1:]).tolist() == [1, 0, 0]
    assert CRPO().weights(RETURNS[:1], BUDGETS[:0]).tolist() == [1]
    assert CRPO().weights(RETURNS[:2], BUDGETS[:1]).tolist() == [0, 1]
    assert CRPO().weights(RETURNS, BUDGETS + np.array([5.0, -1.0])).tolist() == [0, 0, 1]
    assert CRPO().tolerance == 0.0
    for bad in (-0.1, np.inf):
        with pytest.raises(InputError):
            CRPO(bad)


def test_epigraph_and_its_bisection():
    switch = Epigraph(-101.0)
    assert switch.terms(RETURNS, BUDGETS).tolist() == [1.0, 2.0, -0.5]
    assert switch.weights(RETURNS, BUDGETS).tolist() == [0, 1, 0]
    assert switch.merit(RETURNS, BUDGETS) == (2.0,)
    between = Bisection(-10.0, 4.0)
    assert between.level == -3.0
    assert between.halved(True) == Bisection(-10.0, -3.0)
    assert between.halved(False) == Bisection(-3.0, 4.0)


def test_lagrangian():
    """Two updates by hand; the second constraint has a budget of zero, and so the unit of its first value."""
    switch, budgets = Lagrangian(kp=2.0, ki=0.5, kd=10.0, initial=0.1, rate=0.4, largest=3.0), np.array([10.0, 0.0])
    weights = switch.weights(np.array([-1.0, 12.0, 4.0]), budgets)  # e = .2, 1
    multipliers = [0.4 + 0.14, 2.0 + 0.3]
    np.testing.assert_allclose(weights, np.array([1, *multipliers]) / (1 + sum(multipliers)))
    kept = switch.state()
    for each in (switch, again := Lagrangian(kp=2.0, ki=0.5, kd=10.0, initial=0.1, rate=0.4, largest=3.0)):
        each.load(kept)
    for each in (switch, again):
        weights = each.weights(np.array([-1.0, 13.0, 2.0]), budgets)  # e = .3, .5; rise .1, 0
        multipliers = [0.6 + 0.2 + 1.0, 1.0 + 0.4]
        np.testing.assert_allclose(weights, np.array([1, *multipliers]) / (1 + sum(multipliers)))
    assert switch.metrics() == pytest.approx({"switch/multiplier/1": 1.8, "switch/multiplier/2": 1.4})
    assert switch.weights(np.array([-1.0, 100.0, -50.0]), budgets).tolist() == [0.25, 0.75, 0.0]  # clipped
    assert switch.integral.tolist() == pytest.approx([2.0, 0.0])
    assert Lagrangian(tolerance=1.5).merit(RETURNS, BUDGETS) == (0.5, -100.0)
    assert (Lagrangian.filters, CRPO.filters) == (True, False)
    assert Lagrangian().merit(RETURNS, BUDGETS) == (2.0, -100.0)


def test_a_lagrangian_without_any_scale():
    switch = Lagrangian(kp=1.0, ki=1.0, kd=0.0, initial=0.0, rate=0.5)
    switch.weights(np.array([0.0, 0.0]), np.array([0.0]))
    assert switch.units.tolist() == [1.0]
    switch.weights(np.array([0.0, 0.2]), np.array([0.0]))
    assert switch.multipliers.tolist() == pytest.approx([0.3])
    switch = Lagrangian(kp=1.0)
    switch.weights(np.array([0.0, 0.25]), np.array([0.0]))
    assert switch.units.tolist() == [0.25]
    assert Lagrangian().state() == State({}, {})
    assert Lagrangian().metrics() == {}


def test_a_lagrangian_as_it_comes():
    """The gains of Stooke et al., as the settings of the deep methods have them."""
    settings = DeepSettings()
    ours = Lagrangian()
    assert (ours.kp, ours.ki, ours.kd) == (2.0, 1.0, 0.1) == (settings.kp, settings.ki, settings.kd)
    assert (ours.initial, ours.rate, ours.largest) == (0.001, 0.035, 100.0)
    assert ours.tolerance == 0.0
