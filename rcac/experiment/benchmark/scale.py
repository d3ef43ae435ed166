"""Large sparse problems, 10 actions and 10 successors: time, memory, and how both grow with S·A.

Robust evaluation of the uniform policy and robust value iteration of one cost, under KL and TV balls.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rcac.evaluation import evaluate
from rcac.experiment.benchmark import problems
from rcac.experiment.benchmark.measure import Row, peak_memory
from rcac.tabular.bounds import robust_value_iteration
from rcac.uncertainty import KLBall, TotalVariation

SIZES = (1_000, 10_000, 100_000)
SETS = {"KL ball .05": KLBall(0.05), "TV .05": TotalVariation(0.05)}


def measure(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    rows, took = [], {}
    for uncertainty in SETS.values():  # load what is compiled, serial and threaded, before anything is timed
        for states in (10, 4000):
            evaluate(problems.sparse(states, 2, 10, 0.9), np.full((states, 2), 0.5), uncertainty)
    for states in sizes:
        problem = problems.sparse(states, 10, 10, 0.99)
        uniform = np.full((states, 10), 0.1)
        for name, uncertainty in SETS.items():
            evaluation, seconds = _timed(partial(evaluate, problem, uniform, uncertainty))
            rows.append(Row(f"evaluation, {name}, {states:,} states, {evaluation.rounds} rounds", seconds, "s"))
            took["evaluation", name, states] = seconds
            alone, seconds = _timed(partial(robust_value_iteration, problem, 0, uncertainty, tolerance=1e-6))
            rows.append(Row(f"value iteration, {name}, {states:,} states, {alone.rounds} policies", seconds, "s"))
            took["value iteration", name, states] = seconds
        rows.append(Row(f"  peak memory so far, {states:,} states", peak_memory(), "GB"))
    for what, name in dict.fromkeys((what, name) for what, name, _ in took):
        times = [took[what, name, states] for states in sizes]
        if len(sizes) > 1:
            exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
            rows.append(Row(f"growth of {what}, {name}: time ~ (S·A)^", exponent, ""))
    return rows


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    found = function()
    return found, time.perf_counter() - start
