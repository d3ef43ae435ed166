"""Perturbations that no training of `robust` has seen reach the environment that is tested in."""

from dataclasses import replace

import numpy as np
import pytest

from rcac.config.compose import compose
from rcac.runs.build import make_envs
from reproduction import robust


def left(observation):
    return 0


@pytest.fixture(scope="module")
def env():
    return compose([f"env={robust.ENV}", "algo=rcac_npg"]).env


def test_wind_like_a_sine(env):
    envs = robust.SineWind(make_envs(env, 3))
    for _ in range(2):
        envs.reset(seed=0)
        winds = []
        for _ in range(51):
            envs.step(np.arange(3) % 2)
            winds.append(float(envs.unwrapped.perturbation.wind))
        assert [winds[0], winds[25], winds[50]] == pytest.approx([0.0, 2.0, 0.0], abs=1e-9)
    envs.close()


def test_late_actions_are_late(env):
    """The episode's first action acts until then: who pushes right once, and left afterwards, moves the cart to the right."""
    places = {}
    for delay in (0, 3):
        kwargs = robust.KINDS[f"actions {delay} late"] if delay else {}
        envs = make_envs(replace(env, kwargs=env.kwargs | kwargs, wrapper="perturbed"), 2)
        envs.reset(seed=0)
        for action in (1, 0, 0, 0):
            observations = envs.step(np.full(2, action))[0]
        places[delay] = observations[:, 1]  # speeds
        envs.close()
    assert (places[3] > places[0]).all()


@pytest.mark.parametrize("name", robust.KINDS)
def test_every_kind_can_be_tested_in(env, name):
    found = robust._test(
        robust.changed(env, robust.KINDS[name]), left, robust.STILL, robust.HALF, 4, 0, name == robust.SINE
    )
    assert np.shape(found["means"]) == (1, 3)
    assert np.isfinite(found["means"]).all()
