"""Perturbations and costs for any Gymnasium environment.

    ObservationNoise   what is seen is the observation plus U(low, high), clipped to the observation space
    ActionNoise        what is done is another action: with a probability (Discrete), or with Gaussian noise (Box)
    CostFromInfo       the cost is what `info` has under another key
    CostFunction       the cost is a function of the transition
    Guard              whatever is missing or not finite is an `EnvironmentFault`

After `CostFromInfo`, `CostFunction` or `Guard`, `info["cost"]` is a float and `info["costs"]` an array (N,), float64.

Gymnasium has the rest, in `gymnasium.wrappers`: `StickyAction` (the last action again, with a probability),
`DelayObservation`, `RescaleAction` and `ClipAction`, `TransformObservation` and `TransformReward` (any fixed function),
`FlattenObservation` (a Discrete observation becomes one-hot), `TimeLimit`.

Noise comes from a generator of its own, derived from the seed of `reset`: the same seed gives the same trajectory,
the environment's own random numbers are those it would have without noise, and two noise wrappers have different ones.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import ArrayLike

from rcac.errors import InputError

CostOf = Callable[[Any, Any, Any, float, dict[str, Any]], ArrayLike]
Transition = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class EnvironmentFault(RuntimeError):
    """An environment did what no environment may do. The message names the environment, the episode and the step."""


def _name(env: gym.Env) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


class _SeededWrapper(gym.Wrapper, RecordConstructorArgs):
    """A generator that `reset(seed=…)` seeds, different at each depth of a stack of wrappers."""

    def __init__(self, env: gym.Env, **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        gym.Wrapper.__init__(self, env)
        self._rng = np.random.default_rng()
        self._depth = 0
        while isinstance(env, gym.Wrapper):
            env, self._depth = env.env, self._depth + 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(self._depth,)))
        return super().reset(seed=seed, options=options)


class ObservationNoise(_SeededWrapper):
    """Independent uniform noise in [low, high] on each component of a Box observation, that of `reset` included.

    The observation stays within its space. `low` and `high` are numbers, or arrays of the observation's shape.
    """

    def __init__(self, env: gym.Env, low: ArrayLike, high: ArrayLike) -> None:
        super().__init__(env, low=low, high=high)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or space.dtype.kind != "f":
            raise InputError(f"env: {_name(env)} observes {space}, a Box of floats expected")
        self._low, self._high = (_bound(name, value, space.shape) for name, value in (("low", low), ("high", high)))
        if (self._low > self._high).any():
            raise InputError(f"low: {low!r} given, at most high = {high!r} expected")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return self._observe(observation), info

    def step(self, action: Any) -> Transition:
        observation, *rest = self.env.step(action)
        return (self._observe(observation), *rest)  # type: ignore[return-value]

    def _observe(self, observation: np.ndarray) -> np.ndarray:
        if not (self._low.any() or self._high.any()):
            return observation
        space: Any = self.observation_space
        noisy = observation + self._rng.uniform(self._low, self._high)
        return np.clip(noisy, space.low, space.high).astype(space.dtype)


def _bound(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    try:
        bound = np.broadcast_to(np.asarray(value, dtype=float), shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {value!r} given, a number or an array of shape {shape} expected") from error
    if not np.isfinite(bound).all():
        raise InputError(f"{name}: {value!r} given, finite numbers expected")
    return bound


class ActionNoise(_SeededWrapper):
    """Another action than the one that was chosen.

    Discrete: with probability `strength` one of the other actions, all equally likely.
    Box: plus Gaussian noise of standard deviation `strength` on each component, clipped to the space.
    """

    def __init__(self, env: gym.Env, strength: float) -> None:
        super().__init__(env, strength=strength)
        space = env.action_space
        if not isinstance(strength, int | float | np.integer | np.floating):
            raise InputError(f"strength: {strength!r} given, a number expected")
        if isinstance(space, gym.spaces.Discrete) and space.n > 1:
            if not 0 <= strength <= 1:
                raise InputError(f"strength: {strength!r} given, a probability in [0, 1] expected")
            self._perturb: Callable[[Any], Any] = self._flip
        elif isinstance(space, gym.spaces.Box) and space.dtype.kind == "f":
            if not 0 <= strength < np.inf:
                raise InputError(f"strength: {strength!r} given, a finite standard deviation ≥ 0 expected")
            self._perturb = self._add_gaussian
        else:
            raise InputError(f"env: {_name(env)} takes {space}, a Discrete of at least 2 or a Box of floats expected")
        self._strength = strength

    def step(self, action: Any) -> Transition:
        return self.env.step(self._perturb(action) if self._strength > 0 else action)

    def _flip(self, action: Any) -> Any:
        if self._rng.random() >= self._strength:
            return action
        space: Any = self.action_space
        return space.start + (action - space.start + self._rng.integers(1, space.n)) % space.n

    def _add_gaussian(self, action: np.ndarray) -> np.ndarray:
        space: Any = self.action_space
        noisy = action + self._rng.normal(0.0, self._strength, space.shape)
        clipped: np.ndarray = np.clip(noisy, space.low, space.high).astype(space.dtype)
        return clipped


class _CostWrapper(gym.Wrapper, RecordConstructorArgs):
    """Counts episodes and steps, so that a fault can say where it happened, and writes costs in the one form."""

    def __init__(self, env: gym.Env, **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        gym.Wrapper.__init__(self, env)
        self._episode = 0
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._episode, self._step = self._episode + 1, 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Transition:
        self._step += 1
        return super().step(action)

    def fault(self, what: str) -> EnvironmentFault:
        return EnvironmentFault(f"{_name(self.env)}, episode {self._episode}, step {self._step}: {what}")

    def with_costs(self, info: dict[str, Any], value: Any) -> dict[str, Any]:
        """`info` with `value`, a number or N of them, as its cost."""
        try:
            costs = np.atleast_1d(np.array(value, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise self.fault(f"the cost is {value!r}, a number or a list of numbers expected") from error
        if costs.ndim != 1 or costs.size == 0:
            raise self.fault(f"the costs have shape {costs.shape}, (N,) with N ≥ 1 expected")
        return {**info, "cost": float(costs[0]), "costs": costs}


class CostFromInfo(_CostWrapper):
    """The cost is what `info` has under `key`; a list of keys leads into nested dictionaries."""

    def __init__(self, env: gym.Env, key: str | Sequence[str]) -> None:
        super().__init__(env, key=key)
        self._path = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
        if not self._path or not all(isinstance(part, str) for part in self._path):
            raise InputError(f"key: {key!r} given, a name or a list of names expected")

    def step(self, action: Any) -> Transition:
        observation, reward, terminated, truncated, info = super().step(action)
        value: Any = info
        for part in self._path:
            if not isinstance(value, Mapping) or part not in value:
                found = f"has {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"is {value!r}"
                raise self.fault(f"no cost under info{list(self._path)}: {part!r} is missing from what {found}")
            value = value[part]
        return observation, reward, terminated, truncated, self.with_costs(info, value)


class CostFunction(_CostWrapper):
    """The cost is `function(observation, action, next_observation, reward, info)`: a number, or N of them."""

    def __init__(self, env: gym.Env, function: CostOf) -> None:
        super().__init__(env, function=function)
        if not callable(function):
            raise InputError(f"function: {function!r} given, a function of a transition expected")
        self._function = function
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        self._observation = deepcopy(observation)  # some environments write the next one into the same array
        return observation, info

    def step(self, action: Any) -> Transition:
        observation, reward, terminated, truncated, info = super().step(action)
        cost = self._function(self._observation, action, observation, float(reward), info)
        self._observation = deepcopy(observation)
        return observation, reward, terminated, truncated, self.with_costs(info, cost)


class Guard(_CostWrapper):
    """Nothing passes that is missing or not finite.

    An `EnvironmentFault` where the environment raises, an observation or the reward is not finite, or the cost
    (`info["costs"]`, or else `info["cost"]`) is missing, not finite, or not as many numbers as before.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._constraints: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            observation, info = super().reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise self.fault(f"reset raised {error!r}") from error
        self._check("observation", observation)
        return observation, info

    def step(self, action: Any) -> Transition:
        try:
            observation, reward, terminated, truncated, info = super().step(action)
        except EnvironmentFault:
            raise
        except (Exception, SystemExit) as error:
            raise self.fault(f"step raised {error!r}") from error
        self._check("observation", observation)
        self._check("reward", reward)
        if "costs" not in info and "cost" not in info:
            raise self.fault(f"no cost: info has {', '.join(map(repr, info)) or 'nothing'}, 'cost' or 'costs' expected")
        info = self.with_costs(info, info["costs"] if "costs" in info else info["cost"])
        self._check("cost", info["costs"])
        if self._constraints not in (None, info["costs"].size):
            raise self.fault(f"{info['costs'].size} costs, {self._constraints} before")
        self._constraints = info["costs"].size
        return observation, reward, terminated, truncated, info

    def _check(self, what: str, value: Any) -> None:
        if not _is_finite(value):
            raise self.fault(f"the {what} is not finite: {value!r}")


def _is_finite(value: Any) -> bool:
    """Whether every number in an observation is finite; Dict and Tuple spaces nest."""
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_is_finite, value))
    array = np.asarray(value)
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
