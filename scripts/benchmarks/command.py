"""The command: measure sections, print one table, save JSON, compare with an earlier one.

Ratios in the table are within one run. `--against` compares with another run, so it needs the same machine, idle both times;
a measurement that is worse by more than the threshold is marked, and listed below the table.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.measure import Row, slowdown
from rcac.errors import InputError
from rcac.runs.folder import replace_file

SECTIONS = ("evaluation", "solvers", "training", "stepping", "mujoco", "scale")
NEVER = "never"  # ∞, in the file and in the table
Figures = dict[str, dict[str, float]]  # section → name → value


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, " ".join(message.split()) + "\n")


def main(argv: list[str] | None = None) -> None:
    parser = Parser(prog="benchmark.py", description=__doc__)
    parser.add_argument("section", choices=[*SECTIONS, "all"], help="what to measure")
    parser.add_argument(
        "--save", type=Path, default=Path("runs/benchmark.json"), help="where the figures go (default: %(default)s)"
    )
    parser.add_argument("--against", type=Path, help="an earlier JSON to compare with")
    parser.add_argument(
        "--threshold", type=float, default=1.5, help="how many times worse is marked (default: %(default)s)"
    )
    parser.add_argument("--fail", action="store_true", help="exit with 1 if anything is marked")
    options = parser.parse_args(argv)
    if not options.threshold >= 1:
        parser.error(f"--threshold: {options.threshold} given, a number ≥ 1 expected")
    names = SECTIONS if options.section == "all" else (options.section,)
    measured: dict[str, list[Row]] = {}
    console = Console()
    try:
        # before measuring, which takes a while
        earlier = read("--against", options.against) if options.against else {}
        if options.against and not any(earlier.get(name) for name in names):
            raise InputError(f"--against: {options.against} given, which has no figures of {', '.join(names)}")
        stored = read("--save", options.save) if options.save.exists() else {}
        check_writable(options.save)
        try:
            for name in names:
                measured[name] = _section(name)()
                save(options.save, stored | figures(measured))
        finally:
            if measured:
                console.print(table(measured, earlier, options.threshold))
        if options.against and not any(row.name in earlier.get(name, {}) for name in names for row in measured[name]):
            raise InputError(f"--against: {options.against} given, which has none of the measurements above")
    except InputError as error:
        parser.error(str(error))
    regressed = regressions(measured, earlier, options.threshold)
    for line in regressed:
        console.print(f"! {line}", markup=False)
    if regressed and options.fail:
        raise SystemExit(1)


def _section(name: str) -> Callable[[], list[Row]]:
    return import_module(f"benchmarks.{name}").measure


def figures(measured: dict[str, list[Row]]) -> Figures:
    """What was measured; rows of absent peers are left out."""
    return {
        section: {row.name: row.value for row in rows if not math.isnan(row.value)}
        for section, rows in measured.items()
    }


def check_writable(path: Path) -> None:
    """Refuse a file whose folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"--save: {path} given, a file that can be written expected ({error})") from None


def save(path: Path, stored: Figures) -> None:
    try:
        replace_file(path, to_json(stored).encode())
    except OSError as error:
        raise InputError(f"--save: {path} cannot be written ({error})") from None


def to_json(figures: Figures) -> str:
    finite = {
        section: {name: value if math.isfinite(value) else NEVER for name, value in rows.items()}
        for section, rows in figures.items()
    }
    return json.dumps(finite, indent=1, ensure_ascii=False, allow_nan=False)


def read(option: str, path: Path) -> Figures:
    """What `written` wrote."""
    try:
        sections = json.loads(path.read_text("utf-8"))
        return {section: {name: _value(value) for name, value in rows.items()} for section, rows in sections.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{option}: {path} given, the figures of an earlier benchmark expected ({error})") from None


def _value(value: Any) -> float:
    return math.inf if value == NEVER else float(value)


def regressions(measured: dict[str, list[Row]], earlier: Figures, threshold: float) -> list[str]:
    """Measurements that are worse than before by more than the threshold."""
    lines = []
    for section, rows in measured.items():
        for row in rows:
            before = earlier.get(section, {}).get(row.name)
            if before is not None and slowdown(row, before) > threshold:
                lines.append(
                    f"{section}: {row.name.strip()}: {_format_value(before, row.unit)} before, {_format_value(row.value, row.unit)} now"
                )
    return lines


def table(measured: dict[str, list[Row]], earlier: Figures, threshold: float = 1.5) -> Table:
    out = Table(title="benchmark", title_justify="left")
    for column, side in (
        ("measurement", "left"),
        ("value", "right"),
        ("ratio", "right"),
        ("to", "left"),
        ("than earlier", "right"),
    ):
        out.add_column(column, justify=side)  # type: ignore[arg-type]
    for section, rows in measured.items():
        out.add_section()
        out.add_row(f"[bold]{section}[/bold]")
        for row in rows:
            name = f"{row.name} ({row.note})" if row.note else row.name
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
            change = _change(row, earlier.get(section, {}).get(row.name), threshold)
            out.add_row(escape(name), _format_value(row.value, row.unit), ratio, escape(row.peer), change)
    return out


def _format_value(value: float, unit: str) -> str:
    if math.isnan(value):
        return "n/a"
    return f"{value:.4g} {unit}" if math.isfinite(value) else NEVER


def _change(row: Row, before: float | None, threshold: float) -> str:
    if before is None or math.isnan(row.value):
        return ""
    factor = slowdown(row, before)
    words = f"{factor:.2f}× worse" if factor > 1 else f"{1 / factor:.2f}× better" if factor > 0 else "better"
    return f"[bold red]! {words}[/bold red]" if factor > threshold else words
