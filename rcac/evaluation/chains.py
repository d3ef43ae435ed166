"""Linear systems of the chains that a policy makes of kernels:  (I − γT_k) x_k = b_k,  T_k(s,·) = Σ_a π(a|s) q_k(·|s,a).

Small or dense ones are solved as they are; the others stay sparse (see `rcac.evaluation.sparse`).
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit
from threadpoolctl import ThreadpoolController

from rcac.evaluation.sparse import System
from rcac.problem import RCMDP, Array
from rcac.uncertainty.base import WorstCase

SMALL, MEDIUM = 200, 1500  # states up to which a dense factorisation is the fastest: always, where rows are long
SETTLED = 8 * float(np.finfo(float).eps)  # a residual that is rounding, relative to the solution
FORGETS = 0.3  # a product has to leave less than this of the residual
ALONE = 4096  # entries of a matrix up to which BLAS uses one thread anyway
_LIBRARIES = ThreadpoolController()  # those of NumPy and SciPy


@dataclass(frozen=True)
class Chains:
    """x ↦ x − γ T x for each cost's T(s,·) = Σ_a π(a|s) q(·|s,a)."""

    policy: Array  # (S, A)
    worst: WorstCase
    discount: float

    def system(self, k: int, transposed: bool) -> System:
        """I − γT_k, or its transpose, sparse."""
        chain, push, towards = merged(self.worst.chain(k, self.policy)), None, None
        if self.worst.amount is not None and self.worst.direction is not None:
            push = np.einsum("sa,sa->s", self.policy, self.worst.amount[k].reshape(self.policy.shape))
            towards = self.worst.direction[k]
        return System(chain, self.discount, push, towards, transposed=transposed)


def merged(chain: sp.csr_array) -> sp.csr_array:
    """Equal columns of a row as one, where actions share successors: products are then shorter."""
    count = _merge(chain.indptr, chain.indices, chain.data, np.full(chain.shape[1], -1, chain.indptr.dtype))
    return sp.csr_array((chain.data[:count], chain.indices[:count], chain.indptr), shape=chain.shape)


@njit(cache=True, error_model="numpy")
def _merge(indptr, indices, data, place):
    """In place; returns how many entries are left. `place` is where a column stands in the row at hand."""
    end, begin = 0, indptr[0]
    for i in range(len(indptr) - 1):
        first, stop = end, indptr[i + 1]
        for j in range(begin, stop):
            column = indices[j]
            if place[column] >= first:
                data[place[column]] += data[j]
            else:
                place[column] = end
                indices[end], data[end] = column, data[j]
                end += 1
        begin, indptr[i + 1] = stop, end
    return end


def bellman_matrix(chains: Array, discount: float) -> Array:
    """I − γT (K, S, S), in place of T."""
    chains *= -discount
    np.einsum("kss->ks", chains)[...] += 1.0
    return chains


def factorised(states: int, entries: int) -> bool:
    """Are chains of kernels with so many entries made dense?"""
    return states <= SMALL or (states <= MEDIUM and states * states <= 4 * entries)


def one_thread(problem: RCMDP) -> AbstractContextManager[object]:
    """Linear algebra by one thread: sums then come out the same on any machine, and for matrices of these sizes more threads
    do not pay, and spin on while others sweep."""
    large = max(problem.num_states**2, problem.costs.size) > ALONE
    return _LIBRARIES.limit(limits=1, user_api="blas") if large else nullcontext()


def linear_solve(step: Chains, right: Array, *, transposed: bool = False, rtol: float) -> Array:
    """Solve (I − γT_k) x_k = right_k for each k; exactly where S is small, else to `rtol`."""
    if factorised(len(step.policy), int(step.worst.indptr[-1])):
        return dense_solve(step.worst.mixed(step.policy), step.discount, right, transposed=transposed)
    return np.stack([step.system(k, transposed).solve(right[k], rtol) for k in range(len(right))])


def dense_solve(chains: Array, discount: float, right: Array, *, transposed: bool = False) -> Array:
    """The same to rounding, for chains (K, S, S), or one for all (1, S, S); they are overwritten."""
    turned = chains.transpose(0, 2, 1) if transposed else chains
    found = _iterated(turned, discount, right, transposed) if len(turned[0]) > SMALL else None
    if found is not None:
        return found
    bellman_matrix(chains, discount)
    return np.asarray(np.linalg.solve(turned, right[:, :, None])[:, :, 0], np.float64)


def _iterated(chains: Array, discount: float, right: Array, transposed: bool) -> Array | None:
    """By x ← b + γTx, where chains forget so fast where they began that this takes less time than a factorisation; None elsewhere.
    After each product the part that such an iteration is slow to find is set right: what is left is as far above as below
    0; transposed, the sum is that of the solution."""
    x: Array = np.zeros_like(right)
    left, last, shift = right, np.inf, discount / (1 - discount)
    given = np.abs(right).max(axis=1)  # (K,)
    total = right.sum(axis=1, keepdims=True) / (1 - discount)  # of the solution, transposed
    with np.errstate(all="ignore"):
        while True:
            x = x + left
            if transposed:
                x = x * (total / x.sum(axis=1, keepdims=True))
            else:
                x = x + shift * (left.max(axis=1, keepdims=True) + left.min(axis=1, keepdims=True)) / 2
            left = right - x + discount * (chains @ x[:, :, None])[:, :, 0]
            size = np.abs(left).max(axis=1)
            if np.all(size <= SETTLED * np.abs(x).max(axis=1)):
                return x
            largest = float(np.nanmax(size / given))
            if not largest <= FORGETS * last:
                return None
            last = largest
