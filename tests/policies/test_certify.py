"""Certificates of policies in environments with contexts."""

import inspect
import json

import gymnasium as gym
import numpy as np
import pytest

import rcac
from rcac.errors import InputError
from rcac.policies import certify_command
from rcac.policies.certificate import CertificateSettings
from rcac.policies.certify import cost_ranges_of

QUICK = {"contexts": 20, "episodes": 1, "search_episodes": 64, "final_episodes": 512, "num_envs": 64}


def upright(observation):
    """Keeps the pole up and the cart near the centre."""
    x, v, angle, spin = observation
    return int(angle + 0.35 * spin + 0.06 * x + 0.12 * v > 0)


def test_a_careful_policy_is_certified_and_its_worst_context_is_windy():
    made = rcac.certify(upright, "rcac/NoisyCartPole-v0", [600.0], {"wind": (-2, 2)}, seed=3, **QUICK)
    [cost] = made.costs
    assert made.certified
    assert abs(cost.worst_context["wind"]) > 1.5
    scores = rcac.evaluate_policy(upright, "rcac/NoisyCartPole-v0", episodes=200, seed=7, **cost.worst_context)
    assert cost.worst_mean == pytest.approx(scores.costs.mean(), rel=0.05)
    assert cost.worst_bound >= scores.costs.mean()
    assert json.loads(json.dumps(made.as_dict()))["certified"] is True


def test_a_budget_just_below_the_cost_is_not_certified():
    scores = rcac.evaluate_policy(upright, "rcac/NoisyCartPole-v0", episodes=200, seed=7, wind=2.0)
    made = rcac.certify(upright, "rcac/NoisyCartPole-v0", [0.99 * scores.costs.mean()], {"wind": (2, 2)}, **QUICK)
    assert not made.certified
    assert "not shown to be within" in made.statements()[1]


def test_the_same_seed_gives_the_same_certificate_and_the_box_may_be_the_environments_own():
    options = {**QUICK, "contexts": 4, "final_episodes": 64}
    first, again = (rcac.certify(upright, "rcac/NoisyCartPole-v0", [600.0], seed=1, **options) for _ in range(2))
    assert first.as_dict() == again.as_dict()
    assert {"wind", "length"} <= first.costs[0].worst_context.keys()


class Slippery(gym.Env):
    """No contexts, no time limit."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {"cost": 1.0}


@pytest.mark.parametrize(
    ("env", "budgets", "box", "message"),
    [
        (Slippery, [1.0], {"wind": (0, 1)}, "no parameters"),
        (Slippery, [1.0], None, "declares no parameters"),
        ("rcac/NoisyCartPole-v0", [1.0], {"breeze": (0, 1)}, "breeze"),
        ("rcac/NoisyCartPole-v0", [1.0], {"wind": (1, 0)}, "ranges.wind"),
        ("rcac/NoisyCartPole-v0", [1.0], {"length": (-1, 1)}, "uncertainty.ranges: length"),
        ("rcac/NoisyCartPole-v0", [float("nan")], {"wind": (0, 1)}, r"budgets\[0\]: nan given"),
        ("rcac/RiverSwim-v0", None, {"wind": (0, 1)}, "carries its model"),
        ("rcac/NoisyCartPole-v0", [], {"wind": (0, 1)}, "budgets: none given"),
    ],
)
def test_bad_input(env, budgets, box, message):
    with pytest.raises(InputError, match=message):
        rcac.certify(upright, env, budgets, box, max_episode_steps=5, **QUICK)


# What an episode can cost


class Told:
    """A vector environment, as far as what it says of its costs."""

    def __init__(self, **metadata):
        self.metadata = metadata


def test_cost_ranges_are_those_given_else_those_known():
    told = Told(cost_range=[(0.0, 2.0), (-1.0, 1.0)])
    labels = ["fuel", "heat"]
    assert cost_ranges_of(told, labels, 10) == [(0.0, 20.0), (-10.0, 10.0)]
    assert cost_ranges_of(told, labels, 10, [None, (0, 5)]) == [(0.0, 20.0), (0.0, 5.0)]
    assert cost_ranges_of(Told(), labels, None, [(0, 1), [0, 5]]) == [(0.0, 1.0), (0.0, 5.0)]
    for given, message in (
        ([(0, 1)], "cost_ranges: .* given, 2 expected, .* fuel, heat"),
        ([(0, 1), (1, 0)], r"cost_ranges\[1\]: \(1, 0\) given, finite numbers \[low, high\]"),
        ([(0, 1), 5], r"cost_ranges\[1\]: 5 given"),
        ([(0, 1), (0, float("inf"))], r"cost_ranges\[1\]"),
    ):
        with pytest.raises(InputError, match=message):
            cost_ranges_of(told, labels, 10, given)
    with pytest.raises(
        InputError, match=r"cost_ranges\[0\]: not given, and the environment does not say what fuel can be"
    ):
        cost_ranges_of(told, labels, None)


def test_no_more_steps_can_be_lost_than_there_are(tmp_path):
    """Budgets of the trade-off cart-pole: its cost, and steps lost. Who falls at once loses most of them."""
    made = rcac.certify(lambda observation: 0, "rcac/CartPoleTradeoff-v0", **{**QUICK, "final_episodes": 64})
    cost, lost = made.costs
    assert (cost.label, lost.label, lost.budget, lost.cost_range) == ("cost", "steps lost", 10.0, (0.0, 500.0))
    assert lost.worst_mean > 480
    assert not lost.certified
    assert tuple(made.ranges) == ("noise_high", "wind", "length")  # those of the environment's file
    made.save(tmp_path)
    saved = json.loads((tmp_path / "certificate.json").read_text())
    assert saved["statements"] == made.statements()
    assert saved["certified"] is False
    assert {path.name for path in tmp_path.iterdir()} == {"certificate.json", "certificate.png", "certificate.pdf"}


def test_defaults_are_the_same_in_python_and_on_the_command_line():
    here, there = inspect.signature(rcac.certify).parameters, CertificateSettings()
    assert {name: here[name].default for name in vars(there)} == vars(there)
    assert here["num_envs"].default == certify_command.CertifySettings().num_envs
