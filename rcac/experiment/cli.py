"""The commands `rcac-train` and `rcac-evaluate`. Whatever a person can mend is one line on stderr, and an exit code:

0 done    1 the training stopped    2 bad input    3 infeasible    130, 143 stopped by SIGINT, SIGTERM
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, cast

from rich.console import Console

from rcac import __version__
from rcac.envs.wrappers import EnvironmentFault
from rcac.errors import Infeasible, InputError
from rcac.experiment.runner import FULL, TrainingStopped


def train(argv: list[str] | None = None) -> NoReturn:
    """Train: `rcac-train env=river_swim algo=rsqp`. Exits."""
    sys.exit(_guarded(_train, sys.argv[1:] if argv is None else argv))


def evaluate(argv: list[str] | None = None) -> NoReturn:
    """Evaluate: `rcac-evaluate run=runs/… episodes=100`. Exits."""
    sys.exit(_guarded(_evaluate, sys.argv[1:] if argv is None else argv))


def _guarded(command: Callable[[list[str]], int], argv: list[str]) -> int:
    try:
        if "--version" in argv:
            print(f"rcac {__version__}")
            return 0
        _find_what_is_here()
        with _warned_once():
            return command(argv)
    except (Exception, KeyboardInterrupt) as error:
        known = complaint(error)
        if known is None:
            raise
        print(known.line, file=sys.stderr)
        return known.code


def _find_what_is_here() -> None:
    """Let modules of the current folder be imported (env.id=my_module:Env-v0), but none in place of an installed one."""
    with contextlib.suppress(FileNotFoundError):  # a folder that has been removed
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)


class Complaint(NamedTuple):
    line: str
    code: int


def complaint(error: BaseException) -> Complaint | None:
    """The line and the exit code for what a person can mend; None for anything else."""
    match error:
        case InputError():
            line, code = str(error), 2
        case Infeasible():
            line, code = f"Infeasible: {error}", 3
        case TrainingStopped() | EnvironmentFault():
            line, code = str(error), 1
        case OSError(errno=number) if number in FULL:
            line, code = f"no space left ({error.strerror}: {error.filename})", 1
        case KeyboardInterrupt():
            line, code = "stopped at once", 130
        case _:
            return None
    return Complaint(" ".join(line.split()), code)


@contextlib.contextmanager
def _warned_once() -> Iterator[None]:
    """A warning is a line, and comes once, however often what it warns of happens."""
    seen: set[type[Warning]] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if category not in seen:
            seen.add(category)
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = cast(Any, show)
        yield


def _train(argv: list[str]) -> int:
    from rcac.experiment import config as configuration
    from rcac.experiment import results, usage
    from rcac.experiment import train as training

    if {"--help", "-h"} & {*argv}:
        print(usage.train([text for text in argv if text not in ("--help", "-h")]))
        return 0
    overrides, source, several = _options(argv)
    if several:
        if source:
            raise InputError("--from: given with -m, whose runs are described by keys alone")
        from rcac.experiment.sweep import command

        return command.main(overrides)
    given = dict(configuration.parse(overrides))
    if given.get("resume") is None:
        done = training.train(configuration.compose(overrides, configuration.load(source) if source else None))
    else:
        others = [*(["--from"] if source else []), *(key for key in given if key not in ("resume", "progress"))]
        if others:
            raise InputError(
                f"{others[0]}: given with resume, which keeps a run's own configuration (but for progress)"
            )
        done = training.resume(str(given["resume"]), given.get("progress"))
    if done.progress and done.summary:
        title = f"{done.outcome.reason} at {done.outcome.position}"
        Console().print(results.result_table(done.summary, title))
    print(results.shown_path(done.folder))
    return done.outcome.exit_code


class Options(NamedTuple):
    overrides: list[str]
    source: str | None  # what --from says
    several: bool  # -m: a run for every combination of values


def _options(argv: list[str]) -> Options:
    overrides, source, several, rest = [], None, False, iter(argv)
    for text in rest:
        if text == "--from":
            source = next(rest, None)
            if source is None:
                raise InputError("--from: nothing given, the folder of a run expected")
        elif text.startswith("--from="):
            source = text.removeprefix("--from=")
        elif text in ("-m", "--multirun"):
            several = True
        elif text.startswith("-"):
            known = "--help, --version and --from, and -m"
            raise InputError(f"{text}: no such option, known are {known} (keys are key=value)")
        else:
            overrides.append(text)
    return Options(overrides, source, several)


def _evaluate(argv: list[str]) -> int:
    from rcac.experiment import evaluate as evaluation
    from rcac.experiment import usage

    if {"--help", "-h"} & {*argv}:
        print(usage.evaluate())
        return 0
    return evaluation.main(argv)
