"""Whole episodes of a policy, and what they came to.

Every copy of the environment contributes a number of episodes fixed beforehand: the first ones to end would be the
short ones. Episodes depend on `seed` alone: all policies and all perturbations get the same seeds (common random
numbers), so that differences between them are less noisy than each of them. They stay alike only as long as the
environment draws alike: a copy that falls earlier, or a perturbation that draws, leads elsewhere.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from rcac.envs.wrappers import EnvironmentFault
from rcac.errors import InputError
from rcac.seeds import evaluation_seed


class PlayedEpisodes(NamedTuple):
    """Of E episodes, in the order in which they ended."""

    sums: np.ndarray  # (E, N+1) of −reward and costs, discounted
    lengths: np.ndarray  # (E,)


def play(
    envs: VectorEnv, policy: Any, episodes: int, seed: int, discount: float = 1.0, costs: int | None = None
) -> PlayedEpisodes:
    """Play them with `policy.batch(observations)`, or observation by observation. `costs` is N; None: as many as the
    environment reports."""
    mode = check_autoreset(envs)
    if hasattr(policy, "spaces"):
        check_spaces(policy, envs.single_observation_space, envs.single_action_space)
    act = acting(policy, envs.observation_space)
    num_envs = envs.num_envs
    quota = np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
    sums, lengths, factor = None, np.zeros(num_envs, dtype=np.int64), np.ones(num_envs)
    finished: list[tuple[np.ndarray, int]] = []
    resetting, began = np.zeros(num_envs, dtype=bool), np.ones(num_envs, dtype=bool)
    with _explained():
        observations, _ = envs.reset(seed=evaluation_seed(seed, episodes))
    while quota.any():
        actions = act(observations, began)
        with _explained():
            observations, rewards, terminated, truncated, infos = envs.step(actions)
        ended = terminated | truncated
        began = ended if mode == AutoresetMode.SAME_STEP else resetting  # else the step after an end only resets
        live = ~resetting & (quota > 0)
        if live.any():  # where all copies reset, nothing is reported
            step = np.column_stack([-rewards, reported_costs(infos, costs, num_envs, ended)])
            sums = np.zeros_like(step) if sums is None else sums
            sums[live] += factor[live, None] * step[live]
        lengths[live] += 1
        factor[live] *= discount
        resetting = ended & (mode == AutoresetMode.NEXT_STEP)
        for index in np.flatnonzero(ended & live):
            assert sums is not None
            finished.append((sums[index].copy(), int(lengths[index])))
            sums[index], factor[index], lengths[index] = 0.0, 1.0, 0
            quota[index] -= 1
    return PlayedEpisodes(np.array([own for own, _ in finished]), np.array([length for _, length in finished]))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """What an environment raises that nobody guards."""
    try:
        yield
    except (EnvironmentFault, InputError):
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"the environment raised {error!r}") from error


def acting(policy: Any, space: gym.Space) -> Callable[[Any, np.ndarray], Any]:
    """(observations, where episodes begin (n,)) → actions, of a policy that is reset for it or of any function. `space` is
    that of the observations of all copies."""
    if not hasattr(policy, "batch"):
        return lambda observations, _: np.array([policy(one) for one in iterate(space, observations)])
    policy.reset()
    return lambda observations, began: policy.batch(observations, episode_start=began)


def check_autoreset(envs: VectorEnv) -> AutoresetMode:
    mode = envs.metadata.get("autoreset_mode")
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise InputError(f"env: autoreset_mode is {mode}, NEXT_STEP or SAME_STEP expected")
    return mode


def check_spaces(policy: Any, observation: gym.Space, action: gym.Space) -> None:
    """Can this policy act there?"""
    for name, own, other in (
        ("observations", policy.spaces.observation, observation),
        ("actions", policy.spaces.action, action),
    ):
        if not _alike(own, other):
            raise InputError(f"env: its {name} are {other}, {own} expected by the policy")


def _alike(own: Any, other: Any) -> bool:
    """Whether two spaces are the same in all but the ends of numbers."""
    if type(own) is not type(other) or own.shape != other.shape:
        return False
    if isinstance(own, Dict) and isinstance(other, Dict):
        return own.spaces.keys() == other.spaces.keys() and all(_alike(part, other[key]) for key, part in own.items())
    if isinstance(own, Tuple) and isinstance(other, Tuple):
        return len(own) == len(other) and all(map(_alike, own.spaces, other.spaces))
    return own == other if isinstance(own, MultiDiscrete) else getattr(own, "n", 0) == getattr(other, "n", 0)


def reported_costs(
    infos: dict[str, Any], costs: int | None, num_envs: int, ended: np.ndarray | None = None
) -> np.ndarray:
    """(n, N) costs of a step, zero on the step that resets a copy. Where an episode `ended` (n,) and `infos` are of the
    next one's reset already, "final_info" has them."""
    found, final = (_given(source, num_envs) for source in (infos, infos.get("final_info", {})))
    if ended is not None and final is not None:
        found = np.where(ended[:, None], final, 0.0 if found is None else found)
    found = np.zeros((num_envs, 0)) if found is None else found
    if costs is not None and found.shape[1] < costs:
        raise InputError(f"env.budgets: {costs} given, but the environment reports {found.shape[1]} costs")
    return found[:, :costs]


def _given(source: dict[str, Any], num_envs: int) -> np.ndarray | None:
    costs = source.get("costs", source.get("cost"))
    return None if costs is None else np.asarray(costs, dtype=float).reshape(num_envs, -1)
