"""`rcac/GarbageCollector-v0`: cross a city whose blocks are closed, or littered, at random at every step."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rcac.problem import RCMDP

from ..checks import check_integer, check_probability
from .base import ModelEnv
from .parts import TabularModel, grid_world, merge_amounts
from .simulation import Marks
from .vector import TabularVectorEnv

REWARDS = {"goal": 1.0, "garbage": 0.01, "free": 0.001}
COSTS = {"goal": 0.01, "blockage": 1.0, "free": 0.01}


def build(
    size: int = 4,
    blockage_probability: float = 0.4,
    garbage_probability: float = 0.4,
    slip: float = 0.5,
    rewards: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
    budget: float = 60.0,
    discount: float = 0.99,
    initial: str = "softmax_normal",
    model_seed: int = 0,
) -> TabularModel:
    """The model, and the blockages and garbage of its simulation: on all cells but the goal at random, at every step."""
    reward, cost = merge_amounts("rewards", rewards, REWARDS), merge_amounts("costs", costs, COSTS)
    kinds = np.full((check_integer("size", size, 2),) * 2, "free")
    kinds[-1, -1] = "goal"
    free = (kinds == "free").reshape(-1, 1).astype(float)  # (S, 1)
    probabilities = [
        check_probability("blockage_probability", blockage_probability),
        check_probability("garbage_probability", garbage_probability),
    ]
    # What a blockage and a piece of garbage add to (−reward, cost): each touches one of them.
    extra = np.diag([cost["blockage"] - cost["free"], reward["free"] - reward["garbage"]])[:, ::-1]
    marks = Marks(("blockage", "garbage"), free * probabilities, free[..., None] * extra, each_step=True)
    base_costs = np.array([[-reward[kind], cost[kind]] for kind in kinds.flat])
    return grid_world(
        kinds, base_costs, marks, slip=slip, budget=budget, discount=discount, initial=initial, model_seed=model_seed
    )


def garbage_collector(**model: Any) -> RCMDP:
    """The model alone; its arguments are those of `world`."""
    return build(**model).problem


class GarbageCollector(ModelEnv):
    """
    ## Description

    A robot that collects garbage in a city of 4×4 blocks. At every step, each block but the goal is closed with
    probability .4, and holds garbage with probability .4, all independently; neither is observed. The model holds
    the expectation, which is also that of sampling exactly 40 % of these blocks (6 of 15).

    ## Action Space

    `Discrete(4)`: left, down, right, up. The intended move happens with probability 1/2, each other one with 1/6; a
    move out of the city stays. Closed blocks can be entered, at a cost.

    ## Observation Space

    `Discrete(16)`: row × 4 + column.

    ## Rewards

    Goal (the last block) 1, garbage .01, else .001.

    ## Costs

    A closed block 1, else .01, the goal included. Their discounted sum should stay below 60.

    ## Starting State

    Sampled from the model's initial distribution over all blocks.

    ## Episode End

    Never terminated; truncated after 1000 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `size` | 4 | blocks in each direction |
    | `blockage_probability`, `garbage_probability` | .4 | |
    | `slip` | .5 | probability of another move than the intended one |
    | `rewards` | as above | a mapping with `goal`, `garbage`, `free`, or some of them |
    | `costs` | as above | a mapping with `goal`, `blockage`, `free`, or some of them |
    | `budget`, `discount` | 60, .99 | of the discounted cost |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) samples; or `"uniform"` |
    | `model_seed` | 0 | fixes those samples |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    build = staticmethod(build)


vector = partial(TabularVectorEnv, GarbageCollector)
