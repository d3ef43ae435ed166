"""Labels of returns and costs, objective first, and whether larger or smaller is better."""

from collections.abc import Sequence

import numpy as np

RESERVED = ("return", "objective", "utility")  # labels that imply a direction


def term_labels(signs: Sequence[float] | np.ndarray, names: Sequence[str] | None = None) -> list[str]:
    """`return` or `objective`, then the names of the costs, or `cost` and `utility` with their numbers.

    `signs` (N+1,) are −1 where a reward or a utility was negated to make it a cost.
    """
    first = "return" if signs[0] < 0 else "objective"
    if names:
        return [first, *names]
    kinds = ["utility" if sign < 0 else "cost" for sign in signs[1:]]
    return [first, *(f"{kind} {n}" if len(kinds) > 1 else kind for n, kind in enumerate(kinds, start=1))]


def episode_labels(constraints: int, names: Sequence[str] | None = None) -> list[str]:
    """Labels of a return and this many costs."""
    return term_labels([-1.0, *[1.0] * constraints], names)


def larger_is_better(label: str) -> bool:
    return label.split(" ")[0] in ("return", "utility")


def shown_signs(labels: Sequence[str]) -> np.ndarray:
    """(N+1,) what turns terms in cost form into people's own: −1 for a return or a utility."""
    return np.array([-1.0 if larger_is_better(label) else 1.0 for label in labels])


def limit_word(label: str) -> str:
    """A utility has a floor, a cost a budget."""
    return "floor" if larger_is_better(label) else "budget"


def within(label: str, value: float, budget: float | None) -> bool:
    """A utility is to stay above its budget, a cost below; an objective has none."""
    if budget is None:
        return True
    return bool(value >= budget if larger_is_better(label) else value <= budget)
