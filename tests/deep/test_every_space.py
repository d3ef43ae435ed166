"""Every algorithm trains on every kind of space, and hands out a policy that acts there; histories survive resets."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rcac import registry
from rcac.deep.rollout import Rollout
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Encoder, History, action_codec
from rcac.deep.trainer import Trainer
from rcac.learner import State
from rcac.policies.policy import Policy

OBSERVATIONS = {
    "vector": Box(-1, 1, (3,)),
    "image": Box(0, 255, (14, 14, 3), np.uint8),
    "discrete": Discrete(4, start=2),
    "multi_discrete": MultiDiscrete([2, 3]),
    "multi_binary": MultiBinary(3),
    "dict": Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3), "c": Box(0, 255, (1, 12, 12), np.uint8)}),
    "tuple": Tuple([Box(-1, 1, (2, 2)), MultiBinary(2)]),
}
ACTIONS = {
    "discrete": Discrete(3, start=-1),
    "multi_discrete": MultiDiscrete([2, 3]),
    "multi_binary": MultiBinary(2),
    "box": Box(np.array([-2.0, -np.inf], np.float32), np.array([1.0, 3.0], np.float32)),
}


class Anything(gym.Env):
    """Random observations of a space; episodes of five steps."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.taken = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.taken += 1
        return self.observation_space.sample(), 1.0, False, self.taken >= 5, {"cost": 0.5 * (self.taken % 2)}


def trained(name, observation, action, **changes):
    small = {"num_envs": 2, "rollout_length": 6, "actor_hidden": [8], "critic_hidden": [8], "total_steps": 36}
    small |= {"window": 2, "trials": 0, "actor_batch": 8, "critic_batch": 8, "cg_iterations": 3}
    settings = DeepSettings(**{**registry.algorithm_row(name), **small, **changes})
    trainer = Trainer(SyncVectorEnv([lambda: Anything(observation, action)] * 2), [1.0], settings, 0, 5)
    while not trainer.finished:
        assert np.isfinite(list(trainer.step().metrics.values())).all()
    tensors, card = trainer.policy()
    return State(tensors, json.loads(json.dumps(card)))


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("name", registry.algorithms("deep"))
def test_every_algorithm_trains_on_every_space(name, observation):
    """Actions in turn: each with every algorithm and with every kind of observation."""
    action = in_turn(observation, [*registry.algorithms("deep")].index(name))
    policy = Policy(trained(name, OBSERVATIONS[observation], action))
    assert action.contains(policy(OBSERVATIONS[observation].sample()))
    assert policy.spaces == (OBSERVATIONS[observation], action)


def in_turn(observation: str, number: int) -> gym.Space:
    return [*ACTIONS.values()][([*OBSERVATIONS].index(observation) + number) % len(ACTIONS)]


OPTIONS = [
    {"history": 3},
    {"shared_body": True},
    {"layer_norm": True, "activation": "relu"},
    {"advantage": "q_regression", "critics": "selected", "scope": "all"},
]


@pytest.mark.parametrize("changes", OPTIONS, ids=lambda changes: next(iter(changes)))
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_option_trains_on_every_space(observation, changes):
    """Methods and actions in turn: each with every option and with every kind of observation."""
    number = OPTIONS.index(changes)
    action = in_turn(observation, number)
    name = ("rcac", "rcac_npg", "rcac_sqp", "trpo_lagrangian")[([*OBSERVATIONS].index(observation) + number) % 4]
    policy = Policy(trained(name, OBSERVATIONS[observation], action, **changes))
    for _ in range(3):
        assert action.contains(policy(OBSERVATIONS[observation].sample()))


class Count(gym.Env):
    """Observes 10·episode + step."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.taken = self.episode + 1, 0
        return np.array([10.0 * self.episode], np.float32), {}

    def step(self, action):
        self.taken += 1
        seen = np.array([10.0 * self.episode + self.taken], np.float32)
        return seen, 0.0, False, self.taken >= 3, {"cost": 0.0}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_histories_begin_anew_with_episodes(mode):
    encoder, actions = Encoder(Count.observation_space), action_codec(Count.action_space)
    rollout = Rollout(SyncVectorEnv([Count], autoreset_mode=mode), encoder, History(2, 1, 2), actions, 1)
    rollout.reset(0)
    found = rollout.collect(lambda rows, t: np.array([t % 2]), 8)
    rows = found.observations[:, 0, :2].tolist()  # the present and the last observation
    if mode == AutoresetMode.NEXT_STEP:
        assert rows[:5] == [[10, 10], [11, 10], [12, 11], [13, 12], [20, 20]]
        assert found.observations[4, 0].tolist() == [20, 20, 0, 0]
    else:
        assert rows[:5] == [[10, 10], [11, 10], [12, 11], [20, 20], [21, 20]]
        assert found.final[0].tolist() == [13, 12, 1, 0]  # the action taken at the third step was 0
    assert found.observations[2, 0].tolist() == [12, 11, 0, 1]  # the second action was 1
