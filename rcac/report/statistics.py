"""Statistics over seeds: interquartile means with bootstrap intervals.

The interquartile mean of n values is the mean of the middle half. Where n/4 is no whole number, the two values that
the quartiles cut count with the part of them that is inside. It is less noisy than a median and, unlike a mean,
not moved by one seed that failed or shone.

The bootstrap is stratified: values are sampled again with replacement within each stratum (a task, a perturbation),
never across, and the interquartile mean is taken over all of them together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from rcac.errors import InputError


class Interval(NamedTuple):
    estimate: float  # interquartile mean
    low: float  # ends of the confidence interval; NaN where there is nothing to draw from (one value)
    high: float


def interquartile_mean(values: np.ndarray | Sequence[float], axis: int = -1) -> np.ndarray:
    """Mean of the middle half along `axis`."""
    ordered = np.sort(np.asarray(values, dtype=float), axis=axis)
    count = ordered.shape[axis]
    if count == 0:
        raise InputError("values: none given, at least one expected")
    edges = np.arange(count + 1) / count
    weights = np.diff(np.clip(edges, 0.25, 0.75)) * 2  # share of each value that is inside the quartiles
    return np.tensordot(np.moveaxis(ordered, axis, -1), weights, 1)


def interval(
    strata: Sequence[np.ndarray | Sequence[float]], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """The interquartile mean over all strata, and its stratified bootstrap interval (percentiles)."""
    samples = [np.asarray(values, dtype=float) for values in strata]
    for index, values in enumerate(samples):
        if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
            raise InputError(f"strata[{index}]: {values} given, one or more finite numbers expected")
    if not samples:
        raise InputError("strata: none given, at least one expected")
    estimate = float(interquartile_mean(np.concatenate(samples)))
    if min(map(len, samples)) < 2:
        return Interval(estimate, np.nan, np.nan)

    def together(*sampled: np.ndarray, axis: int = -1) -> np.ndarray:
        return interquartile_mean(np.concatenate(sampled, axis=axis), axis)

    found = stats.bootstrap(
        samples,
        together,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(estimate, float(found.low), float(found.high))
