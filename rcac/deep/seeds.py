"""Independent streams of randomness under one run seed."""

import numpy as np

NETWORKS, ACTIONS, MINIBATCHES, ENVIRONMENTS = range(4)


def stream(seed: int, *path: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence((seed, *path)))


def environment_seed(seed: int, *path: int) -> int:
    """A 62-bit seed: copies seeded with it and the numbers after it stay clear of every other run's."""
    return int(np.random.SeedSequence((seed, ENVIRONMENTS, *path)).generate_state(1, np.uint64)[0] >> 2)
