"""Shared strategies and random problems."""

import numpy as np
import pytest


def random_rows(rng: np.random.Generator, count: int, states: int, sparse_share: float = 0.25) -> np.ndarray:
    """Rows (count, states) of which `sparse_share` have zeros in the support."""
    rows = rng.dirichlet(np.full(states, 0.7), size=count)
    holes = rng.random((count, states)) < 0.5
    holes[np.arange(count), rng.integers(states, size=count)] = False
    holes[rng.random(count) >= sparse_share] = False
    rows = np.where(holes, 0.0, np.maximum(rows, 1e-6))
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
