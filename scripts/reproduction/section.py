"""What a section of the reproduction is, and the words of its verdicts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

HOLDS, IN_PART, NOT, UNDECIDED = "holds", "holds in part", "does not hold here", "undecided"
CONFIDENCE = 0.95
BUDGET_RULE = (
    f"a method meets a budget if the whole {CONFIDENCE:.0%} interval (Student's t) of its mean cost over seeds is at or below it, breaks "
    "it if the whole interval is above, and is undecided if the interval crosses it, or there is one seed only. (Set after data "
    "had been seen: an interquartile mean dropped the seed that broke the budget.)"
)

Result = dict[str, Any]  # plain data, as JSON has it


class PieceCache:
    """Computes a piece unless it is stored: `cache("name", function, *arguments)`. This one stores nothing; see `store` for
    one that does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # for files that a section leaves, its trainings

    def __call__(self, name: str, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return compute(*arguments, **options)

    def compute_all(self, pieces: Mapping[str, Callable[[], Any]]) -> list[Any]:
        """All of these, in their order; in parallel if the cache allows it."""
        return [self(name, compute) for name, compute in pieces.items()]


class Interrupted(KeyboardInterrupt):
    """A request to stop that arrived as a piece was finished: the piece is stored, then the run stops."""

    def __init__(self, piece: Any) -> None:
        super().__init__(piece)
        self.piece = piece


class Claim(NamedTuple):
    claim: str
    verdict: str  # HOLDS, IN_PART, NOT or UNDECIDED
    evidence: str  # with the numbers


class Section(NamedTuple):
    name: str
    title: str
    about: str  # what was computed, in a paragraph of Markdown
    family: str  # of the methods, whose default settings a result depends on
    settings: Mapping[str, dict[str, Any]]  # of "quick" and "full"
    compute: Callable[[dict[str, Any], PieceCache], Result]
    tables: Callable[[Result], str]  # Markdown
    figures: Callable[[Result], dict[str, Figure]]  # by file name without suffix
    claims: Callable[[Result], list[Claim]]
    selecting: tuple[str, ...] = ()  # settings that only say which of its runs are made, and may be given as words


def verdict(all_of_it: bool, some_of_it: bool) -> str:
    return HOLDS if all_of_it else IN_PART if some_of_it else NOT


def at_most(low: float, high: float, line: float) -> bool | None:
    """Whether all of an interval is at or below a line (True) or above it (False); None if it crosses, or has no ends."""
    return True if high <= line else False if low > line else None


def decide(parts: Sequence[bool | None]) -> str:
    """The verdict on a claim of several parts, some of them undecided (None): undecided if they could tip it."""
    if True in parts and False in parts:
        return IN_PART
    if None in parts or not parts:
        return UNDECIDED
    return verdict(all(parts), False)


class SeedCosts(NamedTuple):
    """The costs of one method against a budget, by `BUDGET_RULE`: every seed counts, the worst above all."""

    costs: list[float]  # mean cost of each seed
    budget: float

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean, by Student's t; NaN for one seed."""
        if len(self.costs) < 2:
            return np.nan, np.nan
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(self.costs) - 1) * stats.sem(self.costs)
        return float(np.mean(self.costs) - half), float(np.mean(self.costs) + half)

    @property
    def within(self) -> bool | None:
        return at_most(*self.interval, self.budget)

    @property
    def breaks(self) -> bool | None:
        return None if self.within is None else not self.within

    def __str__(self) -> str:
        low, high = self.interval
        ends = "" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]"
        above = sum(cost > self.budget for cost in self.costs)
        return f"a mean of {np.mean(self.costs):.1f}{ends}, above the budget on {above} of {len(self.costs)} seeds, {max(self.costs):.1f} on the worst"


def yes_no(value: bool) -> str:
    return "yes" if value else "**no**"
