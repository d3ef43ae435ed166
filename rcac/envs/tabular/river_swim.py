"""`rcac/RiverSwim-v0`: swim against the current to a shore that pays, and hurts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP

from .base import ModelEnv
from .parts import MOVES, TabularModel, check_numbers, initial_distribution
from .render import Layout, Thing
from .vector import TabularVectorEnv

REWARDS = (0.001, 0.0, 0.0, 0.0, 0.1, 1.0)
COSTS = (0.2, 0.035, 0.0, 0.01, 0.08, 0.9)


def river_swim(
    rewards: Sequence[float] = REWARDS,
    costs: Sequence[float] = COSTS,
    budget: float = 42.0,
    discount: float = 0.99,
    initial: str = "softmax_normal",
    model_seed: int = 0,
) -> RCMDP:
    """Left and right succeed with .3, fail with .1, and stay with .6; mass that would leave the river stays."""
    reward, cost = check_numbers("rewards", rewards), check_numbers("costs", costs)
    states = len(reward)
    if states < 2 or len(cost) != states:
        raise InputError(f"costs: {len(cost)} given for {states} rewards, as many as rewards and at least 2 expected")
    kernel = np.zeros((states, 2, states))
    for state in range(states):
        for action, (left, right) in enumerate(((0.3, 0.1), (0.1, 0.3))):
            kernel[state, action, max(state - 1, 0)] += left
            kernel[state, action, state] += 0.6
            kernel[state, action, min(state + 1, states - 1)] += right
    initial_probabilities = initial_distribution(initial, states, model_seed)
    by_action = np.ones(2)
    return RCMDP.from_rewards(
        kernel, np.outer(reward, by_action), [np.outer(cost, by_action)], [budget], initial_probabilities, discount
    )


def build(**model: Any) -> TabularModel:
    """The model, and its picture: flags and warnings whose areas are the rewards and the costs."""
    problem = river_swim(**model)
    things = []
    for kind, values in (("goal", -problem.costs[0, :, 0]), ("hazard", problem.costs[1, :, 0])):
        sizes = np.sqrt(np.maximum(values, 0.0) / max(values.max(), np.finfo(float).tiny))
        things += [Thing(kind, state, float(size)) for state, size in enumerate(sizes) if size > 0.2]
    states = problem.num_states
    return TabularModel(problem, Layout(states, states, (MOVES["left"], MOVES["right"]), tuple(things)))


class RiverSwim(ModelEnv):
    """
    ## Description

    A swimmer in a river of six islands, with the current to the left and to the right alike. The right end pays
    best, and hurts most.

    ## Action Space

    `Discrete(2)`: 0 swims to the left, 1 to the right. The move succeeds with probability .3, goes the other way
    with .1, and stays with .6; at an end, a move out of the river stays.

    ## Observation Space

    `Discrete(6)`: the island, from the left.

    ## Rewards

    By island: .001, 0, 0, 0, .1, 1.

    ## Costs

    By island: .2, .035, 0, .01, .08, .9. Their discounted sum should stay below 42.

    ## Starting State

    Sampled from the model's initial distribution.

    ## Episode End

    Never terminated; truncated after 1000 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `rewards`, `costs` | as above | one for each island; their number is the length of the river |
    | `budget`, `discount` | 42, .99 | of the discounted cost |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) samples; or `"uniform"` |
    | `model_seed` | 0 | fixes those samples |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    build = staticmethod(build)


vector = partial(TabularVectorEnv, RiverSwim)
