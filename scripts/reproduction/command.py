"""`python scripts/reproduce.py <setting or sections>`: computes what is missing, then writes the report."""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rcac.errors import InputError
from rcac.runs.results import shown_path

SETTINGS = ("quick", "full")
SELECTING = ("seeds", "methods", "algorithms", "tasks")

HELP = """\
python scripts/reproduce.py quick                 every section, small: a few minutes
python scripts/reproduce.py full                  every section as reported: an hour or two, most of it CartPole's
python scripts/reproduce.py river_swim …          these sections only, full
python scripts/reproduce.py quick river_swim …    these sections only, small
                            runs=FOLDER           where results go, FOLDER/reproduction/<setting>; runs unless given
                            jobs=N                trainings at a time; 1 unless given
python scripts/reproduce.py robust seeds=5 methods=robust_sqp,randomised
                                                  fewer runs of a section (velocity: seeds, tasks, algorithms)

Recomputes the paper's tables and figures, and says of each claim whether it holds here. Results are stored piece by
piece in <section>.json; a second start computes only what is missing, and redraws every figure. To recompute a section,
delete its file. The report of a full run is FOLDER/reproduction/report.md, that of a quick one report.md beside
its results.
Exit codes: 0 done, 1 a training was stopped, 2 bad input, 130 interrupted.

Sections:
"""


class Request(NamedTuple):
    setting: str
    names: list[str]  # of sections
    runs: Path
    jobs: int
    selection: dict[str, Any]  # settings of the sections that say which of their runs are made

    def settings(self, section: Any) -> dict[str, Any]:
        return section.settings[self.setting] | (self.selection if section.name in self.names else {})


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    from rcac.runs.loop import TrainingStopped

    try:
        if {"--help", "-h"} & {*arguments}:
            print(HELP + _listing())
            return 0
        return _reproduce(_read(arguments))
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except TrainingStopped as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished pieces are stored", file=sys.stderr)
        return 130


def _listing() -> str:
    from reproduction.sections import SECTIONS

    return "\n".join(f"  {name:12} {section.title}" for name, section in SECTIONS.items())


def _read(arguments: list[str]) -> Request:
    from reproduction.sections import SECTIONS

    names, settings, runs, jobs, selection = [], [], Path("runs"), 1, {}
    for word in arguments:
        if word.startswith("runs=") and len(word) > 5:
            runs = Path(word.removeprefix("runs="))
        elif word.startswith("jobs="):
            jobs = _count(word.removeprefix("jobs="))
        elif word.partition("=")[0] in SELECTING:
            key, _, value = word.partition("=")
            selection[key] = _count(value, key) if key == "seeds" else value.split(",")
        elif word in SETTINGS:
            settings.append(word)
        elif word in SECTIONS:
            names.append(word)
        else:
            raise InputError(
                f"{word}: given, one of {', '.join([*SETTINGS, *SECTIONS])}, runs=FOLDER or jobs=N expected"
            )
    if len(settings) > 1:
        raise InputError(f"{settings[1]}: given after {settings[0]}, one setting expected")
    if not settings and not names:
        raise InputError(f"nothing given, one of {', '.join([*SETTINGS, *SECTIONS])} expected")
    setting = settings[0] if settings else "full"
    for key, chosen in selection.items():
        for section in map(SECTIONS.get, names or SECTIONS):
            if section is None or key not in section.selecting:
                raise InputError(f"{key}: given, but {section and section.name} has none to select")
            known = section.settings["full"][key]
            if wrong := [x for x in chosen if x not in known] if isinstance(chosen, list) else []:
                raise InputError(f"{key}: {wrong[0]!r} given, some of {', '.join(known)} expected")
    return Request(setting, names or list(SECTIONS), runs, jobs, selection)


def _count(text: str, key: str = "jobs") -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise InputError(f"{key}: {text!r} given, a whole number ≥ 1 expected")
    return int(text)


def _reproduce(request: Request) -> int:
    from reproduction import report
    from reproduction.sections import SECTIONS
    from reproduction.store import Store

    top = request.runs / "reproduction"
    report_folder = {"full": top}.get(request.setting, top / request.setting)
    store = Store(top / request.setting, lambda line: print(line, file=sys.stderr, flush=True), request.jobs)
    try:
        for name in request.names:
            began = time.perf_counter()
            store.compute(SECTIONS[name], request.settings(SECTIONS[name]))
            print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    finally:  # also after an error: the report covers what was computed
        print(
            shown_path(
                report.write(store, list(SECTIONS.values()), request.setting, report_folder, request.settings).resolve()
            )
        )
    return 0
