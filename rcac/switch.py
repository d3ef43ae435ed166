"""Which cost does this step descend?

Given returns J (N+1,) in cost form, objective first, and budgets b (N,), a switch scores every term

    surrogate   [ J_0/λ ,  J_n − b_n + ξ ]             descend the largest
    epigraph    [ J_0 − b_0 ,  J_n − b_n ]             descend the largest
    CRPO        J_n − b_n while any exceeds its tolerance, else J_0

and ranks iterates by `merit` (a tuple, lexicographic, smaller is better). Tabular and deep methods share it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rcac.errors import InputError


class Switch(Protocol):
    def choose(self, returns: np.ndarray, budgets: np.ndarray) -> int:
        """Index of the cost to descend, 0 being the objective."""

    def weight(self, index: int) -> float:
        """Factor on the gradient of the chosen cost."""

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        """Rank of an iterate; smaller is better."""


def violation(returns: np.ndarray, budgets: np.ndarray) -> float:
    """Largest excess over a budget, 0 when there is none."""
    return max(0.0, float(np.max(returns[1:] - budgets, initial=0.0)))


@dataclass(frozen=True)
class Surrogate:
    """Descend whichever attains max{ J_0/λ, max_n (J_n − b_n + ξ) }."""

    lam: float = 50.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.lam < np.inf:
            raise InputError(f"lam: {self.lam} given, a positive finite number expected")
        if not 0 <= self.slack < np.inf:
            raise InputError(f"slack: {self.slack} given, a finite number ≥ 0 expected")

    def terms(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        return np.concatenate([returns[:1] / self.lam, returns[1:] - budgets + self.slack])

    def choose(self, returns: np.ndarray, budgets: np.ndarray) -> int:
        return int(np.argmax(self.terms(returns, budgets)))

    def weight(self, index: int) -> float:
        return 1.0 / self.lam if index == 0 else 1.0

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return (float(np.max(self.terms(returns, budgets))),)


def automatic_slack(largest_cost: float, discount: float, lam: float) -> float:
    """Smallest ξ for which a minimiser of the surrogate is feasible: `max c_0/((1−γ)λ)` if positive, else 0."""
    return max(0.0, largest_cost) / ((1.0 - discount) * lam)


@dataclass(frozen=True)
class CRPO:
    """Descend the most violated constraint while any exceeds its tolerance, else the objective."""

    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < np.inf:
            raise InputError(f"tolerance: {self.tolerance} given, a finite number ≥ 0 expected")

    def choose(self, returns: np.ndarray, budgets: np.ndarray) -> int:
        excess = returns[1:] - budgets
        if excess.size == 0 or np.max(excess) <= self.tolerance:
            return 0
        return 1 + int(np.argmax(excess))

    def weight(self, index: int) -> float:
        return 1.0

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return (violation(returns, budgets + self.tolerance), float(returns[0]))


@dataclass(frozen=True)
class Epigraph:
    """Descend whichever attains max{ J_0 − b_0, max_n (J_n − b_n) } for the objective's level b_0."""

    level: float

    def terms(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        return returns - np.concatenate([[self.level], budgets])

    def choose(self, returns: np.ndarray, budgets: np.ndarray) -> int:
        return int(np.argmax(self.terms(returns, budgets)))

    def weight(self, index: int) -> float:
        return 1.0

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return (float(np.max(self.terms(returns, budgets))),)


@dataclass(frozen=True)
class Bisection:
    """The epigraph's level, halved after each phase: reached levels drop the upper half, others the lower."""

    low: float  # no policy is believed to have J_0 below this
    high: float  # some feasible policy is believed to have J_0 below this

    @property
    def level(self) -> float:
        return (self.low + self.high) / 2

    def halved(self, reached: bool) -> "Bisection":
        return Bisection(self.low, self.level) if reached else Bisection(self.level, self.high)
