"""Large sparse problems, 10 actions and 10 successors: time, memory, and how time grows with S·A.

Robust evaluation, robust value iteration, and solving by RSQP and RNPG, of random (garnet) and grid problems under KL and
TV balls. A method has solved a problem when a policy within the budget has an objective at most 1 % above the best known: what either
method finds in all its evaluations, and at the smallest size also what longer searches from other starts find. How far a
method's own best can be from the optimum is proven by `Bounds`.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import problems
from benchmarks.measure import Row, peak_memory
from rcac.evaluation import evaluate
from rcac.problem import RCMDP
from rcac.registry import algorithm
from rcac.tabular.bounds import Bounds, one_adversary, robust_value_iteration
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solver import Solver, first_policy
from rcac.uncertainty import KLBall, TotalVariation
from rcac.uncertainty.base import Uncertainty

SIZES = (1_000, 10_000, 100_000)
SETS: dict[str, Uncertainty] = {"KL ball .05": KLBall(0.05), "TV .05": TotalVariation(0.05)}
KINDS: dict[str, Callable[[int], RCMDP]] = {
    "garnet": lambda states: problems.sparse(states, 10, 10, 0.99),
    "grid": lambda states: problems.grid(round(states**0.5), 0.99),
}
METHODS: dict[str, dict[str, float]] = {
    "rsqp": {},
    "rnpg": {"step_size": 20.0},
}  # its best of 1, 5, 20 and 100 on 1,000 states
EVALUATIONS = 20
NEAR = 0.01
SEARCHES, LONGER = 4, 5  # starts of longer searches, and how many times the evaluations each may use
TIGHTNESS = 0.25  # of the budget, between the least cost (0) and that of the best policy without it (1)


class Course(NamedTuple):
    """What a method had after each evaluation."""

    seconds: np.ndarray  # (T,) since the start
    best: np.ndarray  # (T,) least objective within the budgets so far, ∞ before the first

    def reached(self, goal: float) -> int | None:
        near = np.flatnonzero(self.best <= goal)
        return int(near[0]) if len(near) else None


def measure(sizes: tuple[int, ...] = SIZES, evaluations: int = EVALUATIONS) -> list[Row]:
    rows: list[Row] = []
    took: dict[tuple[str, str, str], list[float]] = {}
    _load_compiled_code()
    for states in sizes:
        for kind, make in KINDS.items():
            for name, uncertainty in SETS.items():
                print(
                    f"{kind}, {name}, {states:,} states", file=sys.stderr, flush=True
                )  # half an hour of silence is long
                searches = SEARCHES if states == sizes[0] else 0
                for row, what in _one(make(states), uncertainty, evaluations, searches):
                    rows.append(row._replace(name=f"{what}, {kind}, {name}, {states:,} states"))
                    if row.unit == "s":
                        took.setdefault((what, kind, name), []).append(row.value)
        rows.append(Row(f"  peak memory so far, {states:,} states", peak_memory(), "GB"))
    if len(sizes) > 1:
        for (what, kind, name), times in took.items():
            if np.isfinite(times).all():
                exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
                rows.append(Row(f"growth of {what}, {kind}, {name}: time ~ (S·A)^", exponent, ""))
    return rows


def _one(problem: RCMDP, uncertainty: Uncertainty, evaluations: int, searches: int = 0) -> list[tuple[Row, str]]:
    """Rows without their names, and what they are of."""
    uniform = np.full((problem.num_states, problem.num_actions), 1 / problem.num_actions)
    found, seconds = _timed(partial(evaluate, problem, uniform, uncertainty))
    rows = [(Row("", seconds, "s", note=f"{found.rounds} rounds"), "evaluation")]
    alone, seconds = _timed(partial(robust_value_iteration, problem, uncertainty, tolerance=1e-6))
    rows.append((Row("", seconds, "s", note=f"{alone.rounds} policies"), "value iteration"))
    least = robust_value_iteration(problem, uncertainty, 1, tolerance=1e-6)
    free = evaluate(problem, alone.policy, uncertainty).returns[1]
    budget = least.value + TIGHTNESS * (free - least.value)
    bound = RCMDP(problem.kernel, problem.costs, [budget], problem.initial, problem.discount)
    together = one_adversary(bound, uncertainty, tolerance=1e-6)
    proven = Bounds(alone.value - alone.error_bound, np.array([least.value - least.error_bound]), None, together)
    courses = {method: _course(bound, uncertainty, method, proven, evaluations) for method in METHODS}
    longer = [
        _course(bound, uncertainty, "rsqp", proven, LONGER * evaluations, seed) for seed in range(1, searches + 1)
    ]
    best = min(course.best[-1] for course in (*courses.values(), *longer))
    for method, course in courses.items():
        at = course.reached(best + NEAR * abs(best))
        gap = (
            f"{100 * (course.best[-1] / best - 1):.1f} % above the best"
            if course.best[-1] < np.inf
            else "none feasible"
        )
        optimum = f"its best at most {100 * (course.best[-1] - proven.best) / abs(proven.best):.1f} % above the optimum"
        note = f"{evaluations} evaluations end {gap}" if at is None else f"after {at + 1} evaluations; {optimum}"
        rows.append((Row("", np.inf if at is None else course.seconds[at], "s", note=note), f"{method.upper()} to 1 %"))
        rows.append((Row("", course.seconds[-1] / len(course.seconds), "s"), f"a step of {method.upper()}"))
    if longer:
        above, note = (
            100 * (courses["rsqp"].best[-1] / best - 1),
            f"{searches} random starts × {LONGER * evaluations} evaluations",
        )
        rows.append((Row("", above, "% above", note=note), "RSQP beside longer searches"))
    return rows


def _course(
    problem: RCMDP, uncertainty: Uncertainty, method: str, proven: Bounds, evaluations: int, seed: int | None = None
) -> Course:
    """From the uniform policy, or from a random one."""
    settings = algorithm(method, TabularSettings)
    for key, value in {**METHODS[method], "iterations": evaluations}.items():
        setattr(settings, key, value)
    solver = Solver(
        problem,
        uncertainty,
        settings,
        proven,
        first_policy(problem, "uniform" if seed is None else "random", seed or 0),
    )
    start, seconds, best = time.perf_counter(), [], [np.inf]
    while not solver.finished:
        solver.step()
        seconds.append(time.perf_counter() - start)
        objective, *costs = solver.history["returns"][-1]
        best.append(min(best[-1], objective) if np.all(costs <= problem.budgets) else best[-1])
    return Course(np.array(seconds), np.array(best[1:]))


def _load_compiled_code() -> None:
    """Serial and threaded, before anything is timed."""
    for uncertainty in SETS.values():
        for states in (10, 4000):
            evaluate(problems.sparse(states, 2, 10, 0.9), np.full((states, 2), 0.5), uncertainty)
        _one(problems.sparse(300, 10, 10, 0.9), uncertainty, 5)


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    found = function()
    return found, time.perf_counter() - start
