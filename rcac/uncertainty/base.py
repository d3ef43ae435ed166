"""What every uncertainty set answers, and the machinery they share.

    Given values V_k (k = 1..K) and nominal rows p_m (m = 1..M):   sup over q in 𝒫(p_m) of  qᵀV_k,  and a q that attains it.

A set implements `sweep`, which answers for all K × M pairs at once; `worst_case` is the same question with
NumPy's broadcasting. Row functions are compiled by numba; `rowwise` uses both cores when the work is large. Each row
is computed by one thread, so results do not depend on the number of threads.
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

# numba's threads would spin for a while after each sweep, which slows the linear solve that follows to a third
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import scipy.sparse as sp
from numba import njit
from numba.core import event

from rcac.errors import InputError
from rcac.problem import RCMDP, Array, Rows, check_distributions, compress, finite_array
from rcac.uncertainty.vectorised import SMALL

NEVER = 1e-14  # an action less likely than this is never taken, for those who iterate to a tolerance
LOG = logging.getLogger("rcac")
THREADING_PAYS = 1 << 16  # stored entries × values beyond which a second thread is worth its start


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Worst-case expectations of K values over M rows, and the kernels that attain them.

    Row m of kernel k is `data[k, indptr[m]:indptr[m+1]]` at `indices` (which may be (nnz,), shared by all k, or
    (K, nnz); repeated states add up), plus `amount[k, m] · direction[k]` where a set moves all rows alike.
    """

    value: np.ndarray  # (K, M)
    indptr: np.ndarray  # (M+1,)
    indices: np.ndarray  # (nnz,) or (K, nnz)
    entries: np.ndarray | None  # (K, nnz) the data, or None where it is made when asked for
    memory: Any = None  # makes the next call on similar values faster
    amount: np.ndarray | None = None  # (K, M)
    direction: np.ndarray | None = None  # (K, S)

    @property
    def data(self) -> np.ndarray:
        assert self.entries is not None
        return self.entries

    def matrix(self, k: int, width: int) -> sp.csr_array:
        """The compressed part of kernel k as CSR (M, S)."""
        indices = self.indices if self.indices.ndim == 1 else self.indices[k]
        return sp.csr_array((self.data[k], indices, self.indptr), shape=(len(self.indptr) - 1, width))

    def dense(self, k: int, width: int) -> np.ndarray:
        """Kernel k, (M, S)."""
        rows: Array = self.matrix(k, width).toarray()
        if self.amount is not None and self.direction is not None:
            rows += self.amount[k][:, None] * self.direction[k]
        return rows

    def expectations(self, values: np.ndarray) -> np.ndarray:
        """q_kᵀV_k for values (K, S), over all rows: (K, M)."""
        found = np.stack([self.matrix(k, len(own)) @ own for k, own in enumerate(values)])
        if self.amount is not None and self.direction is not None:
            found += self.amount * np.einsum("ks,ks->k", self.direction, values)[:, None]
        return found

    def chain(self, k: int, policy: np.ndarray) -> sp.csr_array:
        """T_k (S, S), sparse, without the actions that a policy (S, A) never takes, and without `direction`."""
        kernel = self.matrix(k, len(policy))
        start = chain_start(policy, kernel.indptr)
        found = np.empty(start[-1], np.int32), np.empty(start[-1])
        _chain(policy, kernel.indptr, kernel.indices, kernel.data, start, *found)
        return sp.csr_array((found[1], found[0], start), shape=(len(policy), len(policy)))

    def mixed(self, policy: np.ndarray) -> np.ndarray:
        """T (K, S, S) with T_k(s,·) = Σ_a π(a|s) q_k(·|s,a): the chains that a policy (S, A) makes of the kernels."""
        chains = assemble(policy, self.indptr, np.atleast_2d(self.indices), self.data)
        if self.amount is not None and self.direction is not None:
            pushed = np.einsum("sa,ksa->ks", policy, self.amount.reshape(-1, *policy.shape))
            chains += pushed[:, :, None] * self.direction[:, None, :]
        return chains


class Uncertainty(ABC):
    """An (s,a)-rectangular set of kernels around the nominal one. A set of your own implements `sweep`.

    Examples
    --------
    >>> from rcac.uncertainty import TotalVariation
    >>> expectation, q = TotalVariation(0.1).worst_case([0.0, 1.0], [[0.5, 0.5], [1.0, 0.0]])
    >>> q.round(2).tolist()
    [[0.4, 0.6], [0.9, 0.1]]
    """

    tolerance: float = 1e-13  # of `sweep`, relative to the span of the values
    size = "radius"  # the field that may be an array of one number for each row
    rectangular: bool = True  # every row has its own worst case
    smooth: bool = False  # the worst kernel is unique and changes continuously with the values (but at a few of them)
    modulus: float = 1.0  # Lipschitz constant of the worst-case expectation in V; 1 for sets of distributions

    @abstractmethod
    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        """Worst cases of values (K, S) over all rows; `memory` is that of an earlier answer to similar values."""

    def against(self, policy: np.ndarray) -> "Uncertainty":
        """The set as the adversary of a policy (S, A); only sets whose rows share a budget ask which one."""
        return self

    def check(self, problem: RCMDP) -> None:
        """Reject a problem whose shape does not fit this set's own arrays."""
        self.check_states(problem.num_states)
        self._check_size((problem.num_states, problem.num_actions))

    def check_states(self, states: int) -> None:  # noqa: B027
        """Reject rows of another number of states than this set is for."""

    def _check_size(self, expected: tuple[int, ...]) -> None:
        given = np.shape(getattr(self, self.size, 0.0))
        if given not in ((), expected):
            raise InputError(f"{self.size}: shape {given} given, a number or {expected} expected")

    def contains_nominal(self, problem: RCMDP) -> bool:
        """Is the nominal kernel of the problem in the set, so that no worst case is below the nominal value?"""
        return True

    def worst_case(self, values: np.ndarray, nominal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Largest expectation and a kernel that attains it, for values (…, S) and nominal rows (…, S), broadcast.

        A radius that is an array belongs to the nominal rows: it has their leading shape.
        """
        values, nominal = finite_array("values", values, "(…, S)"), check_distributions("nominal", nominal)
        if values.ndim == 0 or values.size == 0:
            raise InputError(f"values: shape {values.shape} given, (…, S) with at least one state expected")
        if values.shape[-1] != nominal.shape[-1]:
            raise InputError(f"values: {values.shape[-1]} states given, nominal has {nominal.shape[-1]}")
        try:
            batch, width = np.broadcast_shapes(values.shape[:-1], nominal.shape[:-1]), values.shape[-1]
        except ValueError:
            raise InputError(
                f"values: shape {values.shape} given, one that broadcasts with {nominal.shape} of nominal expected"
            ) from None
        self.check_states(width)
        self._check_size(nominal.shape[:-1])
        flat, rows = values.reshape(-1, width), compress(nominal.reshape(-1, width))
        which_value = np.broadcast_to(np.arange(len(flat)).reshape(values.shape[:-1]), batch).ravel()
        which_row = np.broadcast_to(np.arange(rows.count).reshape(nominal.shape[:-1]), batch).ravel()
        best, kernel = np.empty(which_row.size), np.empty((which_row.size, width))
        for k in range(len(flat)):
            pairs = np.flatnonzero(which_value == k)
            worst = self.sweep(flat[k : k + 1], rows.take(which_row[pairs]))
            best[pairs], kernel[pairs] = worst.value[0], worst.dense(0, width)
        return best.reshape(batch), kernel.reshape(*batch, width)


def check_radius(radius: Any, name: str = "radius") -> float | np.ndarray:
    """A finite radius ≥ 0, or a read-only array of them."""
    try:
        array = np.array(radius, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {radius!r} given, a number ≥ 0 expected") from None
    if isinstance(radius, bool) or array.size == 0:
        raise InputError(f"{name}: {radius!r} given, a number ≥ 0 or an array of them expected")
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{name}{list(index) if index else ''}: {array[index]} given, a finite number ≥ 0 expected")
    array.flags.writeable = False
    return array if array.ndim else float(array)


def check_flag(name: str, given: Any) -> None:
    if not (isinstance(given, int | np.bool_) and given in (0, 1)):
        raise InputError(f"{name}: {given!r} given, True or False expected")


def per_row(radius: float | np.ndarray, rows: Rows) -> np.ndarray:
    """The radius of each row, (M,)."""
    if np.ndim(radius) == 0:
        return np.full(rows.count, float(radius))
    return np.ravel(radius)[rows.ids]


def blank(values: np.ndarray, rows: Rows, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Room for the results of a sweep: value (K, M) and kernel entries (K, nnz), `extra` more entries for each row.

    NumPy asks for huge pages; memory that compiled code allocates itself is five times slower to touch first.
    """
    return np.empty((len(values), rows.count)), np.empty((len(values), len(rows.data) + extra * rows.count))


def threading_pays(values: np.ndarray, rows: Rows) -> bool:
    return len(values) * len(rows.data) > THREADING_PAYS


@cache
def _announce_compilation() -> None:
    """Say once, on stderr unless logging is told otherwise, that compiled code is not in numba's cache yet."""
    event.register("numba:compile", _Announcement())


class _Announcement(event.Listener):
    said = False

    def on_start(self, event: Any) -> None:
        ours = str(event.data["dispatcher"].py_func.__module__).startswith("rcac.")
        if ours and not self.said:
            self.said = True
            LOG.warning("rcac: compiling for large problems, once on this machine: some seconds")

    def on_end(self, event: Any) -> None:
        pass


def rowwise(function: Any) -> Callable[..., Any]:
    """Compile a sweep `f(values, indptr, indices, data, …)` twice, and use threads where the work pays for them."""
    serial = njit(cache=True, error_model="numpy")(function)
    # numba's cache tells functions apart by name, not by options: the second version needs a name of its own
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f"{function.__qualname__}_threaded"
    _announce_compilation()
    threaded = njit(cache=True, error_model="numpy", parallel=True)(twin)

    def run(values: np.ndarray, rows: Rows, *rest: Any) -> Any:
        chosen = threaded if threading_pays(values, rows) else serial
        # unsigned indices need no test for negative ones in the inner loops
        return chosen(values, rows.indptr, rows.indices.view(np.uint32), rows.data, *rest)

    return run


def assemble(policy: Array, indptr: np.ndarray, indices: np.ndarray, data: Array) -> Array:
    """T (K, S, S) from kernels in compressed rows."""
    if data.size > SMALL:
        chains: Array = _assemble(policy, indptr, indices, data)
        return chains
    count, states = len(data), len(policy)
    weights = np.repeat(policy.ravel(), np.diff(indptr))
    origin = np.repeat(np.arange(states), np.diff(indptr[:: policy.shape[1]]))
    place = np.arange(count)[:, None] * states + origin
    entry = place * states + indices
    chains = np.bincount(entry.ravel(), (weights * data).ravel(), count * states**2).astype(np.float64, copy=False)
    return chains.reshape(count, states, states)


@njit(cache=True, error_model="numpy")
def _assemble(policy, indptr, indices, data):
    S, A = policy.shape
    out = np.zeros((len(data), S, S))
    for k in range(len(data)):
        states = indices[min(k, len(indices) - 1)]
        for s in range(S):
            for a in range(A):
                if policy[s, a] == 0.0:
                    continue
                for j in range(indptr[s * A + a], indptr[s * A + a + 1]):
                    out[k, s, states[j]] += policy[s, a] * data[k, j]
    return out


def chain_start(policy: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Where the rows of a policy's chain begin, (S+1,)."""
    lengths = (np.diff(indptr).reshape(policy.shape) * (policy > NEVER)).sum(axis=1)
    return np.concatenate([[0], np.cumsum(lengths)])


@njit(cache=True, error_model="numpy")
def _chain(policy, indptr, indices, data, start, states, out):
    S, A = policy.shape
    for s in range(S):
        i = start[s]
        for a in range(A):
            if policy[s, a] > NEVER:
                for j in range(indptr[s * A + a], indptr[s * A + a + 1]):
                    states[i], out[i] = indices[j], policy[s, a] * data[j]
                    i += 1


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def expectation(v, indices, p):
    """Σ p_j v[indices_j]: the one way a nominal expectation is added up, so that radius 0 is nominal to the bit."""
    total = 0.0
    if len(p) == len(v):  # every state, in order
        for j in range(len(p)):
            total += p[j] * v[j]
    else:
        for j in range(len(p)):
            total += p[j] * v[indices[j]]
    return total
