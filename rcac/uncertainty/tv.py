"""Total variation:  max { qᵀV : ½‖q − p‖₁ ≤ r }  moves mass r from the lowest values to the highest one.

Free, the highest is over all states; within the support, over the states that p reaches.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from rcac.problem import Rows
from rcac.uncertainty.base import (
    NEVER,
    Uncertainty,
    WorstCase,
    chain_start,
    check_flag,
    check_radius,
    expectation,
    per_row,
    rowwise,
)
from rcac.uncertainty.sorting import ascending, ranks
from rcac.uncertainty.vectorised import compiling_pays, expectations, padded


@njit(cache=True, error_model="numpy")
def _give(order, v, top, own, p, r, whole):
    """Take mass r from the lowest values: what is gained, what is not found, the last position that gives and its rest."""
    gained, left, last, kept = 0.0, r, -1, 0.0
    for i in range(len(order)):
        j = order[i]
        gain, mass = top - v[j if whole else own[j]], p[j]
        if gain <= 0.0:
            break
        last = j
        if mass >= left:
            gained += left * gain
            kept, left = mass - left, 0.0
            break
        gained += mass * gain
        left -= mass
    return gained, left, last, kept


@rowwise
def _compiled(values, indptr, indices, data, radius, order, rank, free, value, states, amounts):
    """Fills value (K, M), the states (K, M, 2) and the amounts (K, M, 2) of `Moved`."""
    K, M, S = len(values), len(indptr) - 1, values.shape[1]
    for m in prange(M):
        lo, hi = indptr[m], indptr[m + 1]
        p, own, r = data[lo:hi], indices[lo:hi], radius[m]
        for k in range(K):  # while the row is at hand
            v, top, last = values[k], order[k, -1], -1
            if not free and hi - lo < S:
                for j in range(hi - lo):
                    if j == 0 or v[own[j]] > v[top]:
                        top = own[j]
            gained, left, kept = 0.0, r, 0.0
            if r > 0.0:
                if hi - lo == S:
                    gained, left, last, kept = _give(order[k], v, v[top], own, p, r, True)
                else:
                    up = ascending(order[k], rank[k], own)
                    gained, left, last, kept = _give(up, v, v[top], own, p, r, False)
            value[k, m] = expectation(v, own, p) + gained
            states[k, m, 0], states[k, m, 1] = top, (own[last] if last >= 0 else -1)
            amounts[k, m, 0], amounts[k, m, 1] = r - left, kept


@njit(cache=True, error_model="numpy")
def _left(own, p, rank, last, kept, out):
    """What is left of a row: nothing below the state `last`, `kept` of its mass."""
    if last < 0:
        out[:] = p
    elif len(own) == len(rank):  # every state, in order
        for j in range(len(p)):
            out[j] = 0.0 if rank[j] < rank[last] else p[j]
        out[last] = kept
    else:
        for j in range(len(p)):
            place = rank[own[j]]
            out[j] = p[j] if place > rank[last] else (kept if place == rank[last] else 0.0)


@rowwise
def _write(values, indptr, indices, data, rank, states, amounts, reached, kernel):
    """Rows with the receiving state as an additional last entry, (K, nnz + M)."""
    K, M = len(values), len(indptr) - 1
    for m in prange(M):
        lo, hi = indptr[m], indptr[m + 1]
        for k in range(K):
            own, q = reached[k, lo + m : hi + m + 1], kernel[k, lo + m : hi + m + 1]
            own[:-1] = indices[lo:hi]
            _left(indices[lo:hi], data[lo:hi], rank[k], states[k, m, 1], amounts[k, m, 1], q[:-1])
            own[-1], q[-1] = states[k, m, 0], amounts[k, m, 0]


@rowwise
def _mix(values, indptr, indices, data, rank, states, amounts, policy, out):
    """T (K, S, S) += Σ_a π(a|s) q(·|s,a)."""
    K, (S, A) = len(values), policy.shape
    for s in prange(S):
        scratch = np.empty(S)
        for a in range(A):
            weight, m = policy[s, a], s * A + a
            if weight == 0.0:
                continue
            lo, hi = indptr[m], indptr[m + 1]
            own, q = indices[lo:hi], scratch[: hi - lo]
            for k in range(K):
                _left(own, data[lo:hi], rank[k], states[k, m, 1], amounts[k, m, 1], q)
                row = out[k, s]
                if hi - lo == S:
                    for j in range(S):
                        row[j] += weight * q[j]
                else:
                    for j in range(hi - lo):
                        row[own[j]] += weight * q[j]
                row[states[k, m, 0]] += weight * amounts[k, m, 0]


@rowwise
def _mix_sparsely(values, indptr, indices, data, rank, states, amounts, policy, start, reached, out):
    """One value's chain, T(s,·) = Σ_a π(a|s) q(·|s,a), in compressed rows."""
    S, A = policy.shape
    for s in prange(S):
        i = start[s]
        for a in range(A):
            weight, m = policy[s, a], s * A + a
            if weight <= NEVER:
                continue
            lo, hi = indptr[m], indptr[m + 1]
            n = hi - lo
            q = out[i : i + n]
            _left(indices[lo:hi], data[lo:hi], rank[0], states[m, 1], amounts[m, 1], q)
            for j in range(n):
                q[j] *= weight
            reached[i : i + n] = indices[lo:hi]
            reached[i + n], out[i + n] = states[m, 0], weight * amounts[m, 0]
            i += n + 1


class Moved(WorstCase):
    """Worst kernels that are remembered by what moves in each row: all mass of its lowest states, part of the next one's."""

    values: np.ndarray  # (K, S)
    rows: Rows
    rank: np.ndarray  # (K, S) each state's place in the order of values
    states: np.ndarray  # (K, M, 2) which one receives, and the last one that gives (−1: none)
    amounts: np.ndarray  # (K, M, 2) what is moved, and what is left to the last one that gives

    def __init__(self, value: np.ndarray, rows: Rows, **moves: np.ndarray) -> None:
        given = dict(value=value, indptr=rows.indptr + np.arange(rows.count + 1), entries=None, rows=rows)
        for name, field in (given | moves).items():
            object.__setattr__(self, name, field)

    def _write(self, k: slice) -> tuple[np.ndarray, np.ndarray]:
        shape = (len(self.values[k]), self.indptr[-1])
        found = np.empty(shape, np.int32), np.empty(shape)
        _write(self.values[k], self.rows, self.rank[k], self.states[k], self.amounts[k], *found)
        return found

    @cached_property
    def indices(self) -> np.ndarray:
        return self._write(slice(None))[0]

    @cached_property
    def data(self) -> np.ndarray:
        return self._write(slice(None))[1]

    def matrix(self, k: int, width: int) -> sp.csr_array:
        indices, data = self._write(slice(k, k + 1))
        return sp.csr_array((data[0], indices[0], self.indptr), shape=(len(self.indptr) - 1, width))

    def chain(self, k: int, policy: np.ndarray) -> sp.csr_array:
        start = chain_start(policy, self.indptr)
        found = np.empty(start[-1], np.int32), np.empty(start[-1])
        own = (self.rank[k : k + 1], self.states[k], self.amounts[k])
        _mix_sparsely(self.values[k : k + 1], self.rows, *own, policy, start, *found)
        return sp.csr_array((found[1], found[0], start), shape=(len(policy), len(policy)))

    def mixed(self, policy: np.ndarray) -> np.ndarray:
        chains = np.zeros((len(self.values), len(policy), len(policy)))
        _mix(self.values, self.rows, self.rank, self.states, self.amounts, policy, chains)
        return chains


def _vectorised(
    values: np.ndarray, rows: Rows, radius: np.ndarray, free: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = padded(rows)
    x = np.where(table.real, values[:, table.states], np.inf)  # (K, M, L)
    reached = np.where(table.real, x, -np.inf)
    last = np.take_along_axis(np.broadcast_to(table.states, x.shape), reached.argmax(axis=-1)[..., None], -1)[..., 0]
    top = np.broadcast_to(values.argmax(axis=1)[:, None], last.shape) if free else last
    best = np.take_along_axis(values, top, axis=1)
    order = np.argsort(x, axis=-1, kind="stable")
    up = np.take_along_axis(x, order, -1)
    p = np.take_along_axis(np.broadcast_to(table.mass, x.shape), order, -1)
    gain = np.maximum(best[..., None] - up, 0.0)  # 0 for what is filled up
    before = np.zeros_like(p)
    np.cumsum(p[..., :-1], axis=-1, out=before[..., 1:])
    part = np.where(gain > 0, np.clip(radius[:, None] - before, 0.0, p), 0.0)
    moved = np.empty_like(part)
    np.put_along_axis(moved, order, part, -1)
    kernel = np.concatenate([table.mass - moved, part.sum(axis=-1)[..., None]], axis=-1)
    states = np.concatenate([np.broadcast_to(table.states, x.shape), top[..., None]], axis=-1)
    real = np.concatenate([table.real, np.ones((rows.count, 1), bool)], axis=-1)
    value = expectations(values, rows) + (part * gain).sum(axis=-1)
    return value, states[:, real].astype(np.int32), kernel[:, real]


@dataclass(frozen=True)
class TotalVariation(Uncertainty):
    """All q with ½‖q − p‖₁ ≤ radius (a number or (S, A)); `within_support` keeps q where p is positive.

    Parameters
    ----------
    radius : float or array (S, A)
        The most probability that may be moved in a row.
    within_support : bool
        Whether next states that the nominal row excludes stay excluded.

    Examples
    --------
    >>> from rcac.uncertainty import TotalVariation
    >>> expectation, q = TotalVariation(0.1).worst_case([0.0, 1.0, 2.0], [0.5, 0.3, 0.2])  # values, a nominal row
    >>> round(float(expectation), 4)
    0.9
    """

    radius: float | np.ndarray
    within_support: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_radius(self.radius))
        check_flag("within_support", self.within_support)

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        radius, free = per_row(self.radius, rows), not self.within_support
        if not compiling_pays(values, rows):
            value, states, kernel = _vectorised(values, rows, radius, free)
            return WorstCase(value, rows.indptr + np.arange(rows.count + 1), states, kernel)
        (order, rank), shape = ranks(values), (len(values), rows.count)
        value, states, amounts = np.empty(shape), np.empty((*shape, 2), np.int32), np.empty((*shape, 2))
        _compiled(values, rows, radius, order, rank, free, value, states, amounts)
        return Moved(value, rows, values=values, rank=rank, states=states, amounts=amounts)
