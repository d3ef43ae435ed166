"""Steps lost to termination as a cost."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rcac.envs import register_envs
from rcac.envs.failure import StepsLost
from rcac.runs.arguments import describe_env
from rcac.runs.environments import make_envs

register_envs()
STEPS = 40


def lost_by_hand(envs, steps):
    """(n,) total steps lost, and what the wrapper reported."""
    n = envs.num_envs
    same = envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    envs.reset(seed=3)
    length, resetting, by_hand, reported = np.zeros(n, int), np.zeros(n, bool), np.zeros(n), np.zeros(n)
    for _ in range(steps):
        *_, terminated, truncated, infos = envs.step(np.ones(n, dtype=np.int64))  # always right: it falls
        length = np.where(resetting, 0, length + 1)
        by_hand += np.where(terminated & ~resetting, STEPS - length, 0)
        done = terminated | truncated
        last = infos.get("final_info", infos) if same else infos
        if "costs" in last:
            rows = np.asarray(last["costs"], dtype=float)[:, -1]
            reported += np.where(done, rows, 0.0)
        length[done] = 0 if same else length[done]
        resetting = np.zeros(n, bool) if same else done
    return by_hand, reported


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_of_our_vector_environments(mode):
    how = {"vectorization_mode": "vector_entry_point", "autoreset_mode": mode, "max_episode_steps": STEPS}
    envs = StepsLost(gym.make_vec("rcac/NoisyCartPole-v0", 3, **how), STEPS)
    by_hand, reported = lost_by_hand(envs, 100)
    assert (by_hand > 0).all()
    np.testing.assert_array_equal(by_hand, reported)


def test_of_single_copies():
    place = describe_env("CartPole-v1", [25.0], _speed(), STEPS, None, failure_budget=10)
    envs = make_envs(place.env, 3)
    by_hand, reported = lost_by_hand(envs, 100)
    assert (by_hand > 0).all()
    np.testing.assert_array_equal(by_hand, reported)
    assert place.env.limits() == ([25.0, 10.0], ["cost", "steps lost"])


def _speed():
    from rcac import registry

    return registry.use_cost(lambda observation, action, following, reward, info: float(abs(following[1]) > 0.5))


def test_it_is_saved_and_continued():
    def made():
        how = {"vectorization_mode": "vector_entry_point", "max_episode_steps": STEPS}
        return StepsLost(gym.make_vec("rcac/NoisyCartPole-v0", 3, **how), STEPS)

    def steps(envs, count):
        return [envs.step(np.ones(3, dtype=np.int64))[4].get("costs") for _ in range(count)]

    first, second = made(), made()
    first.reset(seed=1)
    steps(first, 5)
    second.reset(seed=2)
    second.set_state(first.get_state())
    for one, other in zip(steps(first, 30), steps(second, 30), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not hasattr(StepsLost(gym.make_vec("CartPole-v1", 2, "sync"), STEPS), "get_state")
