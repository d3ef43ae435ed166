"""What a training step reports, in people's own signs: a return as a return, a utility as one, costs beside their budgets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rcac.deep.episodes import Episodes, Measured
from rcac.deep.selection import Candidate
from rcac.deep.steps.base import ActorUpdate
from rcac.labels import shown_signs
from rcac.learner import Term


class UpdateStats(NamedTuple):
    """One update, as the trainer saw it; K costs, cost form, objective first."""

    estimates: np.ndarray  # J (K,) by the critics, discounted and robust
    norms: np.ndarray  # ‖w_n‖ (K,)
    losses: np.ndarray  # (K,) of the critics
    actor: ActorUpdate
    weights: np.ndarray  # (K,) of the switch
    switch: dict[str, float]  # the switch's own metrics
    skipped: int  # actor steps not taken so far


def metrics(
    stats: UpdateStats,
    episodes: Episodes,
    budgets: np.ndarray,
    names: list[str],
    kappa: float,
    constants: np.ndarray,
) -> dict[str, float]:
    """Namespaced numbers; `kappa` turns budgets into discounted ones, `constants` (K,) what critics learn from into costs."""
    signs = shown_signs(names)
    numbers = {
        "switch/index": float(np.argmax(stats.weights)),
        **stats.switch,
        "policy/kl": stats.actor.kl,
        "policy/entropy": stats.actor.entropy,
        "policy/recovery": float(stats.actor.recovery),
        "policy/skipped": float(stats.skipped),
        "episode/count": float(episodes.count),
    }
    for n, budget in enumerate(signs[1:] * budgets, start=1):
        numbers[f"budget/{n}"] = float(budget)
        numbers[f"budget/{n}/discounted"] = float(budget * kappa)
    for n, estimate in enumerate(stats.estimates):
        name, sign = "return" if n == 0 else f"cost/{n}", signs[n]
        numbers[f"{name}/estimate"] = 0.0 + float(sign * estimate)  # never −0
        numbers[f"critic/{n}/loss"] = float(stats.losses[n])
        numbers[f"critic/{n}/norm"] = float(stats.norms[n])
        if episodes.count:
            numbers[f"{name}/episode"] = 0.0 + float(sign * episodes.mean()[n])
            numbers[f"{name}/discounted"] = 0.0 + float(sign * (episodes.mean_discounted()[n] + constants[n]))
    if episodes.count:
        numbers["episode/length"] = episodes.mean_length()
    return numbers


def trial(measured: Measured, names: list[str]) -> dict[str, float]:
    """Metrics of a candidate's trial."""
    first, *rest = _shown(measured.plain, names)
    costs = {f"trial/cost/{n}": value for n, value in enumerate(rest, start=1)}
    return {"trial/return": first, "trial/length": measured.length, **costs}


def _shown(values: Sequence[float] | np.ndarray, names: list[str]) -> list[float]:
    """Of all terms, from cost form."""
    return (0.0 + shown_signs(names) * np.asarray(values)).tolist()  # never −0


def terms(
    measured: np.ndarray, budgets: np.ndarray, names: list[str], worst: np.ndarray | None = None
) -> tuple[Term, ...]:
    """The score by episode sums (K,), cost form; `worst` (K,) those of each cost's worst context."""
    shown, limits = _shown(measured, names), _shown([0.0, *budgets], names)
    largest = [None] * len(names) if worst is None else _shown(worst, names)
    found = [Term(names[0], shown[0], None, True)]
    for n, budget in enumerate(budgets, start=1):
        found.append(Term(names[n], shown[n], limits[n], bool(measured[n] <= budget), largest[n]))
    return tuple(found)


def summary(
    best: Candidate | None,
    budgets: np.ndarray,
    names: list[str],
    notes: list[str],
    deploy: str,
    other: list[float] | None,
    window: list[float],
    ended: int,
    **facts: Any,
) -> dict[str, Any]:
    """The result as plain data; return and costs are those of the policy handed out, once it has been measured, acting as it
    is deployed; `other` (K,) what it has when it acts the other way. Before that, means (K,) of the `ended` episodes in the
    `window`, which say what was measured, but not of one policy."""
    measured = best.measured if best else window
    way = "stochastic" if deploy == "deterministic" else "deterministic"
    excess = np.array(measured[1:]) - budgets if measured else np.zeros(0)
    shown, others = (_shown(values, names) if values else [] for values in (measured, other))
    return {
        **facts,
        "labels": names,
        "tried": best is not None and best.tried,
        "measured_episodes": best.episodes if best else ended,
        "return": shown[0] if shown else None,
        "costs": shown[1:],
        "budgets": _shown([0.0, *budgets], names)[1:],
        "feasible": bool(np.all(excess <= 0)) if best else None,
        "violation": max(0.0, float(np.max(excess, initial=0.0))) if measured else None,
        "deploy": deploy,
        way: None if other is None else {"return": others[0], "costs": others[1:]},
        "note": "; ".join(notes) or None,
    }
