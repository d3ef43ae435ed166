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
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Protocol

import numpy as np

from rcac.errors import InputError


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
    """What is done to the cart-pole; the defaults do nothing, and draw nothing."""

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
        for name in (field.name for field in fields(self) if field.type is float):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise InputError(f"{name}: {value!r} given, a finite number expected")
        if self.noise_low > self.noise_high:
            raise InputError(f"noise_low: {self.noise_low} given, at most noise_high = {self.noise_high} expected")
        if not 0 <= self.action_flip <= 1:
            raise InputError(f"action_flip: {self.action_flip} given, a probability in [0, 1] expected")
        for name in ("mass", "length", "gravity", "force"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}: {getattr(self, name)} given, a positive factor expected")

    def noisy(self, target: str) -> bool:
        return self.noise_target == target and (self.noise_low, self.noise_high) != (0.0, 0.0)


def rescale(cart: CartPole, perturbation: Perturbation) -> None:
    """Scale the constants, and derive again whatever is derived from them."""
    cart.masspole *= perturbation.mass
    cart.length *= perturbation.length
    cart.gravity *= perturbation.gravity
    cart.force_mag *= perturbation.force
    cart.total_mass = cart.masspole + cart.masscart
    cart.polemass_length = cart.masspole * cart.length


def push(cart: CartPole, perturbation: Perturbation, action: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Force on the cart, of the shape of `action`."""
    if perturbation.action_flip > 0:
        action = action ^ (rng.random(action.shape) < perturbation.action_flip)
    return np.array((perturbation.wind - cart.force_mag, perturbation.wind + cart.force_mag))[action]


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
    if not perturbation.noisy(target):
        return state
    noisy = state + rng.uniform(perturbation.noise_low, perturbation.noise_high, state.shape)
    bounds = np.array((2 * cart.x_threshold, np.inf, 2 * cart.theta_threshold_radians, np.inf))
    return np.minimum(np.maximum(noisy.T, -bounds), bounds).T


def upright(cart: CartPole, x: np.ndarray) -> np.ndarray:
    """1 for every step."""
    return np.ones_like(x)


def offset(cart: CartPole, x: np.ndarray) -> np.ndarray:
    """1 + d (2 − d), where d in [0, 1] is the distance to the left as a share of the track's half."""
    d = np.minimum(np.maximum(-x / cart.x_threshold, 0.0), 1.0)
    return 1.0 + d * (2.0 - d)


REWARDS: dict[str, Callable[[CartPole, np.ndarray], np.ndarray]] = {"upright": upright, "offset": offset}


def choose_reward(name: str) -> Callable[[CartPole, np.ndarray], np.ndarray]:
    if name not in REWARDS:
        raise InputError(f"reward: {name!r} given, one of {', '.join(map(repr, REWARDS))} expected")
    return REWARDS[name]
