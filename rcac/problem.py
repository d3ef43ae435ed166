"""The problem: a robust constrained MDP, without its uncertainty set.

    minimise over π   J_0(π)   subject to   J_n(π) ≤ b_n   (n = 1..N),      J_n(π) = ρᵀ V_n^π

Everything is a cost to minimise, stacked on a leading axis of length N+1, objective first. A reward enters as
`c_0 = −r` and a utility that must stay above `f` as `c_n = −u, b_n = −f`; `signs` remembers which were negated, so
that results can be shown in the signs they came in.

The kernel is a dense array (S, A, S) or a scipy CSR matrix (S·A, S) whose row s·A + a is P(· | s, a). Either way the
numerics see its `rows`: the stored, positive entries only.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError

if TYPE_CHECKING:
    from rcac.estimation import Estimate

ROW_SUM_TOLERANCE = 1e-8
FORMAT = 1  # of the .npz file


class Rows(NamedTuple):
    """Nominal rows in compressed form: row m has `data[indptr[m]:indptr[m+1]]` at states `indices[…]`."""

    indptr: np.ndarray  # (M+1,) int64
    indices: np.ndarray  # (nnz,) int32
    data: np.ndarray  # (nnz,) float64, positive
    width: int  # S
    ids: np.ndarray  # (M,) which s·A + a each row is; per-row parameters are looked up by it

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.indptr) - 1

    def take(self, which: np.ndarray) -> "Rows":
        """The rows with these positions, in this order."""
        matrix = sp.csr_array((self.data, self.indices, self.indptr), shape=(self.count, self.width))[which]
        return Rows(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, self.width, self.ids[which]
        )

    def matrix(self) -> sp.csr_array:
        return sp.csr_array((self.data, self.indices, self.indptr), shape=(self.count, self.width))


def compress(rows: np.ndarray | sp.csr_array) -> Rows:
    """Rows (M, S), dense or CSR, without their zeros."""
    matrix = sp.csr_array(rows, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return Rows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float64),
        matrix.shape[1],
        np.arange(matrix.shape[0]),
    )


@dataclass(frozen=True, eq=False, repr=False)
class RCMDP:
    """Kernel, costs, budgets, initial distribution and discount, checked on construction and read-only afterwards."""

    kernel: Any  # (S, A, S) dense or CSR (S·A, S)
    costs: Any  # (N+1, S, A) array, objective first
    budgets: Any  # (N,) array
    initial: Any  # (S,) array
    discount: float
    signs: Any = field(default=None, kw_only=True)  # (N+1,) array: −1 where a reward or utility was negated

    def __post_init__(self) -> None:
        costs = _array("costs", self.costs, 3, "(N+1, S, A), objective first")
        if costs.shape[0] < 1 or costs.shape[1] < 1 or costs.shape[2] < 1:
            raise InputError(f"costs: shape {costs.shape} given, at least one cost, state and action expected")
        n, states, actions = costs.shape[0] - 1, *costs.shape[1:]
        budgets = _array("budgets", self.budgets, 1, f"({n},), one for each constraint cost")
        if budgets.shape != (n,):
            raise InputError(f"budgets: {len(budgets)} given, {n} expected (one for each of costs[1:])")
        initial = _array("initial", self.initial, 1, f"({states},)")
        if initial.shape != (states,):
            raise InputError(f"initial: shape {initial.shape} given, ({states},) expected")
        initial = _distributions("initial", initial[None])[0]
        discount = _number("discount", self.discount)
        if not 0 <= discount < 1:
            raise InputError(f"discount: {discount} given, a number in [0, 1) expected")
        signs = np.ones(n + 1) if self.signs is None else _array("signs", self.signs, 1, f"({n + 1},)")
        if signs.shape != (n + 1,) or not np.all(np.abs(signs) == 1):
            raise InputError(f"signs: {signs} given, {n + 1} values of +1 or −1 expected")
        kernel = _kernel(self.kernel, states, actions)
        for name, value in (("costs", costs), ("budgets", budgets), ("initial", initial), ("signs", signs)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "discount", discount)

    @classmethod
    def from_rewards(
        cls,
        kernel: Any,
        reward: np.ndarray,  # (S, A), to be maximised
        costs: np.ndarray | Sequence = (),  # (N, S, A), each at most its budget
        budgets: np.ndarray | Sequence = (),
        initial: np.ndarray | None = None,  # uniform when not given
        discount: float = 0.99,
        *,
        utilities: np.ndarray | Sequence = (),  # (M, S, A), each at least its floor
        utility_floors: np.ndarray | Sequence = (),
    ) -> "RCMDP":
        """A problem in a person's signs: a reward to maximise, costs below budgets, utilities above floors."""
        reward = _array("reward", reward, 2, "(S, A)")
        stacked = [-reward[None]]
        for name, value in (("costs", costs), ("utilities", utilities)):
            part = np.asarray(value, dtype=float)
            if part.size == 0:
                part = part.reshape(0, *reward.shape)
            if part.ndim != 3 or part.shape[1:] != reward.shape:
                raise InputError(
                    f"{name}: shape {part.shape} given, (n, {reward.shape[0]}, {reward.shape[1]}) expected"
                )
            stacked.append(part if name == "costs" else -part)
        floors = _array("utility_floors", utility_floors, 1, "one for each utility")
        ceilings = _array("budgets", budgets, 1, "one for each cost")
        for name, limits, part in (("budgets", ceilings, stacked[1]), ("utility_floors", floors, stacked[2])):
            if len(limits) != len(part):
                raise InputError(f"{name}: {len(limits)} given, {len(part)} expected")
        if initial is None:
            initial = np.full(reward.shape[0], 1 / reward.shape[0])
        signs = np.concatenate([[-1.0], np.ones(len(stacked[1])), -np.ones(len(stacked[2]))])
        return cls(kernel, np.concatenate(stacked), np.concatenate([ceilings, -floors]), initial, discount, signs=signs)

    @staticmethod
    def from_transitions(*args: Any, **kwargs: Any) -> "Estimate":
        """Estimate a problem from logged transitions: see `rcac.estimation.from_transitions`."""
        from rcac.estimation import from_transitions

        return from_transitions(*args, **kwargs)

    @property
    def num_states(self) -> int:
        return self.costs.shape[1]

    @property
    def num_actions(self) -> int:
        return self.costs.shape[2]

    @property
    def num_constraints(self) -> int:
        return self.costs.shape[0] - 1

    @property
    def sparse(self) -> bool:
        return sp.issparse(self.kernel)

    @cached_property
    def rows(self) -> Rows:
        """The nominal rows (S·A of them), zeros left out."""
        dense = self.kernel if self.sparse else self.kernel.reshape(-1, self.num_states)
        return compress(dense)

    def labels(self) -> list[str]:
        """What to call each term when shown: return or objective, then cost or utility with its number."""
        many = self.num_constraints > 1
        kinds = ["utility" if s < 0 else "cost" for s in self.signs[1:]]
        return ["return" if self.signs[0] < 0 else "objective"] + [
            f"{kind} {i + 1}" if many else kind for i, kind in enumerate(kinds)
        ]

    def __repr__(self) -> str:
        many = "" if self.num_constraints == 1 else "s"
        return (
            f"RCMDP({self.num_states} states × {self.num_actions} actions, {self.num_constraints} constraint{many}, "
            f"discount {self.discount:g}, {'sparse' if self.sparse else 'dense'} kernel)"
        )

    def save(self, path: str | PathLike) -> None:
        """Write one .npz file (plain arrays, no pickle)."""
        arrays: dict[str, Any] = dict(
            format=np.int64(FORMAT),
            costs=self.costs,
            budgets=self.budgets,
            initial=self.initial,
            discount=np.float64(self.discount),
            signs=self.signs,
        )
        if self.sparse:
            arrays |= dict(
                kernel_data=self.kernel.data, kernel_indices=self.kernel.indices, kernel_indptr=self.kernel.indptr
            )
        else:
            arrays["kernel"] = self.kernel
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike) -> "RCMDP":
        """Read what `save` wrote; the content is checked like any other input."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except FileNotFoundError:
            raise InputError(f"path: {str(path)!r} does not exist") from None
        except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise InputError(f"path: {str(path)!r} is not an .npz file of plain arrays ({error})") from None
        sparse = "kernel" not in arrays
        needed = {"costs", "budgets", "initial", "discount"} | (
            {"kernel_data", "kernel_indices", "kernel_indptr"} if sparse else {"kernel"}
        )
        if missing := needed - arrays.keys():
            raise InputError(f"path: {str(path)!r} lacks {', '.join(sorted(missing))}")
        if int(arrays.get("format", FORMAT)) > FORMAT:
            raise InputError(f"format: {int(arrays['format'])} given, at most {FORMAT} expected")
        kernel = arrays.get("kernel")
        if sparse:
            if arrays["costs"].ndim != 3:
                raise InputError(f"costs: shape {arrays['costs'].shape} given, (N+1, S, A) expected")
            _, states, actions = arrays["costs"].shape
            try:
                kernel = sp.csr_array(
                    (arrays["kernel_data"], arrays["kernel_indices"], arrays["kernel_indptr"]),
                    shape=(states * actions, states),
                )
                kernel.check_format(full_check=True)
            except (ValueError, TypeError) as error:
                raise InputError(f"kernel: not a CSR matrix ({error})") from None
        discount = arrays["discount"]
        if discount.size != 1:
            raise InputError(f"discount: shape {discount.shape} given, a number expected")
        return cls(
            kernel,
            arrays["costs"],
            arrays["budgets"],
            arrays["initial"],
            discount.reshape(-1)[0],
            signs=arrays.get("signs"),
        )


def check_policy(problem: RCMDP, policy: np.ndarray) -> np.ndarray:
    """The policy as float (S, A), refused unless every row is a distribution."""
    policy = _array("policy", policy, 2, "(S, A)")
    expected = (problem.num_states, problem.num_actions)
    if policy.shape != expected:
        raise InputError(f"policy: shape {policy.shape} given, {expected} expected")
    return _distributions("policy", policy)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r} given, a number expected") from None


def _array(name: str, value: Any, ndim: int, expected: str) -> np.ndarray:
    """A fresh, finite float array with this many axes."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: not an array of numbers, {expected} expected") from None
    if array.ndim != ndim:
        raise InputError(f"{name}: shape {array.shape} given, {expected} expected")
    _finite(name, array)
    return array


def _finite(name: str, array: np.ndarray) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{name}{list(index)}: {array[index]} given, a finite number expected")


def _distributions(name: str, rows: np.ndarray) -> np.ndarray:
    """Dense rows (M, S) with sums of one. Rounding within the tolerance is divided out, so that sums are exact."""
    where = (lambda m: name) if len(rows) == 1 else (lambda m: f"{name}[{m}]")
    if (rows < 0).any():
        m, j = (int(i) for i in np.argwhere(rows < 0)[0])
        raise InputError(f"{where(m)}[{j}]: {rows[m, j]} given, a probability ≥ 0 expected")
    sums = rows.sum(axis=1)
    _check_sums(where, sums)
    return np.where(_off(sums)[:, None], rows / sums[:, None], rows)


def _off(sums: np.ndarray) -> np.ndarray:
    return np.abs(sums - 1) > 1e-13


def _check_sums(where: Any, sums: np.ndarray) -> None:
    bad = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if len(bad):
        raise InputError(
            f"{where(int(bad[0]))}: sums to {float(sums[bad[0]]):.12g}, 1 expected (within {ROW_SUM_TOLERANCE:g})"
        )


def _kernel(kernel: Any, states: int, actions: int) -> Any:
    def where(m: int) -> str:
        return f"kernel[{m // actions}, {m % actions}]"

    if sp.issparse(kernel):
        matrix = sp.csr_array(kernel, dtype=np.float64, copy=True)
        if matrix.shape != (states * actions, states):
            raise InputError(
                f"kernel: sparse shape {matrix.shape} given, (S·A, S) = ({states * actions}, {states}) expected"
            )
        matrix.sum_duplicates()
        owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        for bad, expected in ((~np.isfinite(matrix.data), "a finite number"), (matrix.data < 0, "a probability ≥ 0")):
            if bad.any():
                i = int(np.argmax(bad))
                raise InputError(
                    f"{where(int(owner[i]))}[{matrix.indices[i]}]: {matrix.data[i]} given, {expected} expected"
                )
        sums = matrix.sum(axis=1)
        _check_sums(where, sums)
        if _off(sums).any():
            matrix.data /= np.where(_off(sums), sums, 1.0)[owner]
        for part in (matrix.data, matrix.indices, matrix.indptr):
            part.flags.writeable = False
        return matrix
    dense = _array("kernel", kernel, 3, f"(S, A, S) = ({states}, {actions}, {states})")
    if dense.shape != (states, actions, states):
        hint = ""
        if dense.shape == (actions, states, states):
            hint = "; this looks like (A, S, S): pass kernel.transpose(1, 0, 2)"
        raise InputError(
            f"kernel: shape {dense.shape} given, (S, A, S) = ({states}, {actions}, {states}) expected{hint}"
        )
    flat = dense.reshape(-1, states)
    if (flat < 0).any():
        m, j = (int(i) for i in np.argwhere(flat < 0)[0])
        raise InputError(f"{where(m)}[{j}]: {flat[m, j]} given, a probability ≥ 0 expected")
    sums = flat.sum(axis=1)
    _check_sums(where, sums)
    flat = np.where(_off(sums)[:, None], flat / sums[:, None], flat)
    dense = flat.reshape(states, actions, states)
    dense.flags.writeable = False
    return dense
