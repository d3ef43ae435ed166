"""What the commands that test policies share: writing into a run's folder, and speaking to a person."""

import contextlib
import os
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rcac.errors import InputError

WIDTH = 120  # of tables that are not on a terminal


@contextlib.contextmanager
def writing(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"run {folder}: cannot be written ({error.strerror}: {error.filename})") from error


@contextlib.contextmanager
def ignoring_broken_pipe() -> Iterator[None]:
    """In `rcac-evaluate … | head` the rest is not said, and all is well: the files are written."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the second is how rich says it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes in the end


def bar() -> Progress:
    """On a terminal only, and gone in the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def wide_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
