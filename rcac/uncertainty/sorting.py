"""Greedy sets walk a row's states by value. Where a row is full, the order of all states serves every row."""

import numpy as np
from numba import njit


def ranks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For values (K, S): states from the lowest value to the highest, and each state's place in that order."""
    order = np.argsort(values, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(values.shape[1]), values.shape), axis=1)
    return order, rank


@njit(cache=True, error_model="numpy")
def ascending(order, rank, indices):
    """Positions within a row (sorted `indices`) from its lowest value to its highest."""
    if len(indices) == len(order):
        return order
    places = np.empty(len(indices), np.int64)
    for j in range(len(indices)):
        places[j] = rank[indices[j]]
    return np.argsort(places)
