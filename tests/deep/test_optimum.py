"""What users would pick instead: Lagrangian methods and CPO reach the optimum of a constrained problem that is known."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from scipy.optimize import linprog

from rcac import registry
from rcac.deep.settings import DeepSettings
from rcac.deep.switching import make_switch
from rcac.deep.trainer import Trainer
from rcac.learner import State
from rcac.policies.policy import Policy
from rcac.switch import CRPO, Lagrangian

REWARDS, COSTS = np.array([1.0, 0.5, 0.0]), np.array([1.0, 0.2, 0.0])  # of three actions, at every step
LENGTH, BUDGET = 10, 5.0


class Choices(VectorEnv):
    """One state, three actions; episodes of ten steps. `unit` is that of the cost."""

    single_observation_space, single_action_space = Box(0, 1, (1,)), Discrete(3)

    def __init__(self, num_envs=16, unit=1.0):
        self.num_envs, self.unit, self.clock = num_envs, unit, 0
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return self._seen(), {}

    def _seen(self):
        return np.ones((self.num_envs, 1), np.float32)

    def step(self, actions):
        self.clock += 1
        over = np.full(self.num_envs, self.clock % LENGTH == 0)
        infos = {"cost": self.unit * COSTS[actions], "final_obs": self._seen()}
        return self._seen(), REWARDS[actions], np.zeros_like(over), over, infos


def optimum():
    """The largest mean reward of a mixture of actions whose mean cost is within the budget."""
    found = linprog(-REWARDS, COSTS[None], [BUDGET / LENGTH], np.ones((1, 3)), [1.0])
    return -found.fun * LENGTH


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ppo_lagrangian", 1.0),
        ("trpo_lagrangian", 1e-3),  # multipliers do not depend on the unit of a cost
        pytest.param("trpo_lagrangian", 1.0, marks=pytest.mark.slow),
        ("cpo", 1.0),
    ],
)
def test_the_optimum_of_a_linear_program_is_reached(name, unit):
    small = {"num_envs": 16, "rollout_length": 40, "actor_hidden": [8], "critic_hidden": [8], "gamma": 0.9}
    small |= {"window": 160, "total_steps": 640 * 150, "trials": 4, "actor_batch": 160, "actor_lr": 1e-2}
    small |= {"critic_lr": 2e-2, "critic_epochs": 4, "critic_batch": 160, "critic_lambda": 1.0}
    settings = DeepSettings(**{**registry.algorithm_row(name), **small})
    assert settings.radius == 0
    trainer = Trainer(Choices(unit=unit), [BUDGET * unit], settings, 0, LENGTH)
    while not trainer.finished:
        trainer.step()
    p = Policy(trainer.policy()).probabilities(np.ones((1, 1), np.float32))[0]
    assert LENGTH * float(p @ REWARDS) >= 0.95 * optimum()
    assert LENGTH * float(p @ COSTS) <= 1.03 * BUDGET


def test_multipliers_by_hand():
    switch = Lagrangian(kp=0.5, ki=2.0, kd=1.0, initial=0.1, rate=0.1, largest=1.0)
    budgets = np.array([10.0, 0.0])
    weights = switch.weights(np.array([-3.0, 12.0, -2.0]), budgets)
    # excess (.2, −1) of |b|, or of the first |J|: integrals .1 + .2·.2 and .1 − .2 → 0; multipliers .1 + .14, 0
    np.testing.assert_allclose(switch.multipliers, [0.5 * 0.2 + 0.14, 0.0])
    np.testing.assert_allclose(weights, np.array([1.0, 0.24, 0.0]) / 1.24)
    switch.weights(np.array([-3.0, 14.0, 0.0]), budgets)
    # excess (.4, 0), risen by (.2, 1): integrals .14 + .08 and 0
    np.testing.assert_allclose(switch.multipliers, [0.5 * 0.4 + 0.22 + 0.2, 1.0])
    assert switch.metrics() == pytest.approx({"switch/multiplier/1": 0.62, "switch/multiplier/2": 1.0})
    again = Lagrangian(kp=0.5, ki=2.0, kd=1.0, initial=0.1, rate=0.1, largest=1.0)
    again.load(State(*switch.state()))
    for each in (switch, again):
        each.weights(np.array([-3.0, 40.0, 0.0]), budgets)
    np.testing.assert_array_equal(again.multipliers, switch.multipliers)
    assert switch.multipliers[0] == 1.0  # the bound


def test_steps_and_switches_of_ones_own():
    seen = []

    @registry.register_step("nothing")
    def nothing(inputs):
        seen.append(inputs.weights.tolist())
        from rcac.deep.steps.base import ActorUpdate

        return ActorUpdate(False, 0.0, 0.0)

    class Both(CRPO):
        def weights(self, returns, budgets):
            return np.full(len(returns), 0.5)

    registry.register_switch("both")(lambda settings: Both(settings.tolerance))
    settings = DeepSettings(step="nothing", switch="both", num_envs=4, rollout_length=8, total_steps=64, trials=0)
    trainer = Trainer(Choices(4), [BUDGET], settings, 0, LENGTH)
    while not trainer.finished:
        trainer.step()
    assert seen == [[0.5, 0.5]] * 2
    assert isinstance(make_switch(settings, 1.0), Both)
