"""The perturbations of the trade-off study: their words, and what holding the budget under one of them means."""

from collections.abc import Sequence
from typing import Any

from rcac.report.statistics import Interval
from reproduction.deep import BUDGET, TRAINED, mean_scores, over_seeds, strengths
from reproduction.section import SeedCosts

Condition = tuple[str, float]  # kind and strength of a perturbation
Runs = Sequence[dict[str, Any]]  # of one method and setting, a seed each
Scores = tuple[Interval, Interval]  # return and cost over seeds

KINDS = {  # words for the axis, argument of the environment, words for one strength
    "noise": ("noise δ on the observation", "noise_high", "δ {:g}"),
    "wind": ("wind (N, to the right)", "wind", "wind {:g} N"),
    "length": ("length of the pole (factor)", "length", "pole × {:g}"),
}
AS_TRAINED: Condition = ("noise", TRAINED)
UPRIGHT_RETURN = 450.0  # return of a policy that hardly ever falls, as every step earns at least 1


def describe(condition: Condition) -> str:
    return "as trained" if condition == AS_TRAINED else KINDS[condition[0]][2].format(condition[1])


def tested_conditions(runs: Runs) -> list[Condition]:
    """The perturbations under which these were tested."""
    return [(kind, strength) for kind in KINDS for strength in strengths(runs, kind)]


def seed_costs(runs: Runs, condition: Condition) -> SeedCosts:
    return SeedCosts([mean_scores(run, *condition)[1] for run in runs], BUDGET)


def over_budget(scores: Scores) -> bool:
    return scores[1].estimate > BUDGET


def conditions_over_budget(runs: Runs) -> list[Condition]:
    return [condition for condition in tested_conditions(runs) if over_budget(over_seeds(runs, *condition))]


def within_budget(scores: Scores) -> bool:
    """Within the budget, still standing: an episode that ends early costs little."""
    return scores[0].estimate >= UPRIGHT_RETURN and not over_budget(scores)


def held(runs: Runs, condition: Condition) -> bool | None:
    """Likewise, every seed counted; None: undecided."""
    standing = over_seeds(runs, *condition)[0].estimate >= UPRIGHT_RETURN
    return seed_costs(runs, condition).within if standing else False


def format_scores(runs: Runs, condition: Condition) -> str:
    """Return and cost; bold: above the budget."""
    scores = over_seeds(runs, *condition)
    mark = "**" if over_budget(scores) else ""
    return f"{scores[0].estimate:.0f}, {mark}{scores[1].estimate:.0f}{mark}"
