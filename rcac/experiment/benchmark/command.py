"""The command: measure sections, print one table, save JSON, compare with an earlier one."""

import argparse
import json
import math
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rcac.experiment.benchmark.measure import Row

SECTIONS = ("evaluation", "solvers", "training", "scale")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmark.py", description=__doc__)
    parser.add_argument("section", choices=[*SECTIONS, "all"], help="what to measure")
    parser.add_argument(
        "--save", type=Path, default=Path("runs/benchmark.json"), help="where the figures go (default: %(default)s)"
    )
    parser.add_argument("--against", type=Path, help="an earlier JSON to compare with")
    options = parser.parse_args(argv)
    earlier = _read(options.against) if options.against else {}
    names = SECTIONS if options.section == "all" else (options.section,)
    found = {name: _section(name)() for name in names}
    Console().print(table(found, earlier))
    options.save.parent.mkdir(parents=True, exist_ok=True)
    kept = _read(options.save) if options.save.exists() else {}
    kept |= {section: {row.name: row.value for row in rows} for section, rows in found.items()}
    options.save.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


def _section(name: str) -> Callable[[], list[Row]]:
    return import_module(f"rcac.experiment.benchmark.{name}").measure


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        print(f"against: {path} cannot be read ({error})", file=sys.stderr)
        raise SystemExit(2) from None


def table(found: dict[str, list[Row]], earlier: dict[str, dict[str, float]]) -> Table:
    out = Table(title="benchmark", title_justify="left")
    for column, side in (
        ("measurement", "left"),
        ("value", "right"),
        ("ratio", "right"),
        ("to", "left"),
        ("earlier", "right"),
    ):
        out.add_column(column, justify=side)  # type: ignore[arg-type]
    for section, rows in found.items():
        out.add_section()
        out.add_row(f"[bold]{section}[/bold]")
        for row in rows:
            before = earlier.get(section, {}).get(row.name)
            change = f"{row.value / before:.2f}×" if before else ""
            value = f"{row.value:.4g} {row.unit}" if math.isfinite(row.value) else "never"
            out.add_row(row.name, value, "" if row.ratio is None else f"{row.ratio:.3g}", row.peer, change)
    return out
