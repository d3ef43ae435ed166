"""Contamination:  max { qᵀV : q = (1−ε) p + ε·(any distribution) }  =  (1−ε) pᵀV + ε max V.

With probability ε the next state is not the model's but the worst of all states.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import Rows
from rcac.uncertainty.base import Uncertainty, WorstCase, check_radius, per_row
from rcac.uncertainty.nominal import Nominal


@dataclass(frozen=True)
class Contamination(Uncertainty):
    """All q ≥ (1 − radius)·p, over all states. `radius` is ε, a number in [0, 1] or (S, A) of them.

    Parameters
    ----------
    radius : float or array (S, A)
        The probability that the next state is anybody's.

    Examples
    --------
    >>> from rcac.uncertainty import Contamination
    >>> expectation, q = Contamination(0.1).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.83
    """

    radius: float | np.ndarray

    def __post_init__(self) -> None:
        radius = check_radius(self.radius)
        if np.max(radius, initial=0.0) > 1:
            raise InputError(f"radius: {np.max(radius)} given, probabilities in [0, 1] expected")
        object.__setattr__(self, "radius", radius)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius, nominal = per_row(self.radius, rows), Nominal().sweep(values, rows).value
        top = np.argmax(values, axis=1)
        owner = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
        # the worst state is an additional last entry of each row
        indptr = rows.indptr + np.arange(rows.count + 1)
        place = np.arange(len(rows.data)) + owner
        states = np.empty((len(values), indptr[-1]), np.int32)
        kernel = np.empty(states.shape)
        states[:, place], kernel[:, place] = rows.indices, (1 - radius[owner]) * rows.data
        states[:, indptr[1:] - 1], kernel[:, indptr[1:] - 1] = top[:, None], radius
        value = (1 - radius) * nominal + radius * values.max(axis=1)[:, None]
        return WorstCase(value, indptr, states, kernel)
