"""Random problems of any size."""

import numpy as np
import scipy.sparse as sp

from rcac.problem import RCMDP


def dense(states: int, actions: int, discount: float, seed: int = 0) -> RCMDP:
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.ones(states), size=(states, actions))
    return RCMDP(kernel, rng.random((2, states, actions)), [0.0], np.full(states, 1 / states), discount)


def sparse(states: int, actions: int, successors: int, discount: float, seed: int = 0) -> RCMDP:
    """Every row has this many successors, drawn anywhere."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(states, size=states * actions * successors)
    data = rng.dirichlet(np.ones(successors), size=states * actions).ravel()
    kernel = sp.csr_array((data, indices, np.arange(0, len(data) + 1, successors)), shape=(states * actions, states))
    return RCMDP(kernel, rng.random((2, states, actions)), [0.0], np.full(states, 1 / states), discount)


def random_policy(problem: RCMDP, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(problem.num_actions), size=problem.num_states)
