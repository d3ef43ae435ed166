"""`rcac/Garnet-v0`: a random problem of any size."""

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from rcac.errors import InputError
from rcac.problem import RCMDP

from ..checks import check_integer
from .base import ModelEnv
from .parts import TabularModel, initial_distribution, model_rng
from .vector import TabularVectorEnv

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
    states, actions = check_integer("num_states", num_states, 1), check_integer("num_actions", num_actions, 1)
    width = states if branching is None else check_integer("branching", branching, 1)
    if width > states:
        raise InputError(f"branching: {width} given, at most the number of states, {states}, expected")
    if sparse not in (None, True, False):
        raise InputError(f"sparse: {sparse!r} given, true, false or null expected")
    if sparse is None:
        sparse = states >= SPARSE_FROM and width <= states // 10
    rng = model_rng(model_seed, "garnet")
    weights = np.exp(rng.standard_normal((states * actions, width)))
    weights /= weights.sum(axis=1, keepdims=True)
    reward, utility = (rng.normal(rng.uniform(0, 10, (states, actions)), 1) / 10 for _ in range(2))
    successors = _subsets(rng, states * actions, states, width)  # (S·A, width)
    kernel: Any
    if sparse:
        row_ends = np.arange(states * actions + 1) * width
        kernel = sp.csr_array((weights.ravel(), successors.ravel(), row_ends), shape=(states * actions, states))
    else:
        kernel = np.zeros((states * actions, states))
        np.put_along_axis(kernel, successors, weights, axis=1)
        kernel = kernel.reshape(states, actions, states)
    initial_probabilities = initial_distribution(initial, states, model_seed)
    return RCMDP.from_rewards(
        kernel, reward, initial=initial_probabilities, discount=discount, utilities=[utility], utility_floors=[budget]
    )


def _subsets(rng: np.random.Generator, rows: int, states: int, width: int) -> np.ndarray:
    """In each row, `width` different states, every such set equally likely (Floyd's method, all rows at once)."""
    if width == states:
        return np.tile(np.arange(states, dtype=np.int32), (rows, 1))
    chosen = np.empty((rows, width), dtype=np.int32)
    for i, last in enumerate(range(states - width, states)):
        candidate = rng.integers(0, last, rows, dtype=np.int32, endpoint=True)
        duplicate = (chosen[:, :i] == candidate[:, None]).any(axis=1)
        chosen[:, i] = np.where(duplicate, last, candidate)
    return chosen


def build(**model: Any) -> TabularModel:
    return TabularModel(garnet(**model))


class Garnet(ModelEnv):
    """
    ## Description

    A random problem, sampled when it is made: transitions, rewards and utilities.

    ## Action Space

    `Discrete(20)`, or `num_actions`.

    ## Observation Space

    `Discrete(15)`, or `num_states`.

    ## Rewards

    By state and action, N(μ, 1)/10 with μ ~ U(0, 10).

    ## Costs

    The negative of a utility that is sampled like the reward. The discounted utility should stay above 90.

    ## Starting State

    Sampled from the model's initial distribution.

    ## Episode End

    Never terminated; truncated after 1000 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `num_states`, `num_actions` | 15, 20 | |
    | `branching` | `None` | successors of a state and action; all states if `None` |
    | `sparse` | `None` | a CSR kernel or a dense one; if `None`, CSR from 500 states on when `branching` ≤ S/10 |
    | `budget`, `discount` | 90, .99 | of the discounted utility |
    | `initial` | `"softmax_normal"` | softmax of N(0, 1) samples; or `"uniform"` |
    | `model_seed` | 0 | fixes everything that is sampled when the model is made |
    | `kernel`, `policy`, `render_mode` | `None` | as in `TabularEnv` |
    """

    build = staticmethod(build)


vector = partial(TabularVectorEnv, Garnet)
