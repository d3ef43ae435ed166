"""Uncertainty sets as a configuration names them: `(problem, **parameters) -> Uncertainty`.

Parameters are numbers and words; arrays (a ground metric, features, kernels) come from .npy and .npz files of plain
arrays, or are derived from the problem. Default values are in `conf/uncertainty/<name>.yaml`.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import csgraph

from rcac.errors import InputError
from rcac.problem import RCMDP
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.chi_square import ChiSquare
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.ipm import LinearIPM
from rcac.uncertainty.kl import KLBall, KLPenalty
from rcac.uncertainty.nominal import Nominal
from rcac.uncertainty.tv import TotalVariation
from rcac.uncertainty.wasserstein import Wasserstein


def nominal(problem: RCMDP) -> Uncertainty:
    return Nominal()


def kl_ball(problem: RCMDP, radius: float) -> Uncertainty:
    return KLBall(radius)


def kl_penalty(problem: RCMDP, temperature: float | None, value: str) -> Uncertainty:
    return KLPenalty(temperature, value)  # type: ignore[arg-type]


def total_variation(problem: RCMDP, radius: float, within_support: bool) -> Uncertainty:
    return TotalVariation(radius, within_support=within_support)


def chi_square(problem: RCMDP, radius: float) -> Uncertainty:
    return ChiSquare(radius)


def wasserstein(problem: RCMDP, radius: float, metric: str) -> Uncertainty:
    return Wasserstein(radius, steps_between(problem) if metric == "steps" else _array("metric", metric))


def linear_ipm(problem: RCMDP, radius: float, features: str) -> Uncertainty:
    complete = features == "complete"
    return LinearIPM(radius, complete_features(problem.num_states) if complete else _array("features", features))


def finite(problem: RCMDP, kernels: str, rectangular: bool) -> Uncertainty:
    arrays = _load("kernels", kernels)
    if isinstance(arrays, np.ndarray):
        arrays = dict(enumerate(arrays)) if arrays.ndim == 4 else {0: arrays}
    return FiniteKernels(list(arrays.values()), rectangular)


NAMED: dict[str, Callable[..., Uncertainty]] = {
    function.__name__: function
    for function in (nominal, kl_ball, kl_penalty, total_variation, chi_square, wasserstein, linear_ipm, finite)
}


def steps_between(problem: RCMDP) -> np.ndarray:
    """(S, S): the least number of transitions that lead from one state to the other, whichever way is shorter.

    Between states that no transitions connect, the distance is S, more than any other."""
    states, rows = problem.num_states, problem.rows
    origin = np.repeat(rows.ids // problem.num_actions, np.diff(rows.indptr))
    adjacent = np.zeros((states, states), dtype=bool)
    adjacent[origin, rows.indices] = True
    graph = csgraph.csgraph_from_dense(adjacent | adjacent.T)
    distance = csgraph.shortest_path(graph, unweighted=True)
    return np.where(np.isfinite(distance), distance, states)


def complete_features(states: int) -> np.ndarray:
    """(S, S): 1, and an orthonormal basis of what is orthogonal to it. The set is then ‖q − p‖₂ ≤ radius."""
    ones = np.ones((states, 1))
    return np.hstack([ones, scipy.linalg.null_space(ones.T)])


def _load(field: str, path: str) -> Any:
    """Plain arrays from a .npy or .npz file; nothing in it is executed."""
    try:
        found = np.load(Path(path), allow_pickle=False)
        return {name: found[name] for name in found.files} if hasattr(found, "files") else found
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{field}: {path!r} given, a .npy or .npz file of plain arrays expected ({error})") from error


def _array(field: str, path: str) -> np.ndarray:
    found = _load(field, path)
    if isinstance(found, dict):
        raise InputError(f"{field}: {path!r} given, a .npy file of one array expected")
    return found
