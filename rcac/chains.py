"""Linear systems of the chains that a policy makes of kernels:  (I − γT_k) x_k = b_k,  T_k(s,·) = Σ_a π(a|s) q_k(·|s,a).

Small ones are factorised; large ones are iterated on the sparse chain, and every residual is checked.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numba import njit
from threadpoolctl import ThreadpoolController

from rcac.problem import RCMDP
from rcac.uncertainty.base import Worst, assemble

SMALL, MEDIUM = 200, 1500  # states up to which a factorisation is faster than an iteration: always, where rows are long
PLAIN = 5  # iterations before a linear solver takes over
ALONE = 4096  # entries of a matrix up to which BLAS uses one thread anyway
_LIBRARIES = ThreadpoolController()  # those of NumPy and SciPy

Product = Callable[[np.ndarray], np.ndarray]  # with a matrix (S, S)


@dataclass(frozen=True)
class Chains:
    """x ↦ x − γ T x for each cost's T(s,·) = Σ_a π(a|s) q(·|s,a)."""

    policy: np.ndarray  # (S, A)
    worst: Worst
    discount: float

    def operator(self, k: int, transposed: bool) -> Product:
        """The product with I − γT_k, or with its transpose."""
        chain = merged(self.worst.chain(k, self.policy))
        rank_one = self.worst.direction is not None
        pushed, direction = (self._pushed()[k], self.worst.direction[k]) if rank_one else (0.0, 0.0)  # type: ignore[index]
        if transposed:
            chain, pushed, direction = chain.T.tocsr(), direction, pushed

        def product(x: np.ndarray) -> np.ndarray:
            moved = chain @ x
            return x - self.discount * (moved + pushed * (direction @ x) if rank_one else moved)

        return product

    def _pushed(self) -> np.ndarray:
        """Σ_a π(a|s) amount(s,a), (K, S)."""
        return np.einsum("sa,ksa->ks", self.policy, self.worst.amount.reshape(-1, *self.policy.shape))  # type: ignore[union-attr]


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


@njit(cache=True, error_model="numpy")
def away(chains, discount):
    """I − γT (K, S, S), in place of T."""
    for k in range(len(chains)):
        chains[k] *= -discount
        for s in range(chains.shape[1]):
            chains[k, s, s] += 1.0
    return chains


@njit(cache=True, error_model="numpy")
def _factorise(policy, indptr, indices, data, discount, right):
    """Solve (I − γT_k) x_k = right_k, (K, S), in one call: for small problems the calls are what takes time."""
    matrix, out = away(assemble(policy, indptr, indices, data), discount), np.empty_like(right)
    for k in range(len(right)):
        out[k] = np.linalg.solve(matrix[k], right[k])
    return out


def factorised(states: int, entries: int) -> bool:
    return states <= SMALL or (states <= MEDIUM and states * states <= 4 * entries)


def one_thread(problem: RCMDP) -> AbstractContextManager:
    """Linear algebra by one thread: sums then come out the same on any machine, and for matrices of these sizes more threads
    do not pay, and spin on while others sweep."""
    large = max(problem.num_states**2, problem.costs.size) > ALONE
    return _LIBRARIES.limit(limits=1, user_api="blas") if large else nullcontext()


def linear_solve(step: Chains, right: np.ndarray, *, transposed: bool = False, rtol: float) -> np.ndarray:
    """Solve (I − γT_k) x_k = right_k for each k; exactly where S is small, else to `rtol`."""
    states, worst = step.policy.shape[0], step.worst
    if factorised(states, worst.indptr[-1]):
        if worst.direction is None and worst.entries is not None and not transposed:
            indices = np.atleast_2d(worst.indices)
            return _factorise(step.policy, worst.indptr, indices, worst.data, step.discount, right)
        matrix = away(worst.mixed(step.policy), step.discount)
        return np.linalg.solve(matrix.transpose(0, 2, 1) if transposed else matrix, right[:, :, None])[:, :, 0]
    return np.stack([_iterate(step.operator(k, transposed), right[k], rtol, step.discount) for k in range(len(right))])


def _iterate(product: Product, right: np.ndarray, rtol: float, discount: float) -> np.ndarray:
    """Solve x − γTx = right until the residual is at most `rtol` of the right side.

    Residuals are computed anew after each method: BiCGSTAB that breaks down may call anything a solution. Plain iteration,
    x ← right + γTx, always converges; a few of these also lead away from a constant right side, which is an eigenvector of
    the transposed chain, on which BiCGSTAB breaks down at once.
    """
    scale = float(np.abs(right).max())
    if scale == 0.0:
        return np.zeros_like(right)
    right = right / scale
    goal, operator = rtol * float(np.linalg.norm(right)), spla.LinearOperator((len(right),) * 2, matvec=product, dtype=float)
    x, residual = right, right - product(right)
    for _ in range(PLAIN):
        x = x + residual
        residual = right - product(x)
    for method, options in (*2 * [(spla.bicgstab, {"maxiter": 2000})], (spla.gmres, {"restart": 50, "maxiter": 20})):
        if np.linalg.norm(residual) <= goal:
            return x * scale
        with np.errstate(all="ignore"):
            moved = x + method(operator, residual, rtol=0.0, atol=goal, **options)[0]
            left = right - product(moved)
            if np.linalg.norm(left) < np.linalg.norm(residual):
                x, residual = moved, left
    for _ in range(int(np.log(rtol / len(right)) / np.log(discount)) + 1):
        if np.linalg.norm(residual) <= goal:
            break
        x = x + residual
        residual = right - product(x)
    return x * scale
