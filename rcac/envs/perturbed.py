"""Any Gymnasium environment under noise and delay, each a parameter of its context.

    action         a_t → sticky → delayed → flipped (Discrete), scaled and noisy (Box) → the environment
    observation    the environment → delayed → noisy → o_t

    sticky_action       probability that the last action is taken again instead of the present one
    action_delay        steps, rounded, until an action acts; before, the episode's first one does
    action_flip         probability of another action, all others equally likely
    action_scale        factor on the action, within its space
    action_noise        std of Gaussian noise on each component of the action, within its space
    observation_delay   steps, rounded, until an observation is seen; before, that of the reset is
    observation_noise   δ of uniform noise in ±δ on each component of the observation, within its space

Reward, cost, ends and infos are those of what the environment really did. With all of them nominal nothing is drawn and
nothing changes. Noise comes from a generator of its own, derived from the seed of `reset`.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from rcac.errors import InputError

from .contexts import Context, HasContext, Parameter, parameters, set_context

ANY = {
    "sticky_action": Parameter(0.0, 0.25, 0.0),
    "action_delay": Parameter(0.0, 3.0, 0.0),
    "observation_delay": Parameter(0.0, 3.0, 0.0),
}
DISCRETE = {"action_flip": Parameter(0.0, 0.1, 0.0)}
BOX = {"action_scale": Parameter(0.7, 1.3, 1.0), "action_noise": Parameter(0.0, 0.1, 0.0)}
SEEN = {"observation_noise": Parameter(0.0, 0.1, 0.0)}
NEUTRAL = {name: known.nominal for name, known in (ANY | DISCRETE | BOX | SEEN).items()}
PROBABILITIES = ("sticky_action", "action_flip")


class Perturbed(HasContext, gym.Wrapper, RecordConstructorArgs):
    """`Perturbed(env)`, or with nominal values: `Perturbed(env, action_delay=1, observation_noise=0.02)`.

    Declared are the parameters that fit the spaces, and those of the environment itself, which are passed on to it.
    Where both have one of a name, it is the environment's own.
    """

    @staticmethod
    def takes(name: str) -> bool:
        """Whether it has a parameter of this name, for some spaces."""
        return name in NEUTRAL

    def __init__(self, env: gym.Env, **nominal: Any) -> None:
        RecordConstructorArgs.__init__(self, **nominal)
        gym.Wrapper.__init__(self, env)
        actions, seen = env.action_space, env.observation_space
        box = isinstance(actions, gym.spaces.Box) and actions.dtype.kind == "f"
        fitting = {
            **ANY,
            **(BOX if box else DISCRETE if isinstance(actions, gym.spaces.Discrete) and actions.n > 1 else {}),
            **(SEEN if isinstance(seen, gym.spaces.Box) and seen.dtype.kind == "f" else {}),
        }
        self._inner = parameters(env)
        own = {name: known for name, known in fitting.items() if name not in self._inner}
        if wrong := sorted(nominal.keys() - own.keys()):
            where = (
                "give it to the environment, which has it"
                if wrong[0] in self._inner
                else f"one of {', '.join(own)} expected"
            )
            raise InputError(f"{wrong[0]}: {nominal[wrong[0]]!r} given, {where}")
        self._rng = np.random.default_rng()
        self._own = own
        self.declare(self._inner | own)
        if nominal:
            self.set_context(nominal)
            self._own = {name: known.around(self.next_context[name]) for name, known in own.items()}
            self.declare(self._inner | self._own)

    def set_context(self, context: Mapping[str, float]) -> None:
        before = self._next
        super().set_context(context)
        if self._inner:
            try:
                set_context(self.env, {name: self._next[name] for name in self._inner})
            except InputError:
                self._next = before
                raise

    def parameter(self, name: str) -> Parameter:
        if not self._inner:
            return super().parameter(name)
        known: Parameter = self.env.get_wrapper_attr("parameter")(name)
        self._inner[name] = known
        return known

    def check_context(self, context: Context) -> None:
        for name in self._own:
            value = context[name]
            if name in PROBABILITIES and not 0 <= value <= 1:
                raise InputError(f"{name}: {value} given, a probability in [0, 1] expected")
            if value < 0:
                raise InputError(f"{name}: {value} given, a number ≥ 0 expected")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
        self.begin_context()
        observation, info = super().reset(seed=seed, options=options)
        self._now = NEUTRAL | {name: self.context[name] for name in self._own}
        self._actions: deque[Any] = deque(maxlen=round(self._now["action_delay"]) + 1)
        self._observations: deque[Any] = deque(maxlen=round(self._now["observation_delay"]) + 1)
        return self._see(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(self._act(action))
        return self._see(observation), *rest

    def _act(self, action: Any) -> Any:
        now, space, rng = self._now, self.action_space, self._rng
        if self._actions and now["sticky_action"] > 0 and rng.random() < now["sticky_action"]:
            action = self._actions[-1]
        self._actions.append(np.copy(action) if isinstance(action, np.ndarray) else action)
        action = self._actions[0]
        if isinstance(space, gym.spaces.Discrete):
            if now["action_flip"] > 0 and rng.random() < now["action_flip"]:
                return space.start + (action - space.start + rng.integers(1, space.n)) % space.n
            return action
        if now["action_scale"] == 1 and now["action_noise"] == 0:
            return action
        noise = rng.normal(0.0, now["action_noise"], np.shape(action)) if now["action_noise"] > 0 else 0.0
        return _within(space, now["action_scale"] * action + noise)

    def _see(self, observation: Any) -> Any:
        self._observations.append(np.copy(observation) if isinstance(observation, np.ndarray) else observation)
        observation, size = self._observations[0], self._now["observation_noise"]
        if size > 0:
            noise = self._rng.uniform(-size, size, np.shape(observation))
            observation = _within(self.observation_space, observation + noise)
        return observation


def _within(space: Any, value: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(value, space.low, space.high), dtype=space.dtype)
