"""The processes that do a sweep's jobs:

the command  →  `launch`, one process in which Hydra sweeps  →  its launcher's workers, `run_job`  →  a job each, `job_process`
"""

import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rcac.config import app
from rcac.config import compose as configuration
from rcac.config.schema import Config
from rcac.config.sweep.folder import (
    FAILED,
    FINISHED,
    INFEASIBLE,
    INFEASIBLE_OBJECTIVE,
    RUNNING,
    STOPPED,
    JobRecord,
    SweepFolder,
    job_key,
    settings,
)
from rcac.errors import Infeasible, InputError
from rcac.runs import checkpoint, modules
from rcac.runs.failures import user_error
from rcac.runs.folder import RunFolder
from rcac.runs.signals import StopRequest

SECONDS = 0.3  # between two looks at whether to go on


# Hydra's process


def launch() -> None:
    """Sweep. What to do comes in JSON on stdin."""
    request = json.load(sys.stdin)
    path, name = request["folder"], request["launch"]
    threading.Thread(target=_end_with_parent, args=(request["parent"], SweepFolder(Path(path))), daemon=True).start()
    if request["ray"]:
        from rcac.config.ray import use_ray

        use_ray()
    app.run_hydra(app.Command(request["options"], request["overrides"], None), task(path, name))


def _end_with_parent(parent: int, folder: SweepFolder) -> None:
    """When the command is killed, start no more jobs; running ones save a checkpoint and stop."""
    while os.getppid() == parent:
        time.sleep(SECONDS)
    folder.end_launch()


def task(path: str, launch: str) -> Callable[[DictConfig], float | None]:
    return lambda config: run_job(path, launch, config)


# A worker's process


class JobRequest(NamedTuple):
    path: str  # of the sweep's folder
    launch: str
    key: str
    overrides: list[str]
    config: Config
    folder: str | None  # for the run, if hydra.sweep.subdir names it


def run_job(path: str, launch: str, config: DictConfig) -> float | None:
    """Do a job in a process of its own, so that the worker survives its crash and can record it. Returns the objective."""
    folder, hydra = SweepFolder(Path(path)), HydraConfig.get()
    overrides = [str(text) for text in hydra.overrides.task]
    found = replace(configuration.finish(config), runs=path, progress=False)
    key = job_key(found)
    if record := folder.done(key):
        return record.objective
    if folder.active_launch() != launch:
        return None
    exact = None if hydra.sweep.subdir == "." else hydra.runtime.output_dir
    process = _start(job := JobRequest(path, launch, key, overrides, found, exact))
    process.join()
    record = folder.read(key)
    if folder.active_launch() == launch and (record is None or record.launch != launch or record.outcome == RUNNING):
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        record = JobRecord(launch, overrides, FAILED, _resumable(job), f"its process {how}")
        folder.write(key, record)
    return record.objective if record else None


def _start(job: JobRequest) -> BaseProcess:
    """Fork a job's process from a server that has loaded what jobs need. It inherits neither the launcher's start method
    nor its main module, which would be imported again."""
    multiprocessing.set_start_method(None, force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rcac.config.sweep.worker", "rcac.runs.train", "rcac.runs.plots"])
    process = context.Process(target=job_process, args=(job,))
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    return process


# A job's process


def job_process(job: JobRequest) -> None:
    """Train, or resume an interrupted run of the same job, and record the outcome."""
    folder, over = SweepFolder(Path(job.path)), threading.Event()
    with StopRequest():  # around the training's own, so that a signal does not end this process before it has recorded
        threading.Thread(target=_watch, args=(folder, job.launch, over), daemon=True).start()
        while folder.active_launch() == job.launch:  # until one of an earlier launch, told to stop as well, has gone
            with folder.locked(job.key, timeout=SECONDS) as mine:
                if mine and not folder.done(job.key):
                    folder.write(job.key, JobRecord(job.launch, job.overrides, RUNNING))
                    folder.write(job.key, _train_job(job))
                if mine:
                    break
        over.set()


def _watch(folder: SweepFolder, launch: str, over: threading.Event) -> None:
    """Send SIGTERM to this process once its launch has ended or its worker is dead, so that the training stops after its
    current step. Repeated, because a signal that comes before the training has begun is lost."""
    parent = multiprocessing.parent_process()
    while not over.is_set():
        dead = parent is not None and bool(wait([parent.sentinel], timeout=SECONDS))
        if not over.wait(SECONDS if dead or parent is None else 0) and (dead or folder.active_launch() != launch):
            os.kill(os.getpid(), signal.SIGTERM)


def _train_job(job: JobRequest) -> JobRecord:
    from rcac.runs import train as training

    record = JobRecord(job.launch, job.overrides, FAILED)
    try:
        if begun := _resumable(job):
            modules.load(job.config.env.id or "")
            done = training.resume(str(Path(job.path) / begun), progress=False)
        else:
            done = training.train(job.config, None if job.folder is None else Path(job.folder))
        outcome = FINISHED if done.outcome.reason == "finished" else STOPPED
        folder = os.path.relpath(done.folder, job.path)
        return record._replace(outcome=outcome, folder=folder, objective=objective(done.summary))
    except Infeasible as error:
        return record._replace(
            outcome=INFEASIBLE, error=" ".join(str(error).split()), objective=2 * INFEASIBLE_OBJECTIVE
        )
    except BaseException as error:
        known = user_error(error)
        line = known.line if known else " ".join(f"{type(error).__name__}: {error}".split())
        details = [] if known else "".join(traceback.format_exception(error)).splitlines()
        return record._replace(folder=_resumable(job), error=line, traceback=details)


def objective(summary: dict[str, Any]) -> float | None:
    """The return of the final policy. For one over budget, a value below every return, lower for a larger excess."""
    from rcac.runs.results import terms

    found = terms(summary) if summary else []
    if not found or summary["feasible"] is None:
        return None
    excess = sum(abs(term.value - term.budget) for term in found if not term.met and term.budget is not None)
    if not summary["feasible"]:
        return INFEASIBLE_OBJECTIVE * (1 + excess / (1 + excess))
    return found[0].value if found[0].label == "return" else -found[0].value


def _resumable(job: JobRequest) -> str | None:
    """The folder of the latest run with the job's configuration, this version and a checkpoint; None if there is none."""
    root, algo, seed = Path(job.path), job.config.algo["name"], job.config.seed
    paths = sorted(root.glob(f"*/{algo}/*-seed{seed}*"), reverse=True) if job.folder is None else [Path(job.folder)]
    for path in paths:
        with contextlib.suppress(InputError):  # not the folder of a run
            version = RunFolder.open(path).read_json("versions.json").get("rcac")
            same = settings(configuration.load(path)) == settings(job.config.plain())
            if same and version == importlib.metadata.version("rcac") and checkpoint.latest(path):
                return os.path.relpath(path, root)
    return None
