"""A run's summary, as a person reads it."""

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rcac.experiment.progress import value_text
from rcac.learner import Term

NOT_ROWS = {"labels", "returns", "return", "costs", "budgets", "feasible", "violation", "bounds", "run"}


def terms(summary: dict[str, Any]) -> list[Term]:
    """The score of the policy handed out, objective first."""
    values = summary["returns"] if "returns" in summary else [summary["return"], *summary["costs"]]
    many = len(values) > 2
    costs = [f"cost {n}" if many else "cost" for n in range(1, len(values))]
    labels = summary.get("labels", ["return", *costs])
    rows = [Term(labels[0], values[0], None, True)]
    for label, value, budget in zip(labels[1:], values[1:], summary["budgets"], strict=True):
        within = value >= budget if label.startswith("utility") else value <= budget
        rows.append(Term(label, value, budget, bool(within)))
    return rows


def result_table(summary: dict[str, Any], title: str) -> Table:
    """Return, costs against their budgets, the verdict, what no policy can beat, and how it ended."""
    table = Table(title=title, title_justify="left", show_header=False)
    for term in terms(summary):
        table.add_row(Text(term.label), value_text(term))
    if summary["feasible"]:
        table.add_row("feasible", Text("yes", style="green"))
    else:
        by = f", by {summary['violation']:.4g}" if "violation" in summary else ""
        table.add_row("feasible", Text(f"no{by}", style="red"))
    for name, value in {**summary.get("bounds", {}), **summary}.items():
        if name not in NOT_ROWS and value is not None:
            table.add_row(name.replace("_", " "), Text(_shown(value)))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shown_path(path: Path) -> str:
    """Relative to where we are, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
