"""A run's summary, as a person reads it."""

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rcac.labels import episode_labels, within
from rcac.learner import Term
from rcac.runs.progress import value_text

ROWS = {
    "objective_alone": "bound: objective alone, worst case",
    "nominal_optimum": "bound: optimum of the nominal model",
    "one_adversary": "bound: one adversary for all costs",
    "constraints_alone": "bound: constraints alone, worst case",
    "gap": "gap to the tightest bound",
    "evaluations": "evaluations",
    "steps": "steps",
    "episodes": "episodes",
    "best_at": "best policy at step",
    "best_start": "best start",
    "skipped": "steps skipped",
    "note": "note",
    "stop_reason": "stopped because",
    "reason": "stopped because",
}


def labels(summary: dict[str, Any]) -> list[str]:
    """What to call each term, objective first."""
    return summary.get("labels") or episode_labels(len(summary["budgets"]))


def terms(summary: dict[str, Any]) -> list[Term]:
    """The score of the policy handed out, objective first; empty if nothing was measured yet."""
    values = summary["returns"] if "returns" in summary else [summary["return"], *summary["costs"]]
    if values[0] is None:
        return []
    rows = zip(labels(summary), values, [None, *summary["budgets"]], strict=True)
    return [Term(name, value, budget, within(name, value, budget)) for name, value, budget in rows]


def verdict(summary: dict[str, Any]) -> Text:
    """Whether every budget is met, and if not, by how much."""
    if summary["feasible"] is None:
        return Text(f"unknown, {summary.get('note')}", style="yellow")
    by = f", by {summary['violation']:.4g}" if summary.get("violation") else ""
    return Text("yes", style="green") if summary["feasible"] else Text(f"no{by}", style="red")


def result_table(summary: dict[str, Any], title: str) -> Table:
    """Return, costs against their budgets, the verdict, what no policy can beat, and how it ended."""
    table = Table(title=title, title_justify="left", show_header=False)
    for term in terms(summary):
        table.add_row(Text(term.label), value_text(term))
    table.add_row("feasible", verdict(summary))
    for name, value in {**summary.get("bounds", {}), **summary}.items():
        if name in ROWS and value is not None:
            table.add_row(Text(ROWS[name]), Text(_shown(value)))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shown_path(path: Path) -> str:
    """Relative to where we are, if it is below."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # a folder that has been removed
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
