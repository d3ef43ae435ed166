"""What can stop a command, in one line and an exit code."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rcac.envs.wrappers import EnvironmentFault
from rcac.errors import Infeasible, InputError
from rcac.learner import Learner
from rcac.runs import checkpoint
from rcac.runs.loop import FULL, TrainingStopped


class UserError(NamedTuple):
    line: str
    code: int


def user_error(error: BaseException) -> UserError | None:
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
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            line, code = f"too few file handles ({error.strerror}); ulimit -n allows more", 1
        case FileNotFoundError() if _homeless():
            line, code = "current folder: it has been removed, one that is there expected", 1
        case MemoryError():
            line, code = " ".join(["out of memory", *map(str, error.args[:1])]), 1
        case RuntimeError() | ImportError() | OSError() if _no_memory(error):
            line, code = f"out of memory ({str(error)[:200]})", 1
        case KeyboardInterrupt():
            line, code = "stopped at once", 130
        case _:
            return None
    return UserError(" ".join(line.split()), code)


def _homeless() -> bool:
    """The current folder is gone, which Python's imports stumble over."""
    try:
        return not os.getcwd()
    except FileNotFoundError:
        return True


def _no_memory(error: BaseException) -> bool:
    """As torch and the system's loader of libraries say it."""
    words = str(error).lower()
    return any(each in words for each in ("allocate memory", "out of memory", "bad_alloc", "failed to map segment"))


@contextlib.contextmanager
def explained(learner: Learner, folder: Path | None) -> Iterator[None]:
    """Failures say where the training was and what is left; those with a simple cause become one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        where = f"after {learner.position} {learner.unit}"
        if folder is not None:
            saved = checkpoint.latest(folder)
            where += f"; the last good checkpoint is {saved}" if saved else "; there is no checkpoint yet"
        match error:
            case FloatingPointError():
                raise TrainingStopped(f"numbers broke down: {error}, {where}") from error
            case OSError(errno=number) if number in FULL:
                raise TrainingStopped(f"no space left ({error.strerror}: {error.filename}), {where}") from error
            case OSError(errno=errno.EMFILE | errno.ENFILE):
                raise TrainingStopped(f"too few file handles, ulimit -n allows more, {where}") from error
            case MemoryError() | RuntimeError() | OSError() if isinstance(error, MemoryError) or _no_memory(error):
                raise TrainingStopped(f"out of memory, {where}") from error
            case FileNotFoundError() if folder is not None and not folder.is_dir():
                raise TrainingStopped(
                    f"run {folder}: deleted while training, {learner.position} {learner.unit}"
                ) from error
        error.add_note(f"training stopped {where}")
        raise
