"""A finite set of kernels.

rectangular      every (s,a) has its own choice among the kernels' rows:  max_i  P_i(·|s,a)ᵀV
whole kernels    one choice for all (s,a) (not rectangular): the evaluator takes each kernel, and the largest return
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP, Rows, compress
from rcac.uncertainty.base import Uncertainty, Worst


@dataclass(frozen=True, eq=False)
class FiniteKernels(Uncertainty):
    """The kernels given, each dense (S, A, S) or CSR (S·A, S). The nominal one belongs to the set only if listed."""

    kernels: Any  # sequence of kernels
    rectangular: bool = True
    models: tuple[Rows, ...] = field(init=False, repr=False)  # each kernel's rows
    union: tuple[Rows, np.ndarray] = field(init=False, repr=False)  # all supports together, and (kernels, nnz) on them

    def __post_init__(self) -> None:
        if len(self.kernels) == 0:
            raise InputError("kernels: none given, at least one expected")
        flat = [k if sp.issparse(k) else np.asarray(k, float).reshape(-1, np.shape(k)[-1]) for k in self.kernels]
        for i, kernel in enumerate(flat):
            if kernel.shape != flat[0].shape:
                raise InputError(f"kernels[{i}]: shape {kernel.shape} given, {flat[0].shape} as the first expected")
            sums = np.asarray(kernel.sum(axis=1)).ravel()
            if not (np.abs(sums - 1) <= 1e-8).all():
                m = int(np.argmax(~(np.abs(sums - 1) <= 1e-8)))
                raise InputError(f"kernels[{i}]: row {m} sums to {sums[m]}, 1 expected")
            if kernel.min() < 0:
                raise InputError(f"kernels[{i}]: {kernel.min()} given, probabilities ≥ 0 expected")
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

    def sweep(self, values: np.ndarray, rows: Rows, memory: Any = None) -> Worst:
        union, data = self.union
        if len(rows.ids) and rows.ids.max() >= union.count:
            raise InputError(f"nominal: row {rows.ids.max()} given, the kernels have {union.count} rows")
        if rows.count != union.count or not np.array_equal(rows.ids, union.ids):
            places = np.concatenate([np.arange(union.indptr[m], union.indptr[m + 1]) for m in rows.ids])
            union, data = union.take(rows.ids), data[:, places]
        owner = np.repeat(np.arange(union.count), np.diff(union.indptr))
        expected = np.stack(
            [sp.csr_array((d, union.indices, union.indptr), shape=(union.count, union.width)) @ values.T for d in data]
        )  # (kernels, M, K)
        choice = np.argmax(expected, axis=0)  # (M, K)
        value = np.take_along_axis(expected, choice[None], axis=0)[0].T
        kernel = np.stack([data[choice[owner, k], np.arange(len(owner))] for k in range(len(values))])
        return Worst(np.ascontiguousarray(value), union.indptr, union.indices, kernel)
