"""RSQP: robust sequential policy optimisation. Linearise the objective and every constraint at π_t, each with its own
worst kernel, and solve

    min over π   ⟨∇J_0, π − π_t⟩ + (1/α) Σ_s w(s) KL(π_s‖π_t,s)     s.t.   g_n + ⟨∇J_n, π − π_t⟩ ≤ 0,      g_n = J_n − b_n

with w = max_k d_k/(1−γ). Gradients keep their occupancies: at an optimum d_0 Q_0 and d_n Q_n balance, and the adversaries of
objective and constraint have different occupancies. For multipliers μ ≥ 0 the step is

    π_μ ∝ π_t·exp(−α (∇J_0 + Σ μ_n ∇J_n)/w),

and μ maximises the concave dual, one dimension for each constraint. The constraints are elastic: μ_n ≤ ν_n, which minimises
⟨∇J_0,·⟩ + Σ ν_n (linearised violation)₊ when they cannot all be met, and ν grows then, so that violation goes first. A step is
kept if it gains a share of what the linear model promised in the merit J_0 + Σ ν_n (J_n − b_n)₊; α grows or shrinks accordingly.

Sets with corners (total variation, finite sets, …) make worst cases with kinks, where the kernel at π_t alone says little about
the policies around. There, when a step is not kept, the next is computed from π_t with a mean of kernels, which lies in the set
too: the worst ones of π_t, those of the steps refused, and those that are worst for values drawn around π_t's, as far off as the
refused step's were. If the refused step would have been kept had the adversaries not moved, α stays at first.
Steps tend to end just outside a budget; where that does not mend itself quickly, the aim is moved inside by as much, and back
after steps that end inside.

Stationarity is a bound on what any policy can gain to first order within the linearised constraints, by weak duality
Σ_s [⟨π_t, G⟩_s − min_a G(s,a)] − Σ μ_n g_n with G = ∇J_0 + Σ μ_n ∇J_n; the search stops when it is small.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

from rcac.evaluation import Evaluation, evaluate_under, mean_kernels
from rcac.tabular.steps import SMALLEST, tilt
from rcac.uncertainty.base import Uncertainty, Worst

SHARE = 0.05  # of the promised decrease that must come true
GROW, SHRINK = 4.0, 0.25
SHRINK_AT_KINKS = 0.5
REFUSED = 2  # steps whose kernels are remembered
DRAWN = 8  # kernels that are worst for values nearby
INSIDE = 0.05  # of a budget: how far inside it the aim may move
LARGEST = 1e12  # α, relative to the first
PATIENCE = 25  # evaluations without progress before the search stops
TIGHTENINGS = 5  # times that a search just outside a budget may aim further inside


@dataclass
class SequentialPolicy:
    """The step, with its trust α, penalties ν and multipliers μ."""

    budgets: np.ndarray  # (N,)
    stationarity: float
    margin: float
    uncertainty: Uncertainty
    trust: float = 0.0  # α; 0 before the first step
    first: float = 0.0  # α of the first step
    penalties: np.ndarray = field(default_factory=lambda: np.zeros(0))  # ν (N,)
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0))  # μ (N,)
    residual: float = np.inf  # stationarity measure, relative
    idle: int = 0  # evaluations since the last progress
    promised: float = 0.0
    tightened: int = 0
    draws: int = 0  # times that values were drawn
    inside: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (N,) how far the aim was moved
    outside: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (N,) by how much the last step kept missed
    reason: str | None = None
    refused: list[Evaluation] = field(default_factory=list)  # since a step was kept

    def __post_init__(self) -> None:
        if not len(self.penalties):
            self.penalties = np.zeros(len(self.budgets))
            self.multipliers = np.zeros(len(self.budgets))
            self.inside, self.outside = np.zeros(len(self.budgets)), np.full(len(self.budgets), np.inf)

    @property
    def aim(self) -> np.ndarray:
        return self.budgets - self.margin * np.maximum(1.0, np.abs(self.budgets)) - self.inside

    def propose(self, policy: np.ndarray, evaluation: Evaluation, index: int, weight: float) -> np.ndarray:
        around = evaluation
        if self.refused:
            kernels = mean_kernels(self._nearby(evaluation), len(policy))
            around = evaluate_under(evaluation.problem, policy, kernels)
        gradients = around.gradients
        slopes = gradients - np.einsum("ksa,sa->ks", gradients, policy)[:, :, None]  # (N+1, S, A), mean zero under π
        visits = around.occupancy.max(axis=0) / (1 - evaluation.problem.discount)  # w
        directions = slopes / np.maximum(visits, 1e-300)[:, None]
        excess = evaluation.returns[1:] - self.aim
        if self.trust == 0.0:
            self._begin(directions)
        model = _Model(policy, slopes, directions, visits, excess)
        for _ in range(30):  # ν grows until the step no longer leans on it, or leaning harder does not help
            self.multipliers = model.multipliers(self.trust, self.penalties, self.multipliers)
            proposal = model.step(self.trust, self.multipliers)
            held = self.multipliers >= 0.999 * self.penalties
            if not (held & (model.linear(proposal) > 1e-12)).any():
                break
            if (self.penalties[held] > 1e8 * self._scale(directions)[held]).all():
                break
            self.penalties = np.where(held, 4 * self.penalties, self.penalties)
        self._measure(model, evaluation, around)
        self.promised = model.decrease(proposal, self.penalties)
        return proposal

    def accept(self, before: Evaluation, after: Evaluation) -> bool:
        gained = self._merit(before) - self._merit(after)
        noise = (before.error_bound + after.error_bound) * (1 + self.penalties.sum())
        kept = gained >= SHARE * self.promised - noise
        if kept:
            self.refused = []
            if gained >= 0.25 * self.promised - noise:
                self.trust = min(self.trust * GROW, self.first * LARGEST)
        elif self.uncertainty.smooth:
            self.trust *= SHRINK
        else:
            self._refuse(before, after, noise)
        progress = kept and gained > self.stationarity * max(1.0, abs(float(after.returns[0])))
        self.idle = 0 if progress else self.idle + 1
        outside = np.maximum((after if kept else before).returns[1:] - self.budgets, 0)
        if self.idle >= PATIENCE and outside.any() and self.tightened < TIGHTENINGS:
            self.inside, self.tightened, self.idle = self.inside + 2 * outside, self.tightened + 1, 0
        elif self.idle >= PATIENCE and self.reason is None:
            self.reason = "stalled (a kink of the worst case, or the precision of the evaluation)"
        elif kept:
            moved = np.where(outside > 0, self.inside + outside * (outside > 0.1 * self.outside), 0.1 * self.inside)
            self.inside = np.minimum(moved, np.maximum(INSIDE * np.abs(self.budgets), self.inside))
            self.outside = outside
        return kept

    def _nearby(self, evaluation: Evaluation) -> Iterator[Worst]:
        """Kernels of the policy, of the steps refused, and of values as far from the policy's as theirs."""
        yield evaluation.worst
        for trial in self.refused:
            yield trial.worst
        if self.uncertainty.rectangular:
            rng, values = np.random.default_rng(self.draws), evaluation.values
            spread = np.std(self.refused[-1].values - values, axis=1, keepdims=True)
            for _ in range(DRAWN):
                yield self.uncertainty.sweep(values + spread * rng.normal(size=values.shape), evaluation.problem.rows)
        self.draws += 1

    def _refuse(self, before: Evaluation, after: Evaluation, noise: float) -> None:
        """Remember what the adversaries did, if they moved; shorten the step unless that alone was wrong with it."""
        still = evaluate_under(before.problem, after.policy, before.worst)
        moved = np.abs(after.returns - still.returns).max() > after.error_bound + still.error_bound
        only_they = self._merit(before) - self._merit(still) >= SHARE * self.promised - noise
        if not (moved and only_they and not self.refused):
            self.trust *= SHRINK_AT_KINKS
        if moved:
            self.refused = [*self.refused, after][-REFUSED:]

    def metrics(self) -> dict[str, float]:
        named = {f"policy/multiplier/{n + 1}": float(m) for n, m in enumerate(self.multipliers)}
        return {"policy/trust": self.trust, "policy/stationarity": self.residual} | named

    @property
    def stop_reason(self) -> str | None:
        return self.reason

    def state(self) -> dict[str, Any]:
        return {
            "trust": self.trust, "first": self.first, "penalties": self.penalties.tolist(),
            "multipliers": self.multipliers.tolist(), "residual": self.residual, "idle": self.idle,
            "promised": self.promised, "reason": self.reason,
            "tightened": self.tightened, "inside": self.inside.tolist(),
            "outside": self.outside.tolist(), "draws": self.draws,
        }

    def load(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, np.array(value) if isinstance(value, list) else value)

    def _begin(self, directions: np.ndarray) -> None:
        self.trust = self.first = 1.0 / max(float(np.abs(directions[0]).max()), 1e-300)
        self.penalties = 2.0 * self._scale(directions)

    @staticmethod
    def _scale(directions: np.ndarray) -> np.ndarray:
        """How steep the objective is compared with each constraint, (N,): the natural size of its multiplier."""
        steep = np.abs(directions).max(axis=(1, 2))
        return (steep[0] + 1e-12) / np.maximum(steep[1:], 1e-12)

    def _merit(self, evaluation: Evaluation) -> float:
        excess = np.maximum(evaluation.returns[1:] - self.aim, 0)
        return float(evaluation.returns[0] + self.penalties @ excess)

    def _measure(self, model: "_Model", evaluation: Evaluation, around: Evaluation) -> None:
        """The gap, with what the aim inside the budgets and the mean kernels leave open."""
        scale, below = max(1.0, abs(float(evaluation.returns[0]))), evaluation.returns - around.returns
        missed = below[0] + self.multipliers @ (self.inside + below[1:])
        self.residual = float(model.gap(self.multipliers) + missed) / scale
        inside = np.all(evaluation.returns[1:] <= self.budgets)
        if inside and self.residual <= self.stationarity:
            self.reason = "stationary"


@dataclass
class _Model:
    """The linearised problem at π."""

    policy: np.ndarray  # (S, A)
    slopes: np.ndarray  # (N+1, S, A) ∇J_k, mean zero under π
    directions: np.ndarray  # (N+1, S, A) ∇J_k/w
    weights: np.ndarray  # (S,) w
    excess: np.ndarray  # (N,) g_n

    def step(self, trust: float, multipliers: np.ndarray) -> np.ndarray:
        return tilt(self.policy, -trust * (self.directions[0] + np.tensordot(multipliers, self.directions[1:], 1)))

    def linear(self, proposal: np.ndarray) -> np.ndarray:
        """g_n + ⟨∇J_n, π − π_t⟩, (N,)."""
        return self.excess + np.einsum("nsa,sa->n", self.slopes[1:], proposal)

    def decrease(self, proposal: np.ndarray, penalties: np.ndarray) -> float:
        """What the linear model promises in the merit."""
        before, after = np.maximum(self.excess, 0), np.maximum(self.linear(proposal), 0)
        return float(penalties @ (before - after) - np.sum(self.slopes[0] * proposal))

    def gap(self, multipliers: np.ndarray) -> float:
        """Bound on the first-order gain of any policy within the linearised constraints."""
        slope = self.slopes[0] + np.tensordot(multipliers, self.slopes[1:], 1)
        return float(-slope.min(axis=1).sum() - multipliers @ self.excess)

    def multipliers(self, trust: float, penalties: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Maximise the concave dual over 0 ≤ μ ≤ ν: Newton on the free coordinates; where it is flat and Newton fails
        (a step so long that π_μ is deterministic), bisection on one coordinate after the other."""
        mu = np.clip(start, 0, penalties)
        if not len(mu):
            return mu
        value, gradient, hessian = self._dual(trust, mu)
        close = 1e-10 * max(1.0, float(np.abs(self.excess).max()))  # of the linearised constraints: far below the margin
        for _ in range(60):
            free = ~(((mu <= 0) & (gradient <= 0)) | ((mu >= penalties) & (gradient >= 0)))
            if not free.any() or np.abs(gradient[free]).max() <= close:
                break
            block, newton = hessian[np.ix_(free, free)], np.zeros_like(mu)
            ridge = 1e-12 * max(float(np.trace(block)), 1e-300)
            newton[free] = np.linalg.solve(block + ridge * np.eye(len(block)), gradient[free])
            trial = np.clip(mu + newton, 0, penalties)
            found = self._dual(trust, trial)
            if not (np.isfinite(trial).all() and found[0] >= value + 1e-4 * gradient @ (trial - mu)):
                trial = self._coordinates(trust, penalties, mu)
                if len(mu) == 1:  # which is then exact
                    return trial
                found = self._dual(trust, trial)
            moved = float(np.abs(trial - mu).max())
            if found[0] >= value:
                mu, (value, gradient, hessian) = trial, found
            if moved <= 1e-13 * max(1.0, float(mu.max())):
                break
        return mu

    def _coordinates(self, trust: float, penalties: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """One round over the coordinates; the dual's derivative falls along each."""
        mu = mu.copy()
        for n in range(len(mu)):

            def slope(x: float, n: int = n) -> float:
                mu[n] = x
                return float(self.linear(self.step(trust, mu))[n])

            if slope(0.0) <= 0:
                mu[n] = 0.0
            elif slope(penalties[n]) >= 0:
                mu[n] = penalties[n]
            else:
                mu[n] = brentq(slope, 0.0, penalties[n], xtol=1e-14 * penalties[n], rtol=1e-13)
        return mu

    def _dual(self, trust: float, mu: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """D(μ) = μᵀg − Σ_s (w/α) log Σ_a π e^{−α(…)/w}, its gradient, and minus its Hessian."""
        exponent = -trust * (self.directions[0] + np.tensordot(mu, self.directions[1:], 1))
        logits = np.log(np.maximum(self.policy, SMALLEST)) + exponent
        top = logits.max(axis=1, keepdims=True)
        grown = np.exp(logits - top)
        total = grown.sum(axis=1, keepdims=True)
        proposal = grown / total
        log_z = (top + np.log(total))[:, 0]
        value = float(mu @ self.excess - np.sum(self.weights * log_z) / trust)
        gradient = self.linear(proposal)
        mean = np.einsum("nsa,sa->ns", self.directions[1:], proposal)
        centred = self.directions[1:] - mean[:, :, None]
        hessian = trust * np.einsum("nsa,sa,msa,s->nm", centred, proposal, centred, self.weights)
        return value, gradient, hessian
