"""`rcac/FrozenLake-v0`: cross a slippery lake with holes, and obstacles that nobody sees beforehand."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP

from ..checks import check_probability
from .base import ModelEnv
from .parts import TabularModel, grid_world, merge_amounts
from .simulation import Marks
from .vector import TabularVectorEnv

MAP = ("SFFF", "FHFH", "FFFH", "HFFG")  # Gymnasium's 4×4
REWARDS = {"goal": 1.0, "hole": 0.0, "obstacle": 0.01, "free": 0.05}
COSTS = {"goal": 0.0, "hole": 0.3, "obstacle": 1.0, "free": 0.0}


def build(
    desc: Sequence[str] = MAP,
    obstacle_probability: float = 0.2,
    slip: float = 0.5,
    rewards: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
    budget: float = 55.0,
    discount: float = 0.99,
    initial: str = "softmax_normal",
    model_seed: int = 0,
) -> TabularModel:
    """The model, and the obstacles of its simulation: on each free cell at random, at an episode's start."""
    cells = _cells(desc)
    reward, cost = merge_amounts("rewards", rewards, REWARDS), merge_amounts("costs", costs, COSTS)
    kinds = np.select([cells == "G", cells == "H"], ["goal", "hole"], "free")  # (rows, columns)
    by_kind = {kind: np.array([-reward[kind], cost[kind]]) for kind in reward}  # objective first, in cost form
    free = (kinds == "free").reshape(-1, 1).astype(float)  # (S, 1)
    marks = Marks(
        names=("obstacle",),
        probability=check_probability("obstacle_probability", obstacle_probability) * free,
        extra=free[..., None] * (by_kind["obstacle"] - by_kind["free"]),
        each_step=False,
    )
    base_costs = np.array([by_kind[kind] for kind in kinds.flat])
    return grid_world(
        kinds, base_costs, marks, slip=slip, budget=budget, discount=discount, initial=initial, model_seed=model_seed
    )


def frozen_lake(**model: Any) -> RCMDP:
    """The model alone; its arguments are those of `world`."""
    return build(**model).problem


def _cells(desc: Sequence[str]) -> np.ndarray:
    """Letters (rows, columns)."""
    if isinstance(desc, str) or not desc or len(set(map(len, desc))) != 1 or not desc[0]:
        raise InputError(f"desc: {desc!r} given, strings of one length expected, one for each row")
    cells = np.array([list(row) for row in desc])
    bad = ~np.isin(cells, list("SFHG"))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(f"desc[{row}][{column}]: {str(cells[row, column])!r} given, one of S, F, H, G expected")
    return cells


class FrozenLake(ModelEnv):
    """
    ## Description

    A walk over a frozen lake to a goal. Neither the goal nor the holes end the walk. At the start of each episode,
    every free cell (neither hole nor goal; the cell marked S is free like any other) becomes an obstacle with
    probability .2, independently; which ones did is not observed. The model holds the expectation.

    ## Action Space

    `Discrete(4)`: left, down, right, up. The intended move happens with probability 1/2, each other one with 1/6; a
    move out of the lake stays.

    ## Observation Space

    `Discrete(16)`: row × 4 + column.

    ## Rewards

    By cell: goal 1, hole 0, obstacle .01, else .05.

    ## Costs

    By cell: goal 0, hole .3, obstacle 1, else 0. Their discounted sum should stay below 55.

    ## Starting State

    Sampled from the model's initial distribution over all cells.

    ## Episode End

    Never terminated; truncated after 1000 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `desc` | Gymnasium's 4×4 map | strings of S, F (free), H (hole), G (goal), one for each row |
    | `obstacle_probability` | .2 | |
    | `slip` | .5 | probability of another move than the intended one |
    | `rewards`, `costs` | as above | mappings with `goal`, `hole`, `obstacle`, `free`, or some of them |
    | `budget`, `discount` | 55, .99 | of the discounted cost |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) samples; or `"uniform"` |
    | `model_seed` | 0 | fixes those samples |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    build = staticmethod(build)


vector = partial(TabularVectorEnv, FrozenLake)
