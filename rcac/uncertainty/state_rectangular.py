"""s-rectangular sets: the rows of all actions of a state share one budget.

    𝒫 = × over s of 𝒫_s,      𝒫_s = { (q_a)_a : distance of (q_a)_a from (p_a)_a ≤ r_s }

The adversary sees which actions a policy mixes, and spends the budget where that pays:

    given π      max over (q_a) in 𝒫_s of  Σ_a π(a|s) q_aᵀV                         (`against(policy).sweep`)
    for the best π    min over π of max over (q_a) of  Σ_a π_a (c_a + γ q_aᵀV)      (`improve`)

By the minimax theorem the second is the largest level t to which the adversary can lift every action at once,
max over (q_a) of min_a (c_a + γ q_aᵀV). If β_a(t) is the least budget that lifts action a to t, then Σ_a β_a(t) = r, and the best
policy mixes actions in proportion to the slopes β_a'(t): it is stochastic in general.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP, Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, check_flag, check_radius
from rcac.uncertainty.nominal import Nominal


@dataclass(frozen=True)
class StateRectangular(Uncertainty):
    """What the balls share. `radius`: a number, or one for each state (S,). `weights`: how much of the budget a change of each
    action's row takes, positive, a number or (S, A). `within_support` keeps q_a where p_a is positive."""

    radius: float | np.ndarray
    weights: float | np.ndarray = 1.0
    within_support: bool = False
    rectangular = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        weights = check_radius(self.weights, "weights")
        if not np.min(weights) > 0:
            raise InputError(f"weights: {np.min(weights)} given, positive numbers expected")
        object.__setattr__(self, "weights", weights)
        check_flag("within_support", self.within_support)

    def check(self, problem: RCMDP) -> None:
        states, actions = problem.num_states, problem.num_actions
        if np.ndim(self.radius) and np.shape(self.radius) != (states,):
            raise InputError(f"radius: shape {np.shape(self.radius)} given, a number or ({states},) expected")
        if np.ndim(self.weights) and np.shape(self.weights) != (states, actions):
            raise InputError(f"weights: shape {np.shape(self.weights)} given, a number or {(states, actions)} expected")

    @abstractmethod
    def respond(
        self, values: np.ndarray, rows: Rows, policy: np.ndarray, radius: np.ndarray, weights: np.ndarray
    ) -> WorstCase:
        """Worst cases of values (K, S) for a policy (S, A); radius (S,), weights (S, A)."""

    @abstractmethod
    def level(
        self,
        values: np.ndarray,
        rows: Rows,
        costs: np.ndarray,
        discount: float,
        radius: np.ndarray,
        weights: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`improve` for values (1, S), with radius (S,) and weights (S, A)."""

    def improve(
        self, values: np.ndarray, rows: Rows, costs: np.ndarray, discount: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """For values (S,) and costs (S, A): min over π of the worst case, (S,), and a policy (S, A) that attains it."""
        return self.level(values[None], rows, costs, discount, *self._budgets(costs.shape))

    def against(self, policy: np.ndarray) -> Uncertainty:
        return Against(self, policy)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        """Against the uniform policy, for all rows of a problem: kernels of the set, for those who need any."""
        actions, rest = divmod(rows.count, rows.width)
        if rest:
            raise InputError(f"rows: {rows.count} given, all actions of {rows.width} states expected")
        return self.against(np.full((rows.width, actions), 1 / actions)).sweep(values, rows, memory)

    def worst_case(self, values: np.ndarray, nominal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise InputError("worst_case: the rows of a state share a budget; against(policy).sweep(values, rows) expected")

    def _budgets(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        return np.array(np.broadcast_to(self.radius, shape[:1])), np.array(np.broadcast_to(self.weights, shape))


@dataclass(frozen=True, eq=False)
class Against(Uncertainty):
    """A set as the adversary of one policy."""

    uncertainty: StateRectangular
    policy: np.ndarray  # (S, A)
    rectangular = False

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        if not np.any(self.uncertainty.radius):
            return Nominal().sweep(values, rows)
        policy = np.ascontiguousarray(self.policy)
        return self.uncertainty.respond(values, rows, policy, *self.uncertainty._budgets(policy.shape))
