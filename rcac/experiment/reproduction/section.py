"""What a section of the reproduction is, and the words of its verdicts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

HOLDS, IN_PART, NOT = "holds", "holds in part", "does not hold here"

Result = dict[str, Any]  # plain data, as JSON has it


class Once:
    """Computes a piece that is not there yet: `once("name", function, *its_arguments)`. This one keeps nothing; see
    `store` for one that does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # for files that a section leaves, its trainings

    def __call__(self, name: str, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return compute(*arguments, **options)

    def many(self, pieces: Mapping[str, Callable[[], Any]]) -> list[Any]:
        """All of these, in their order; side by side where there is leave to."""
        return [self(name, compute) for name, compute in pieces.items()]


class Interrupted(KeyboardInterrupt):
    """A request to stop that came as a piece was done: the piece is kept, then all stops."""

    def __init__(self, piece: Any) -> None:
        super().__init__(piece)
        self.piece = piece


class Claim(NamedTuple):
    claim: str
    verdict: str  # HOLDS, IN_PART or NOT
    evidence: str  # with the numbers


class Section(NamedTuple):
    name: str
    title: str
    about: str  # what was computed, in a paragraph of Markdown
    family: str  # of the methods, whose default settings a result depends on
    settings: Mapping[str, dict[str, Any]]  # of "quick" and "full"
    compute: Callable[[dict[str, Any], Once], Result]
    tables: Callable[[Result], str]  # Markdown
    figures: Callable[[Result], dict[str, Figure]]  # by file name without suffix
    claims: Callable[[Result], list[Claim]]


def verdict(all_of_it: bool, some_of_it: bool) -> str:
    return HOLDS if all_of_it else IN_PART if some_of_it else NOT


def markdown(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A table whose first `left` columns are words and whose others are numbers."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])


def yes(value: bool) -> str:
    return "yes" if value else "**no**"
