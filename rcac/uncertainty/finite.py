"""A finite set of kernels.

rectangular      every (s,a) has its own choice among the kernels' rows:  max_i  P_i(·|s,a)ᵀV
whole kernels    one choice for all (s,a) (not rectangular): the evaluator takes each kernel, and the largest return
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP, ROUNDED, Rows, compress, row_sum_tolerance
from rcac.uncertainty.base import Uncertainty, WorstCase, check_flag


@dataclass(frozen=True, eq=False)
class FiniteKernels(Uncertainty):
    """The kernels given, each dense (S, A, S) or CSR (S·A, S). The nominal one belongs to the set only if listed.

    Parameters
    ----------
    kernels : sequence of arrays
        The models.
    rectangular : bool
        Whether the adversary may choose each row from another kernel, or has to take one as a whole.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, rcac
    >>> from rcac.uncertainty import FiniteKernels
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> drowsy = 0.9 * problem.kernel + 0.1 * np.eye(6)[-1]  # sometimes the current carries one off
    >>> policy = np.full((6, 2), 0.5)
    >>> worst, as_is = rcac.evaluate(problem, policy, FiniteKernels([problem.kernel, drowsy])), rcac.evaluate(problem, policy)
    >>> bool(worst.returns[1] > as_is.returns[1])
    True
    """

    kernels: Any  # sequence of kernels
    rectangular: bool = True
    models: tuple[Rows, ...] = field(init=False, repr=False)  # each kernel's rows
    union: tuple[Rows, np.ndarray] = field(init=False, repr=False)  # all supports together, and (kernels, nnz) on them

    def __post_init__(self) -> None:
        check_flag("rectangular", self.rectangular)
        if not hasattr(self.kernels, "__len__") or sp.issparse(self.kernels):
            raise InputError(f"kernels: {type(self.kernels).__name__} given, a list of kernels expected")
        if len(self.kernels) == 0:
            raise InputError("kernels: none given, at least one expected")
        flat = [_flat(i, kernel) for i, kernel in enumerate(self.kernels)]
        for i, kernel in enumerate(flat):
            if kernel.shape != flat[0].shape:
                raise InputError(f"kernels[{i}]: shape {kernel.shape} given, {flat[0].shape} as the first expected")
            if kernel.min() < 0:
                raise InputError(f"kernels[{i}]: {kernel.min()} given, probabilities ≥ 0 expected")
            sums = np.asarray(kernel.sum(axis=1)).ravel()
            precision = row_sum_tolerance(self.kernels[i], kernel.shape[1])
            if not (np.abs(sums - 1) <= precision).all():
                m = int(np.argmax(~(np.abs(sums - 1) <= precision)))
                raise InputError(f"kernels[{i}]: row {m} sums to {sums[m]}, 1 expected")
            if (np.abs(sums - 1) > ROUNDED).any():
                flat[i] = compress(sp.csr_array(sp.diags_array(1 / sums) @ sp.csr_array(kernel))).matrix()
        # every kernel on the union of the supports, so that a row of any of them fits the same places
        models = tuple(compress(kernel) for kernel in flat)
        union = compress(sum((m.matrix() for m in models[1:]), models[0].matrix()))
        pattern = sp.csr_array((np.arange(1, len(union.data) + 1), union.indices, union.indptr), shape=flat[0].shape)
        data = np.zeros((len(models), len(union.data)))
        for i, model in enumerate(models):
            own = model.matrix()
            own.data = np.ones(len(own.data))
            data[i, (pattern * own).tocsr().sorted_indices().data.astype(np.int64) - 1] = model.data
        object.__setattr__(self, "models", models)
        object.__setattr__(self, "union", (union, data))  # (Rows, (kernels, nnz))

    def check(self, problem: RCMDP) -> None:
        expected = (problem.num_states * problem.num_actions, problem.num_states)
        given = (self.models[0].count, self.models[0].width)
        if given != expected:
            raise InputError(
                f"kernels: {given[0]} rows of {given[1]} states given, {expected[0]} rows of {expected[1]} expected"
            )

    def contains_nominal(self, problem: RCMDP) -> bool:
        nominal = problem.rows
        return any(
            np.array_equal(m.indptr, nominal.indptr)
            and np.array_equal(m.indices, nominal.indices)
            and np.allclose(m.data, nominal.data, atol=1e-12)
            for m in self.models
        )

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> WorstCase:
        union, data = self.union
        if len(rows.ids) and rows.ids.max() >= union.count:
            raise InputError(f"nominal: row {rows.ids.max()} given, the kernels have {union.count} rows")
        if rows.count != union.count or not np.array_equal(rows.ids, union.ids):
            places = union.places(rows.ids)
            union, data = union.take(rows.ids), data[:, places]
        owner = np.repeat(np.arange(union.count), np.diff(union.indptr))
        expected = np.stack(
            [sp.csr_array((d, union.indices, union.indptr), shape=(union.count, union.width)) @ values.T for d in data]
        )  # (kernels, M, K)
        choice = np.argmax(expected, axis=0)  # (M, K)
        value = np.take_along_axis(expected, choice[None], axis=0)[0].T
        kernel = np.stack([data[choice[owner, k], np.arange(len(owner))] for k in range(len(values))])
        return WorstCase(np.ascontiguousarray(value), union.indptr, union.indices, kernel)


def _flat(i: int, kernel: Any) -> Any:
    """A kernel as rows (S·A, S)."""
    if sp.issparse(kernel):
        return kernel
    expected = "(S, A, S) or a sparse matrix (S·A, S) expected"
    try:
        array = np.asarray(kernel, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"kernels[{i}]: not an array of numbers, {expected}") from None
    if array.ndim != 3 or array.shape[0] != array.shape[2] or array.size == 0:
        raise InputError(f"kernels[{i}]: shape {array.shape} given, {expected}")
    return array.reshape(-1, array.shape[2])
