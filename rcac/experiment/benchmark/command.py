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

from rcac.errors import InputError
from rcac.experiment.benchmark.measure import Row, slowdown
from rcac.experiment.runfolder import replace_file

SECTIONS = ("evaluation", "solvers", "training", "scale")
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
    found: dict[str, list[Row]] = {}
    console = Console()
    try:
        # before measuring, which takes a while
        earlier = read("--against", options.against) if options.against else {}
        if options.against and not any(earlier.get(name) for name in names):
            raise InputError(f"--against: {options.against} given, which has no figures of {', '.join(names)}")
        kept = read("--save", options.save) if options.save.exists() else {}
        check_place(options.save)
        try:
            for name in names:
                found[name] = _section(name)()
                save(options.save, kept | figures(found))
        finally:
            if found:
                console.print(table(found, earlier, options.threshold))
        if options.against and not any(row.name in earlier.get(name, {}) for name in names for row in found[name]):
            raise InputError(f"--against: {options.against} given, which has none of the measurements above")
    except InputError as error:
        parser.error(str(error))
    worse = marked(found, earlier, options.threshold)
    for line in worse:
        console.print(f"! {line}", markup=False)
    if worse and options.fail:
        raise SystemExit(1)


def _section(name: str) -> Callable[[], list[Row]]:
    return import_module(f"rcac.experiment.benchmark.{name}").measure


def figures(found: dict[str, list[Row]]) -> Figures:
    """What was measured; rows of absent peers are left out."""
    return {
        section: {row.name: row.value for row in rows if not math.isnan(row.value)} for section, rows in found.items()
    }


def check_place(path: Path) -> None:
    """Refuse a file whose folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"--save: {path} given, a file that can be written expected ({error})") from None


def save(path: Path, kept: Figures) -> None:
    try:
        replace_file(path, written(kept).encode())
    except OSError as error:
        raise InputError(f"--save: {path} cannot be written ({error})") from None


def written(kept: Figures) -> str:
    plain = {
        section: {name: value if math.isfinite(value) else NEVER for name, value in rows.items()}
        for section, rows in kept.items()
    }
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)


def read(option: str, path: Path) -> Figures:
    """What `written` wrote."""
    try:
        sections = json.loads(path.read_text("utf-8"))
        return {section: {name: _value(value) for name, value in rows.items()} for section, rows in sections.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{option}: {path} given, the figures of an earlier benchmark expected ({error})") from None


def _value(value: Any) -> float:
    return math.inf if value == NEVER else float(value)


def marked(found: dict[str, list[Row]], earlier: Figures, threshold: float) -> list[str]:
    """Measurements that are worse than before by more than the threshold."""
    lines = []
    for section, rows in found.items():
        for row in rows:
            before = earlier.get(section, {}).get(row.name)
            if before is not None and slowdown(row, before) > threshold:
                lines.append(
                    f"{section}: {row.name.strip()}: {_shown(before, row.unit)} before, {_shown(row.value, row.unit)} now"
                )
    return lines


def table(found: dict[str, list[Row]], earlier: Figures, threshold: float = 1.5) -> Table:
    out = Table(title="benchmark", title_justify="left")
    for column, side in (
        ("measurement", "left"),
        ("value", "right"),
        ("ratio", "right"),
        ("to", "left"),
        ("than earlier", "right"),
    ):
        out.add_column(column, justify=side)  # type: ignore[arg-type]
    for section, rows in found.items():
        out.add_section()
        out.add_row(f"[bold]{section}[/bold]")
        for row in rows:
            name = f"{row.name} ({row.note})" if row.note else row.name
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
            change = _change(row, earlier.get(section, {}).get(row.name), threshold)
            out.add_row(escape(name), _shown(row.value, row.unit), ratio, escape(row.peer), change)
    return out


def _shown(value: float, unit: str) -> str:
    if math.isnan(value):
        return "n/a"
    return f"{value:.4g} {unit}" if math.isfinite(value) else NEVER


def _change(row: Row, before: float | None, threshold: float) -> str:
    if before is None or math.isnan(row.value):
        return ""
    worse = slowdown(row, before)
    words = f"{worse:.2f}× worse" if worse > 1 else f"{1 / worse:.2f}× better" if worse > 0 else "better"
    return f"[bold red]! {words}[/bold red]" if worse > threshold else words
