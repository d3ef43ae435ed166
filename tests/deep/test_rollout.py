"""Rollouts: both ways of autoreset, what enters a batch, what is measured, and what is refused."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rcac.deep.episodes import Episodes
from rcac.deep.rollout import Rollout
from rcac.deep.spaces import Encoder, History, action_codec
from rcac.errors import InputError


class Counter(gym.Env):
    """Observes how many steps it has taken, times 1; ends after `length` steps, by termination or truncation."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, length=3, terminates=True, fault=None, costs=1, first=None):
        self.length, self.terminates, self.fault, self.costs = length, terminates, fault, costs
        self.first = first  # the info of reset
        self.taken = self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        if self.fault == "reset":
            raise RuntimeError("no ground under the plant")
        start = np.nan if self.fault == "first" else 0.0
        return np.array([start], dtype=np.float32), self.first or {}

    def step(self, action):
        self.taken += 1
        self.total += 1
        over = self.taken == self.length
        observation, reward, info = np.array([self.taken], dtype=np.float32), 2.0, {"cost": float(self.taken)}
        if self.costs > 1:
            info["costs"] = np.array([self.taken, 10.0 * self.taken])
        if self.total == 2 and self.fault == "observation":
            observation = np.array([np.nan], dtype=np.float32)
        if self.total == 2 and self.fault == "reward":
            reward = np.nan
        if self.total == 2 and self.fault == "cost":
            info["cost"] = np.inf
        if self.total == 2 and self.fault == "missing":
            info = {}
        if self.total == 2 and self.fault == "raises":
            raise RuntimeError("the plant is on fire")
        return observation, reward, over and self.terminates, over and not self.terminates, info


def rollout(mode=AutoresetMode.NEXT_STEP, constraints=1, **options):
    makers = [lambda k=k: Counter(length=3 + k, **options) for k in range(2)]
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    encoder, actions = Encoder(envs.single_observation_space), action_codec(envs.single_action_space)
    made = Rollout(envs, encoder, History(1, encoder.size, actions.features), actions, constraints)
    made.reset(0)
    return made


def zeros(observations, t):
    return np.zeros(len(observations), dtype=np.int64)


def transitions(trajectory, env):
    """(s, c_1, s', terminated, truncated) of the transitions of one environment, whatever the way of autoreset."""
    following = trajectory.observations[1:].copy()
    if len(trajectory.final):
        following[trajectory.final_at[:, 0], trajectory.final_at[:, 1]] = trajectory.final
    rows = []
    for t in np.flatnonzero(trajectory.valid[:, env]):
        end = bool(trajectory.terminated[t, env])
        after = None if end else float(following[t, env, 0])  # nothing is read behind a termination
        truncated = bool(trajectory.truncated[t, env])
        rows.append((float(trajectory.observations[t, env, 0]), trajectory.costs[1, t, env], after, end, truncated))
    return rows


@pytest.mark.parametrize("first", [None, {"cost": 0.0}, {"costs": np.zeros(3)}])  # none of them is a step's
@pytest.mark.parametrize("terminates", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_transitions_are_those_of_the_single_environment(mode, terminates, first):
    trajectory = rollout(mode, terminates=terminates, first=first).collect(zeros, 8)
    for env in range(2):
        length = 3 + env
        last = None if terminates else float(length)
        episode = [(float(t), t + 1.0, t + 1.0, False, False) for t in range(length - 1)]
        episode.append((length - 1.0, float(length), last, terminates, not terminates))
        rows = transitions(trajectory, env)
        expected = (episode * 3)[: len(rows)]
        assert rows == expected
        assert len(rows) == (8 if mode == AutoresetMode.SAME_STEP else 8 - 8 // (length + 1))


def test_the_reset_step_is_not_valid_even_across_rollouts():
    made = rollout()  # environment 0 ends with the rollout's last step
    first, second = made.collect(zeros, 3), made.collect(zeros, 3)
    assert first.valid.all()
    np.testing.assert_array_equal(second.valid, [[False, True], [True, False], [True, True]])
    assert (second.costs[:, ~second.valid] == 0).all()
    assert first.observations[-1].tolist() == second.observations[0].tolist()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_initial_observations_are_collected(mode):
    trajectory = rollout(mode).collect(zeros, 8)
    assert len(trajectory.initial) >= 3
    assert (trajectory.initial == 0).all()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episodes_are_measured_across_rollouts(mode):
    made, episodes = rollout(mode), Episodes(2, 2, 0.5, 3)
    for _ in range(4):
        episodes.record(made.collect(zeros, 5))
    assert episodes.full
    assert {episode.length for episode in episodes.finished} <= {3, 4}
    for plain, discounted, length, *_ in episodes.finished:
        costs = np.arange(1, length + 1)
        assert plain.tolist() == [-2.0 * length, costs.sum()]
        factors = 0.5 ** np.arange(length)
        np.testing.assert_allclose(discounted, [-2.0 * factors.sum(), (factors * costs).sum()])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_two_constraints(mode):
    trajectory = rollout(mode, constraints=2, costs=2).collect(zeros, 8)
    np.testing.assert_allclose(trajectory.costs[2], 10 * trajectory.costs[1])


def test_without_constraints_no_cost_is_asked_for():
    assert rollout(constraints=0, fault="missing").collect(zeros, 8).costs.shape == (1, 8, 2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("observation", "observation"),
        ("reward", "reward is nan"),
        ("cost", "cost 1 is inf"),
        ("missing", 'no "cost"'),
        ("raises", "the plant is on fire"),
    ],
)
def test_a_faulty_environment_is_named_with_its_step(fault, words):
    made = rollout(fault=fault)
    with pytest.raises(InputError, match=words) as caught:
        made.collect(zeros, 8)
    assert "step 1" in str(caught.value)
    assert made.name in str(caught.value)


class Vector(VectorEnv):
    """Two environments that never end, and report what they are told."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_action_space = Discrete(2)

    def __init__(self, infos, observations=None, space=Counter.observation_space):
        self.infos, self.single_observation_space = infos, space
        self.told = [np.zeros((2, *space.shape), dtype=space.dtype)] * 3 if observations is None else observations

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.asarray(self.told[0]), {}

    def step(self, actions):
        self.taken += 1
        infos = self.infos if self.taken == 2 else {"cost": np.ones(2)}
        return np.asarray(self.told[self.taken]), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), infos


def vector(**options):
    envs = Vector(**options)
    encoder, actions = Encoder(envs.single_observation_space), action_codec(envs.single_action_space)
    return Rollout(envs, encoder, History(1, encoder.size, actions.features), actions, 1)


@pytest.mark.parametrize(
    "infos",
    [
        {"cost": np.array(["high", "low"], dtype=object)},
        {"cost": np.array(["high", "low"])},
        {"cost": np.array([{}, {}], dtype=object)},
        {"costs": np.array([np.ones(1), np.ones(2)], dtype=object)},
        {"costs": [[1.0], [1.0, 2.0]]},
        {"cost": 1.0},
        {"cost": np.ones(3)},
        {"cost": np.ones(1)},
        {"cost": np.ones(2), "_cost": np.ones(3, dtype=bool)},
    ],
)
def test_costs_in_no_form_are_named_with_their_step(infos):
    made = vector(infos=infos)
    made.reset(0)
    with pytest.raises(InputError, match=r"^Vector, step 1: info\['_?costs?'\] .* expected"):
        made.collect(zeros, 2)


def test_an_observation_out_of_its_space_is_named_with_its_step():
    for value in (-1, 3):
        made = vector(infos={"cost": np.ones(2)}, space=Discrete(3), observations=[[0, 1], [2, 0], [0, value]])
        made.reset(0)
        expected = rf"^Vector, step 1: observation\[1\]: {value} given, a whole number from 0 to 2"
        with pytest.raises(InputError, match=expected):
            made.collect(zeros, 2)
    made = vector(infos={}, observations=[np.zeros((3, 1))])
    with pytest.raises(InputError, match=r"^Vector, step 0: "):
        made.reset(0)


def test_a_reset_that_fails_is_named():
    with pytest.raises(
        InputError, match=r"^SyncVectorEnv reset raised at step 0: RuntimeError: no ground under the plant"
    ):
        rollout(fault="reset")
    with pytest.raises(
        InputError, match=r"^SyncVectorEnv, environment 0, step 0: observation \[nan\], finite expected"
    ):
        rollout(fault="first")


def test_the_number_of_costs_must_match_the_budgets():
    with pytest.raises(InputError, match="2 costs, 1 expected"):
        rollout(costs=2).collect(zeros, 8)
    with pytest.raises(InputError, match="1 costs, 2 expected"):
        rollout(constraints=2).collect(zeros, 8)


def test_an_environment_that_does_not_reset_itself_is_refused():
    with pytest.raises(InputError, match="autoreset_mode"):
        rollout(AutoresetMode.DISABLED)
