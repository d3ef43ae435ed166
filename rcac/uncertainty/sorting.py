"""Greedy sets walk a row's states by value. Where a row is full, the order of all states serves every row."""

import numpy as np
from numba import njit


def ranks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For values (K, S): states from the lowest value to the highest, and each state's place in that order."""
    order = np.argsort(values, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(values.shape[1]), values.shape), axis=1)
    return order, rank


SHORT = 24  # entries up to which insertion sorts fastest


@njit(cache=True, error_model="numpy")
def ascending(order, rank, indices):
    """Positions within a row (sorted `indices`) from its lowest value to its highest."""
    if len(indices) == len(order):
        return order
    count, states = len(indices), len(order)
    found = np.empty(count, np.int64)
    if count <= SHORT:
        for j in range(count):
            place, i = rank[indices[j]], j
            while i > 0 and rank[indices[found[i - 1]]] > place:
                found[i] = found[i - 1]
                i -= 1
            found[i] = j
        return found
    if 8 * count < states:
        for j in range(count):
            found[j] = rank[indices[j]]
        return np.argsort(found)
    position, i = np.full(states, -1), 0
    for j in range(count):
        position[indices[j]] = j
    for state in order:
        if position[state] >= 0:
            found[i] = position[state]
            i += 1
    return found
