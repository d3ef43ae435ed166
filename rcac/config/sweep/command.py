"""`rcac-train -m`: a run for every combination of the values given, many at a time, in one folder.

Hydra's sweeper expands the values, and one of its launchers runs the jobs. The same command has the same folder, and
does what is missing there; a job that was interrupted goes on from its checkpoint.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from rcac.config import app
from rcac.config.overrides import parse_overrides
from rcac.config.source import GROUPS
from rcac.config.sweep import view
from rcac.config.sweep.folder import (
    FINISHED,
    INFEASIBLE,
    INFEASIBLE_OBJECTIVE,
    MISSING,
    RUNNING,
    STOPPED,
    JobRecord,
    SweepFolder,
    digest,
)
from rcac.config.sweep.jobs import Job, check, expand
from rcac.errors import InputError
from rcac.runs.folder import RunFolder
from rcac.runs.results import shown_path
from rcac.runs.signals import StopRequest

SECONDS = 0.05  # between two looks at what has ended
MAX_LAUNCHES = 4  # at most: a launcher whose worker is killed gives up, and is started again for what is left
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
LAUNCH = "from rcac.config.sweep.worker import launch; launch()"


class Sweep(NamedTuple):
    folder: SweepFolder
    jobs: list[Job]
    known: bool  # whether these are all jobs; a sweeper such as Optuna chooses them as it goes
    request: dict[str, Any]  # for Hydra's process
    progress: bool  # whether it is to be shown
    strict: bool  # whether a policy over budget is a failure


def main(command: app.Command) -> int:
    """0: every job is finished; 3: but for those that are infeasible; 5: with strict=true, but for those over budget."""
    sweep = read(command)
    folder = sweep.folder
    check(job for job in sweep.jobs if not folder.done(job.key))
    try:
        folder.jobs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"runs folder {folder.path}: cannot be written ({error.strerror}: {error.filename})"
        ) from error
    with RunFolder(folder.path) as home, StopRequest() as stop:
        home.lock()
        before, launcher_error = sum(bool(folder.done(job.key)) for job in sweep.jobs), None
        try:
            if not sweep.known or before < len(sweep.jobs):
                shown = view.SweepView(folder.path, len(sweep.jobs) if sweep.known else None, before, sweep.progress)
                launcher_error = launch_until_done(sweep, shown.ended, stop)
        finally:
            rows = _rows(sweep)
            home.write_json("sweep.json", {"jobs": [record._asdict() for _, record in rows]})
    if sweep.progress:
        view.console().print(view.result_table(folder.path, rows))
    view.print_unfinished(rows, stopped=stop.received is not None, launcher=launcher_error)
    print(shown_path(folder.path))
    unfinished = {record.outcome for _, record in rows} - {FINISHED}
    if unfinished == {INFEASIBLE} and not launcher_error:
        return 3
    if unfinished or launcher_error:
        return stop.exit_code or 1
    within = all(record.objective is not None and record.objective > INFEASIBLE_OBJECTIVE for _, record in rows)
    return 0 if within or not sweep.strict else 5


def _rows(sweep: Sweep) -> list[tuple[str, JobRecord]]:
    """Every job's label and record, in order."""
    records = sweep.folder.records()
    for key, record in records.items():
        if record.outcome == RUNNING:
            records[key] = record._replace(outcome=MISSING, error="its worker was lost")
    if not sweep.known:
        return [(" ".join(record.overrides), record) for record in records.values()]
    missing = JobRecord("", [], MISSING)
    return [(job.label, records.get(job.key, missing)._replace(overrides=job.overrides)) for job in sweep.jobs]


# What is asked for


def read(command: app.Command) -> Sweep:
    """Every job and the launcher; nothing is written."""
    own: list[Override] = []
    ours: list[Override] = []
    for override in parse_overrides(command.overrides):
        (own if override.is_hydra_override() else ours).append(override)
        if override.key_or_group == "resume":
            raise InputError("resume: given with -m, which resumes by itself what was interrupted")
        if override.is_hydra_override() and override.is_sweep_override():
            raise InputError(f"{override.input_line}: several values given, one expected")
    sample = expand(ours, command.folders, sample=True)[0]
    hydra = app.compose_all([*(str(o.input_line) for o in own), *sample.overrides], command.folders).hydra
    if hydra.launcher.get("n_jobs") == 0:
        raise InputError("hydra.launcher.n_jobs: 0 given, how many at a time expected, or -1 for as many as cores")
    if (trials := hydra.sweeper.get("n_trials")) is not None and trials < 1:
        raise InputError(f"hydra.sweeper.n_trials: {trials} given, a whole number ≥ 1 expected")
    given = [override.key_or_group for override in own]
    known = hydra.runtime.choices["hydra/sweeper"] == "basic" and hydra.sweeper.params is None
    jobs = expand(ours, command.folders) if known else [sample]
    chosen = "hydra.sweep.dir" in given or hydra.sweep.dir != "."
    folder = Path(hydra.sweep.dir if chosen else f"{sample.config.runs}/sweeps/{_usual_name(ours)}").resolve()
    texts = [*(str(o.input_line) for o in own), *_for_hydra(ours)]
    if "hydra/hydra_logging" not in given:
        texts.append("hydra/hydra_logging=default")
    if not chosen:
        texts.append("hydra.sweep.dir='" + str(folder).replace("\\", "\\\\").replace("'", "\\'") + "'")
    launcher = hydra.runtime.choices["hydra/launcher"]
    request = {"folder": str(folder), "options": command.options, "overrides": texts, "ray": launcher == "ray"}
    return Sweep(SweepFolder(folder), jobs, known, request, sample.config.progress, sample.config.strict)


def _for_hydra(overrides: list[Override]) -> list[str]:
    """Hydra applies single values before it sweeps, when the keys of a swept choice are not there yet; so sweep these too,
    over one value."""
    choices = any(o.is_sweep_override() and o.key_or_group in GROUPS for o in overrides)
    texts = []
    for o in overrides:
        line = str(o.input_line)
        below = o.key_or_group.split(".")[0] in GROUPS and "." in o.key_or_group
        if choices and below and not o.is_sweep_override() and not o.is_delete():
            key, _, value = line.partition("=")
            line = f"{key}=choice({value})"
        texts.append(line)
    return texts


def _usual_name(overrides: list[Override]) -> str:
    """The environment, what is varied, and a digest of the command: `cartpole-algo-seed-1f2e3d4c`."""
    telling = [override for override in overrides if override.key_or_group not in ("runs", "progress")]
    words = [str(o.value()) for o in telling if o.key_or_group == "env" and not o.is_sweep_override()]
    words += [o.key_or_group for o in telling if o.is_sweep_override()]
    readable = re.sub(r"[^\w.]+", "-", "-".join(words))[:60].strip("-.")
    return f"{readable}-{digest(sorted(str(o.input_line) for o in telling), 8)}"


# Hydra's process


def launch_until_done(sweep: Sweep, report: Callable[[str, JobRecord], None], stop: StopRequest) -> str | None:
    """Have Hydra run the unfinished jobs, and report each as it ends. Returns the last line of a launcher that failed.

    On a request to stop, running jobs save a checkpoint and no new ones start. If a worker is killed and the launcher
    gives up, the remaining jobs are launched again.
    """
    launcher_error, begun = None, False
    for _ in range(MAX_LAUNCHES):
        launch = secrets.token_hex(8)
        launcher_error = _launch(sweep, launch, report, stop)
        begun = begun or any(record.launch == launch for record in sweep.folder.records().values())
        if launcher_error is None or stop.received or not begun:  # one that never began fails again
            break
    return launcher_error


def _launch(sweep: Sweep, launch: str, report: Callable[[str, JobRecord], None], stop: StopRequest) -> str | None:
    folder, labels = sweep.folder, {job.key: job.label for job in sweep.jobs if sweep.known}
    seen: dict[str, int] = {}
    folder.begin_launch(launch)
    with (folder.jobs / "launcher.log").open("w+b") as log:
        process = _start({**sweep.request, "launch": launch, "parent": os.getpid()}, log)
        try:
            while True:
                # asked before the look at what has ended, which then misses nothing; a launcher may end before its jobs
                over = process.poll() is not None and not any(map(folder.running, seen))
                if stop.received:
                    folder.end_launch()
                for path in folder.jobs.glob("*.json"):
                    changed = path.stat().st_mtime_ns
                    record = folder.read(path.stem) if seen.get(path.stem) != changed else None
                    if record and record.launch == launch:
                        seen[path.stem] = changed
                        if record.outcome != RUNNING and (record.outcome != STOPPED or stop.received):
                            report(labels.get(path.stem, " ".join(record.overrides)), record)
                if over:
                    break
                time.sleep(SECONDS)
        except BaseException:  # Ctrl-C for the second time
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            folder.end_launch()
            process.wait()
            for left_over in folder.path.glob(".submitit/**/*.pkl"):
                left_over.unlink()
        log.seek(0)
        lines = log.read().decode(errors="replace").split("\n")
    words = next((line for line in reversed(lines) if line.strip()), f"exit code {process.returncode}")
    return " ".join(words.split()) if process.returncode else None


def _start(request: dict[str, Any], log: Any) -> subprocess.Popen:
    """Hydra's process, in a session of its own, so that a terminal's Ctrl-C reaches it through us only. It and the
    workers find what we find, and compute with one thread each unless told."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    ours = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**dict.fromkeys(THREADS, threads), **os.environ, **ours},
        start_new_session=True,
    )
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # type: ignore[union-attr]
        pipe.write(json.dumps(request).encode())
    return process
