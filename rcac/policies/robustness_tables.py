"""Scores as a person reads them: on a terminal, and in Markdown."""

import re
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from rcac.labels import larger_is_better, within
from rcac.policies.robustness_summary import Method, MethodCurve, PerturbationSweep, Point
from rcac.policies.scores import TermScore
from rcac.report import style
from rcac.report.statistics import Interval
from rcac.report.tables import markdown

NOTE = (
    "Interquartile means over seeds with 95 % bootstrap intervals in brackets; one seed (n = 1) has none, "
    "nor have seeds whose runs are all alike. "
    "An episode that ends early costs little: read a cost beside its return."
)


class TableCell(NamedTuple):
    words: str
    bad: bool = False  # beyond a budget


def method_name(method: Method) -> str:
    return " ".join(filter(None, [style.look(method.algo).name, method.setting]))


def title(sweep: PerturbationSweep) -> str:
    return f"{sweep.env}, {sweep.perturbation}: {sweep.series}"


def sweep_table(sweep: PerturbationSweep) -> Table:
    """Red is beyond a budget."""
    table = Table(title=title(sweep), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, name in enumerate(_header(sweep)):
        words = name.replace(" within", "\nwithin")
        table.add_column(words, justify="right" if index else "left", no_wrap=bool(index), overflow="fold")
    for curve in sweep.curves:
        parts = [style.look(curve.method.algo).name, *filter(None, re.split(r", (?=\w+=)", curve.method.setting))]
        lines = _lines(sweep, curve, parts)
        for cells in lines:
            last = cells is lines[-1]
            table.add_row(*(Text(cell.words, "red" if cell.bad else "") for cell in cells), end_section=last)
    return table


def report(sweeps: list[PerturbationSweep], about: str) -> str:
    """Markdown. Bold is beyond a budget."""
    parts = ["# Evaluation", f"{about} {NOTE} Bold: beyond the budget."]
    for sweep in sweeps:
        rows = [
            [f"**{cell.words}**" if cell.bad else cell.words for cell in cells]
            for curve in sweep.curves
            for cells in _lines(sweep, curve, [method_name(curve.method)])
        ]
        parts += [f"## {title(sweep)}", markdown(_header(sweep), rows)]
    return "\n\n".join(parts) + "\n"


def _header(sweep: PerturbationSweep) -> list[str]:
    terms = []
    for label, limits in zip(sweep.labels, sweep.budgets, strict=True):
        sign = "≥" if larger_is_better(label) else "≤"
        constant = limits[0] is not None and len({*limits}) == 1
        terms.append(f"{label} ({sign} {limits[0]:g})" if constant else label)
    swept = [] if sweep.strengths == [None] else [sweep.perturbation]
    feasible = ["seeds within", *([f"{sweep.sampled} within"] if sweep.sampled else [])] if sweep.constrained else []
    return ["method", "n", *swept, *terms, *feasible]


def _lines(sweep: PerturbationSweep, curve: MethodCurve, names: list[str]) -> list[list[TableCell]]:
    """A method at each strength, and at the worst of them; its names stand one below the other."""
    lines = []
    budgets = list(zip(*sweep.budgets, strict=True))
    for point, limits in zip(curve.points, budgets, strict=True):
        swept = [] if point.strength is None else [TableCell(f"{point.strength:g}")]
        lines.append([*swept, *_cells(sweep, curve, point, limits)])
    if len(lines) > 1:
        constant = tuple(limits[0] if len({*limits}) == 1 else None for limits in sweep.budgets)
        lines.append([TableCell("worst"), *_cells(sweep, curve, curve.worst, constant)])
    last = len(lines) - 1
    names = [*names[:last], "\n".join(names[last:]), *[""] * last]
    count = [f"{curve.seeds} alike" if curve.alike else str(curve.seeds), *[""] * last]
    return [[TableCell(name), TableCell(n), *cells] for name, n, cells in zip(names, count, lines, strict=False)]


def _cells(
    sweep: PerturbationSweep, curve: MethodCurve, point: Point, limits: tuple[float | None, ...]
) -> list[TableCell]:
    cells = [
        TableCell(format_interval(found), not within(label, found.estimate, limit))
        for label, found, limit in zip(sweep.labels, point.terms, limits, strict=True)
    ]
    if sweep.constrained:
        cells.append(TableCell(f"{point.feasible} of {curve.seeds}", point.feasible < curve.seeds))
        if sweep.sampled:
            cells.append(TableCell("" if point.share is None else f"{point.share:.0%}"))
    return cells


def format_interval(found: Interval) -> str:
    return f"{found.estimate:.4g}" + ("" if found.low != found.low else f" [{found.low:.4g}, {found.high:.4g}]")


# One run as it is


def run_table(rows: list[TermScore], env: str, uncertainty: str | None) -> Table:
    table = Table(title=f"{rows[0].episodes} episodes of {env}", title_justify="left")
    exact = rows[0].nominal is not None
    kind = f"worst case ({uncertainty})" if uncertainty else "worst case"
    for name in ("", "mean ± standard error", "budget", *(("model", kind) if exact else ())):
        table.add_column(name)
    for row in rows:
        met = row.mean is None or row.meets(row.mean)
        words = "" if row.budget is None else f"{row.budget:.6g}, {'met' if met else 'exceeded'}"
        cells = [
            Text(row.term),
            Text(f"{row.mean:.5g} ± {row.standard_error:.2g}"),
            Text(words, "green" if met else "red"),
        ]
        if exact:
            cells += [_value(row, row.nominal), _value(row, row.worst_case)]
        table.add_row(*cells)
    return table


def _value(row: TermScore, value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.5g}", "" if row.meets(value) else "red")
