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


OFFSETS = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)] + [(0, 2)])  # king's moves, staying, and a jump


def grid(side: int, discount: float, seed: int = 0) -> RCMDP:
    """A torus of side² cells with ten moves, each of which ends as one of the others once in five times. Being away from
    the goal costs the objective; a tenth of the cells are hazards, which the constraint counts."""
    rng = np.random.default_rng(seed)
    cells = np.stack(np.divmod(np.arange(side * side), side), axis=1)  # (S, 2)
    moved = (cells[:, None, :] + OFFSETS) % side  # (S, 10, 2)
    reached = moved[:, :, 0] * side + moved[:, :, 1]  # (S, 10)
    chances = np.full((10, 10), 0.2 / 9) + (0.8 - 0.2 / 9) * np.eye(10)
    states = side * side
    indices, data = np.repeat(reached, 10, axis=0).ravel(), np.tile(chances, (states, 1)).ravel()
    kernel = sp.csr_array((data, indices, np.arange(0, len(data) + 1, 10)), shape=(states * 10, states))
    away = np.minimum(cells, side - cells).max(axis=1) / (side // 2)
    hazard = rng.random(states) < 0.1
    costs = np.stack([np.repeat(c[:, None], 10, axis=1) for c in (away, hazard.astype(float))])
    return RCMDP(kernel, costs, [0.0], np.full(states, 1 / states), discount)
