"""Parameters for any environment, by a word of its configuration."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rcac.config.compose import compose
from rcac.envs.contexts import contexts_of, parameters
from rcac.envs.mujoco import MujocoContexts
from rcac.envs.perturbed import Perturbed
from rcac.errors import InputError
from rcac.policies.perturbations import known
from rcac.runs.config import Env
from rcac.runs.environments import make_envs


@pytest.mark.parametrize(
    ("env_id", "wrapper", "name", "value", "by_hand"),
    [
        ("Hopper-v5", "mujoco_contexts", "body_mass:torso", 2.0, lambda env: _hopper(env)),
        ("CartPole-v1", "perturbed", "action_delay", 2.0, lambda env: Perturbed(env, action_delay=2.0)),
    ],
)
def test_any_environment_has_parameters_by_a_word_of_its_configuration(env_id, wrapper, name, value, by_hand):
    config = Env("gym", env_id, budgets=[], wrapper=wrapper, kwargs={name: value})
    single, envs = by_hand(gym.make(env_id)), make_envs(config, 2)
    assert parameters(envs)[name].low < parameters(envs)[name].high
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(5)]
    seen = [envs.reset(seed=7)[0][0], *(envs.step(a)[0][0] for a in actions)]
    wanted = [single.reset(seed=7)[0], *(single.step(a[0])[0] for a in actions)]
    np.testing.assert_array_equal(seen, wanted)
    assert contexts_of(envs)[name].tolist() == [value, value]
    with pytest.raises(InputError, match=r"env.vectorization: vector given"):
        make_envs(replace(config, vectorization="vector"), 2)
    envs.close()
    single.close()


def _hopper(env):
    made = MujocoContexts(env)
    made.set_context({"body_mass:torso": 2.0})
    return made


def test_parameters_of_a_wrapper_can_be_swept():
    config = compose(["env=gym", "env.id=CartPole-v1", "env.budgets=[1]", "env.wrapper=perturbed", "algo=rcac"])
    swept = known(config)["action_delay"](2.0)
    assert swept.config.env.kwargs == {"action_delay": 2.0}
    with pytest.raises(InputError, match=r"env.wrapper: 'noisy' given"):
        compose(["env=gym", "env.id=CartPole-v1", "env.budgets=[1]", "env.wrapper=noisy"])
