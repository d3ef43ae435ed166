"""What a policy can be tested under: `sweep.<name>=v1,v2,…` on a command line.

    noise, wind, action_flip, mass, length, gravity, force, …   any numeric argument of the environment
    observation_noise, action_noise                             wrappers, for environments that have no such argument
    radius                                                      of the uncertainty set (or its temperature), exact
    random                                                      kernels sampled from the set of that radius, exact

Each sweep is alone: whatever it does not name is as in training.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import scipy.sparse as sp
from gymnasium.vector import SyncVectorEnv, VectorEnv

from rcac.envs.contexts import parameters
from rcac.envs.wrappers import ActionNoise, ObservationNoise
from rcac.errors import InputError
from rcac.problem import RCMDP
from rcac.runs.config import Config
from rcac.runs.environments import close, make_envs, open_env
from rcac.uncertainty.base import Uncertainty

PREFIX = "sweep."
TRAINING = "as in training"
EPISODES, WORST_CASE, KERNELS = "episodes", "worst case", "kernels"  # ways to score a policy
FRIENDLY = {"noise": "noise_high"}  # an argument by the name of what it does
SET_STRENGTHS = ("radius", "temperature")  # what a set calls its size

Wrap = Callable[[gym.Env], gym.Env]
WRAPPERS: dict[str, Callable[[float], Wrap]] = {
    "observation_noise": lambda strength: lambda env: ObservationNoise(env, -strength, strength),
    "action_noise": lambda strength: lambda env: ActionNoise(env, strength),
}


class Condition(NamedTuple):
    """One strength of one perturbation."""

    perturbation: str
    strength: float | None  # None: as in training
    config: Config  # environment and set, perturbed
    uncertainty: str = ""  # the set, in words; without what is swept
    measure: str = EPISODES
    wrap: Wrap | None = None  # around each copy of the environment

    def make_envs(self, num_envs: int) -> VectorEnv:
        if self.wrap is None:
            return make_envs(self.config.env, num_envs)
        envs = make_envs(replace(self.config.env, vectorization="sync"), num_envs)
        assert isinstance(envs, SyncVectorEnv)
        envs.envs = [self.wrap(single) for single in envs.envs]  # outside of what computes the costs
        return envs

    @property
    def label(self) -> str:
        return self.perturbation if self.strength is None else f"{self.perturbation} {self.strength:g}"


def parse(text: str) -> tuple[str, list[float]]:
    """`sweep.noise=0,0.02` is `("noise", [0, 0.02])`, in rising order; brackets are allowed."""
    key, _, values = text.partition("=")
    like = f"numbers like {PREFIX}noise=0,0.02,0.04 expected"
    name, parts = key.removeprefix(PREFIX), values.strip().removeprefix("[").removesuffix("]").split(",")
    if not name or parts == [""]:
        raise InputError(f"{key}: nothing given, {like}")
    strengths = set()
    for index, part in enumerate(parts):
        try:
            strengths.add(float(part))
        except ValueError:
            raise InputError(f"{key}[{index}]: {part.strip()!r} given, {like}") from None
        if not math.isfinite(float(part)):
            raise InputError(f"{key}[{index}]: {part.strip()} given, finite {like}")
    return name, sorted(strengths)


def parse_all(texts: Iterable[str]) -> dict[str, list[float]]:
    """The strengths of each perturbation, in the order given."""
    found: dict[str, list[float]] = {}
    for name, strengths in map(parse, texts):
        if name in found:
            both = ",".join(f"{strength:g}" for strength in sorted({*found[name], *strengths}))
            raise InputError(f"{PREFIX}{name}: given twice, all strengths in one expected, {PREFIX}{name}={both}")
        found[name] = strengths
    return found


def unperturbed(config: Config) -> Condition:
    return Condition(TRAINING, None, config, set_words(config.uncertainty))


def known(config: Config) -> dict[str, Callable[[float], Condition]]:
    """What can be swept in a run's environment: by name, the condition for a strength."""
    single, problem, _ = open_env(config.env)
    found: dict[str, Callable[[float], Condition]] = {}
    try:
        wrapped = parameters(single) if config.env.wrapper else {}
        arguments = _arguments({name: p.nominal for name, p in wrapped.items()} | config.env.kwargs, single)
        for name, argument in FRIENDLY.items():
            if argument in arguments:
                found[name] = partial(_with_argument, config, name, argument, arguments[argument])
        for name, usual in arguments.items():
            found[name] = partial(_with_argument, config, name, name, usual)
        for name, wrap in WRAPPERS.items():
            if name not in found and _fits(wrap(0.0), single):
                found[name] = partial(_with_wrapper, config, name)
    finally:
        close(single)
    row = config.uncertainty or {}
    for name in SET_STRENGTHS:
        if problem is not None and name in row:
            found |= {alias: partial(_with_set, config, name, name, WORST_CASE) for alias in ("radius", name)}
    if problem is not None and "radius" in row:
        found["random"] = partial(_with_set, config, "random", "radius", KERNELS)
    return found


def _arguments(given: dict[str, Any], single: gym.Env) -> dict[str, Any]:
    """The numeric arguments of an environment and their usual values: those configured, and those of its class."""
    own = {p.name: p.default for p in inspect.signature(type(single.unwrapped)).parameters.values()}
    both = own | given
    return {name: x for name, x in both.items() if isinstance(x, int | float) and not isinstance(x, bool)}


def _fits(wrap: Wrap, single: gym.Env) -> bool:
    try:
        wrap(single)
    except InputError:
        return False
    return True


def _with_argument(config: Config, name: str, argument: str, usual: Any, strength: float) -> Condition:
    whole = isinstance(usual, int) and strength.is_integer()
    kwargs = config.env.kwargs | {argument: int(strength) if whole else strength}
    changed = replace(config, env=replace(config.env, kwargs=kwargs))
    return Condition(name, strength, changed, set_words(config.uncertainty))


def _with_wrapper(config: Config, name: str, strength: float) -> Condition:
    return Condition(name, strength, config, wrap=WRAPPERS[name](strength))


def _with_set(config: Config, name: str, key: str, measure: str, strength: float) -> Condition:
    row = dict(config.uncertainty or {}) | {key: strength}
    return Condition(name, strength, replace(config, uncertainty=row), set_words(row, key), measure)


def cost_units(config: Config) -> list[str]:
    """What an environment says of its costs, one for each: `metadata["cost_units"]`, as in ["Σ|x| (m)"]."""
    single = open_env(config.env).env
    try:
        return list(map(str, single.metadata.get("cost_units", [])))
    finally:
        close(single)


def set_words(row: dict[str, Any] | None, without: str = "") -> str:
    """`kl_ball radius=0.01`."""
    if not row:
        return ""
    rest = [f"{key}={value}" for key, value in row.items() if key not in ("name", without)]
    return " ".join([row["name"], *rest])


def random_kernels(problem: RCMDP, uncertainty: Uncertainty, count: int, seed: int) -> list[RCMDP]:
    """The problem under kernels sampled from a convex set around its own.

    The kernel that is worst for any values lies in the set, and so does whatever is between it and the nominal one:
    values are sampled from N(0, 1), one vector for a kernel (so that its rows do not cancel out), and for each row how far
    it goes, from U(0, 1). The draws depend on the seed alone: another radius moves the same kernels further out.
    """
    rng = np.random.default_rng(seed)
    values, share = rng.normal(size=(count, problem.num_states)), rng.random((count, problem.rows.count))
    worst, nominal = uncertainty.sweep(values, problem.rows), problem.rows.matrix()
    found = []
    for k in range(count):
        far, step = worst.matrix(k, problem.num_states), share[k]
        if worst.direction is not None:  # a closed form that may leave the simplex
            far = sp.csr_array(worst.dense(k, problem.num_states))
            step = np.minimum(step, _reach(nominal, far))
        kernel = sp.csr_array(sp.diags_array(1 - step) @ nominal + sp.diags_array(step) @ far)
        kernel.data = np.maximum(kernel.data, 0.0)  # rounding
        found.append(replace(problem, kernel=kernel))
    return found


def _reach(nominal: sp.csr_array, far: sp.csr_array) -> np.ndarray:
    """(M,) how far each row can go towards `far`, whose entries may be negative, and stay a distribution."""
    p, q = nominal.toarray(), far.toarray()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(q < 0, p / (p - q), 1.0).min(axis=1)
