"""A radius of the IPM norm beside slacks of the budget, at the same return as trained: which costs less when perturbed?

With (u_k, c_k) the return as trained and the cost under a perturbation of slack k, and (u, c) those of a radius, the
difference is c − ĉ(u), where ĉ is linear between the slacks' points in the order of u_k. It is taken only for
min u_k ≤ u ≤ max u_k, and only with policies that stay upright: one that falls costs little. Intervals are bootstrapped over
seeds, the same resample for every point; then a u beyond the slacks' range meets the cost at its end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rcac.report.statistics import Interval, interquartile_mean
from reproduction.deep import mean_scores
from reproduction.perturbed import AS_TRAINED, UPRIGHT_RETURN, Condition, Runs

RESAMPLES = 2000


class Compared(NamedTuple):
    """A radius beside slacks, at the same return as trained."""

    radius: float
    value: float  # return as trained
    cost: float  # under the perturbation
    slack_cost: float  # under it, of slacks with that return as trained
    difference: Interval  # cost − slack_cost


class Comparison(NamedTuple):
    compared: list[Compared]
    left_out: list[float]  # radii that fall, or whose return is beyond the slacks'
    mean: Interval | None  # of the differences; None without any


def compare(radii: Sequence[dict[str, Any]], slacks: Sequence[dict[str, Any]], condition: Condition) -> Comparison:
    """The radii of the last layer's norm beside the curve of the slacks."""
    own = [r for r in radii if r["scope"] == "last_layer" and r["radius"] > 0]
    if not own or not slacks:
        return Comparison([], [r["radius"] for r in own], None)
    points = np.array([_by_seed(r["runs"], condition) for r in own])  # (R, 3, seeds)
    curve = np.array([_by_seed(s["runs"], condition) for s in slacks])  # (K, 3, seeds)
    curve, within = curve[_upright(curve)], _upright(points)
    if len(curve):
        returns, ends = interquartile_mean(points[:, 0]), interquartile_mean(curve[:, 0])
        within &= (returns >= ends.min()) & (returns <= ends.max())
    else:
        within[:] = False
    left_out = [r["radius"] for r, inside in zip(own, within, strict=True) if not inside]
    if not within.any():
        return Comparison([], left_out, None)
    points, own = points[within], [r for r, inside in zip(own, within, strict=True) if inside]
    values, costs, slack_costs = _at_equal_return(points, curve)
    resampled = _bootstrap(points, curve)  # (resamples, R)
    compared = []
    for k, r in enumerate(own):
        value, cost, slack_cost = (float(numbers[k]) for numbers in (values, costs, slack_costs))
        found = _interval(cost - slack_cost, resampled[:, k])
        compared.append(Compared(r["radius"], value, cost, slack_cost, found))
    return Comparison(compared, left_out, _interval((costs - slack_costs).mean(), resampled.mean(axis=1)))


def _by_seed(runs: Runs, condition: Condition) -> np.ndarray:
    """(3, seeds): return as trained, return and cost under the perturbation."""
    return np.array(
        [
            [mean_scores(run, *AS_TRAINED)[0], *mean_scores(run, *condition)]
            for run in sorted(runs, key=lambda r: r["seed"])
        ]
    ).T


def _upright(points: np.ndarray) -> np.ndarray:
    """(P,) of (P, 3, seeds): return as trained and under the perturbation are those of a policy that does not fall."""
    return np.all(interquartile_mean(points[:, :2]) >= UPRIGHT_RETURN, axis=1)


def _at_equal_return(points: np.ndarray, curve: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(R,) returns as trained, costs, and the curve's costs at these returns, all over seeds."""
    values, costs = interquartile_mean(points[:, 0]), interquartile_mean(points[:, 2])
    returns, found = interquartile_mean(curve[:, 0]), interquartile_mean(curve[:, 2])
    order = np.argsort(returns)
    return values, costs, np.interp(values, returns[order], found[order])


def _bootstrap(points: np.ndarray, curve: np.ndarray, seed: int = 0) -> np.ndarray:
    """(resamples, R) differences for resampled seeds, the same resample for every point."""
    count, rng = points.shape[2], np.random.default_rng(seed)
    found = []
    for chosen in rng.integers(count, size=(RESAMPLES if count > 1 else 1, count)):
        _, costs, slack_costs = _at_equal_return(points[:, :, chosen], curve[:, :, chosen])
        found.append(costs - slack_costs)
    return np.array(found)


def _interval(estimate: float, resampled: np.ndarray) -> Interval:
    low, high = np.percentile(resampled, [2.5, 97.5]) if len(resampled) > 1 else (np.nan, np.nan)
    return Interval(float(estimate), float(low), float(high))
