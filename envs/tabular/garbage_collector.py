"""`rcac/GarbageCollector-v0`: cross a city whose blocks are closed, and littered, anew at every step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rcac.problem import RCMDP

from .base import WorldEnv
from .parts import World, amounts, grid_world, probability, whole
from .simulation import Marks
from .vector import vectorised

REWARDS = {"goal": 1.0, "garbage": 0.01, "free": 0.001}
COSTS = {"goal": 0.01, "blockage": 1.0, "free": 0.01}


def world(
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
) -> World:
    """The model, and what its simulation scatters over all cells but the goal, at every step."""
    reward, cost = amounts("rewards", rewards, REWARDS), amounts("costs", costs, COSTS)
    kinds = np.full((whole("size", size, 2),) * 2, "free")
    kinds[-1, -1] = "goal"
    free = (kinds == "free").reshape(-1, 1).astype(float)  # (S, 1)
    chances = [
        probability("blockage_probability", blockage_probability),
        probability("garbage_probability", garbage_probability),
    ]
    # What a blockage and a piece of garbage add to (−reward, cost): each touches one of them.
    extra = np.diag([cost["blockage"] - cost["free"], reward["free"] - reward["garbage"]])[:, ::-1]
    marks = Marks(("blockage", "garbage"), free * chances, free[..., None] * extra, each_step=True)
    plain = np.array([[-reward[kind], cost[kind]] for kind in kinds.flat])
    return grid_world(
        kinds, plain, marks, slip=slip, budget=budget, discount=discount, initial=initial, model_seed=model_seed
    )


def garbage_collector(**model: Any) -> RCMDP:
    """The model alone; its arguments are those of `world`."""
    return world(**model).problem


class GarbageCollector(WorldEnv):
    """
    ## Description

    A robot that collects garbage in a city of 4×4 blocks. At every step, each block but the goal is closed with
    probability .4, and holds garbage with probability .4, all independently; neither is observed. The model holds
    the expectation, which is also that of drawing 40 % of these blocks (6 of 15) exactly.

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

    Drawn from the model's initial distribution over all blocks.

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
    | `budget` | 60 | on the discounted cost |
    | `discount` | .99 | |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) draws; or `"uniform"` |
    | `model_seed` | 0 | fixes those draws |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    world = staticmethod(world)


vector = vectorised(GarbageCollector)
