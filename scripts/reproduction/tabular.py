"""What the tabular sections share: the paper's four problems at any discount, and one run of a method as plain data.

A budget on a discounted sum means something at one discount only. At another γ it is multiplied by (1 − .99)/(1 − γ),
so that it stays the same budget per step. Values are in the user's signs: a reward and a utility up, a cost down.
"""

import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from rcac import registry
from rcac.learner import Step
from rcac.problem import RCMDP
from rcac.tabular.bounds import Bounds, bounds
from rcac.tabular.solve import solve
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.kl import KLBall, KLPenalty

PROBLEMS = {
    "river_swim": "river-swim",
    "garnet": "garnet(15, 20)",
    "frozen_lake": "frozen-lake",
    "garbage_collector": "garbage collector",
}
SETS = {"kl_penalty": "KL penalty", "kl_ball": "KL ball .01"}
METHODS = ["rnpg", "rppg", "epirc_pgs", "robust_crpo", "rsqp"]
STEP_SIZE_METHODS = METHODS[:-1]  # those that need a step size
STEP_SIZES = [10.0**k for k in range(-3, 3)]
LATE_FRACTION = 0.3  # fraction of a run's policies that counts as late
DISCOUNT = 0.99  # the paper's, to which its budgets belong
PAPER_LAMBDA = {  # of its tables of hyperparameters
    "rnpg": dict.fromkeys(PROBLEMS, 50.0),
    "rppg": {"river_swim": 10.0, "garnet": 15.0, "frozen_lake": 50.0, "garbage_collector": 50.0},
}


def load_problem(problem: str, discount: float = DISCOUNT, **changes: Any) -> RCMDP:
    """The model of an environment, as configured but for `changes`, its budgets scaled to the discount."""
    row = registry.rows("env")[problem]
    model: RCMDP = gym.make(row["id"], **(row["kwargs"] | changes | {"discount": discount})).unwrapped.rcmdp  # type: ignore[attr-defined]
    return replace(model, budgets=model.budgets * (1 - DISCOUNT) / (1 - discount))


def kl_penalty(problem: str) -> KLPenalty:
    """The paper's set, with the temperature of its tables."""
    return KLPenalty(registry.rows("env")[problem]["temperature"])


def make_uncertainty(name: str, problem: str) -> Uncertainty:
    return {"kl_penalty": kl_penalty(problem), "kl_ball": KLBall(0.01)}[name]


def display_bounds(model: RCMDP, uncertainty: Uncertainty) -> dict[str, Any]:
    """What no policy can beat, in the user's signs."""
    proven: Bounds = bounds(model, uncertainty)
    sign, other = signs(model)
    nominal = proven.objective if proven.nominal is None else proven.nominal
    return {
        "objective_alone": sign * proven.objective,
        "nominal": sign * nominal,
        "best": sign * proven.best,
        "budget": other * float(model.budgets[0]),
        "floor": other < 0,  # the constraint is a utility, to stay above
        "constraint_alone": other * float(proven.constraints[0]),
    }


def signs(model: RCMDP) -> tuple[float, float]:
    """Of the objective and of the one constraint."""
    assert model.signs is not None
    return float(model.signs[0]), float(model.signs[1])


def run_method(model: RCMDP, method: str, uncertainty: Uncertainty, **options: Any) -> dict[str, Any]:
    """One run: the best feasible policy that it met (the least violating one if none), and its own answer."""
    found = solve(model, method, uncertainty, **options)
    at = best_iterate(found.history["returns"], model.budgets)
    sign, other = signs(model)
    met = found.history["returns"][at]
    return {
        "method": method,
        "options": options,
        "objective": sign * float(met[0]),
        "constraint": other * float(met[1]),
        "feasible": bool(met[1] <= model.budgets[0]),
        "violation": max(0.0, float(met[1] - model.budgets[0])),
        "at": at + 1,  # evaluations until then
        "evaluations": found.evaluations,
        "answer": {
            "objective": sign * float(found.returns[0]),
            "constraint": other * float(found.returns[1]),
            "feasible": found.feasible,
        },
        "first": sign * float(found.history["returns"][0][0]),
    }


def run_grid(model: RCMDP, method: str, uncertainty: Uncertainty, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One run for each row of options."""
    return [run_method(model, method, uncertainty, **row) for row in rows]


def best_iterate(returns: np.ndarray, budgets: np.ndarray) -> int:
    """Index of the feasible row of (T, N+1) with the least J_0; of the least violating row if none is feasible."""
    excess = np.max(returns[:, 1:] - budgets, axis=1)
    feasible = excess <= 0
    if feasible.any():
        return int(np.argmin(np.where(feasible, returns[:, 0], np.inf)))
    return int(np.argmin(excess))


def rank_key(one: dict[str, Any]) -> tuple[float, float]:
    """Rank of an attempt, larger is better: least violation first, then the objective, which is a reward."""
    return -one["violation"], one["objective"]


def trace(model: RCMDP, method: str, uncertainty: Uncertainty, points: int, **options: Any) -> dict[str, Any]:
    """Every evaluated policy's objective and constraint, thinned to about `points`, evenly on a logarithmic axis; and
    `late_iterate_stats` of all of them."""
    multipliers: list[float] = []

    def watch(step: Step) -> None:
        multipliers.append(step.metrics.get("policy/multiplier/1", math.nan))

    found = solve(model, method, uncertainty, callback=watch, **options)
    count = len(found.history["returns"])
    at = np.unique(np.geomspace(1, count, points).round().astype(int)) - 1
    sign, other = signs(model)
    returns = found.history["returns"]
    return {
        "method": method,
        "evaluation": (at + 1).tolist(),
        "objective": (sign * returns[at, 0]).tolist(),
        "constraint": (other * returns[at, 1]).tolist(),
        "best_objective": (sign * found.history["best"][at, 0]).tolist(),
        "best_constraint": (other * found.history["best"][at, 1]).tolist(),
        "index": found.history["index"].tolist(),
        "multiplier": [None if math.isnan(m) else m for m in multipliers],
        "answer": [sign * float(found.returns[0]), other * float(found.returns[1])],
        "feasible": found.feasible,
        "evaluations": found.evaluations,
        "late_iterates": late_iterate_stats(returns, model.budgets),
    }


def late_iterate_stats(returns: np.ndarray, budgets: np.ndarray) -> dict[str, Any]:
    """Of (T, N+1): how often a budget is broken, in all and late, whether the last policy breaks one, and the mean
    change of objective and constraint from one late policy to the next."""
    broken: np.ndarray = np.any(returns[:, 1:] > budgets, axis=1)  # (T,)
    late = slice(len(returns) - max(2, round(LATE_FRACTION * len(returns))), None)
    return {
        "infeasible": float(broken.mean()),
        "late_infeasible": float(broken[late].mean()),
        "last_infeasible": bool(broken[-1]),
        "change": np.abs(np.diff(returns[late, :2], axis=0)).mean(axis=0).tolist(),
    }
