"""What a section of the reproduction is, and the words of its verdicts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

HOLDS, IN_PART, NOT = "holds", "holds in part", "does not hold here"

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
    verdict: str  # HOLDS, IN_PART or NOT
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


def verdict(all_of_it: bool, some_of_it: bool) -> str:
    return HOLDS if all_of_it else IN_PART if some_of_it else NOT


def yes_no(value: bool) -> str:
    return "yes" if value else "**no**"
