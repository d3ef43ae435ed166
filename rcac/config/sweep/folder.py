"""A sweep's folder, through which its processes communicate, on one machine or many.

    <hydra.sweep.dir>/
        sweep.json                     every job: overrides, outcome, run folder, and what went wrong
        <env>/<algo>/<time>-seed<k>/   run folders, as ever
        .jobs/launch                   the current launch; jobs of any other save a checkpoint and stop
        .jobs/launcher.log             what Hydra, its launcher and its workers printed
        .jobs/<key>.json, .lock        a job's record; held while it runs

Every file is replaced as a whole. A job's key is a digest of its configuration: the same run is never done twice.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from rcac.config.schema import Config
from rcac.errors import InputError
from rcac.runs.folder import RunFolder, replace_file

FINISHED, STOPPED, FAILED, MISSING, RUNNING = "finished", "stopped", "failed", "missing", "running"
INFEASIBLE_OBJECTIVE = -1e100  # the objective of a policy that breaks its budgets: below every return
INFEASIBLE = "infeasible"  # proven: there is nothing to be trained


class JobRecord(NamedTuple):
    """The outcome of a job."""

    launch: str  # under which it ran
    overrides: Sequence[str]
    outcome: str
    folder: str | None = None  # of the run, below the sweep's
    error: str | None = None
    traceback: Sequence[str] = ()  # of an unexpected failure
    objective: float | None = None  # what a sweeper like Optuna's maximises

    @property
    def label(self) -> str:
        return " ".join(self.overrides)


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path, self.jobs = path, path / ".jobs"

    def active_launch(self) -> str | None:
        """The launch that may work here."""
        with contextlib.suppress(FileNotFoundError):
            return (self.jobs / "launch").read_text()
        return None

    def begin_launch(self, launch: str) -> None:
        replace_file(self.jobs / "launch", launch.encode())

    def end_launch(self) -> None:
        """No launch may work any more."""
        (self.jobs / "launch").unlink(missing_ok=True)

    def read(self, key: str) -> JobRecord | None:
        with contextlib.suppress(InputError, TypeError):  # none, or not one of ours
            return JobRecord(**RunFolder(self.jobs).read_json(f"{key}.json"))
        return None

    def records(self) -> dict[str, JobRecord]:
        """Of every job that was ever begun, by its key."""
        found = {path.stem: self.read(path.stem) for path in sorted(self.jobs.glob("*.json"))}
        return {key: record for key, record in found.items() if record}

    def write(self, key: str, record: JobRecord) -> None:
        RunFolder(self.jobs).write_json(f"{key}.json", record._asdict())

    def done(self, key: str) -> JobRecord | None:
        """The record of a job, if there is nothing left to do."""
        record = self.read(key)
        if record and record.outcome == FINISHED and (self.path / str(record.folder) / "summary.json").is_file():
            return record
        return record if record and record.outcome == INFEASIBLE else None

    @contextlib.contextmanager
    def locked(self, key: str, timeout: float = 0.0) -> Iterator[bool]:
        """Lock a job for this process; yields False if another process has it."""
        lock = filelock.FileLock(self.jobs / f"{key}.lock")
        try:
            lock.acquire(timeout=timeout)
        except filelock.Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def running(self, key: str) -> bool:
        with self.locked(key) as free:
            return not free


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that decides what a run computes."""
    return {key: value for key, value in config.items() if key not in ("runs", "progress", "strict")}


def job_key(config: Config) -> str:
    return digest(settings(config.plain()), 16)


def digest(data: Any, length: int) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:length]
