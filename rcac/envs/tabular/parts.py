"""What the tabular models have in common: initial distributions, moves on a grid, checks of their arguments."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP

from ..checks import check_integer, check_probability
from .render import Layout, Thing
from .simulation import Marks

# Actions on a grid, in the order of Gymnasium's FrozenLake, as (row, column) steps.
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class TabularModel(NamedTuple):
    """A model, and what its simulation and its pictures need in addition."""

    problem: RCMDP
    layout: Layout | None = None
    marks: Marks | None = None


def initial_distribution(kind: str, num_states: int, model_seed: int) -> np.ndarray:
    """ρ (S,): "softmax_normal" is the softmax of N(0, 1) samples, one for each state; "uniform" is uniform."""
    if kind == "uniform":
        return np.full(num_states, 1 / num_states)
    if kind == "softmax_normal":
        weights = np.exp(model_rng(model_seed, "initial").standard_normal(num_states))
        probabilities: np.ndarray = weights / weights.sum()
        return probabilities
    raise InputError(f"initial: {kind!r} given, 'softmax_normal' or 'uniform' expected")


def model_rng(model_seed: int, purpose: str) -> np.random.Generator:
    """The generator for building a model: one for each purpose, so that choices do not interfere."""
    check_integer("model_seed", model_seed, 0)
    return np.random.default_rng([model_seed, *purpose.encode()])


def grid_kernel(rows: int, columns: int, slip: float) -> np.ndarray:
    """P (S, 4, S): the intended move with probability 1 − slip, each other one with slip/3; a move into a wall stays."""
    check_probability("slip", slip)
    cells = np.arange(rows * columns).reshape(rows, columns)
    kernel = np.zeros((cells.size, len(MOVES), cells.size))
    for outcome, (down, right) in enumerate(MOVES.values()):
        target = cells[
            np.clip(np.arange(rows) + down, 0, rows - 1)[:, None], np.clip(np.arange(columns) + right, 0, columns - 1)
        ]
        for action in range(len(MOVES)):
            weight = 1 - slip if action == outcome else slip / (len(MOVES) - 1)
            kernel[cells.ravel(), action, target.ravel()] += weight  # one target for each cell, so += is safe
    return kernel


def grid_world(
    kinds: np.ndarray,  # (rows, columns) of str: "free", or a thing that the renderer knows
    base_costs: np.ndarray,  # (S, N+1) costs by cell where no mark lies, objective first
    marks: Marks,
    *,
    slip: float,
    budget: float,
    discount: float,
    initial: str,
    model_seed: int,
) -> TabularModel:
    """A grid with reward and cost by cell; the model has their expectation over the marks."""
    expected_costs = np.repeat((base_costs + marks.mean()).T[:, :, None], len(MOVES), axis=2)  # (N+1, S, A)
    initial_probabilities = initial_distribution(initial, kinds.size, model_seed)
    rows, columns = kinds.shape
    kernel = grid_kernel(rows, columns, slip)
    problem = RCMDP.from_rewards(
        kernel, -expected_costs[0], expected_costs[1:], [budget], initial_probabilities, discount
    )
    things = tuple(Thing(str(kind), state) for state, kind in enumerate(kinds.flat) if kind != "free")
    return TabularModel(problem, Layout(kinds.size, columns, tuple(MOVES.values()), things), marks)


def check_numbers(name: str, values: Any) -> np.ndarray:
    """A list of numbers as an array."""
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InputError(f"{name}: {values!r} given, a list of finite numbers expected")
    return array


def merge_amounts(name: str, given: Mapping[str, float] | None, defaults: Mapping[str, float]) -> dict[str, float]:
    """`defaults`, updated by what is given."""
    given = given or {}
    for key, value in given.items():
        if key not in defaults:
            raise InputError(f"{name}: {key!r} given, only {', '.join(map(repr, defaults))} are known")
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise InputError(f"{name}[{key!r}]: {value!r} given, a finite number expected")
    return {**defaults, **given}
