"""Sparse systems (I − γT) x = b, by a factorisation where it fills in little, else by an iteration; residuals are checked.

T has non-negative rows with sums of one, so that I − γT is strictly diagonally dominant by rows: it can be factorised without
pivoting, in an order that keeps the factors sparse. How much they fill in is bounded before the attempt by the envelope of
the matrix in the order of Cuthill and McKee; columns that nearly every row reaches (the state that a total variation set moves mass
to) come last, and are counted apart.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import reverse_cuthill_mckee

from rcac.problem import Array

CHEAP = 1_000  # operations of a factorisation for each entry of the matrix: fewer than an iteration takes
AFFORDABLE = 2 * 10**7  # entries of the factors: 0.3 GB
SHORT = 8  # entries in a row, on average, up to which a factorisation is thought of first
PATIENCE = 200  # iterations of BiCGSTAB before a factorisation is tried, if it is affordable
PLAIN = 5  # plain iterations before a linear solver takes over
REMEMBERED = 64  # patterns

Product = Callable[[Array], Array]  # with a matrix (S, S)


class FillIn(NamedTuple):
    """Bounds on what a factorisation takes."""

    entries: float
    operations: float


class System:
    """I − γ(T + push·towardsᵀ), where the last part is for sets that move all rows alike; or its transpose."""

    def __init__(
        self,
        chain: sp.csr_array,  # T (S, S)
        discount: float,
        push: Array | None = None,  # (S,)
        towards: Array | None = None,  # (S,)
        *,
        transposed: bool = False,
    ) -> None:
        self.chain: sp.csr_array = chain.T.tocsr() if transposed else chain
        self.discount = discount
        self.push, self.towards = (towards, push) if transposed else (push, towards)

    def product(self, x: Array) -> Array:
        moved: Array = self.chain @ x
        if self.push is not None and self.towards is not None:
            moved = moved + self.push * (self.towards @ x)
        return x - self.discount * moved

    def solve(self, right: Array, rtol: float) -> Array:
        """x with a residual of at most `rtol` of the right side, in Euclidean norm."""
        scale = float(np.abs(right).max())
        if scale == 0.0:
            return np.zeros_like(right)
        right = right / scale
        goal = rtol * float(np.linalg.norm(right))
        x, residual = np.zeros_like(right), right
        for attempt in self._attempts():
            if np.linalg.norm(residual) <= goal:
                return x * scale
            with np.errstate(all="ignore"):
                moved = x + attempt(residual, goal)
                left = right - self.product(moved)
                if np.linalg.norm(left) < np.linalg.norm(residual):
                    x, residual = moved, left
        for _ in range(int(np.log(rtol / len(right)) / np.log(self.discount)) + 1):
            if np.linalg.norm(residual) <= goal:
                break
            x = x + residual
            residual = right - self.product(x)
        return x * scale

    def _attempts(self) -> list[Callable[[Array, float], Array]]:
        """Ways to solve for a correction, the cheapest first; each is judged by the residual that it leaves, because
        BiCGSTAB that breaks down may call anything a solution."""
        operator = spla.LinearOperator(self.chain.shape, matvec=self.product, dtype=float)

        def plain(right: Array, goal: float) -> Array:
            # always converges, and leads away from a constant right side, an eigenvector on which BiCGSTAB breaks down
            x = right
            for _ in range(PLAIN - 1):
                x = x + (right - self.product(x))
            return x

        def bicgstab(steps: int) -> Callable[[Array, float], Array]:
            return lambda right, goal: spla.bicgstab(operator, right, rtol=0.0, atol=goal, maxiter=steps)[0]

        def gmres(right: Array, goal: float) -> Array:
            found: Array = spla.gmres(operator, right, rtol=0.0, atol=goal, restart=50, maxiter=20)[0]
            return found

        def factors(right: Array, goal: float) -> Array:
            affordable = fill_in(self.chain).entries <= AFFORDABLE
            return self._factorise(right) if affordable else np.zeros_like(right)

        few = self.chain.nnz <= SHORT * self.chain.shape[0]
        if few and fill_in(self.chain).operations <= CHEAP * self.chain.nnz:
            return [factors, plain, bicgstab(2000), gmres]
        return [plain, bicgstab(PATIENCE), factors, bicgstab(2000), gmres]

    def _factorise(self, right: Array) -> Array:
        matrix = (sp.eye_array(self.chain.shape[0]) - self.discount * self.chain).tocsc()
        factors = spla.splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        x: Array = factors.solve(right)
        if self.push is None or self.towards is None:
            return x
        pushed: Array = factors.solve(self.push)  # Sherman and Morrison
        return x + pushed * (self.discount * (self.towards @ x) / (1 - self.discount * (self.towards @ pushed)))


_known: OrderedDict[tuple[int, int, int], FillIn] = OrderedDict()


def fill_in(chain: sp.csr_array) -> FillIn:
    """Of the factors of I − γT; patterns seen lately are remembered."""
    key = (chain.shape[0], chain.nnz, crc32(chain.indices, crc32(chain.indptr)))
    if key not in _known:
        _known[key] = _envelope(chain)
        if len(_known) > REMEMBERED:
            _known.popitem(last=False)
    return _known[key]


def _envelope(chain: sp.csr_array) -> FillIn:
    states = chain.shape[0]
    many = 10 * np.sqrt(states)
    hubs = np.bincount(chain.indices, minlength=states) > many
    hubs |= np.diff(chain.indptr) > many
    owner = np.repeat(np.arange(states), np.diff(chain.indptr))
    kept = ~(hubs[chain.indices] | hubs[owner])
    ones = np.ones(int(kept.sum()), np.int8)
    graph = sp.csr_array((ones, (owner[kept], chain.indices[kept])), shape=chain.shape)
    order = reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True)
    place = np.empty(states, np.int64)
    place[order] = np.arange(states)
    first, last = place[owner[kept]], place[chain.indices[kept]]
    reach = np.zeros(states)  # from the diagonal to the farthest entry, below it or beside it
    np.maximum.at(reach, np.maximum(first, last), np.abs(first - last))
    width = reach + 1 + int(hubs.sum())
    return FillIn(2 * float(width.sum()), 2 * float((width * width).sum()))
