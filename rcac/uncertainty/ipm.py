"""Integral probability metric over linear features ψ: S → ℝᵈ, first feature 1:

    max { qᵀV : ‖Ψ_{2:d}ᵀ(q − p)‖₂ ≤ r }  =  pᵀV + r‖w_{2:d}‖₂      for  V = Ψw.

The attaining q = p + r·Ψ(ΨᵀΨ)⁻¹(0, w_{2:d}/‖w_{2:d}‖) is the shortest move with the right moments. The closed form
leaves q ≥ 0 out: while that q is non-negative it is exact; otherwise it is an upper bound (safe, perhaps
pessimistic), which `sweep` reports once per call as an `InexactWarning`. For V outside the span of the features, w
is its least-squares fit, and the same formula is the largest qᵀV over moves within the features' span.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, check_radius, per_row
from rcac.uncertainty.nominal import Nominal


class InexactWarning(UserWarning):
    """A closed form is only a bound here."""


@dataclass(frozen=True, eq=False)
class LinearIPM(Uncertainty):
    """All q whose expected features are within `radius` (a number or (S, A)) of p's, in Euclidean norm.

    Parameters
    ----------
    radius : float or array (S, A)
        The largest distance of expected features.
    features : array (S, d)
        Of states, the first of them 1.

    Examples
    --------
    >>> from rcac.uncertainty import LinearIPM
    >>> expectation, q = LinearIPM(0.01, [[1, 0.0], [1, 0.5], [1, 1.0]]).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.72
    """

    radius: float | np.ndarray
    features: np.ndarray  # (S, d), first column 1, full column rank
    smooth = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        try:
            features = np.array(self.features, dtype=float)
        except (TypeError, ValueError):
            raise InputError("features: not an array of numbers, (S, d) expected") from None
        if features.ndim != 2 or features.size == 0 or not np.isfinite(features).all():
            raise InputError(f"features: shape {features.shape} given, a finite array (S, d) expected")
        if not np.all(features[:, 0] == 1):
            s = int(np.argmax(features[:, 0] != 1))
            raise InputError(f"features[{s}, 0]: {features[s, 0]} given, 1 expected (the first feature is constant)")
        rank = np.linalg.matrix_rank(features)
        if rank < features.shape[1]:
            raise InputError(f"features: rank {rank} given, full column rank {features.shape[1]} expected")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "_inverse", np.linalg.pinv(features))  # (d, S)

    @property
    def modulus(self) -> float:  # type: ignore[override]
        """Moves may leave the simplex: |q|₁ ≤ 1 + r·max over directions of |Ψ(ΨᵀΨ)⁻¹u|₁."""
        moves = self._inverse[1:]  # type: ignore[attr-defined]
        return 1.0 + float(np.max(self.radius, initial=0.0)) * float(np.sum(np.linalg.norm(moves, axis=0)))

    def check_states(self, states: int) -> None:
        if len(self.features) != states:
            raise InputError(f"features: {len(self.features)} states given, the problem has {states}")

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius, inverse = per_row(self.radius, rows), self._inverse  # type: ignore[attr-defined]
        weights = values @ inverse.T  # (K, d)
        norm = np.linalg.norm(weights[:, 1:], axis=1)
        unit = weights[:, 1:] / np.where(norm > 0, norm, 1.0)[:, None]
        direction = unit @ inverse[1:]  # (K, S), sums to 0
        nominal = Nominal().sweep(values, rows)
        amount = np.broadcast_to(radius, nominal.value.shape)
        lowest = self._lowest(rows, radius, direction)
        if lowest < -1e-12:
            warnings.warn(
                f"LinearIPM: the attaining kernel has a probability of {lowest:.3g}; "
                "the closed form is an upper bound here, not exact",
                InexactWarning,
                stacklevel=3,
            )
        return replace(nominal, value=nominal.value + radius * norm[:, None], amount=amount, direction=direction)

    @staticmethod
    def _lowest(rows: Rows, radius: np.ndarray, direction: np.ndarray) -> float:
        """Smallest entry of any attaining kernel: over stored entries, and over the zeros between them."""
        if not radius.any():
            return 0.0
        moved = np.repeat(radius, np.diff(rows.indptr))
        stored = (rows.data + moved * direction[:, rows.indices]).min(initial=0.0)
        gaps = radius[np.diff(rows.indptr) < rows.width]  # rows with zeros
        if not len(gaps):
            return float(stored)
        reached = np.zeros(rows.width)
        np.add.at(reached, rows.indices, 1)
        empty = direction[:, reached < rows.count]  # states that some row does not reach
        return float(min(stored, gaps.max() * empty.min(initial=0.0)))
