"""What a person watching a training sees.

On a terminal: a bar with position, rate and time left, and under it the score (costs green within their budget, red
beyond) and the term being descended. Elsewhere: a plain line at most every ten seconds, and one at the end.
"""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from rcac.learner import Learner, Step, Term

BAR_SECONDS = 0.1
PLAIN_SECONDS = 10.0


def value_text(term: Term) -> Text:
    """`40.1 (budget 42, met)`, coloured by whether the budget is met."""
    if term.budget is None:
        return Text(f"{term.value:.4g}")
    words = f"{term.value:.4g} (budget {term.budget:.4g}, {'met' if term.met else 'exceeded'})"
    return Text(words, style="green" if term.met else "red")


def score_text(step: Step) -> Text:
    parts = [Text(f"{term.label} ").append_text(value_text(term)) for term in step.terms]
    return Text("  ").join([*parts, Text(f"descending {step.descending}", style="cyan")])


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed and task.speed >= 10 else f"{task.speed or 0:.2g}/s")


class _Bar(Progress):
    """Rich's bar with the score on a line of its own."""

    score = Text("")

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield self.score


class ProgressView:
    """Context around a training: `update` after every step, which costs next to nothing between two displays."""

    def __init__(
        self,
        learner: Learner,
        *,
        enabled: bool,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._learner, self._console, self._clock = learner, console, clock
        self._enabled, self._live = enabled, enabled and console.is_terminal
        self._interval = BAR_SECONDS if self._live else PLAIN_SECONDS
        self._began = self._shown = clock()
        self._start = learner.position
        self._step: Step | None = None
        self._stale = False  # a step has been taken since the last display
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._bar = _Bar(*columns, console=console, disable=not self._live)
        self._task = self._bar.add_task(learner.unit, total=learner.total, completed=learner.position)

    def __enter__(self) -> "ProgressView":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._stale:
            self._show()
        self._bar.stop()

    def update(self, step: Step) -> None:
        self._step, self._stale = step, True
        if self._enabled and self._clock() - self._shown >= self._interval:
            self._show()

    def _show(self) -> None:
        self._shown, self._stale = self._clock(), False
        if self._live and self._step is not None:
            self._bar.score = score_text(self._step)
            self._bar.update(self._task, completed=self._learner.position)
        elif self._enabled:
            self._console.print(self.plain_line(), markup=False, highlight=False, soft_wrap=True)

    def plain_line(self) -> str:
        position, total = self._learner.position, self._learner.total
        rate = (position - self._start) / max(self._clock() - self._began, 1e-9)
        left = timedelta(seconds=round((total - position) / rate)) if rate > 0 else "?"
        score = score_text(self._step).plain if self._step else ""
        share = f"{position / total:.0%}" if total else "100%"
        return f"{self._learner.unit} {position}/{total} ({share})  {rate:.4g}/s  {left} left  {score}"
