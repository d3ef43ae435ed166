"""A sweep's folder, by which its processes know of each other: it does not matter where a worker runs.

    runs/sweeps/<name>/
        sweep.json                        every job: overrides, outcome, run folder, and what went wrong
        <env>/<algo>/<time>-seed<k>/      run folders, as ever
        .jobs/launch                      which launch is at work; a job of any other one stops, with a checkpoint
        .jobs/launcher.log                what the launcher and its workers printed
        .jobs/<key>/job.yaml              a job's configuration
        .jobs/<key>/end.json              how it ended
        .jobs/<key>/run.lock              held while it runs

Every file is replaced as a whole, and has one writer at a time.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rcac.errors import InputError
from rcac.experiment import plain
from rcac.experiment.runfolder import LOCK, RunFolder, replace_file
from rcac.experiment.schema import Config

FINISHED, STOPPED, FAILED, MISSING = "finished", "stopped", "failed", "missing"
INFEASIBLE = "infeasible"  # proven: there is nothing to be trained


class Job(NamedTuple):
    """One of a sweep's runs."""

    overrides: list[str]
    label: str  # those overrides that differ from job to job
    key: str  # the same for the same configuration
    config: Config


class End(NamedTuple):
    """How a job ended."""

    launch: str  # under which it ran
    outcome: str
    folder: str | None = None  # of the run, below the sweep's
    error: str | None = None
    traceback: Sequence[str] = ()  # of a failure that nobody foresaw


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path, self.jobs = path, path / ".jobs"

    def at_work(self) -> str | None:
        """The launch that may work here."""
        with contextlib.suppress(FileNotFoundError):
            return (self.jobs / "launch").read_text()
        return None

    def begin(self, launch: str) -> None:
        replace_file(self.jobs / "launch", launch.encode())

    def dismiss(self) -> None:
        """No launch may work any more."""
        (self.jobs / "launch").unlink(missing_ok=True)

    def add(self, job: Job) -> None:
        (self.jobs / job.key).mkdir(exist_ok=True)
        text = yaml.safe_dump(job.config.plain(), sort_keys=False, allow_unicode=True)
        replace_file(self.jobs / job.key / "job.yaml", text.encode())

    def job(self, key: str) -> dict[str, Any]:
        """A job's configuration."""
        return plain.load(self.jobs / key / "job.yaml")

    def tried(self, key: str) -> bool:
        """Whether a process has been at this job already."""
        return (self.jobs / key / LOCK).is_file()

    def end(self, key: str) -> End | None:
        """How a job ended last, if it did."""
        with contextlib.suppress(InputError, TypeError):  # none, or not one of ours
            return End(**RunFolder(self.jobs / key).read_json("end.json"))
        return None

    def write_end(self, key: str, end: End) -> None:
        RunFolder(self.jobs / key).write_json("end.json", end._asdict())

    def done(self, key: str) -> End | None:
        """How a job ended, if there is nothing left to do."""
        end = self.end(key)
        if end and end.outcome == INFEASIBLE:
            return end
        if end and end.outcome == FINISHED and (self.path / str(end.folder) / "summary.json").is_file():
            return end
        return None

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Be the one process that does this job; False if another one is."""
        folder = RunFolder(self.jobs / key)
        try:
            folder.lock()
        except InputError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            yield False
        else:
            with folder:
                yield True

    def running(self, key: str) -> bool:
        with self.locked(key) as free:
            return not free

    def write(self, jobs: list[Job], ends: dict[str, End]) -> None:
        """`sweep.json`."""
        rows = []
        for job in jobs:
            end = ends.get(job.key, End("", MISSING))
            row = {"overrides": job.overrides, "outcome": end.outcome, "folder": end.folder, "error": end.error}
            rows.append({**row, "traceback": end.traceback} if end.traceback else row)
        RunFolder(self.path).write_json("sweep.json", {"jobs": rows})


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """What makes a run the same run, wherever it is kept."""
    return {key: value for key, value in config.items() if key not in ("runs", "progress")}
