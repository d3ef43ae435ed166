"""The environments that a configuration names: one copy or many, wrapped, checked, and closed again."""

import contextlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from rcac import registry
from rcac.contexts import Parameters
from rcac.envs import register_rcmdp
from rcac.envs.contexts import declared_ranges, set_context
from rcac.envs.failure import StepsLost
from rcac.envs.replay import Replay
from rcac.envs.wrappers import CostFunction, EnvironmentFault, Guard
from rcac.errors import InputError
from rcac.problem import RCMDP
from rcac.runs import modules
from rcac.runs.config import Env
from rcac.runs.given import OneCopy

WRAPPERS = {  # loaded when they are asked for
    "mujoco_contexts": ("rcac.envs.mujoco.wrapper", "MujocoContexts"),
    "perturbed": ("rcac.envs.perturbed", "Perturbed"),
}
MODES = {"sync": "sync", "async": "async", "vector": "vector_entry_point"}


def env_id(env: Env) -> str:
    """The id in Gymnasium's registry; a problem's file is registered under a name of its own."""
    if env.path is None:
        if env.id is None:
            raise InputError("env.id: not given, an id of Gymnasium's registry expected")
        modules.load(env.id)  # as Gymnasium does; it registers its environments
        return env.id.rpartition(":")[2]
    path = Path(env.path).resolve()
    name = f"custom/{''.join(c if c.isalnum() else '_' for c in path.stem)}-v0"
    known = gym.registry.get(name)
    if known is None or (known.kwargs, known.max_episode_steps) != ({"problem": str(path)}, env.max_episode_steps):
        gym.registry.pop(name, None)  # another file of that name
        with prefix_field("env", ["path"]):
            register_rcmdp(name, path, env.max_episode_steps)
    return name


def env_label(env: Env) -> str:
    """What a run is filed under: the configuration's name if that says which environment it is, else the id."""
    fixed = registry.rows("env").get(env.name, {}).get("id") not in (None, "???")
    return env.name if fixed else env_id(env)


def make_env(env: Env, **more: Any) -> gym.Env:
    """One copy."""
    with _explained(env):
        single = gym.make(env_id(env), **_arguments(env), **more)
        return _in_contexts(env)(single) if env.wrapper else single


def make_envs(env: Env, num_envs: int, *, replay: bool = False) -> VectorEnv:
    """Several copies, stepped together. What single copies do is guarded; a vector version guards itself. With `replay`
    copies can be saved in the middle of an episode, by seeds of their own for every episode."""
    with _explained(env):
        name = env_id(env)
        spec = gym.spec(name)
        own = spec.vector_entry_point is not None and not spec.additional_wrappers
        able, mode = own and env.cost is None and env.wrapper is None, env.vectorization
        if mode == "auto":
            mode = "vector" if able else "sync"
        if mode == "vector" and not able:
            wrapping = "env.cost" if env.wrapper is None else "env.wrapper"
            reason = f"{wrapping} wraps single copies" if own else f"{name} has no vector version"
            raise InputError(f"env.vectorization: vector given, sync or async expected ({reason})")
        wrappers = _wrappers(env) if mode != "vector" else []
        wrappers = [_in_contexts(env), *wrappers] if env.wrapper else wrappers
        wrappers = [*wrappers, Replay] if replay and mode != "vector" else wrappers
        made = gym.make_vec(name, num_envs, MODES[mode], wrappers=wrappers, **_arguments(env))
        if isinstance(made, SyncVectorEnv) and len({id(single.unwrapped) for single in made.envs}) < num_envs:
            raise InputError("env: the same Env given for two copies, a new one each time expected")
        if env.failure_budget is None:
            return made
        steps = env.max_episode_steps or spec.max_episode_steps
        if steps is None:
            raise InputError("env.max_episode_steps: not given and not registered, expected with env.failure_budget")
        return StepsLost(made, steps)


def make_box(env: Env, envs: VectorEnv, row: Mapping[str, Any] | None = None) -> Parameters:
    """The box of `uncertainty=parameters`: the ranges given, else those of the environment's file, else what it declares."""
    row = row or {}
    try:
        return Parameters(row.get("ranges") or env.ranges or declared_ranges(envs), row.get("risk"))
    except InputError as error:
        raise InputError(f"uncertainty.{error}") from error


def _wrappers(env: Env) -> list[Any]:
    """What a single copy is wrapped in: its cost, if that is a function, and a guard, unless no cost is asked for."""
    wrappers: list[Any] = []
    if env.cost is not None:
        function = registry.costs.get(env.cost)
        wrappers.append(lambda single: CostFunction(single, function))
    if env.cost_names:
        wrappers.append(lambda single: NamedCosts(single, env.cost_names or ()))
    return [*wrappers, Guard] if env.budgets != [] else wrappers


class NamedCosts(gym.Wrapper):
    """`info["costs"]` as an array, where it is a dictionary of these names, or `info` itself holds them."""

    def __init__(self, env: gym.Env, names: Sequence[str]) -> None:
        super().__init__(env)
        self._names = names

    def step(self, action: Any) -> Any:
        *rest, info = self.env.step(action)
        given = info.get("costs", info)
        if isinstance(given, Mapping) and all(name in given for name in self._names):
            info = {**info, "costs": np.array([given[name] for name in self._names], dtype=float)}
        elif isinstance(info.get("costs"), Mapping):
            raise EnvironmentFault(f"info['costs'] has {', '.join(map(str, given))}, {', '.join(self._names)} expected")
        return (*rest, info)


def check_costs(env: Env, single: gym.Env) -> None:
    """Take a step, to see whether there is a cost for each budget; better now than in the middle of a run."""
    if isinstance(single.unwrapped, OneCopy):  # all copies are there already, and take their steps together
        return
    for wrapper in _wrappers(env):
        single = wrapper(single)
    step = 0
    try:
        single.reset(seed=0)
        single.action_space.seed(0)
        step = 1
        *_, info = single.step(single.action_space.sample())
    except EnvironmentFault as fault:
        raise InputError(f"env: {fault}") from fault
    except (Exception, SystemExit) as error:  # without budgets no guard says where
        raise InputError(f"env: {env_id(env)}, episode 1, step {step}: raised {error!r}") from error
    if env.budgets and len(info["costs"]) != len(env.budgets):
        count = len(info["costs"])
        raise InputError(f"env.budgets: {env.budgets} given, {count} expected: the environment reports {count} costs")


def _in_contexts(env: Env) -> Callable[[gym.Env], gym.Env]:
    """The wrapper that gives an environment parameters, with those of `env.kwargs` that are its own."""
    wrapper = _wrapper(env)
    own = {name: value for name, value in env.kwargs.items() if wrapper.takes(name)}

    def wrap(single: gym.Env) -> gym.Env:
        made: gym.Env = wrapper(single)
        if own:
            set_context(made, own)
        return made

    return wrap


def _wrapper(env: Env) -> Any:
    module, name = WRAPPERS[env.wrapper or ""]
    return getattr(import_module(module), name)


def _arguments(env: Env) -> dict[str, Any]:
    """Of its constructor."""
    limit = {} if env.max_episode_steps is None else {"max_episode_steps": env.max_episode_steps}
    wrapped = _wrapper(env).takes if env.wrapper else lambda name: False
    return {**limit, **{name: value for name, value in env.kwargs.items() if not wrapped(name)}}


def close(env: gym.Env | VectorEnv) -> None:
    """One that fails in this has been used already: it costs no more than a warning."""
    try:
        _close(env)
    except (Exception, SystemExit) as error:
        warnings.warn(f"{env} raised {error!r} when it was closed", stacklevel=2)


def _close(envs: gym.Env | VectorEnv) -> None:
    """Also if a process of an asynchronous one has died in the middle of a step, which `close` would wait for."""
    if isinstance(envs, StepsLost):
        return _close(envs.env)
    if not isinstance(envs, AsyncVectorEnv):
        return envs.close()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps under way
            envs.close(terminate=True)
    except (EOFError, OSError):
        for process in envs.processes:
            process.kill()
            process.join()
        envs.closed = True
    return None


@contextlib.contextmanager
def _explained(env: Env) -> Iterator[None]:
    """What can be wrong with an environment's name and arguments, or in its constructor, in one line."""
    try:
        with prefix_field("env.kwargs", env.kwargs):
            yield
    except InputError:
        raise
    except gym.error.Error as error:
        raise InputError(f"env.id: {env.id} given: {' '.join(str(error).split())}") from error
    except ImportError as error:
        raise InputError(f"env.id: {env.id} given: {error}") from error
    except TypeError as error:
        raise InputError(f"env.kwargs: {env.kwargs} given: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"env: {env.id or env.path} cannot be made: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def prefix_field(prefix: str, known: Collection[str]) -> Iterator[None]:
    """Name a field as the command line does."""
    try:
        yield
    except InputError as error:
        if str(error).split(":")[0].split("[")[0] in known:
            raise InputError(f"{prefix}.{error}") from error
        raise


class Opened(NamedTuple):
    env: gym.Env  # one copy
    problem: RCMDP | None  # the model it carries, if it has one, with the budgets of the configuration
    steps: int | None  # of an episode, at most


def open_env(env: Env) -> Opened:
    """One copy, and what can be learned from it."""
    single = make_env(env)
    steps = single.spec.max_episode_steps if single.spec is not None else None
    problem: RCMDP | None = getattr(single.unwrapped, "rcmdp", None)
    if problem is not None and env.budgets is not None:
        if len(env.budgets) != problem.num_constraints:
            raise InputError(f"env.budgets: {env.budgets} given, {problem.num_constraints} numbers expected")
        problem = replace(problem, budgets=np.asarray(problem.signs)[1:] * np.array(env.budgets))
    return Opened(single, problem, steps)
