"""The terminal output of a sweep: a line for each job as it ends, and a table at the end."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcac.config.sweep.folder import FAILED, FINISHED, INFEASIBLE, MISSING, STOPPED, JobRecord
from rcac.errors import InputError
from rcac.learner import Term
from rcac.runs import results
from rcac.runs.folder import RunFolder
from rcac.runs.progress import value_text

STYLES = {FINISHED: "green", STOPPED: "yellow", FAILED: "red", INFEASIBLE: "red", MISSING: "dim"}
WIDTH = 160  # of the table, where there is no terminal that has one


def console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


class SweepView:
    def __init__(self, folder: Path, total: int | None, done: int, enabled: bool) -> None:
        self._folder, self._total, self._done, self._enabled = folder, total, done, enabled
        self._console = Console(stderr=True)
        if done:
            self._print(Text(f"{done} of {total} were done before"))

    def ended(self, label: str, record: JobRecord) -> None:
        self._done += 1
        count = f"{self._done}/{self._total}" if self._total else f"{self._done}/"
        parts = [Text(count), _outcome(record), Text(label)]
        if record.error:
            parts.append(Text(record.error))
        else:
            parts += [Text(f"{term.label} ").append_text(value_text(term)) for term in _terms(self._folder, record)]
        self._print(Text("  ").join(parts))

    def _print(self, line: Text) -> None:
        if self._enabled:
            self._console.print(line, highlight=False, soft_wrap=True)


def result_table(folder: Path, rows: list[tuple[str, JobRecord]]) -> Table:
    """Job, outcome, return, costs against their budgets, run folder."""
    table = Table(title=results.shown_path(folder), title_justify="left")
    for name in ("job", "outcome", "return", "costs", "run"):
        table.add_column(name, overflow="fold")
    for label, record in rows:
        objective, *costs = [value_text(term) for term in _terms(folder, record)] or [Text("")]
        table.add_row(Text(label), _outcome(record), objective, Text("\n").join(costs), Text(record.folder or ""))
    return table


def print_unfinished(rows: list[tuple[str, JobRecord]], *, stopped: bool, launcher: str | None) -> None:
    """Name on stderr what did not finish; of a sweep that was told to stop, only what failed or cannot be done."""
    for _, record in rows:
        if record.outcome in (FAILED, INFEASIBLE) or not (stopped or record.outcome == FINISHED):
            print(": ".join(filter(None, (record.outcome, " ".join(record.overrides), record.error))), file=sys.stderr)
    if launcher:
        print(f"the launcher failed: {launcher}", file=sys.stderr)
    never = sum(record.outcome == INFEASIBLE for _, record in rows)
    if never:
        print(f"{never} of {len(rows)} jobs cannot be done: no policy meets the budgets", file=sys.stderr)
    left = sum(record.outcome not in (FINISHED, INFEASIBLE) for _, record in rows)
    if left:
        print(f"{left} of {len(rows)} jobs are left; the same command does these", file=sys.stderr)


def _outcome(record: JobRecord) -> Text:
    return Text(record.outcome, style=STYLES.get(record.outcome, ""))


def _terms(folder: Path, record: JobRecord) -> list[Term]:
    """The score of a run, objective first; empty where there is none."""
    if record.folder is None:
        return []
    try:
        return results.terms(RunFolder(folder / record.folder).read_json("summary.json"))
    except InputError:
        return []
