"""Robust one-step errors and advantages, for all costs at once (cost form, objective first).

    y_n(t)  =  c_n(t) + γ (1 − terminated(t)) ( V_n(s_{t+1}) + ρ‖w_n‖ )       worst case of the IPM set raises a cost
    δ_n(t)  =  y_n(t) − V_n(s_t)
    A_n(t)  =  δ_n(t) + γλ (1 − done(t)) A_n(t+1)                                 done = terminated or truncated
    target  =  A_n + V_n                                                          with a λ of the critics' own

s_{t+1} is the true next state: a truncated step bootstraps from its final observation, a terminated one from nothing.
Shapes: K costs, T steps, n environments.
"""

from typing import NamedTuple

import numpy as np


class Returns(NamedTuple):
    errors: np.ndarray  # δ (K, T, n), robust one-step errors
    advantages: np.ndarray  # A (K, T, n)
    targets: np.ndarray  # (K, T, n), what the critics should say at s_t


def robust_targets(
    costs: np.ndarray, next_values: np.ndarray, terminated: np.ndarray, margins: np.ndarray, gamma: float
) -> np.ndarray:
    """y (K, T, n) from costs and values at the next states (K, T, n), flags (T, n), and margins ρ‖w_n‖ (K,)."""
    return costs + gamma * (~terminated) * (next_values + margins[:, None, None])


def robust_gae(
    costs: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    margins: np.ndarray,
    gamma: float,
    gae_lambda: float,
    critic_lambda: float,
) -> Returns:
    """Errors, advantages and targets of a rollout. A row that is no transition may hold anything finite, provided that
    the row before it is done: nothing flows back from there."""
    errors = robust_targets(costs, next_values, terminated, margins, gamma) - values
    decay = gamma * ~(terminated | truncated)  # (T, n)
    advantages, targets = _accumulated(errors, np.multiply.outer([gae_lambda, critic_lambda], decay))
    return Returns(errors, advantages, targets + values)


def _accumulated(errors: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """A(t) = δ(t) + decay(t) A(t+1), backwards in time: (L, K, T, n) from δ (K, T, n) and L decays (L, T, n)."""
    sums = np.empty((len(decays), *errors.shape))
    following = np.zeros_like(sums[:, :, 0])
    for t in reversed(range(errors.shape[1])):
        following = errors[:, t] + decays[:, None, t] * following
        sums[:, :, t] = following
    return sums


def kappa_of(gamma: float, horizon: int) -> float:
    """(1 − γ^L)/((1 − γ)L): the discounted sum of a constant cost over L steps, per unit of its plain sum."""
    return (1.0 - gamma**horizon) / ((1.0 - gamma) * horizon)
