"""Uncertainty sets as a configuration names them: `(problem, **parameters) -> Uncertainty`.

Parameters are numbers and words; arrays (radii, a ground metric, features, kernels) come from .npy and .npz files of
plain arrays and of `scipy.sparse.save_npz`, or are derived from the problem. Default values are in
`conf/uncertainty/<name>.yaml`.
"""

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse import csgraph

from rcac import uncertainty as sets
from rcac.errors import InputError
from rcac.problem import RCMDP

Radius = float | str | list[list[float]]  # a number, or one for each (s,a): a .npy file, or rows

ALL_MOVES = 4_000  # states beyond which moves between all pairs of them take gigabytes
ALL_FEATURES = 2_000  # states beyond which a complete basis takes minutes


def nominal(problem: RCMDP) -> Any:
    return sets.Nominal()


def kl_ball(problem: RCMDP, radius: Radius) -> Any:
    return sets.KLBall(_radius(radius))


def kl_penalty(problem: RCMDP, temperature: float | None, value: str) -> Any:
    return sets.KLPenalty(temperature, value)  # type: ignore[arg-type]


def total_variation(problem: RCMDP, radius: Radius, within_support: bool) -> Any:
    return sets.TotalVariation(_radius(radius), within_support=within_support)


def chi_square(problem: RCMDP, radius: Radius) -> Any:
    return sets.ChiSquare(_radius(radius))


def cressie_read(problem: RCMDP, radius: Radius, power: float) -> Any:
    return sets.CressieRead(_radius(radius), power)


def contamination(problem: RCMDP, radius: Radius) -> Any:
    return sets.Contamination(_radius(radius))


def cvar(problem: RCMDP, alpha: Radius) -> Any:
    return sets.CVaR(_radius(alpha, "alpha", "in (0, 1]"))


def state_l1(problem: RCMDP, radius: Radius, weights: Radius, within_support: bool) -> Any:
    return sets.StateL1(_per_state(radius), _radius(weights, "weights", "> 0"), within_support)


def state_l2(problem: RCMDP, radius: Radius, weights: Radius, within_support: bool) -> Any:
    return sets.StateL2(_per_state(radius), _radius(weights, "weights", "> 0"), within_support)


def wasserstein(problem: RCMDP, radius: Radius, metric: str) -> Any:
    return sets.Wasserstein(_radius(radius), steps_between(problem) if metric == "steps" else _load("metric", metric))


def linear_ipm(problem: RCMDP, radius: Radius, features: str) -> Any:
    complete = features == "complete"
    known = complete_features(problem.num_states) if complete else _dense("features", features)
    return sets.LinearIPM(_radius(radius), known)


def finite(problem: RCMDP, kernels: str, rectangular: bool) -> Any:
    found = _load("kernels", kernels, several=True)
    if sp.issparse(found):  # one below the other
        size = problem.num_states * problem.num_actions
        if found.shape[0] % size or found.shape[1] != problem.num_states:
            raise InputError(f"kernels: shape {found.shape} given, (K·{size}, {problem.num_states}) expected")
        found = [found[first : first + size] for first in range(0, found.shape[0], size)]
    elif isinstance(found, np.ndarray):
        found = list(found) if found.ndim == 4 else [found]
    return sets.FiniteKernels(found, rectangular)


def ipm(problem: RCMDP, radius: float = 1e-3, scope: str = "last_layer") -> Any:
    raise InputError("uncertainty: ipm given, linear_ipm expected for tabular methods")


def parameters(problem: RCMDP, ranges: dict[str, Any] | None = None, risk: Any = None) -> Any:
    raise InputError(
        "uncertainty: parameters given, a set of kernels expected for tabular methods (rcac.parametric makes one)"
    )


NAMED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(nominal, kl_ball, kl_penalty, total_variation, chi_square, wasserstein, linear_ipm, finite),
        *(cressie_read, contamination, cvar, state_l1, state_l2),
        *(ipm, parameters),  # of deep methods
    )
}


def steps_between(problem: RCMDP) -> np.ndarray:
    """(S, S): the least number of transitions that lead from one state to the other, whichever way is shorter.

    Between states that no transitions connect, the distance is S, more than any other."""
    states, rows = problem.num_states, problem.rows
    if states > ALL_MOVES:
        raise InputError(
            f"metric: 'steps' given, the file of a sparse matrix ({states}, {states}) expected, from scipy.sparse.save_npz: the "
            f"distances of the moves that are possible; all pairs are too many beyond {ALL_MOVES} states"
        )
    origin = np.repeat(rows.ids // problem.num_actions, np.diff(rows.indptr))
    adjacent = np.zeros((states, states), dtype=bool)
    adjacent[origin, rows.indices] = True
    graph = csgraph.csgraph_from_dense(adjacent | adjacent.T)
    distance = csgraph.shortest_path(graph, unweighted=True)
    return np.where(np.isfinite(distance), distance, states)


def complete_features(states: int) -> np.ndarray:
    """(S, S): 1, and an orthonormal basis of what is orthogonal to it. The set is then ‖q − p‖₂ ≤ radius."""
    if states > ALL_FEATURES:
        raise InputError(
            f"features: 'complete' given, a .npy file ({states}, d) of fewer features expected; as many as states are too many "
            f"beyond {ALL_FEATURES}"
        )
    ones = np.ones((states, 1))
    return np.hstack([ones, scipy.linalg.null_space(ones.T)])


# Files

# what NumPy, scipy and zipfile raise on foreign bytes
UNREADABLE = (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile)


def _per_state(given: Radius) -> Any:
    return _radius(given, shape="(S,)")


def _radius(given: Radius, field: str = "radius", kind: str = "≥ 0", shape: str = "(S, A)") -> Any:
    expected = f"a number {kind} or a .npy file {shape}"
    if given is None or isinstance(given, bool):
        raise InputError(f"{field}: {given} given, {expected} expected")
    if not isinstance(given, str):
        return given
    with contextlib.suppress(ValueError):
        return float(given)  # 1e-3 is text in YAML
    return _dense(field, given, expected)


def _dense(field: str, path: str, expected: str = "a .npy file of one array") -> np.ndarray:
    found: Any = _load(field, path, expected)
    if sp.issparse(found):
        raise InputError(f"{field}: {path!r} (a sparse matrix) given, {expected} expected")
    return np.asarray(found)


def _load(field: str, path: str, expected: str = "a .npy or .npz file of plain arrays", several: bool = False) -> Any:
    """The array or the CSR matrix in a file, or a list of arrays; nothing in it is executed."""
    try:
        found: Any = np.load(Path(path), allow_pickle=False)
        if isinstance(found, np.lib.npyio.NpzFile):
            with found as file:
                sparse = {"format", "shape"} <= {*file.files}
                found = _sparse(path) if sparse else [file[name] for name in file.files]
    except UNREADABLE as error:
        raise InputError(f"{field}: {path!r} given, {expected} expected ({error})") from error
    if isinstance(found, list) and not several:
        raise InputError(f"{field}: {path!r} ({len(found)} arrays) given, a .npy file of one array expected")
    for array in found if isinstance(found, list) else [found]:
        if array.dtype.kind not in "biuf":
            raise InputError(f"{field}: {path!r} holds {array.dtype}, numbers expected")
    return found


def _sparse(path: str) -> sp.csr_array:
    """What `scipy.sparse.save_npz` wrote, with every index checked: compiled code relies on them."""
    matrix = sp.load_npz(path)
    if len(matrix.shape) != 2:
        raise ValueError(f"a sparse array of shape {matrix.shape}")
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return sp.csr_array(matrix)
