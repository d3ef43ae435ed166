"""RSQP: robust sequential policy optimisation. Linearise the objective and every constraint at π_t, each with its own
worst kernel, and solve

    min over π   ⟨∇J_0, π − π_t⟩ + D(π)/α     s.t.   g_n + ⟨∇J_n, π − π_t⟩ + κ_n D(π) ≤ 0,      g_n = J_n − b_n,

with D(π) = Σ_s w(s) KL(π_s‖π_t,s) and w = max_k d_k/(1−γ). Gradients keep their occupancies: at an optimum d_0 Q_0 and d_n Q_n
balance, and the adversaries of objective and constraint have different occupancies. `rcac.tabular.subproblem` solves it.

The constraints are elastic, with a penalty of ν_n for each unit of violation, which grows where a step would mend less than
half of one. A step is accepted if it gains a fraction of what the model promised in the merit J_0 + Σ ν_n (J_n − b_n)₊;
α grows when it is, and shrinks when not. Every cost is measured in a unit of its own, by how much J_k can change to first
order around the first policy, so that no result depends on the units that the costs come in.

Adversaries move with the policy, so that steps of a linear model end outside the budgets again and again. The curvatures κ make
the model conservative (Svanberg's globally convergent moving asymptotes): κ_n is what the last step cost beyond the linear
prediction, for each unit of D, and fades by a factor a step where that is less. Then steps end inside, and the shorter the
step, the less the model holds back.

Sets with corners (total variation, finite sets, …) make worst cases with kinks, where the kernel at π_t alone says little about
the policies around. There the model of each cost is the largest of several linear ones (a bundle): J_k is at least the return
under any kernel of the set, so that the worst kernels of rejected steps, and a mean of kernels that are worst for values
sampled around π_t's, each add a piece. Pieces that the step rests on stay when it is accepted.

Stationarity is a bound on what any policy can gain to first order in this model, by weak duality; the search stops when it is
small.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rcac.evaluation import Evaluation, evaluate_under, mean_kernels
from rcac.evaluation.chains import factorised
from rcac.tabular.steps import Piece
from rcac.tabular.subproblem import Subproblem
from rcac.uncertainty.base import Uncertainty, WorstCase
from rcac.uncertainty.finite import FiniteKernels

GAINED = 0.05  # of the promised decrease that must come true
GROW, SHRINK = 4.0, 0.25  # of α
OVER, FADE = 1.1, 0.25  # κ is this much more than the last step asks for, and at least this fraction of the one before
PIECES = 12  # kernels of other policies that are remembered
MEANS = 2  # likewise, where only their mean is used
ACTIVE = 1e-3  # of a cost's weight: a piece with less does not matter
SAMPLES = 8  # kernels that are worst for values nearby
LARGEST = 1e12  # α, relative to the first
PATIENCE = 25  # evaluations without progress before the search stops


@dataclass
class SequentialPolicy:
    """The step, with its trust α, curvatures κ, penalties ν and multipliers μ. All are in units of the costs."""

    budgets: np.ndarray  # (N,)
    stationarity: float
    margin: float
    uncertainty: Uncertainty
    trust: float = 0.0  # α; 0 before the first step
    first: float = 0.0  # α of the first step
    units: np.ndarray = field(default_factory=lambda: np.ones(0))  # (N+1,)
    curvatures: np.ndarray = field(default_factory=lambda: np.zeros(0))  # κ (N+1,)
    penalties: np.ndarray = field(default_factory=lambda: np.zeros(0))  # ν (N,)
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros(0))  # μ (N,)
    residual: float = np.inf  # stationarity measure, relative
    idle: int = 0  # evaluations since the last progress
    samplings: int = 0  # times that values were sampled
    kinked: bool = False  # a step was rejected
    reason: str | None = None
    pieces: list[Piece] = field(default_factory=list)  # of other policies, in the bundle
    # of the step proposed:
    promised: float = 0.0  # its gain in the merit,
    predicted: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (N+1,) J_k by the pieces,
    distance: float = 0.0  # its D,
    active: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (P,) and the pieces that it rests on

    def __post_init__(self) -> None:
        if not len(self.units):
            self.units, self.curvatures = np.ones((2, len(self.budgets) + 1)) * [[1.0], [0.0]]
            self.penalties, self.multipliers = np.zeros((2, len(self.budgets)))

    @property
    def aim(self) -> np.ndarray:
        return self.budgets - self.margin * self.units[1:]

    def propose(self, policy: np.ndarray, evaluation: Evaluation, weights: np.ndarray) -> np.ndarray:
        if self.trust == 0.0:
            self._begin(evaluation)
        around = [evaluation, *(evaluate_under(evaluation.problem, policy, k) for k in self._kernels(evaluation))]
        if not self._bundled(evaluation):
            around = around[-1:]
        offsets = np.stack([e.returns for e in around], axis=1)  # (N+1, P)
        offsets[0] -= evaluation.returns[0]
        offsets[1:] -= self.aim[:, None]
        slopes = np.stack([_centred(e, policy) for e in around], axis=1) / self.units[:, None, None, None]
        visits = np.max([e.occupancy for e in around], axis=(0, 1)) / (1 - evaluation.problem.discount)
        model = Subproblem(policy, slopes, offsets / self.units[:, None], visits, self.curvatures, self.trust)
        excess = np.maximum((evaluation.returns[1:] - self.aim) / self.units[1:], 0)
        violation: np.ndarray = np.full(len(excess), np.inf)
        for _ in range(30):  # ν grows until the step mends half of a violation, or leaning harder does not help
            y = model.solve(self.penalties, self.multipliers)
            self.multipliers = y[1:].sum(axis=1)
            proposal = model.step(y)
            left = np.maximum(model.model(proposal)[1:], 0)
            held = (self.multipliers >= 0.999 * self.penalties) & (left > 0.5 * excess + 1e-12)
            if not (held & (left < 0.9 * violation)).any():
                break
            violation, self.penalties = left, np.where(held, 4 * self.penalties, self.penalties)
        self._measure(model, y, evaluation)
        self.promised, self.distance = model.decrease(proposal, self.penalties), model.distance(proposal)
        self.predicted = model.linear(proposal).max(axis=1) * self.units
        self.predicted += np.concatenate([evaluation.returns[:1], self.aim])
        self.active = (y > ACTIVE * y.sum(axis=1, keepdims=True)).any(axis=0)
        return proposal

    def accept(self, before: Evaluation, after: Evaluation) -> bool:
        errors = (before.error_bounds + after.error_bounds) / self.units
        gained = self._merit(before) - self._merit(after)
        accepted = gained >= GAINED * self.promised - errors[0] - self.penalties @ errors[1:]
        self.trust = min(self.trust * (GROW if accepted else SHRINK), self.first * LARGEST)
        beyond = (after.returns - self.predicted) / self.units - errors
        if self.uses_bundle(after):
            if not accepted and self._bundled(before):  # what the worst kernel there explains is no curvature
                beyond = np.minimum(beyond, self._unexplained(before, after) - errors)
            self._keep_pieces(before, after, accepted)
        self.kinked = self.kinked or not accepted
        seen = OVER * beyond / self.distance if self.distance > 1e-12 / self.first else np.zeros(len(beyond))
        self.curvatures = np.minimum(np.maximum(seen, FADE * self.curvatures), LARGEST / self.first)
        self.curvatures[0] = 0.0
        progress = accepted and gained > self.stationarity * max(1.0, abs(float(after.returns[0])) / self.units[0])
        self.idle = 0 if progress else self.idle + 1
        if self.reason is None and (self.idle >= PATIENCE or np.array_equal(before.policy, after.policy)):
            self.reason = "stalled (a kink of the worst case, or the precision of the evaluation)"
        return bool(accepted)

    # The bundle

    def _bundled(self, evaluation: Evaluation) -> bool:
        """Are the kernels pieces of their own? In problems so large that each takes an iteration their mean has to do."""
        problem = evaluation.problem
        return factorised(problem.num_states, len(problem.rows.data))

    def uses_bundle(self, evaluation: Evaluation) -> bool:
        """Can kernels of other policies help? Not where a set has a price, since a kernel alone is then no lower bound."""
        if not self._bundled(evaluation):
            return not self.uncertainty.smooth
        worst = evaluation.worst
        off = np.abs(worst.expectations(evaluation.values) - worst.value)
        return float(off.max()) <= 1e-6 * float(np.abs(evaluation.values).max())

    def _kernels(self, evaluation: Evaluation) -> Iterator[WorstCase]:
        """Of the pieces besides the worst kernels at π_t."""
        if isinstance(self.uncertainty, FiniteKernels) and not self.uncertainty.rectangular:
            if self.kinked:
                union, data = self.uncertainty.union
                for kernel in data:
                    shared = np.broadcast_to(kernel, (len(evaluation.returns), len(kernel)))
                    yield WorstCase(evaluation.worst.value, union.indptr, union.indices, shared)
        elif self.pieces:
            rows, values = evaluation.problem.rows, evaluation.values
            adversary = self.uncertainty.against(evaluation.policy)
            others = [self.uncertainty.against(piece.policy).sweep(piece.values, rows) for piece in self.pieces]
            if self._bundled(evaluation):
                yield from others
                if evaluation.worst.direction is not None:
                    return
            rng, spread = (
                np.random.default_rng(self.samplings),
                np.std(self.pieces[-1].values - values, axis=1, keepdims=True),
            )
            sampled = (adversary.sweep(values + spread * rng.normal(size=values.shape), rows) for _ in range(SAMPLES))
            yield mean_kernels([evaluation.worst, *others, *sampled], values.shape[1])
            self.samplings += 1

    def _keep_pieces(self, before: Evaluation, after: Evaluation, accepted: bool) -> None:
        if not accepted:
            self.pieces = [*self.pieces, Piece(after.values, after.policy)][
                -(PIECES if self._bundled(before) else MEANS) :
            ]
        elif self.pieces and self._bundled(before):
            met = [Piece(before.values, before.policy), *self.pieces]
            self.pieces = [piece for piece, used in zip(met, self.active, strict=False) if used]
        else:
            self.pieces = []

    def _unexplained(self, before: Evaluation, after: Evaluation) -> np.ndarray:
        """J_k(π) beyond the piece of its own worst kernels, (N+1,), in units."""
        piece = evaluate_under(before.problem, before.policy, after.worst)
        linear = piece.returns + np.einsum("ksa,sa->k", piece.gradients, after.policy - before.policy)
        beyond: np.ndarray = (after.returns - linear) / self.units
        return beyond

    # Merit and measures

    def _begin(self, evaluation: Evaluation) -> None:
        slopes = _centred(evaluation, evaluation.policy)
        units = np.ptp(slopes, axis=2).sum(axis=1)
        self.units = np.maximum(units, 1e-9 * np.abs(evaluation.q_values).max(axis=(1, 2)))
        self.units[self.units == 0.0] = 1.0
        visits = evaluation.occupancy.max(axis=0) / (1 - evaluation.problem.discount)
        directions = slopes / self.units[:, None, None] / np.maximum(visits, 1e-300)[:, None]
        steep = np.abs(directions).max(axis=(1, 2))
        self.trust = self.first = 1.0 / max(float(steep[0]), 1e-12)
        # how steep the objective is compared with each constraint: the natural size of its multiplier
        self.penalties = 2.0 * np.maximum(steep[0], 1e-6) / np.maximum(steep[1:], 1e-6)

    def _merit(self, evaluation: Evaluation) -> float:
        excess = np.maximum(evaluation.returns[1:] - self.aim, 0) / self.units[1:]
        return float(evaluation.returns[0] / self.units[0] + self.penalties @ excess)

    def _measure(self, model: Subproblem, y: np.ndarray, evaluation: Evaluation) -> None:
        scale = max(1.0, abs(float(evaluation.returns[0])) / self.units[0])
        self.residual = model.gap(y, self.penalties) / scale
        if self.residual <= self.stationarity and np.all(evaluation.returns[1:] <= self.budgets):
            self.reason = "stationary"

    def metrics(self) -> dict[str, float]:
        shown = self.multipliers * self.units[0] / self.units[1:]
        named = {f"policy/multiplier/{n + 1}": float(m) for n, m in enumerate(shown)}
        return {"policy/trust": self.trust, "policy/stationarity": self.residual} | named

    @property
    def stop_reason(self) -> str | None:
        return self.reason

    def state(self) -> dict[str, Any]:
        return {
            "trust": self.trust,
            "first": self.first,
            "units": self.units.tolist(),
            "curvatures": self.curvatures.tolist(),
            "penalties": self.penalties.tolist(),
            "multipliers": self.multipliers.tolist(),
            "residual": self.residual,
            "idle": self.idle,
            "reason": self.reason,
            "samplings": self.samplings,
            "kinked": self.kinked,
        }

    def load(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, np.array(value) if isinstance(value, list) else value)


def _centred(evaluation: Evaluation, policy: np.ndarray) -> np.ndarray:
    """∇J_k with mean zero under π in every state, (N+1, S, A)."""
    means = np.einsum("ksa,sa->ks", evaluation.gradients, policy)[:, :, None]
    centred: np.ndarray = evaluation.gradients - means
    return centred
