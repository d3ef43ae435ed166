"""Independent streams of randomness under one run seed.

An environment's seed has 31 bits, which is what every generator takes (np.random.RandomState, a C int). Vector
environments seed copy i with base + i, so that a base needs room behind it:

    [0, F₄₅)         where runs begin: (seed + 1)·F₄₄ mod F₄₅, with Fibonacci numbers F. F₄₄/F₄₅ is the golden ratio, and
                     among the bases of any n consecutive seeds no two are nearer than F₄₅/(2.7 n) (three distances):
                     a hundred runs may have four million copies each. Those of F₄₅ consecutive seeds are all different.
    [F₄₅+C, 2³¹−C)   everything later (trials, episodes begun anew, tests), anywhere: C copies stay clear of beginnings
"""

import numpy as np

NETWORKS, ACTIONS, MINIBATCHES, ENVIRONMENTS, EVALUATION, CONTEXTS = range(6)
STRIDE, BEGINNINGS = 701_408_733, 1_134_903_170  # F₄₄, F₄₅
COPIES = 1 << 24
LATER = BEGINNINGS + COPIES, 2**31 - COPIES


def stream(seed: int, *path: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence((seed, *path)))


def environment_seed(seed: int, *path: int) -> int:
    """Where the copies of a run are seeded from, at its beginning or, with a path, at some place later in it."""
    if path:
        return _later(seed, ENVIRONMENTS, *path)
    # not from seed alone: the first run would train on the seeds 0, 1, 2, … that people test with
    return (seed + 1) * STRIDE % BEGINNINGS


def evaluation_seed(seed: int, episodes: int) -> int:
    """Where the copies that play test episodes are seeded from: not where a training begins."""
    return _later(seed, EVALUATION, episodes)


def _later(*path: int) -> int:
    low, high = LATER
    return low + int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0]) % (high - low)
