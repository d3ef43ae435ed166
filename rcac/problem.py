"""The problem: a robust constrained MDP, without its uncertainty set.

    minimise over π   J_0(π)   subject to   J_n(π) ≤ b_n   (n = 1..N),      J_n(π) = ρᵀ V_n^π

Everything is a cost to minimise, stacked on a leading axis of length N+1, objective first. A reward enters as
`c_0 = −r` and a utility that must stay above `f` as `c_n = −u, b_n = −f`; `signs` remembers which were negated, so
that results can be shown in the signs they came in.

The kernel is a dense array (S, A, S) or a scipy CSR matrix (S·A, S) whose row s·A + a is P(· | s, a). Either way the
numerics see its `rows`: the stored, positive entries only.
"""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.labels import term_labels

if TYPE_CHECKING:
    from rcac.estimation import Estimate

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]

ROW_SUM_TOLERANCE = 1e-8
ROUNDED = 1e-13  # how far the sum of a row may be from 1 and stay as it is
FORMAT = 1  # of the .npz file


class Rows(NamedTuple):
    """Nominal rows in compressed form: row m has `data[indptr[m]:indptr[m+1]]` at states `indices[…]`."""

    indptr: Integers  # (M+1,) int64
    indices: Integers  # (nnz,) int32
    data: Array  # (nnz,) positive
    width: int  # S
    ids: Integers  # (M,) which s·A + a each row is; per-row parameters are looked up by it

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.indptr) - 1

    def take(self, which: Integers) -> "Rows":
        """The rows with these positions, in this order."""
        places, start = self.places(which), np.concatenate([[0], np.cumsum(np.diff(self.indptr)[which])])
        return Rows(start, self.indices[places], self.data[places], self.width, self.ids[which])

    def places(self, which: Integers) -> Integers:
        """Where the entries of these rows are, one row after the other."""
        lengths = np.diff(self.indptr)[which]
        ends = np.cumsum(lengths)
        # entry j of row m is at indptr[m] + j, and is the (ends − lengths)[m] + j-th of all
        return np.repeat(self.indptr[which] - (ends - lengths), lengths) + np.arange(lengths.sum())

    def matrix(self) -> sp.csr_array:
        return sp.csr_array((self.data, self.indices, self.indptr), shape=(self.count, self.width))


def compress(rows: Array | sp.csr_array) -> Rows:
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


@dataclass(frozen=True, eq=False, repr=False, init=False)
class RCMDP:
    """Kernel, costs, budgets, initial distribution and discount, checked on construction and read-only afterwards.

    Everything is a cost to minimise, objective first; `from_rewards` takes rewards.

    Parameters
    ----------
    kernel : array (S, A, S), or CSR (S·A, S)
        Transition probabilities.
    costs : array (N+1, S, A)
        Objective first.
    budgets : array (N,)
        On the discounted sum of each further cost.
    initial : array (S,)
        Where one starts.
    discount : float
        In [0, 1).
    signs : array (N+1,)
        −1 where a reward or a utility was negated, to show results in its own sign.

    Examples
    --------
    >>> import numpy as np, rcac
    >>> stay = np.eye(2)[:, None].repeat(2, axis=1)  # two states, two actions, nothing moves
    >>> rcac.RCMDP(stay, np.ones((2, 2, 2)), [20.0], [0.5, 0.5], 0.9)
    RCMDP(2 states × 2 actions, 1 constraint, discount 0.9, dense kernel)
    """

    kernel: Array | sp.csr_array  # (S, A, S) dense or CSR (S·A, S)
    costs: Array  # (N+1, S, A), objective first
    budgets: Array  # (N,)
    initial: Array  # (S,)
    discount: float
    signs: Array  # (N+1,) −1 where a reward or utility was negated

    def __init__(
        self,
        kernel: npt.ArrayLike | sp.csr_array,
        costs: npt.ArrayLike,
        budgets: npt.ArrayLike,
        initial: npt.ArrayLike,
        discount: float,
        *,
        signs: npt.ArrayLike | None = None,
    ) -> None:
        stacked = _array("costs", costs, 3, "(N+1, S, A), objective first")
        if stacked.size == 0:
            raise InputError(f"costs: shape {stacked.shape} given, at least one cost, state and action expected")
        n, states, actions = stacked.shape[0] - 1, *stacked.shape[1:]
        limits = _array("budgets", budgets, 1, f"({n},), one for each constraint cost")
        if limits.shape != (n,):
            raise InputError(f"budgets: {len(limits)} given, {n} expected (one for each of costs[1:])")
        start = _array("initial", initial, 1, f"({states},)")
        if start.shape != (states,):
            raise InputError(f"initial: shape {start.shape} given, ({states},) expected")
        start = _distributions("initial", start[None], row_sum_tolerance(initial, states))[0]
        discount = _number("discount", discount)
        if not 0 <= discount < 1:
            raise InputError(f"discount: {discount} given, a number in [0, 1) expected")
        ours = np.ones(n + 1) if signs is None else _array("signs", signs, 1, f"({n + 1},)")
        if ours.shape != (n + 1,) or not np.all(np.abs(ours) == 1):
            raise InputError(f"signs: {ours} given, {n + 1} values of +1 or −1 expected")
        for name, array in (("costs", stacked), ("budgets", limits), ("initial", start), ("signs", ours)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "kernel", _kernel(kernel, states, actions))
        object.__setattr__(self, "discount", discount)

    @classmethod
    def from_rewards(
        cls,
        kernel: npt.ArrayLike | sp.csr_array,
        reward: npt.ArrayLike,  # (S, A), to be maximised
        costs: npt.ArrayLike = (),  # (N, S, A), each at most its budget
        budgets: npt.ArrayLike = (),
        initial: npt.ArrayLike | None = None,  # uniform when not given
        discount: float = 0.99,
        *,
        utilities: npt.ArrayLike = (),  # (M, S, A), each at least its floor
        utility_floors: npt.ArrayLike = (),
    ) -> "RCMDP":
        """A problem in a person's signs: a reward to maximise, costs below budgets, utilities above floors.

        Parameters
        ----------
        kernel : array (S, A, S), or CSR (S·A, S)
            Transition probabilities.
        reward : array (S, A)
            To be maximised.
        costs, budgets : arrays (N, S, A) and (N,)
            Each cost is at most its budget.
        initial : array (S,)
            Where one starts; uniform, if not given.
        discount : float
            In [0, 1).
        utilities, utility_floors : arrays (M, S, A) and (M,)
            Each utility is at least its floor.

        Returns
        -------
        RCMDP

        Examples
        --------
        >>> import numpy as np, rcac
        >>> stay = np.eye(2)[:, None].repeat(2, axis=1)
        >>> problem = rcac.RCMDP.from_rewards(stay, np.eye(2), utilities=[np.eye(2)], utility_floors=[3.0])
        >>> problem.labels()
        ['return', 'utility']
        """
        table = _array("reward", reward, 2, "(S, A)")
        if table.size == 0:
            raise InputError(f"reward: shape {table.shape} given, at least one state and action expected")
        stacked = [-table[None]]
        for name, value in (("costs", costs), ("utilities", utilities)):
            part = _floats(name, value, f"(n, {table.shape[0]}, {table.shape[1]})")
            if part.size == 0:
                part = part.reshape(0, *table.shape)
            if part.ndim != 3 or part.shape[1:] != table.shape:
                raise InputError(f"{name}: shape {part.shape} given, (n, {table.shape[0]}, {table.shape[1]}) expected")
            stacked.append(part if name == "costs" else -part)
        floors = _array("utility_floors", utility_floors, 1, "one for each utility")
        ceilings = _array("budgets", budgets, 1, "one for each cost")
        for name, limits, part in (("budgets", ceilings, stacked[1]), ("utility_floors", floors, stacked[2])):
            if len(limits) != len(part):
                raise InputError(f"{name}: {len(limits)} given, {len(part)} expected")
        if initial is None:
            initial = np.full(table.shape[0], 1 / table.shape[0])
        signs = np.concatenate([[-1.0], np.ones(len(stacked[1])), -np.ones(len(stacked[2]))])
        return cls(kernel, np.concatenate(stacked), np.concatenate([ceilings, -floors]), initial, discount, signs=signs)

    @classmethod
    def from_transitions(cls, *args: Any, **kwargs: Any) -> "Estimate":
        """Estimate a problem from logged transitions: see `rcac.estimation.from_transitions`.

        Returns
        -------
        Estimate

        Examples
        --------
        >>> import rcac
        >>> log = dict(states=[0, 1, 0], actions=[0, 0, 0], costs=[[0.0], [1.0], [0.0]], next_states=[1, 0, 1])
        >>> estimate = rcac.RCMDP.from_transitions(**log, num_states=2, num_actions=1, budgets=[], discount=0.9)
        >>> estimate.counts[:, 0].tolist()
        [2, 1]
        """
        from rcac.estimation import from_transitions

        return from_transitions(cls, *args, **kwargs)

    @property
    def num_states(self) -> int:
        return int(self.costs.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.costs.shape[2])

    @property
    def num_constraints(self) -> int:
        return int(self.costs.shape[0]) - 1

    @property
    def sparse(self) -> bool:
        return bool(sp.issparse(self.kernel))

    @cached_property
    def rows(self) -> Rows:
        """The nominal rows (S·A of them), zeros left out."""
        dense = self.kernel if self.sparse else self.kernel.reshape(-1, self.num_states)
        return compress(dense)

    def labels(self) -> list[str]:
        """What to call each term when shown: return or objective, then cost or utility with its number."""
        return term_labels(self.signs)

    def __repr__(self) -> str:
        many = "" if self.num_constraints == 1 else "s"
        return (
            f"RCMDP({self.num_states} states × {self.num_actions} actions, {self.num_constraints} constraint{many}, "
            f"discount {self.discount:g}, {'sparse' if self.sparse else 'dense'} kernel)"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .npz file (plain arrays, no pickle).

        Parameters
        ----------
        path : path
            Of the file; `rcac-train env=custom env.path=…` takes it.
        """
        arrays: dict[str, Any] = dict(
            format=np.int64(FORMAT),
            costs=self.costs,
            budgets=self.budgets,
            initial=self.initial,
            discount=np.float64(self.discount),
            signs=self.signs,
        )
        kernel: Any = self.kernel
        if self.sparse:
            arrays |= dict(kernel_data=kernel.data, kernel_indices=kernel.indices, kernel_indptr=kernel.indptr)
        else:
            arrays["kernel"] = kernel
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "RCMDP":
        """Read what `save` wrote at `path`; the content is checked like any other input."""
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


def check_problem(problem: object) -> None:
    if not isinstance(problem, RCMDP):
        expected = "an RCMDP expected, as RCMDP.from_rewards(kernel, reward, costs, budgets) makes it"
        raise InputError(f"problem: {type(problem).__name__} given, {expected}")


def check_policy(problem: RCMDP, policy: npt.ArrayLike) -> Array:
    """The policy as float (S, A), rejected unless every row is a distribution."""
    table = _array("policy", policy, 2, "(S, A)")
    expected = (problem.num_states, problem.num_actions)
    if table.shape != expected:
        raise InputError(f"policy: shape {table.shape} given, {expected} expected")
    return _distributions("policy", table, row_sum_tolerance(policy, problem.num_actions))


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r} given, a number expected") from None


def _floats(name: str, value: Any, expected: str) -> Array:
    """A fresh float array."""
    try:
        given = np.asarray(value)
        if given.dtype.kind == "c":
            raise TypeError
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: not an array of numbers, {expected} expected") from None


def _array(name: str, value: Any, ndim: int, expected: str) -> Array:
    """A fresh, finite float array with this many axes."""
    array = _floats(name, value, expected)
    if array.ndim != ndim:
        raise InputError(f"{name}: shape {array.shape} given, {expected} expected")
    _finite(name, array)
    return array


def row_sum_tolerance(given: Any, length: int) -> float:
    """How far the sum of a row of this many probabilities may be from 1: further where they are given in single precision."""
    try:
        dtype = given.dtype if sp.issparse(given) else np.asarray(given).dtype
    except ValueError:  # rows of different lengths, which are refused where they are read
        return ROW_SUM_TOLERANCE
    if not (dtype.kind == "f" and dtype.itemsize < 8):
        return ROW_SUM_TOLERANCE
    return float(np.finfo(dtype).eps) * max(8.0, float(np.sqrt(length)))


def _finite(name: str, array: Array) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{name}{list(index)}: {array[index]} given, a finite number expected")


def finite_array(name: str, value: Any, expected: str) -> Array:
    """A fresh, finite float array of any shape."""
    array = _floats(name, value, expected)
    _finite(name, array)
    return array


def check_distributions(name: str, given: Any) -> Array:
    """Distributions (…, S)."""
    array = finite_array(name, given, "(…, S)")
    if array.ndim == 0 or array.size == 0:
        raise InputError(f"{name}: shape {array.shape} given, (…, S) with at least one state expected")
    width = array.shape[-1]
    return _distributions(name, array.reshape(-1, width), row_sum_tolerance(given, width)).reshape(array.shape)


def _distributions(name: str, rows: Array, precision: float) -> Array:
    """Dense rows (M, S) with sums of one. Rounding within the precision is divided out, so that sums are exact."""

    def where(m: int) -> str:
        return name if len(rows) == 1 else f"{name}[{m}]"

    return _normalised(rows, precision, where)


def _normalised(rows: Array, precision: float, where: Callable[[int], str]) -> Array:
    if (rows < 0).any():
        m, j = (int(i) for i in np.argwhere(rows < 0)[0])
        raise InputError(f"{where(m)}[{j}]: {rows[m, j]} given, a probability ≥ 0 expected")
    sums = rows.sum(axis=1)
    _check_sums(where, sums, precision)
    return np.where(_off(sums)[:, None], rows / sums[:, None], rows)


def _off(sums: Array) -> npt.NDArray[np.bool_]:
    return np.abs(sums - 1) > ROUNDED


def _check_sums(where: Callable[[int], str], sums: Array, precision: float) -> None:
    bad = np.flatnonzero(np.abs(sums - 1) > precision)
    if len(bad):
        raise InputError(f"{where(int(bad[0]))}: sums to {sums[bad[0]]:.12g}, 1 expected (within {precision:.2g})")


def _kernel(kernel: Any, states: int, actions: int) -> Array | sp.csr_array:
    precision = row_sum_tolerance(kernel, states)

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
        _check_sums(where, sums, precision)
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
    dense = _normalised(dense.reshape(-1, states), precision, where).reshape(states, actions, states)
    dense.flags.writeable = False
    return dense
