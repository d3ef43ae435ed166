"""Sweeps in NumPy, over all rows at once: for problems so small that compiling would take longer than the answer.

Flat arrays (K, nnz) have the entries of all rows one after the other, as `Rows` has them; padded ones (K, M, L) have one
line for each row, as long as the longest.
"""

from typing import NamedTuple

import numpy as np

from rcac.problem import Rows

SMALL = 1 << 12  # stored entries × values up to which NumPy's calls cost less than a compilation would
LONGEST = 64  # entries of a row, which some sweeps walk in Python


def compiling_pays(values: np.ndarray, rows: Rows) -> bool:
    if len(values) * len(rows.data) > SMALL:
        return True
    return bool(np.diff(rows.indptr).max(initial=0) > LONGEST)


def owners(rows: Rows) -> np.ndarray:
    """Which row each entry belongs to, (nnz,)."""
    return np.repeat(np.arange(rows.count), np.diff(rows.indptr))


def row_sums(entries: np.ndarray, rows: Rows) -> np.ndarray:
    """(…, nnz) to (…, M)."""
    return _reduce(np.add, entries, rows)


def row_maxima(entries: np.ndarray, rows: Rows) -> np.ndarray:
    return _reduce(np.maximum, entries, rows)


def row_minima(entries: np.ndarray, rows: Rows) -> np.ndarray:
    return _reduce(np.minimum, entries, rows)


def _reduce(operation: np.ufunc, entries: np.ndarray, rows: Rows) -> np.ndarray:
    if not rows.count:
        return np.empty((*entries.shape[:-1], 0))
    reduced: np.ndarray = operation.reduceat(entries, rows.indptr[:-1], axis=-1)
    return reduced


def expectations(values: np.ndarray, rows: Rows) -> np.ndarray:
    """pᵀV for values (K, S): (K, M). Every sweep here adds up in this order, so that radius 0 is nominal to the bit."""
    return row_sums(rows.data * values[:, rows.indices], rows)


class Padded(NamedTuple):
    """Rows as a table, filled up with entries of mass 0."""

    mass: np.ndarray  # (M, L)
    states: np.ndarray  # (M, L)
    real: np.ndarray  # (M, L) bool: not filled up


def padded(rows: Rows) -> Padded:
    lengths = np.diff(rows.indptr)
    real = np.arange(lengths.max(initial=0)) < lengths[:, None]
    mass, states = np.zeros(real.shape), np.zeros(real.shape, np.int64)
    mass[real], states[real] = rows.data, rows.indices
    return Padded(mass, states, real)
