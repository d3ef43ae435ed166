"""Environments that are given as Python objects: they get an id in Gymnasium's registry, and everything else is as ever.

() -> Env     one copy each time it is called
VectorEnv     all copies; it is used as it is, and left open
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rcac.errors import InputError

EnvGiven = str | Callable[[], gym.Env] | VectorEnv


class Registered(NamedTuple):
    id: str
    max_episode_steps: int | None  # None: it does not say
    num_envs: int | None  # None: as many as one likes


def register(env: EnvGiven, cost_names: Sequence[str] | None = None) -> Registered:
    if isinstance(env, str):
        return Registered(env, None, None)
    if isinstance(env, VectorEnv):
        name = _id(type(env.unwrapped))
        borrowed = Borrowed(env, cost_names or ())
        gym.registry.pop(name, None)
        entry_points: Any = {"entry_point": lambda: OneCopy(env), "vector_entry_point": lambda num_envs, **_: borrowed}
        gym.register(name, **entry_points)
        return Registered(name, getattr(env.spec, "max_episode_steps", None), env.num_envs)
    if not callable(env):
        raise InputError(f"env: {env!r} given, an id, a function that makes an Env, or a VectorEnv expected")
    try:
        single = env()
    except (Exception, SystemExit) as error:
        raise InputError(f"env: {env!r} raised {error!r}, an Env expected from it") from error
    if not isinstance(single, gym.Env):
        raise InputError(f"env: {env!r} made {single!r}, an Env of Gymnasium's expected")
    limit = getattr(single.spec, "max_episode_steps", None) or _time_limit(single)
    single.close()
    name = _id(type(single.unwrapped))
    gym.registry.pop(name, None)
    gym.register(name, lambda **kwargs: env(**kwargs))
    return Registered(name, limit, None)


def _id(kind: type) -> str:
    return f"python/{kind.__name__}-v0"


def _time_limit(env: gym.Env) -> int | None:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


class OneCopy(gym.Env):
    """One copy of a vector environment, as far as its spaces."""

    def __init__(self, envs: VectorEnv) -> None:
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space


class Borrowed(VectorWrapper):
    """Is not closed: it belongs to the caller. Costs that stand under their names become an array (n, N)."""

    def __init__(self, envs: VectorEnv, names: Sequence[str]) -> None:
        super().__init__(envs)
        self._names = names

    def step(self, actions: Any) -> Any:
        *rest, infos = self.env.step(actions)
        if "final_info" in infos:
            infos = {**infos, "final_info": self._named(infos["final_info"])}
        return (*rest, self._named(infos))

    def _named(self, infos: dict[str, Any]) -> dict[str, Any]:
        named = infos.get("costs", infos)
        if not self._names or not isinstance(named, dict) or not all(name in named for name in self._names):
            return infos
        columns = [np.asarray(named[name], dtype=float) for name in self._names]
        present = named.get(f"_{self._names[0]}")  # which copies these costs are of, if not of all
        return {**infos, "costs": np.column_stack(columns)} | ({} if present is None else {"_costs": present})

    def close(self, **_: Any) -> None:
        pass
