"""Environments that cannot be saved are brought back by their seeds and actions: a resumed training is bit for bit the
uninterrupted one."""

import gymnasium as gym
import numpy as np
import pytest
from state_hash import state_hash

from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.envs.contexts import Parameter, contexts_of, parameters, set_contexts
from rcac.envs.rebuilt import Rebuilt
from rcac.envs.replay import Replay
from rcac.runs import environments
from rcac.runs.config import Env

TINY = dict(
    total_steps=40 * 20, num_envs=4, rollout_length=10, actor_hidden=[8], critic_hidden=[8], window=4, trials=1,
    actor_batch=16, critic_batch=16,
)  # fmt: skip


class Walk(gym.Env):
    """A random walk with noise in its steps, its start and its end: nothing of it can be read."""

    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, drift: float = 0.0, seeded: bool = True) -> None:
        self.drift, self.seeded = drift, seeded

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed if self.seeded else None)
        self.place = self.np_random.normal(size=2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        step = 0.1 * action + self.drift + 0.1 * self.np_random.normal(size=2)
        self.place = self.place + step
        ended = bool(self.np_random.random() < 0.08)
        return self.place.astype(np.float32), float(-abs(self.place[0])), ended, False, {"cost": abs(self.place[1])}


def rebuilt(**_) -> gym.Env:
    return Rebuilt(lambda **kwargs: Walk(**kwargs), {"drift": Parameter(-0.1, 0.1, 0.0)})


gym.register("replay/Walk-v0", Walk, max_episode_steps=23)
gym.register("replay/Rebuilt-v0", rebuilt, max_episode_steps=23)


def made(name: str, **more) -> Trainer:
    env = Env("gym", id=name, budgets=[5.0], **more)
    envs = environments.make_envs(env, 4, replay=True)
    limits, names = env.limits()
    return Trainer(envs, limits, DeepSettings(**TINY), 3, 23, labels=names)


def resumed(first: Trainer, second: Trainer) -> Trainer:
    second.load(first.state())
    return second


@pytest.mark.parametrize("more", [{}, {"failure_budget": 3.0}, {"vectorization": "async"}], ids=str)
def test_resumed_is_uninterrupted(more):
    whole, part = made("replay/Walk-v0", **more), made("replay/Walk-v0", **more)
    try:
        middle, ended = False, False
        while not whole.finished:
            whole.step()
            part.step()
            within, over = bool((part.rollout.lengths > 0).all()), bool(part.rollout.resetting.any())
            if more.get("vectorization") == "async" and not (within > middle or over > ended):
                continue  # it starts processes: once in the middle of episodes, and once at an end
            middle, ended = middle or within, ended or over
            before, part = part, resumed(part, made("replay/Walk-v0", **more))
            environments.close(before.rollout.envs)
            assert part.inexact is None
            assert len(part.rollout.played) <= 23
        assert middle
        assert ended  # an episode that had ended, and was not reset yet
        assert state_hash(part.state()) == state_hash(whole.state())
    finally:
        environments.close(whole.rollout.envs)
        environments.close(part.rollout.envs)


def test_contexts_are_part_of_an_episode():
    whole, part, again = (made("replay/Rebuilt-v0") for _ in range(3))
    for trainer in (whole, part):
        assert parameters(trainer.rollout.envs)
        set_contexts(trainer.rollout.envs, {"drift": [-0.1, 0.0, 0.05, 0.1]})
        for _ in range(4):
            trainer.step()
    resumed(part, again)
    assert again.inexact is None
    present = contexts_of(whole.rollout.envs)["drift"]
    np.testing.assert_array_equal(contexts_of(again.rollout.envs)["drift"], present)
    assert present.any()


def test_one_that_does_not_repeat_itself_is_found_out():
    part, again = made("replay/Walk-v0", kwargs={"seeded": False}), made("replay/Walk-v0", kwargs={"seeded": False})
    for _ in range(3):
        part.step()
    resumed(part, again)
    assert again.inexact == "its environment did not repeat itself from the same seeds and actions"
    assert (again.rollout.lengths == 0).all()
    assert not again.episodes.length.any()
    while not again.finished:
        again.step()
    assert resumed(again, made("replay/Walk-v0")).inexact == again.inexact  # is not forgotten


def test_episodes_have_seeds_of_their_own_that_the_first_decides():
    def starts(seed: int) -> list[float]:
        env = Replay(Walk())
        env.reset(seed=seed)
        return [float(env.reset()[0][0]) for _ in range(50)]

    assert starts(1) == starts(1)
    assert len({*starts(1), *starts(2)}) == 100


@pytest.mark.parametrize("name", ["Acrobot-v1", "Pendulum-v1", "Hopper-v5"])
def test_environments_of_gymnasium_repeat_themselves(name):
    if name == "Hopper-v5":
        pytest.importorskip("mujoco")
    trainers = []
    for _ in range(2):
        envs = environments.make_envs(
            Env("gym", id=name, budgets=[], max_episode_steps=30, vectorization="sync"), 4, replay=True
        )
        trainers.append(Trainer(envs, [], DeepSettings(**TINY), 0, 30))
    for _ in range(5):
        trainers[0].step()
    resumed(*trainers)
    assert trainers[1].inexact is None
    assert (trainers[1].rollout.lengths > 0).any()
