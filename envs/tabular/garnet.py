"""`rcac/Garnet-v0`: a random problem of any size."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP

from .base import WorldEnv
from .parts import World, generator, initial_distribution, whole
from .vector import vectorised

SPARSE_FROM = 500  # states, from which on a kernel with few successors is stored sparse


def garnet(
    num_states: int = 15,
    num_actions: int = 20,
    branching: int | None = None,
    sparse: bool | None = None,
    budget: float = 90.0,
    discount: float = 0.99,
    initial: str = "softmax_normal",
    model_seed: int = 0,
) -> RCMDP:
    """Rows: softmax of N(μ, 1) over `branching` successors; reward and utility N(μ, 1)/10 with μ ~ U(0, 10) each.

    A row's μ is the same for all its successors, so that the softmax cancels it.
    """
    states, actions = whole("num_states", num_states, 1), whole("num_actions", num_actions, 1)
    width = states if branching is None else whole("branching", branching, 1)
    if width > states:
        raise InputError(f"branching: {width} given, at most the number of states, {states}, expected")
    if sparse not in (None, True, False):
        raise InputError(f"sparse: {sparse!r} given, true, false or null expected")
    if sparse is None:
        sparse = states >= SPARSE_FROM and width <= states // 10
    draw = generator(model_seed, "garnet")
    weights = np.exp(draw.standard_normal((states * actions, width)))
    weights /= weights.sum(axis=1, keepdims=True)
    reward, utility = (draw.normal(draw.uniform(0, 10, (states, actions)), 1) / 10 for _ in range(2))
    successors = _subsets(draw, states * actions, states, width)  # (S·A, width)
    kernel: Any
    if sparse:
        ends = np.arange(states * actions + 1) * width
        kernel = sp.csr_array((weights.ravel(), successors.ravel(), ends), shape=(states * actions, states))
    else:
        kernel = np.zeros((states * actions, states))
        np.put_along_axis(kernel, successors, weights, axis=1)
        kernel = kernel.reshape(states, actions, states)
    start = initial_distribution(initial, states, model_seed)
    return RCMDP.from_rewards(
        kernel, reward, initial=start, discount=discount, utilities=[utility], utility_floors=[budget]
    )


def _subsets(draw: np.random.Generator, rows: int, states: int, width: int) -> np.ndarray:
    """In each row, `width` different states, every such set equally likely (Floyd's method, all rows at once)."""
    if width == states:
        return np.tile(np.arange(states, dtype=np.int32), (rows, 1))
    chosen = np.empty((rows, width), dtype=np.int32)
    for i, last in enumerate(range(states - width, states)):
        candidate = draw.integers(0, last, rows, dtype=np.int32, endpoint=True)
        taken = (chosen[:, :i] == candidate[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, last, candidate)
    return chosen


def world(**model: Any) -> World:
    return World(garnet(**model))


class Garnet(WorldEnv):
    """
    ## Description

    A random problem, drawn when it is made: where actions lead, what they earn, and how useful they are.

    ## Action Space

    `Discrete(20)`, or `num_actions`.

    ## Observation Space

    `Discrete(15)`, or `num_states`.

    ## Rewards

    By state and action, N(μ, 1)/10 with μ ~ U(0, 10).

    ## Costs

    The negative of a utility that is drawn like the reward. The discounted utility should stay above 90.

    ## Starting State

    Drawn from the model's initial distribution.

    ## Episode End

    Never terminated; truncated after 1000 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `num_states`, `num_actions` | 15, 20 | |
    | `branching` | `None` | successors of a state and action; all states if `None` |
    | `sparse` | `None` | a CSR kernel or a dense one; if `None`, CSR from 500 states on when `branching` ≤ S/10 |
    | `budget` | 90 | the discounted utility to keep |
    | `discount` | .99 | |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) draws; or `"uniform"` |
    | `model_seed` | 0 | fixes everything that is drawn when the model is made |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    world = staticmethod(world)


vector = vectorised(Garnet)
