"""What a person sees of a sweep: a line for each job that ends, with a bar on a terminal, and a table at the end."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rcac.errors import InputError
from rcac.experiment import results
from rcac.experiment.progress import value_text
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.sweep.folder import FAILED, FINISHED, INFEASIBLE, MISSING, STOPPED, End, Job
from rcac.learner import Term

STYLES = {FINISHED: "green", STOPPED: "yellow", FAILED: "red", INFEASIBLE: "red", MISSING: "dim"}


class SweepView:
    """Context around the jobs: `ended` as each one does."""

    def __init__(self, folder: Path, total: int, done: int, enabled: bool, console: Console) -> None:
        self._folder, self._total, self._done, self._enabled, self._console = folder, total, done, enabled, console
        columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not (enabled and console.is_terminal))
        self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> "SweepView":
        if self._enabled and self._done:
            self._print(Text(f"{self._done} of {self._total} were done before"))
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def ended(self, job: Job, end: End) -> None:
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if self._enabled:
            parts = [Text(f"{self._done}/{self._total}"), _outcome(end), Text(job.label)]
            if end.error:
                parts.append(Text(end.error))
            else:
                parts += [Text(f"{term.label} ").append_text(value_text(term)) for term in _terms(self._folder, end)]
            self._print(Text("  ").join(parts))

    def _print(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def result_table(folder: Path, rows: list[tuple[Job, End]]) -> Table:
    """Job, outcome, return, costs against their budgets, run folder."""
    table = Table(title=results.shown_path(folder), title_justify="left")
    for name in ("job", "outcome", "return", "costs", "run"):
        table.add_column(name, overflow="fold")
    for job, end in rows:
        objective, *costs = [value_text(term) for term in _terms(folder, end)] or [Text("")]
        table.add_row(Text(job.label), _outcome(end), objective, Text("\n").join(costs), Text(end.folder or ""))
    return table


def complain(rows: list[tuple[Job, End]], *, told: bool, launcher: str | None) -> None:
    """Name on stderr what did not finish; of a sweep that was told to stop, only what failed or cannot be done."""
    for job, end in rows:
        if end.outcome in (FAILED, INFEASIBLE) or not (told or end.outcome == FINISHED):
            print(": ".join(filter(None, (end.outcome, " ".join(job.overrides), end.error))), file=sys.stderr)
    if launcher:
        print(f"the launcher failed: {launcher}", file=sys.stderr)
    never = sum(end.outcome == INFEASIBLE for _, end in rows)
    if never:
        print(f"{never} of {len(rows)} jobs cannot be done: no policy meets the budgets", file=sys.stderr)
    left = sum(end.outcome not in (FINISHED, INFEASIBLE) for _, end in rows)
    if left:
        print(f"{left} of {len(rows)} jobs are left; the same command does these", file=sys.stderr)


def _outcome(end: End) -> Text:
    return Text(end.outcome, style=STYLES.get(end.outcome, ""))


def _terms(folder: Path, end: End) -> list[Term]:
    """The score of a run, objective first; empty where there is none."""
    if end.folder is None:
        return []
    try:
        summary: dict[str, Any] = RunFolder(folder / end.folder).read_json("summary.json")
    except InputError:
        return []
    return results.terms(summary)
