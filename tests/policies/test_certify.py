"""Certificates of policies in environments with contexts."""

import json

import gymnasium as gym
import numpy as np
import pytest

import rcac
from rcac.errors import InputError

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
        ("rcac/NoisyCartPole-v0", [], {"wind": (0, 1)}, "budgets: none given"),
    ],
)
def test_bad_input(env, budgets, box, message):
    with pytest.raises(InputError, match=message):
        rcac.certify(upright, env, budgets, box, max_episode_steps=5, **QUICK)
