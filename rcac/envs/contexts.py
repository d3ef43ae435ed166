"""Contexts: one choice of an environment's parameters, taken at a reset and kept for the episode.

    one environment            context_parameters          {"wind": Parameter(-2, 2, 0), …}: what can be varied
                               set_context({"wind": 1.0})  from the next reset on; what is not named is nominal
                               context                     {"wind": 1.0, …} of the present episode

    a vector environment       context_parameters          the same
                               set_contexts({"wind": w})   w (n,): each environment takes its own at its own next reset
                               contexts                    {"wind": (n,), …} of the present episodes

Gymnasium resets within `step` and drops `options` there, which is why a context is set beforehand. Wrappers do not
forward attributes: `parameters`, `set_context`, `set_contexts` and `contexts_of` find them, through wrappers and, for
a `SyncVectorEnv` or `AsyncVectorEnv`, in every environment.

Who has contexts: our control tasks; any MuJoCo environment in `rcac.envs.mujoco.MujocoContexts`; any environment in
`rcac.envs.perturbed.Perturbed` (noise, delay, …) or `rcac.envs.rebuilt.Rebuilt` (arguments of its constructor).
"""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from rcac.errors import InputError

Context = dict[str, float]


class Parameter(NamedTuple):
    """A sensible range to train and test on, not a limit: `set_context` takes whatever the environment can simulate."""

    low: float
    high: float
    nominal: float  # what the environment was made with
    scale: str = "linear"  # or "log": equal ratios are equal steps

    def around(self, nominal: float) -> "Parameter":
        """The same with another nominal value, which the range includes."""
        return self._replace(low=min(self.low, nominal), high=max(self.high, nominal), nominal=nominal)


class HasContext:
    """A single environment with contexts: `declare` in the constructor, `begin_context` in `reset`."""

    context_parameters: dict[str, Parameter]
    context: Context  # of the present episode
    _next: Context

    def declare(self, parameters: Mapping[str, Parameter]) -> None:
        self.context_parameters = dict(parameters)
        self.context = self._next = _nominal(self.context_parameters)

    def set_context(self, context: Mapping[str, float]) -> None:
        """From the next reset on; what is not named is nominal."""
        for name in context:
            self._add_parameter(name)
        chosen = _nominal(self.context_parameters) | {name: _number(name, value) for name, value in context.items()}
        self.check_context(chosen)
        self._next = chosen

    @property
    def next_context(self) -> Context:
        """Assigning is `set_context`; a vector environment assigns to all of its environments by `set_attr`."""
        return self._next

    @next_context.setter
    def next_context(self, context: Mapping[str, float]) -> None:
        self.set_context(context)

    def begin_context(self) -> bool:
        """Take the context that was set; whether it is another one than before."""
        changed, self.context = self._next != self.context, self._next
        return changed

    def restore_context(self, state: Mapping[str, Any]) -> None:
        """Continue with the contexts of a saved state, `{"context": …, "next_context": …}`."""
        for key in ("context", "next_context"):
            if not isinstance(state.get(key), Mapping):
                raise InputError(f"{key}: {state.get(key)!r} given, a number for each parameter expected")
        self.set_context(state["context"])
        self.begin_context()
        self.set_context(state["next_context"])

    def parameter(self, name: str) -> Parameter:
        """A parameter that is not declared, if there is one of that name."""
        raise unknown_parameter(name, self.context_parameters)

    def check_context(self, context: Context) -> None:
        """Raise if it cannot be simulated."""

    def _add_parameter(self, name: str) -> None:
        if name not in self.context_parameters:
            self.context_parameters[name] = parameter = self.parameter(name)
            self.context, self._next = ({**known, name: parameter.nominal} for known in (self.context, self._next))


class HasContexts:
    """A vector environment with contexts: `declare` in the constructor, `begin_contexts` where some are reset."""

    num_envs: int
    context_parameters: dict[str, Parameter]
    contexts: dict[str, np.ndarray]  # (n,) each, of the present episodes
    next_contexts: dict[str, np.ndarray]  # (n,) each
    _outdated: np.ndarray  # (n,) whether the two differ

    def declare(self, parameters: Mapping[str, Parameter]) -> None:
        self.context_parameters = {}
        self.contexts, self.next_contexts, self._outdated = {}, {}, np.zeros(self.num_envs, dtype=bool)
        for name, parameter in parameters.items():
            self._add_parameter(name, parameter)

    def set_contexts(self, contexts: Mapping[str, ArrayLike]) -> None:
        """Each environment takes its own (n,), or one for all, at its own next reset; what is not named is nominal."""
        for name in contexts:
            if name not in self.context_parameters:
                self._add_parameter(name, self.parameter(name))
        chosen = {name: np.full(self.num_envs, known.nominal) for name, known in self.context_parameters.items()}
        chosen |= {name: _numbers(name, values, self.num_envs) for name, values in contexts.items()}
        self.check_contexts(chosen)
        self.next_contexts = chosen
        self._outdated = np.any([values != self.contexts[name] for name, values in chosen.items()], axis=0)

    def begin_contexts(self, which: np.ndarray) -> np.ndarray:
        """The environments of these indices take the contexts that were set; the indices of those that changed."""
        changed: np.ndarray = which[self._outdated[which]]
        if len(changed):
            for name, values in self.contexts.items():
                values[changed] = self.next_contexts[name][changed]
            self._outdated[changed] = False
        return changed

    def restore_contexts(self, state: Mapping[str, Any]) -> None:
        """Continue with the contexts of a saved state, `{"contexts": …, "next_contexts": …}`."""
        for key in ("contexts", "next_contexts"):
            if not isinstance(state.get(key), Mapping):
                raise InputError(f"{key}: {state.get(key)!r} given, numbers for each parameter expected")
        self.set_contexts(state["contexts"])
        self.begin_contexts(np.arange(self.num_envs))
        self.set_contexts(state["next_contexts"])

    def parameter(self, name: str) -> Parameter:
        """A parameter that is not declared, if there is one of that name."""
        raise unknown_parameter(name, self.context_parameters)

    def check_contexts(self, contexts: dict[str, np.ndarray]) -> None:
        """Raise if they cannot be simulated."""

    def _add_parameter(self, name: str, parameter: Parameter) -> None:
        self.context_parameters[name] = parameter
        for contexts in (self.contexts, self.next_contexts):
            contexts[name] = np.full(self.num_envs, parameter.nominal)


# For any environment


def parameters(env: gym.Env | VectorEnv) -> dict[str, Parameter]:
    """What can be varied, by name; nothing, if the environment has no contexts."""
    if isinstance(env, gym.Env):
        return dict(env.get_wrapper_attr("context_parameters")) if env.has_wrapper_attr("context_parameters") else {}
    inner: Any = env.unwrapped
    if hasattr(inner, "context_parameters"):
        return dict(inner.context_parameters)
    each = _of_each(inner, "context_parameters")
    return dict(each[0]) if each else {}


def declared_ranges(envs: VectorEnv) -> dict[str, tuple[float, float, str]]:
    """The ranges of all parameters that an environment declares, as `rcac.Parameters` takes them."""
    known = parameters(envs)
    if not known:
        raise InputError(f"ranges: not given, and {envs.unwrapped} declares no parameters")
    return {name: (p.low, p.high, p.scale) for name, p in known.items() if p.low < p.high}


def set_context(env: gym.Env, context: Mapping[str, float]) -> None:
    """Set the context of one environment, whatever it is wrapped in."""
    if not env.has_wrapper_attr("set_context"):
        raise InputError(f"context: {dict(context)} given, but {env} has no parameters")
    env.get_wrapper_attr("set_context")(context)


def set_contexts(envs: VectorEnv, contexts: Mapping[str, ArrayLike]) -> None:
    """Set the contexts of a vector environment, (n,) for each name, whether it has its own way or is n single ones."""
    inner: Any = envs.unwrapped
    if hasattr(inner, "set_contexts"):
        inner.set_contexts(contexts)
        return
    if not parameters(envs):
        raise InputError(f"contexts: {', '.join(contexts)} given, but {inner} has no parameters")
    arrays = {name: _numbers(name, values, envs.num_envs) for name, values in contexts.items()}
    inner.set_attr("next_context", [{k: float(v[i]) for k, v in arrays.items()} for i in range(envs.num_envs)])


def contexts_of(envs: VectorEnv) -> dict[str, np.ndarray]:
    """The contexts of the present episodes, (n,) for each name."""
    inner: Any = envs.unwrapped
    if hasattr(inner, "contexts"):
        return {name: values.copy() for name, values in inner.contexts.items()}
    each = _of_each(inner, "context")
    return {name: np.array([context[name] for context in each]) for name in (each[0] if each else ())}


def _of_each(envs: Any, name: str) -> tuple[Any, ...]:
    """An attribute of every environment of a `SyncVectorEnv` or `AsyncVectorEnv`, if they have it."""
    if not hasattr(envs, "call") or not all(envs.call("has_wrapper_attr", name)):
        return ()
    return tuple(envs.get_attr(name))


def unknown_parameter(name: str, known: Mapping[str, Any]) -> InputError:
    return InputError(f"context: {name!r} given, one of {', '.join(known) or 'no parameters'} expected")


def _nominal(parameters: Mapping[str, Parameter]) -> Context:
    return {name: parameter.nominal for name, parameter in parameters.items()}


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"{name}: {value!r} given, a finite number expected")
    return float(value)


def _numbers(name: str, values: ArrayLike, count: int) -> np.ndarray:
    try:
        array = np.array(np.broadcast_to(np.asarray(values, dtype=float), (count,)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {values!r} given, {count} numbers expected") from error
    if not np.isfinite(array).all():
        raise InputError(f"{name}: {array.tolist()} given, finite numbers expected")
    return array
