"""Cart-pole dynamics under perturbation, for one copy and for many.

    state    s = (x, ẋ, θ, θ̇)                               # (4,) for one copy, (4, n) for n copies
    force    F = ±force_mag + wind                            the sign flipped with probability `action_flip`
    step     s ← s + τ·(ẋ, ẍ, θ̇, θ̈)                          Euler, as Gymnasium's CartPole
             with u = (F + m l θ̇² sin θ)/M
                  θ̈ = (g sin θ − u cos θ) / (l (4/3 − m cos² θ/M))
                  ẍ = u − m l θ̈ cos θ/M
    noise    U(low, high) on each component of s (target `state`) or of what is seen of it (target `observation`),
             clipped to the bounds of the observation space

The constants (g, m, M, l, τ, force_mag) are attributes of Gymnasium's own cart-pole classes, single and vector.
Every operation is Gymnasium's in Gymnasium's order, so that without perturbation the numbers agree bit for bit.
Constants and perturbations are numbers, or arrays (n,) where each of n environments has its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np

from rcac.errors import InputError

from ..contexts import Parameter

COST_RANGE = (0.0, 2.42)  # of a step, in the mean over an episode: the last one may end a little beyond ±2.4
RANGES = {  # of the parameters of a context, where they are worth training and testing on
    "noise_low": (-0.1, 0.0, "linear"),
    "noise_high": (0.0, 0.1, "linear"),
    "action_flip": (0.0, 0.1, "linear"),
    "wind": (-2.0, 2.0, "linear"),
    "mass": (0.5, 2.0, "log"),
    "length": (0.5, 2.0, "log"),
    "gravity": (0.8, 1.2, "linear"),
    "force": (0.7, 1.3, "linear"),
}


class CartPole(Protocol):
    """The constants that Gymnasium's `CartPoleEnv` and `CartPoleVectorEnv` both carry."""

    gravity: float
    masscart: float
    masspole: float
    total_mass: float  # masspole + masscart
    length: float  # half the pole's
    polemass_length: float  # masspole · length
    force_mag: float
    tau: float
    x_threshold: float
    theta_threshold_radians: float


@dataclass(frozen=True)
class Perturbation:
    """What is done to the cart-pole; the defaults do nothing, and draw nothing. Numbers, or one for each environment."""

    noise_target: str = "observation"
    noise_low: float = 0.0
    noise_high: float = 0.0
    action_flip: float = 0.0  # probability that the other action is taken
    wind: float = 0.0  # newton, positive to the right
    mass: float = 1.0  # factors; the mass is the pole's (cart and pole together: the same as 1/force)
    length: float = 1.0
    gravity: float = 1.0
    force: float = 1.0

    def __post_init__(self) -> None:
        if self.noise_target not in ("observation", "state"):
            raise InputError(f"noise_target: {self.noise_target!r} given, 'observation' or 'state' expected")
        for name in RANGES:
            value = getattr(self, name)
            number = isinstance(value, Real | np.ndarray) and not isinstance(value, bool)
            _require(name, value, np.isfinite(value) if number else False, "a finite number")
        low_enough = np.less_equal(self.noise_low, self.noise_high)
        if not np.all(low_enough):  # words for arrays take longer than a step: only where they are needed
            _require("noise_low", self.noise_low, low_enough, f"at most noise_high = {self.noise_high}")
        probability = np.less_equal(0, self.action_flip) & np.less_equal(self.action_flip, 1)
        _require("action_flip", self.action_flip, probability, "a probability in [0, 1]")
        for name in ("mass", "length", "gravity", "force"):
            _require(name, getattr(self, name), np.greater(getattr(self, name), 0), "a positive factor")

    def parameters(self) -> dict[str, Parameter]:
        """Of a context; nominal is what is here."""
        return {
            name: Parameter(low, high, 0.0, scale).around(float(getattr(self, name)))
            for name, (low, high, scale) in RANGES.items()
        }

    def with_context(self, context: Mapping[str, Any]) -> "Perturbation":
        return replace(self, **context)

    @cached_property
    def flips(self) -> bool:
        return bool(np.any(np.greater(self.action_flip, 0)))

    @cached_property
    def noisy(self) -> Any:
        """Whether there is noise: one answer if it is the same for all, else (n,)."""
        noisy = np.not_equal(self.noise_low, 0) | np.not_equal(self.noise_high, 0)
        return bool(noisy.flat[0]) if noisy.all() or not noisy.any() else noisy

    def of(self, which: np.ndarray) -> "Perturbation":
        """The same for the environments of these indices."""
        arrays = {name: value for name in RANGES if np.ndim(value := getattr(self, name))}
        return replace(self, **{name: value[which] for name, value in arrays.items()}) if arrays else self


def _require(name: str, value: Any, valid: Any, expected: str) -> None:
    if not np.all(valid):
        wrong = float(value[~valid][0]) if np.ndim(value) else value
        raise InputError(f"{name}: {wrong!r} given, {expected} expected")


class Constants(NamedTuple):
    """What is scaled."""

    masspole: float
    length: float
    gravity: float
    force_mag: float

    @classmethod
    def of(cls, cart: CartPole) -> "Constants":
        return cls(cart.masspole, cart.length, cart.gravity, cart.force_mag)


def rescale(cart: CartPole, nominal: Constants, perturbation: Perturbation) -> None:
    """Scale the constants, and derive again whatever is derived from them."""
    cart.masspole = nominal.masspole * perturbation.mass
    cart.length = nominal.length * perturbation.length
    cart.gravity = nominal.gravity * perturbation.gravity
    cart.force_mag = nominal.force_mag * perturbation.force
    cart.total_mass = cart.masspole + cart.masscart
    cart.polemass_length = cart.masspole * cart.length


def push(cart: CartPole, perturbation: Perturbation, action: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Force on the cart, of the shape of `action`."""
    if perturbation.flips:
        action = action ^ (rng.random(action.shape) < perturbation.action_flip)
    forces = np.array((perturbation.wind - cart.force_mag, perturbation.wind + cart.force_mag))  # (2,) or (2, n)
    return np.asarray(forces[action] if forces.ndim == 1 else np.where(action, forces[1], forces[0]))


def advance(cart: CartPole, state: np.ndarray, force: np.ndarray) -> np.ndarray:
    """The next state, without noise."""
    _, x_dot, theta, theta_dot = state
    sin, cos = np.sin(theta), np.cos(theta)
    u = (force + cart.polemass_length * np.square(theta_dot) * sin) / cart.total_mass
    theta_acc = (cart.gravity * sin - cos * u) / (
        cart.length * (4.0 / 3.0 - cart.masspole * np.square(cos) / cart.total_mass)
    )
    x_acc = u - cart.polemass_length * theta_acc * cos / cart.total_mass
    return state + cart.tau * np.array((x_dot, x_acc, theta_dot, theta_acc))


def with_noise(
    cart: CartPole, perturbation: Perturbation, target: str, state: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """`state` itself, or a noisy copy of it if `target` is what the noise is on."""
    if target != perturbation.noise_target or perturbation.noisy is False:
        return state
    noisy = state + rng.uniform(perturbation.noise_low, perturbation.noise_high, state.shape)
    bounds = np.array((2 * cart.x_threshold, np.inf, 2 * cart.theta_threshold_radians, np.inf))
    bounded = np.minimum(np.maximum(noisy.T, -bounds), bounds).T
    return bounded if perturbation.noisy is True else np.where(perturbation.noisy, bounded, state)


def upright(cart: CartPole, x: np.ndarray) -> np.ndarray:
    """1 for every step."""
    return np.ones_like(x)


def offset(cart: CartPole, x: np.ndarray) -> np.ndarray:
    """1 + d (2 − d), where d in [0, 1] is the distance to the left as a share of the track's half."""
    d = np.minimum(np.maximum(-x / cart.x_threshold, 0.0), 1.0)
    return 1.0 + d * (2.0 - d)


REWARDS: dict[str, Callable[[CartPole, np.ndarray], np.ndarray]] = {"upright": upright, "offset": offset}


STARTS: dict[str, dict[str, float]] = {"random": {}, "fixed": {"low": 0.0, "high": 0.0}}


def choose_reward(name: str) -> Callable[[CartPole, np.ndarray], np.ndarray]:
    if name not in REWARDS:
        raise InputError(f"reward: {name!r} given, one of {', '.join(map(repr, REWARDS))} expected")
    return REWARDS[name]


def start_bounds(name: str) -> dict[str, float]:
    """Options of `reset`: bounds of the starting state's components."""
    if name not in STARTS:
        raise InputError(f"start: {name!r} given, one of {', '.join(map(repr, STARTS))} expected")
    return STARTS[name]
