"""What a training step reports, in people's own signs: a return as a return, costs beside their budgets."""

from typing import Any, NamedTuple

import numpy as np

from rcac.deep.best import Candidate
from rcac.deep.episodes import Episodes
from rcac.deep.update import Taken
from rcac.learner import Term


class Facts(NamedTuple):
    """One update, as the trainer saw it; K costs, cost form, objective first."""

    estimates: np.ndarray  # J (K,) by the critics, discounted and robust
    norms: np.ndarray  # ‖w_n‖ (K,)
    losses: np.ndarray  # (K,) of the critics
    taken: Taken
    chosen: int
    level: float | None  # of the epigraph, where there is one
    skipped: int  # actor steps not taken so far


def labels(constraints: int) -> list[str]:
    return ["return", *("cost" if n == 1 else f"cost {n}" for n in range(1, constraints + 1))]


def metrics(facts: Facts, episodes: Episodes, budgets: np.ndarray, share: float) -> dict[str, float]:
    """Namespaced numbers; `share` turns budgets into discounted ones."""
    numbers = {
        "switch/index": float(facts.chosen),
        "policy/kl": facts.taken.kl,
        "policy/entropy": facts.taken.entropy,
        "policy/recovery": float(facts.taken.recovery),
        "policy/skipped": float(facts.skipped),
        "episode/count": float(episodes.count),
    }
    if facts.level is not None:
        numbers["switch/level"] = facts.level
    for n, budget in enumerate(budgets, start=1):
        numbers[f"budget/{n}"] = float(budget)
        numbers[f"budget/{n}/discounted"] = float(budget * share)
    for n, estimate in enumerate(facts.estimates):
        name, sign = ("return", -1.0) if n == 0 else (f"cost/{n}", 1.0)
        numbers[f"{name}/estimate"] = float(sign * estimate)
        numbers[f"critic/{n}/loss"] = float(facts.losses[n])
        numbers[f"critic/{n}/norm"] = float(facts.norms[n])
        if episodes.count:
            numbers[f"{name}/episode"] = float(sign * episodes.mean()[n])
            numbers[f"{name}/discounted"] = float(sign * episodes.mean_discounted()[n])
    if episodes.count:
        numbers["episode/length"] = episodes.mean_length()
    return numbers


def trial(sums: np.ndarray, length: float) -> dict[str, float]:
    """Metrics of a candidate's trial, from its mean episode sums (K,), cost form."""
    costs = {f"trial/cost/{n}": float(cost) for n, cost in enumerate(sums[1:], start=1)}
    return {"trial/return": -float(sums[0]), "trial/length": length, **costs}


def terms(measured: np.ndarray, budgets: np.ndarray) -> tuple[Term, ...]:
    """The score by episode sums (K,), cost form."""
    names = labels(len(budgets))
    objective = Term(names[0], -float(measured[0]), None, True)
    rest = zip(names[1:], measured[1:].tolist(), budgets.tolist(), strict=True)
    return objective, *(Term(label, value, budget, value <= budget) for label, value, budget in rest)


def summary(
    best: Candidate | None, episodes: Episodes, budgets: np.ndarray, position: int, total: int, skipped: int
) -> dict[str, Any]:
    """The result as plain data; return and costs are those of the policy handed out, once it has been measured."""
    measured = best.measured if best else []
    return {
        "reason": "all steps taken" if position >= total else "in progress",
        "steps": position,
        "episodes": episodes.count,
        "best_at": best.position if best else position,
        "tried": best is not None and best.tried,
        "return": -measured[0] if measured else None,
        "costs": measured[1:],
        "budgets": budgets.tolist(),
        "feasible": bool(np.all(np.array(measured[1:]) <= budgets)) if measured else None,
        "skipped": skipped,
    }
