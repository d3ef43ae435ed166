"""The parts and numbers of a tabular method. A method is a row of these values, nothing more."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from rcac.errors import InputError

CHOICES = {
    "family": ("tabular",),
    "switch": ("surrogate", "crpo", "epigraph", "lagrangian"),
    "step": ("natural", "softmax", "projected", "sqp"),
}
MORE_CHOICES = {"objective": ("negated", "complement"), "start": ("uniform", "random")}


@dataclass
class TabularSettings:
    # Parts
    family: str = "tabular"  # which learner these settings are for
    switch: str = "crpo"  # surrogate | crpo | epigraph | lagrangian: which cost to descend, and how policies are ranked
    step: str = "sqp"  # natural | softmax (natural by θ − α F⁻¹∇J) | projected | sqp: how the policy moves

    # Constraints
    lam: float = 50.0  # λ of the surrogate: the objective enters as J_0/λ
    objective: str = "negated"  # negated: c_0 = −r | complement: c_0 = r_max − r, as in the paper (surrogate)
    slack: float | None = 0.0  # ξ of the surrogate; null: the smallest that guarantees feasibility
    tolerance: float = 0.0  # excess over a budget that crpo and lagrangian accept
    multiplier_lr: float = 1.0  # step of the multipliers on the relative excess over each budget (lagrangian)

    # Work
    iterations: int = 1000  # robust evaluations, the first policy's included
    levels: int = 10  # bisections of the objective's level, sharing the iterations evenly (epigraph)
    restart: bool = False  # every level begins at the first policy, as in the paper (epigraph)
    step_size: float = 1.0  # α of the natural, softmax and projected steps; sqp finds its own
    stationarity: float = 1e-6  # sqp stops when no first-order improvement larger than this (relative) is left
    margin: float = 1e-7  # sqp aims this far (relative) inside each budget, so that its answer is inside
    starts: int = 1  # sqp: further starts are random; the best answer counts
    start: str = "uniform"  # first policy: uniform | random (softmax of N(0, 1) samples)

    # Evaluation; what is handed out is evaluated exactly whatever these are
    samples: int | None = None  # τ of the paper's sampled evaluator (linear KL penalty); null: exact
    noise: float = 0.0  # std of an error in every J and Q, relative to the largest |Q| of its cost

    def __post_init__(self) -> None:
        for name, allowed in (CHOICES | MORE_CHOICES).items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name}: {getattr(self, name)!r} given, one of {', '.join(allowed)} expected")
        if not isinstance(self.restart, bool):
            raise InputError(f"restart: {self.restart!r} given, true or false expected")
        for name in ("lam", "step_size", "multiplier_lr"):
            self._require(name, lambda x: 0 < x < math.inf, "a positive finite number")
        for name in ("tolerance", "stationarity", "margin", "noise"):
            self._require(name, lambda x: 0 <= x < math.inf, "a finite number ≥ 0")
        if self.slack is not None:
            self._require("slack", lambda x: 0 <= x < math.inf, "a finite number ≥ 0, or null")
        for name in ("iterations", "levels", "starts", *(() if self.samples is None else ("samples",))):
            self._require(name, lambda x: isinstance(x, int) and x >= 1, "a whole number ≥ 1")

    def _require(self, name: str, holds: Callable[[float], bool], expected: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
            raise InputError(f"{name}: {value!r} given, {expected} expected")
