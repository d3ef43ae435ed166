"""The perturbations of the trade-off study: their words, and what holding the budget under one of them means."""

from collections.abc import Sequence
from typing import Any

from rcac.experiment.reproduction.deep import BUDGET, TRAINED, over_seeds, strengths
from rcac.experiment.statistics import Interval

At = tuple[str, float]  # kind and strength of a perturbation
Runs = Sequence[dict[str, Any]]  # of one method and setting, a seed each
Scores = tuple[Interval, Interval]  # return and cost over seeds

KINDS = {  # words for the axis, argument of the environment, words for one strength
    "noise": ("noise δ on the observation", "noise_high", "δ {:g}"),
    "wind": ("wind (N, to the right)", "wind", "wind {:g} N"),
    "length": ("length of the pole (factor)", "length", "pole × {:g}"),
}
AS_TRAINED: At = ("noise", TRAINED)
STANDING = 450.0  # return of a policy that hardly ever falls, as every step earns at least 1


def words(at: At) -> str:
    return "as trained" if at == AS_TRAINED else KINDS[at[0]][2].format(at[1])


def tested(runs: Runs) -> list[At]:
    """The perturbations under which these were tested."""
    return [(kind, strength) for kind in KINDS for strength in strengths(runs, kind)]


def breaks(scores: Scores) -> bool:
    return scores[1].estimate > BUDGET


def holds(scores: Scores) -> bool:
    """Within the budget, still standing: an episode that ends early costs little."""
    return scores[0].estimate >= STANDING and not breaks(scores)


def cell(runs: Runs, at: At) -> str:
    """Return and cost; bold: above the budget."""
    scores = over_seeds(runs, *at)
    mark = "**" if breaks(scores) else ""
    return f"{scores[0].estimate:.0f}, {mark}{scores[1].estimate:.0f}{mark}"
