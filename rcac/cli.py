"""The commands `rcac-train` and `rcac-evaluate`. Whatever a person can mend is one line on stderr, and an exit code:

0 done    1 the training stopped    2 bad input    3 infeasible    4 not certified, and certify=strict
5 with strict=true: the policy handed out is over a budget, or it is not known whether it is
130, 143 stopped by SIGINT, SIGTERM
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from rcac import __version__
from rcac.errors import InputError, needs
from rcac.runs.failures import user_error


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
        _check_surroundings()
        with _warned_once():
            return command(argv)
    except (Exception, KeyboardInterrupt) as error:
        known = user_error(error)
        if known is None:
            raise
        print(known.line, file=sys.stderr)
        return known.code


def _check_surroundings() -> None:
    """Characters that the terminal cannot show become "?"; a current folder that was deleted is an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("current folder: it has been removed, one that is there expected") from error


@contextlib.contextmanager
def _warned_once() -> Iterator[None]:
    """Print each kind of warning once, on one line."""
    seen: set[type[Warning]] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if category not in seen:
            seen.add(category)
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _train(argv: list[str]) -> int:
    with needs("rcac-train"):
        from rich.console import Console

        from rcac.config import app, help_text
        from rcac.runs import results

    if {"--help", "-h"} & {*argv}:
        print(help_text.train([text for text in argv if "=" in text and not text.startswith("-")]))
        return 0
    command = app.prepare(app.read(argv))
    if command.is_sweep:
        from rcac.config.sweep import command as sweep

        return sweep.main(command)
    ended: list[Any] = []

    def task(config: Any) -> None:
        """Train, and let nothing out through Hydra, which would print more than a line."""
        try:
            ended.append(app.train(config))
        except BaseException as error:
            ended.append(error)

    app.run_hydra(command, task)
    for done in ended:  # none after --cfg, --info, …
        if isinstance(done, BaseException):
            raise done
        if done.progress and done.summary:
            title = f"{done.outcome.reason} at {done.outcome.position}"
            Console().print(results.result_table(done.summary, title))
        if done.progress and done.outcome.exit_code:
            print(f"to go on: rcac-train resume={results.shown_path(done.folder)}")
        print(results.shown_path(done.folder))
        if done.outcome.exit_code or not done.strict or done.summary.get("feasible") is True:
            return done.outcome.exit_code
        if not done.progress and done.summary:
            print(f"feasible: {results.verdict(done.summary)}", file=sys.stderr)
        return 5
    return 0


def _evaluate(argv: list[str]) -> int:
    with needs("rcac-evaluate"):
        from rcac.config import help_text
        from rcac.policies import certify_command
        from rcac.policies import command as evaluation

    if {"--help", "-h"} & {*argv}:
        print(help_text.evaluate(evaluation.EvaluationSettings, certify_command.CertifySettings))
        return 0
    return evaluation.main(argv)
