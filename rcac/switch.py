"""Which costs does this step descend, and how much of each?

Given returns J (N+1,) in cost form, objective first, and budgets b (N,), a switch returns weights (N+1,); the step
descends the weighted sum of the costs. Surrogate, epigraph and CRPO choose one cost:

    surrogate   [ J_0/λ ,  J_n − b_n + ξ ]             the largest; the objective with weight 1/λ
    epigraph    [ J_0 − b_0 ,  J_n − b_n ]             the largest
    CRPO        J_n − b_n while any exceeds its tolerance, else J_0

`Complement` gives a surrogate the objective r_max − r ≥ 0 in place of −r: J_0 + r_max Σ γ^t for J_0.

A Lagrangian weighs all of them by multipliers that it learns. Every switch ranks iterates by `merit` (a tuple,
lexicographic, smaller is better). Tabular and deep methods share it.
"""

from dataclasses import dataclass, field

import numpy as np

from rcac.errors import InputError
from rcac.learner import State


class Switch:
    """A switch has `weights` and `merit`; the rest is for those that change in the course of a run."""

    filters = False  # whether it smooths the returns it is given itself; else a deep method does that before

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        """(N+1,) ≥ 0, not all zero."""
        raise NotImplementedError

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        """Rank of an iterate; smaller is better."""
        raise NotImplementedError

    def begin_update(self, progress: float, costs: np.ndarray) -> None:
        """Called before `weights`, with the share of the run that is done and objective costs of recent steps."""

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> State:
        return State({}, {})

    def load(self, state: State) -> None:
        pass


def violation(returns: np.ndarray, budgets: np.ndarray) -> float:
    """Largest excess over a budget, 0 when there is none."""
    return max(0.0, float(np.max(returns[1:] - budgets, initial=0.0)))


def one_hot(index: int, count: int, weight: float = 1.0) -> np.ndarray:
    weights = np.zeros(count)
    weights[index] = weight
    return weights


@dataclass(frozen=True)
class Surrogate(Switch):
    """Descend whichever attains max{ J_0/λ, max_n (J_n − b_n + ξ) }."""

    lam: float = 50.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.lam < np.inf:
            raise InputError(f"lam: {self.lam} given, a positive finite number expected")
        if not 0 <= self.slack < np.inf:
            raise InputError(f"slack: {self.slack} given, a finite number ≥ 0 expected")

    def terms(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        terms: np.ndarray = np.concatenate([returns[:1] / self.lam, returns[1:] - budgets + self.slack])
        return terms

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        index = int(np.argmax(self.terms(returns, budgets)))
        return one_hot(index, len(returns), 1.0 / self.lam if index == 0 else 1.0)

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return (float(np.max(self.terms(returns, budgets))),)


class Complement(Switch):
    """A switch that sees the objective as a cost r_max − r ≥ 0, not −r: `J_0 + r_max·steps`, with `steps` = Σ γ^t.

    No gradient sees the constant, but the point where `J_0/λ` and `J_n − b_n` balance moves with it. Without a `largest`
    reward that is known, r_max is the largest seen so far. Steps after an episode's end count: they have reward 0, and
    so cost r_max. (A sum of r_max − r up to the end would favour ending early; for cart-pole's reward it is always 0.)
    """

    def __init__(self, inner: Switch, steps: float, largest: float | None = None) -> None:
        self.inner, self.steps, self.known = inner, steps, largest is not None
        self.largest = 0.0 if largest is None else largest  # r_max

    def _shifted(self, returns: np.ndarray) -> np.ndarray:
        shifted: np.ndarray = returns + one_hot(0, len(returns), self.largest * self.steps)
        return shifted

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        return self.inner.weights(self._shifted(returns), budgets)

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return self.inner.merit(self._shifted(returns), budgets)

    def begin_update(self, progress: float, costs: np.ndarray) -> None:
        if not self.known:
            self.largest = max(self.largest, -float(np.min(costs, initial=0.0)))
        self.inner.begin_update(progress, costs)

    def metrics(self) -> dict[str, float]:
        return self.inner.metrics()

    def state(self) -> State:
        tensors, data = self.inner.state()
        return State(tensors, {**data, "largest": self.largest})

    def load(self, state: State) -> None:
        self.largest = float(state.data["largest"])
        self.inner.load(state)


def automatic_slack(largest_cost: float, discount: float, lam: float) -> float:
    """Smallest ξ for which a minimiser of the surrogate is feasible: `max c_0/((1−γ)λ)` if positive, else 0."""
    return max(0.0, largest_cost) / ((1.0 - discount) * lam)


@dataclass(frozen=True)
class CRPO(Switch):
    """Descend the most violated constraint while any exceeds its tolerance, else the objective."""

    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < np.inf:
            raise InputError(f"tolerance: {self.tolerance} given, a finite number ≥ 0 expected")

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        excess = returns[1:] - budgets
        violated = excess.size > 0 and np.max(excess) > self.tolerance
        return one_hot(1 + int(np.argmax(excess)) if violated else 0, len(returns))

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return (violation(returns, budgets + self.tolerance), float(returns[0]))


@dataclass(frozen=True)
class Epigraph(Switch):
    """Descend whichever attains max{ J_0 − b_0, max_n (J_n − b_n) } for the objective's level b_0."""

    level: float

    def terms(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        terms: np.ndarray = returns - np.concatenate([[self.level], budgets])
        return terms

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        return one_hot(int(np.argmax(self.terms(returns, budgets))), len(returns))

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


@dataclass
class Lagrangian(Switch):
    """Descend J_0 + Σ μ_n J_n, with multipliers from a PID controller (Stooke, Achiam, Abbeel 2020).

        e_n = (J_n − b_n)/u_n                          u_n = |b_n|, or |J_n| at first where the budget is zero
        I_n ← clip(I_n + rate·ki·e_n)                  clip to [0, max]
        μ_n = clip(kp·e_n + I_n + kd·(e_n − e_n')_+)   e' the update before

    The weights are (1, μ)/(1 + Σμ). With kp = kd = 0 this is dual ascent with step `rate·ki`.
    """

    filters = True

    kp: float = 2.0
    ki: float = 1.0
    kd: float = 0.1
    initial: float = 0.001  # I_n before the first update
    rate: float = 0.035  # learning rate of the integral
    largest: float = 100.0  # bound on μ_n
    tolerance: float = 0.0  # excess over a budget that ranking accepts
    integral: np.ndarray | None = field(default=None, init=False)  # I (N,)
    previous: np.ndarray | None = field(default=None, init=False)  # e' (N,)
    units: np.ndarray | None = field(default=None, init=False)  # u (N,)
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0), init=False)  # μ (N,)

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        if self.integral is None or self.units is None:
            self.integral = np.full(len(budgets), self.initial)
            units = np.where(budgets != 0, np.abs(budgets), np.abs(returns[1:]))
            self.units = np.where(units > 0, units, 1.0)
        error = (returns[1:] - budgets) / self.units
        rise = np.zeros_like(error) if self.previous is None else np.maximum(error - self.previous, 0.0)
        self.integral = np.clip(self.integral + self.rate * self.ki * error, 0.0, self.largest)
        self.multipliers = np.clip(self.kp * error + self.integral + self.kd * rise, 0.0, self.largest)
        self.previous = error
        weights: np.ndarray = np.concatenate([[1.0], self.multipliers]) / (1.0 + self.multipliers.sum())
        return weights

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return CRPO(self.tolerance).merit(returns, budgets)

    def metrics(self) -> dict[str, float]:
        return {f"switch/multiplier/{n}": float(mu) for n, mu in enumerate(self.multipliers, start=1)}

    def state(self) -> State:
        kept = {"integral": self.integral, "previous": self.previous, "units": self.units}
        return State({name: array.copy() for name, array in kept.items() if array is not None}, {})

    def load(self, state: State) -> None:
        for name in ("integral", "previous", "units"):
            setattr(self, name, state.tensors.get(name))
