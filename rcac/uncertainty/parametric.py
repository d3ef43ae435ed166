"""A family of models, of which any one may be the true one: the tabular counterpart of `uncertainty=parameters`."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rcac.contexts import Parameters
from rcac.errors import InputError
from rcac.problem import RCMDP
from rcac.uncertainty.finite import FiniteKernels


def parametric(
    make_problem: Callable[..., RCMDP], ranges: Parameters | Mapping[str, Any], points: int = 64
) -> FiniteKernels:
    """A family of models, of which any one may be the true one, for all states and actions.

    Parameters
    ----------
    make_problem : function
        `make_problem(**context)` returns an `RCMDP`; its kernel counts. Costs and budgets are those of the problem that is solved.
    ranges : Parameters or mapping
        The box of parameters, like `{"current": (0, 0.2)}`.
    points : int
        Models inside the box, besides those at its corners.

    Returns
    -------
    FiniteKernels
        The set of these models, one for all states and actions.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from rcac.envs.tabular.river_swim import river_swim
    >>> calm = river_swim()
    >>> def river(current):  # with this probability one drifts as if swimming left
    ...     return replace(calm, kernel=(1 - current) * calm.kernel + current * calm.kernel[:, :1])
    >>> family = parametric(river, {"current": (0, 0.2)}, points=8)
    >>> len(family.kernels)
    10
    """
    if not isinstance(points, int) or points < 0:
        raise InputError(f"points: {points!r} given, a whole number ≥ 0 expected")
    box = ranges if isinstance(ranges, Parameters) else Parameters(ranges)
    inside = box.points(points) if points else np.empty((0, box.dimension))
    contexts = box.contexts(np.concatenate([box.corners(), inside]))
    kernels = []
    for values in zip(*contexts.values(), strict=True):
        context = {name: float(value) for name, value in zip(contexts, values, strict=True)}
        made = make_problem(**context)
        if not isinstance(made, RCMDP):
            raise InputError(f"make_problem: {made!r} made of {context}, an RCMDP expected")
        kernels.append(made.kernel)
    return FiniteKernels(kernels, rectangular=False)
