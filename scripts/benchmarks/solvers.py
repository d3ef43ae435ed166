"""Tabular methods: microseconds per RNPG step, the time of every method to within 1 % of the best value found, and the
nominal optimum of one cost.
"""

import time
from importlib import import_module

import numpy as np

from benchmarks import nominal
from benchmarks.measure import Row
from rcac.problem import RCMDP
from rcac.registry import algorithm
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solve import make_solvers
from rcac.tabular.solver import Solver
from rcac.uncertainty import KLBall, KLPenalty
from rcac.uncertainty.base import Uncertainty

TEMPERATURES = {"river_swim": 1000.0, "garnet": 50.0, "frozen_lake": 20.0, "garbage_collector": 20.0}
METHODS = ("rsqp", "rnpg", "robust_crpo", "rppg", "epirc_pgs")


def problem(name: str) -> RCMDP:
    return getattr(import_module(f"rcac.envs.tabular.{name}"), name)()


def solver(model: RCMDP, uncertainty: Uncertainty, method: str) -> Solver:
    return make_solvers(model, uncertainty, algorithm(method, TabularSettings), 0)[0]


def per_step(model: RCMDP, uncertainty: Uncertainty) -> float:
    """Median seconds of an RNPG step, bookkeeping included."""
    running, times = solver(model, uncertainty, "rnpg"), []
    while not running.finished:
        start = time.perf_counter()
        running.step()
        times.append(time.perf_counter() - start)
    return float(np.median(times[50:]))


def timed(model: RCMDP, uncertainty: Uncertainty, method: str) -> list[tuple[float, float]]:
    """(seconds so far, best feasible J_0 so far) after every step."""
    running, spent, best, trace = solver(model, uncertainty, method), 0.0, np.inf, []
    while not running.finished:
        start = time.perf_counter()
        running.step()
        spent += time.perf_counter() - start
        returns = np.array(running.history["returns"][-1])
        if np.all(returns[1:] <= model.budgets):
            best = min(best, returns[0])
        trace.append((spent, best))
    return trace


def measure() -> list[Row]:
    rows = []
    for name, theta in TEMPERATURES.items():
        model = problem(name)
        for label, uncertainty in ((f"KL penalty {theta:g}", KLPenalty(theta)), ("KL ball .01", KLBall(0.01))):
            rows.append(Row(f"RNPG step, {name}, {label}", per_step(model, uncertainty) * 1e6, "µs"))
    for name in TEMPERATURES:
        model, uncertainty = problem(name), KLBall(0.01)
        traces = {method: timed(model, uncertainty, method) for method in METHODS}
        best = min(trace[-1][1] for trace in traces.values())
        reached = {
            m: next((t for t, v in trace if v <= best + 0.01 * abs(best)), np.inf) for m, trace in traces.items()
        }
        for method, took in reached.items():
            short = f"ends {100 * (traces[method][-1][1] - best) / abs(best):.1f} % short" if took == np.inf else ""
            ratio = took / reached["rsqp"] if took < np.inf else None
            rows.append(Row(f"{name}, KL ball .01, {method} to 1 %", took * 1e3, "ms", ratio, "rsqp", short))
    return rows + nominal.measure()
