"""RSQP: robust sequential policy optimisation. Linearise the objective and every constraint at π_t, each with its own
worst kernel, and solve

    min over π   ⟨∇J_0, π − π_t⟩ + D(π)/α     s.t.   g_n + ⟨∇J_n, π − π_t⟩ + κ_n D(π) ≤ 0,      g_n = J_n − b_n,

with D(π) = Σ_s w(s) KL(π_s‖π_t,s) and w = max_k d_k/(1−γ). Gradients keep their occupancies: at an optimum d_0 Q_0 and d_n Q_n
balance, and the adversaries of objective and constraint have different occupancies. For multipliers μ ≥ 0 the step is

    π_μ ∝ π_t·exp(−(∇J_0 + Σ μ_n ∇J_n)/(λw)),      λ = 1/α + Σ μ_n κ_n,

and μ maximises the concave dual, one dimension for each constraint. The constraints are elastic: μ_n ≤ ν_n, which minimises the
objective + Σ ν_n (modelled violation)₊ when they cannot all be met, and ν grows where a step would mend less than half of a
violation. A step is kept if it gains a share of what the model promised in the merit J_0 + Σ ν_n (J_n − b_n)₊; α grows
when it is, and shrinks when not.

Adversaries move with the policy, so that steps of a linear model end outside the budgets again and again. The curvatures κ make
the model conservative (Svanberg's globally convergent moving asymptotes): κ_n is what the last step cost beyond the linear
prediction, for each unit of D, and fades by a factor a step where that is less. Then steps end inside, and the shorter the
step, the less the model holds back.

Sets with corners (total variation, finite sets, …) make worst cases with kinks, where the kernel at π_t alone says little about
the policies around. There, when a step is not kept, the next is computed from π_t with a mean of kernels, which lies in the set
too: the worst ones of π_t, those of the steps refused, and those that are worst for values drawn around π_t's, as far off as the
refused step's were.

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
GROW, SHRINK = 4.0, 0.25  # of α
OVER, FADE = 1.1, 0.25  # κ is this much more than the last step asks for, and at least this share of the one before
REFUSED = 2  # steps whose kernels are remembered
DRAWN = 8  # kernels that are worst for values nearby
LARGEST = 1e12  # α, relative to the first
PATIENCE = 25  # evaluations without progress before the search stops


@dataclass
class SequentialPolicy:
    """The step, with its trust α, curvatures κ, penalties ν and multipliers μ."""

    budgets: np.ndarray  # (N,)
    stationarity: float
    margin: float
    uncertainty: Uncertainty
    trust: float = 0.0  # α; 0 before the first step
    first: float = 0.0  # α of the first step
    curvatures: np.ndarray = field(default_factory=lambda: np.zeros(0))  # κ (N,)
    penalties: np.ndarray = field(default_factory=lambda: np.zeros(0))  # ν (N,)
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0))  # μ (N,)
    residual: float = np.inf  # stationarity measure, relative
    idle: int = 0  # evaluations since the last progress
    draws: int = 0  # times that values were drawn
    promised: float = 0.0  # of the step proposed: its gain in the merit,
    predicted: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (N,) its J_n to first order,
    distance: float = 0.0  # and its D
    reason: str | None = None
    refused: list[Evaluation] = field(default_factory=list)  # since a step was kept

    def __post_init__(self) -> None:
        if not len(self.penalties):
            self.penalties = np.zeros(len(self.budgets))
            self.multipliers = np.zeros(len(self.budgets))
            self.curvatures = np.zeros(len(self.budgets))

    @property
    def aim(self) -> np.ndarray:
        return self.budgets - self.margin * np.maximum(1.0, np.abs(self.budgets))

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
        model = _Model(policy, slopes, directions, visits, excess, self.curvatures, self.trust)
        violation = np.inf
        for _ in range(30):  # ν grows until the step mends half of a violation, or leaning harder does not help
            self.multipliers = model.multipliers(self.penalties, self.multipliers)
            proposal = model.step(self.multipliers)
            left = np.maximum(model.bent(proposal), 0)
            held = (self.multipliers >= 0.999 * self.penalties) & (left > 0.5 * np.maximum(excess, 0) + 1e-12)
            if not (held & (left < 0.9 * violation)).any():
                break
            violation, self.penalties = left, np.where(held, 4 * self.penalties, self.penalties)
        self._measure(model, evaluation, around)
        self.promised, self.distance = model.decrease(proposal, self.penalties), model.distance(proposal)
        self.predicted = model.linear(proposal) + self.aim
        return proposal

    def accept(self, before: Evaluation, after: Evaluation) -> bool:
        gained = self._merit(before) - self._merit(after)
        noise = (before.error_bound + after.error_bound) * (1 + self.penalties.sum())
        kept = gained >= SHARE * self.promised - noise
        self.trust = min(self.trust * (GROW if kept else SHRINK), self.first * LARGEST)
        beyond = after.returns[1:] - self.predicted - before.error_bound - after.error_bound
        self.curvatures = np.maximum(OVER * beyond / max(self.distance, 1e-300), FADE * self.curvatures)
        if kept or self.uncertainty.smooth:
            self.refused = []
        else:
            self.refused = [*self.refused, after][-REFUSED:]
        progress = kept and gained > self.stationarity * max(1.0, abs(float(after.returns[0])))
        self.idle = 0 if progress else self.idle + 1
        if self.idle >= PATIENCE and self.reason is None:
            self.reason = "stalled (a kink of the worst case, or the precision of the evaluation)"
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

    def metrics(self) -> dict[str, float]:
        named = {f"policy/multiplier/{n + 1}": float(m) for n, m in enumerate(self.multipliers)}
        return {"policy/trust": self.trust, "policy/stationarity": self.residual} | named

    @property
    def stop_reason(self) -> str | None:
        return self.reason

    def state(self) -> dict[str, Any]:
        return {
            "trust": self.trust, "first": self.first, "curvatures": self.curvatures.tolist(),
            "penalties": self.penalties.tolist(), "multipliers": self.multipliers.tolist(), "residual": self.residual,
            "idle": self.idle, "reason": self.reason, "draws": self.draws,
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
        """The gap, with what the mean kernels leave open."""
        scale, below = max(1.0, abs(float(evaluation.returns[0]))), evaluation.returns - around.returns
        self.residual = float(model.gap(self.multipliers) + below[0] + self.multipliers @ below[1:]) / scale
        inside = np.all(evaluation.returns[1:] <= self.budgets)
        if inside and self.residual <= self.stationarity:
            self.reason = "stationary"


@dataclass
class _Model:
    """The problem at π, linear but for its curvatures."""

    policy: np.ndarray  # (S, A)
    slopes: np.ndarray  # (N+1, S, A) ∇J_k, mean zero under π
    directions: np.ndarray  # (N+1, S, A) ∇J_k/w
    weights: np.ndarray  # (S,) w
    excess: np.ndarray  # (N,) g_n
    curvatures: np.ndarray  # (N,) κ_n
    trust: float  # α

    def step(self, multipliers: np.ndarray) -> np.ndarray:
        return tilt(self.policy, -self._both(multipliers) / self._price(multipliers))

    def _both(self, multipliers: np.ndarray) -> np.ndarray:
        return self.directions[0] + np.tensordot(multipliers, self.directions[1:], 1)

    def _price(self, multipliers: np.ndarray) -> float:
        """λ, of a unit of D."""
        return 1 / self.trust + float(multipliers @ self.curvatures)

    def distance(self, proposal: np.ndarray) -> float:
        """D."""
        grown = np.log(np.maximum(proposal, SMALLEST)) - np.log(np.maximum(self.policy, SMALLEST))
        return max(float(self.weights @ np.einsum("sa,sa->s", proposal, grown)), 0.0)

    def linear(self, proposal: np.ndarray) -> np.ndarray:
        """g_n + ⟨∇J_n, π − π_t⟩, (N,)."""
        return self.excess + np.einsum("nsa,sa->n", self.slopes[1:], proposal)

    def bent(self, proposal: np.ndarray) -> np.ndarray:
        """g_n + ⟨∇J_n, π − π_t⟩ + κ_n D, (N,)."""
        return self.linear(proposal) + self.curvatures * self.distance(proposal)

    def decrease(self, proposal: np.ndarray, penalties: np.ndarray) -> float:
        """What the model promises in the merit; a step that moves away from a budget may promise nothing."""
        before, after = np.maximum(self.excess, 0), np.maximum(self.bent(proposal), 0)
        objective = np.sum(self.slopes[0] * proposal) + self.distance(proposal) / self.trust
        return max(float(penalties @ (before - after) - objective), 0.0)

    def gap(self, multipliers: np.ndarray) -> float:
        """Bound on the first-order gain of any policy within the linearised constraints."""
        slope = self.slopes[0] + np.tensordot(multipliers, self.slopes[1:], 1)
        return float(-slope.min(axis=1).sum() - multipliers @ self.excess)

    def multipliers(self, penalties: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Maximise the concave dual over 0 ≤ μ ≤ ν: Newton on the free coordinates; where it is flat and Newton fails
        (a step so long that π_μ is deterministic), bisection on one coordinate after the other."""
        mu = np.clip(start, 0, penalties)
        if not len(mu):
            return mu
        value, gradient, hessian = self._dual(mu)
        close = 1e-10 * max(1.0, float(np.abs(self.excess).max()))  # of the linearised constraints: far below the margin
        for _ in range(60):
            free = ~(((mu <= 0) & (gradient <= 0)) | ((mu >= penalties) & (gradient >= 0)))
            if not free.any() or np.abs(gradient[free]).max() <= close:
                break
            block, newton = hessian[np.ix_(free, free)], np.zeros_like(mu)
            ridge = 1e-12 * max(float(np.trace(block)), 1e-300)
            newton[free] = np.linalg.solve(block + ridge * np.eye(len(block)), gradient[free])
            trial = np.clip(mu + newton, 0, penalties)
            found = self._dual(trial)
            if not (np.isfinite(trial).all() and found[0] >= value + 1e-4 * gradient @ (trial - mu)):
                trial = self._coordinates(penalties, mu)
                if len(mu) == 1:  # which is then exact
                    return trial
                found = self._dual(trial)
            moved = float(np.abs(trial - mu).max())
            if found[0] >= value:
                mu, (value, gradient, hessian) = trial, found
            if moved <= 1e-13 * max(1.0, float(mu.max())):
                break
        return mu

    def _coordinates(self, penalties: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """One round over the coordinates; the dual's derivative falls along each."""
        mu = mu.copy()
        for n in range(len(mu)):

            def slope(x: float, n: int = n) -> float:
                mu[n] = x
                return float(self.bent(self.step(mu))[n])

            if slope(0.0) <= 0:
                mu[n] = 0.0
            elif slope(penalties[n]) >= 0:
                mu[n] = penalties[n]
            else:
                mu[n] = brentq(slope, 0.0, penalties[n], xtol=1e-14 * penalties[n], rtol=1e-13)
        return mu

    def _dual(self, mu: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """D(μ) = μᵀg − λ Σ_s w log Σ_a π e^{−(…)/(λw)}, its gradient, and minus its Hessian."""
        both, price = self._both(mu), self._price(mu)
        logits = np.log(np.maximum(self.policy, SMALLEST)) - both / price
        top = logits.max(axis=1, keepdims=True)
        grown = np.exp(logits - top)
        total = grown.sum(axis=1, keepdims=True)
        proposal = grown / total
        log_z = (top + np.log(total))[:, 0]
        value = float(mu @ self.excess - price * np.sum(self.weights * log_z))
        gradient = self.bent(proposal)
        bent = self.directions[1:] - (self.curvatures / price)[:, None, None] * both
        centred = bent - np.einsum("nsa,sa->ns", bent, proposal)[:, :, None]
        hessian = np.einsum("nsa,sa,msa,s->nm", centred, proposal, centred, self.weights) / price
        return value, gradient, hessian
