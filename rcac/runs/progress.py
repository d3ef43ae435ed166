"""What a person watching a training sees.

On a terminal, or in a notebook with ipywidgets: a bar with position, rate and time left, and under it the score (costs green within their budget, red
beyond) and the term being descended. Elsewhere: a plain line at most every ten seconds, and one at the end.
"""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from importlib.util import find_spec

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from rcac.labels import larger_is_better
from rcac.learner import NOTHING, Learner, Step, Term
from rcac.runs.loop import Callback

BAR_SECONDS = 0.1
PLAIN_SECONDS = 10.0


def console() -> Console:
    """Where progress is shown."""
    return Console(stderr=True)


def value_text(term: Term) -> Text:
    """`40.1 (budget 42, met)`, coloured by whether the budget is met; where there are contexts, with the worst one's:
    `40.1, worst context 44.2 (budget 42, exceeded)`."""
    if term.budget is None:
        return Text(_number(term.value))
    if term.worst is None:
        return _against(_number(term.value), term.budget, term.met)
    worst = _against(f"worst context {_number(term.worst)}", term.budget, term.worst <= term.budget)
    return Text(f"{_number(term.value)}, ").append_text(worst)


def _against(words: str, budget: float, met: bool) -> Text:
    return Text(f"{words} (budget {budget:.4g}, {'met' if met else 'exceeded'})", style="green" if met else "red")


def _number(value: float) -> str:
    """Four digits, and no −0."""
    return f"{value:.4g}".replace("-0", "0") if value == 0 else f"{value:.4g}"


def score_text(step: Step) -> Text:
    parts = [Text(f"{term.label} ").append_text(value_text(term)) for term in step.terms]
    aim = f"{'improving' if larger_is_better(step.descending) else 'reducing'} {step.descending}"
    return Text("  ").join([*parts, Text("on trial" if step.descending == NOTHING else aim, style="cyan")])


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed and task.speed >= 10 else f"{task.speed or 0:.2g}/s")


class _Bar(Progress):
    """Rich's bar with the score on a line of its own."""

    score = Text("")

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield self.score


class ProgressView(Callback):
    """A callback of the loop that costs next to nothing between two displays."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._live = console.is_terminal or bool(console.is_jupyter and find_spec("ipywidgets"))
        self._interval = BAR_SECONDS if self._live else PLAIN_SECONDS
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._bar = _Bar(*columns, console=console, disable=not self._live)
        self._began = self._shown = 0.0
        self._start = 0
        self._latest: tuple[Learner, Step] | None = None  # not displayed yet

    def on_start(self, learner: Learner) -> None:
        self._began = self._shown = self._clock()
        self._start = learner.position
        self._task = self._bar.add_task(learner.unit, total=learner.total, completed=learner.position)
        self._bar.start()

    def on_step(self, learner: Learner, step: Step) -> None:
        self._latest = learner, step
        if self._clock() - self._shown >= self._interval:
            self._show()

    def close(self) -> None:
        self._show()
        self._bar.stop()

    def _show(self) -> None:
        if self._latest is None:
            return
        (learner, step), self._latest, self._shown = self._latest, None, self._clock()
        if self._live:
            self._bar.score = score_text(step)
            total = learner.position if learner.finished else learner.total  # a stopping test may end it early
            self._bar.update(self._task, completed=learner.position, total=total)
        else:
            self._console.print(self._line(learner, step), markup=False, highlight=False, soft_wrap=True)

    def _line(self, learner: Learner, step: Step) -> str:
        position = learner.position
        total = position if learner.finished else learner.total
        rate = (position - self._start) / max(self._clock() - self._began, 1e-9)
        left = timedelta(seconds=round((total - position) / rate)) if rate > 0 else "?"
        return (
            f"{learner.unit} {position}/{total} ({position / total:.0%})  {rate:.4g}/s  {left} left  "
            f"{score_text(step).plain}"
        )
