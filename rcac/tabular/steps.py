"""One step of a policy π (S, A), given the evaluation of every cost and weights w ≥ 0 on them.

    natural     π ∝ π·exp(−α Σ_k w_k Q_k)     the mirror-descent step; for softmax policies the natural gradient
    softmax     θ − α F⁻¹ Σ_k w_k ∇_θJ_k      written out: F⁻¹∇_θJ is Q/(1−γ) up to a number for each state, so it is the
                                              natural step of size α/(1−γ)
    projected   Π_Δ(π − α Σ_k w_k ∇J_k)       Euclidean projection onto the simplex, per state
    sqp         see `rcac.tabular.rsqp`

A step proposes; the loop evaluates the proposal; the step then accepts or rejects it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from rcac.evaluation import Evaluation

SMALLEST = 1e-16  # no action is lost for good: it can still grow back


class Piece(NamedTuple):
    """A policy met, with its values: enough to find its worst kernels again."""

    values: np.ndarray  # (N+1, S)
    policy: np.ndarray  # (S, A)


class TabularStep(Protocol):
    pieces: list[Piece]  # what the next proposal depends on

    def propose(self, policy: np.ndarray, evaluation: Evaluation, weights: np.ndarray) -> np.ndarray:
        """The policy to try next."""

    def accept(self, before: Evaluation, after: Evaluation) -> bool:
        """Is the proposal accepted?"""

    def metrics(self) -> dict[str, float]:
        """What the step has to tell, by namespaced name."""

    @property
    def stop_reason(self) -> str | None:
        """Why there is nothing left to do, if so."""

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


def tilt(policy: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """π·exp(exponent), normalised per state, whatever the size of the exponent."""
    logits = np.log(np.maximum(policy, SMALLEST)) + exponent
    logits -= logits.max(axis=1, keepdims=True)
    grown = np.maximum(np.exp(logits), SMALLEST)
    normalised: np.ndarray = grown / grown.sum(axis=1, keepdims=True)
    return normalised


def project_to_simplex(rows: np.ndarray) -> np.ndarray:
    """Nearest distribution to each row (exact, by sorting): (x − τ)₊ with τ such that it sums to one."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    clipped = np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0)
    exact: np.ndarray = clipped / clipped.sum(axis=1, keepdims=True)  # remove the last rounding
    return exact


@dataclass
class _AlwaysAccepted:
    """A step that is always accepted and has nothing to remember."""

    step_size: float
    pieces: list[Piece] = field(default_factory=list)  # never any

    stop_reason = None

    def accept(self, before: Evaluation, after: Evaluation) -> bool:
        return True

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass


class Natural(_AlwaysAccepted):
    def propose(self, policy: np.ndarray, evaluation: Evaluation, weights: np.ndarray) -> np.ndarray:
        return tilt(policy, np.tensordot(-self.step_size * weights, evaluation.q_values, 1))


class Projected(_AlwaysAccepted):
    def propose(self, policy: np.ndarray, evaluation: Evaluation, weights: np.ndarray) -> np.ndarray:
        return project_to_simplex(policy - np.tensordot(self.step_size * weights, evaluation.gradients, 1))
