"""The commands `rcac-train` and `rcac-evaluate`. Whatever a person can mend is one line on stderr, and an exit code:

0 done    1 the training stopped    2 bad input    3 infeasible    130, 143 stopped by SIGINT, SIGTERM
"""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

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
        with _warned_once():
            return command(argv)
    except InputError as error:
        return _failed(str(error), 2)
    except Infeasible as error:
        return _failed(f"Infeasible: {error}", 3)
    except (TrainingStopped, EnvironmentFault) as error:
        return _failed(str(error), 1)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return _failed(f"no space left ({error.strerror}: {error.filename})", 1)
    except KeyboardInterrupt:
        return _failed("stopped at once", 130)


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


def _failed(line: str, code: int) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return code


def _train(argv: list[str]) -> int:
    from rcac.experiment import config as configuration
    from rcac.experiment import results, usage
    from rcac.experiment import train as training

    if {"--help", "-h"} & {*argv}:
        print(usage.train([text for text in argv if text not in ("--help", "-h")]))
        return 0
    overrides, source = _source(argv)
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


def _source(argv: list[str]) -> tuple[list[str], str | None]:
    """Overrides, and what `--from` says."""
    overrides, source, rest = [], None, iter(argv)
    for text in rest:
        if text == "--from":
            source = next(rest, None)
            if source is None:
                raise InputError("--from: nothing given, the folder of a run expected")
        elif text.startswith("--from="):
            source = text.removeprefix("--from=")
        elif text.startswith("-"):
            raise InputError(f"{text}: no such option, known are --help, --version and --from (keys are key=value)")
        else:
            overrides.append(text)
    return overrides, source


def _evaluate(argv: list[str]) -> int:
    from rcac.experiment import evaluate as evaluation
    from rcac.experiment import usage

    if {"--help", "-h"} & {*argv}:
        print(usage.evaluate())
        return 0
    return evaluation.main(argv)
