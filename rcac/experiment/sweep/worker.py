"""The processes that do a sweep's jobs:

the command  →  `launch`, one process with a launcher of Hydra  →  its workers, `perform`  →  a job each, `work`
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
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from hydra import compose, initialize
from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext
from omegaconf import DictConfig

from rcac.errors import Infeasible, InputError
from rcac.experiment import checkpoint
from rcac.experiment import config as configuration
from rcac.experiment.cli import complaint
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.signals import StopRequest
from rcac.experiment.sweep.folder import FAILED, FINISHED, INFEASIBLE, STOPPED, End, SweepFolder, settings

SECONDS = 0.5  # between two looks at whether to go on
SETTINGS = (
    "hydra.job.chdir=false",
    "hydra.output_subdir=null",
    "hydra.sweep.subdir=.",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
)


# The launcher's process


def launch() -> None:
    """Hand jobs to a launcher, and wait for it. What to do comes in JSON on stdin."""
    request = json.load(sys.stdin)
    folder = SweepFolder(Path(request["folder"]))
    config, context = compose_launcher(request["options"], folder.jobs)
    task = partial(perform, request["folder"], request["launch"])
    launcher = Plugins.instance().instantiate_launcher(context, task, config)
    launcher.launch([[f"job='{key}'"] for key in request["jobs"]], initial_job_idx=0)
    for left_over in folder.jobs.glob(".submitit/**/*.pkl"):
        left_over.unlink()


class Composed(NamedTuple):
    config: DictConfig
    context: HydraContext


def compose_launcher(options: Sequence[str], home: Path) -> Composed:
    """Hydra's configuration for jobs that have one key, `job`, with the launcher that `options` choose and set."""
    ConfigStore.instance().store(name="rcac_sweep", node={"job": ""})
    quoted = str(home).replace("\\", "\\\\").replace("'", "\\'")
    with initialize(version_base="1.3", config_path=None, job_name="rcac"):
        overrides = [*SETTINGS, f"hydra.sweep.dir='{quoted}'", *options]
        config = compose("rcac_sweep", overrides=overrides, return_hydra_config=True)
        return Composed(config, HydraContext(GlobalHydra.instance().config_loader(), Callbacks()))


# A worker's process


def perform(path: str, launch: str, task: DictConfig) -> None:
    """Do a job in a process of its own: whatever happens to that one, the worker lives to tell."""
    folder, key = SweepFolder(Path(path)), task.job
    if folder.at_work() != launch:
        return
    process = _start(path, launch, key)
    process.join()
    end = folder.end(key)
    if folder.at_work() == launch and (end is None or end.launch != launch):
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        folder.write_end(key, End(launch, FAILED, _begun(folder, key), f"its process {how}"))


def _start(*arguments: str) -> BaseProcess:
    """A job's process, a copy of a server that has loaded what jobs need. It inherits nothing of the launcher's: neither
    its way to start processes, nor the main module, which would be loaded again."""
    multiprocessing.set_start_method(None, force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rcac.experiment.sweep.warm"])
    process = context.Process(target=work, args=arguments)
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    return process


# A job's process


def work(path: str, launch: str, key: str) -> None:
    """Train, or go on with what was trained before, and write down how it ended."""
    folder, over = SweepFolder(Path(path)), threading.Event()
    tried = folder.tried(key)
    with StopRequest():  # around the training's own: a signal does not end this process before its last word
        threading.Thread(target=_watch, args=(folder, launch, over), daemon=True).start()
        while folder.at_work() == launch:
            with folder.locked(key) as mine:
                if mine:
                    folder.write_end(key, _work(folder, launch, key, tried))
                    break
            time.sleep(SECONDS)  # until one of an earlier launch, told to stop as well, has gone
        over.set()


def _watch(folder: SweepFolder, launch: str, over: threading.Event) -> None:
    """SIGTERM to ourselves once this launch may not work any more, so that the training stops after its present step;
    again and again, because one that comes before the training is lost."""
    while not over.wait(SECONDS):
        if folder.at_work() != launch:
            os.kill(os.getpid(), signal.SIGTERM)


def _work(folder: SweepFolder, launch: str, key: str, tried: bool) -> End:
    from rcac.experiment import train as training

    try:
        if begun := _begun(folder, key) if tried else None:
            done = training.resume(str(folder.path / begun), progress=False)
        else:
            done = training.train(configuration.compose([], folder.job(key)))
        outcome = FINISHED if done.outcome.reason == "finished" else STOPPED
        return End(launch, outcome, str(done.folder.relative_to(folder.path)))
    except Infeasible as error:
        return End(launch, INFEASIBLE, error=" ".join(str(error).split()))
    except BaseException as error:
        known = complaint(error)
        line = known.line if known else " ".join(f"{type(error).__name__}: {error}".split())
        details = [] if known else "".join(traceback.format_exception(error)).splitlines()
        return End(launch, FAILED, _begun(folder, key), line, details)


def _begun(folder: SweepFolder, key: str) -> str | None:
    """The latest run of a job that can be taken up: of its configuration, by this version, with a checkpoint."""
    job = folder.job(key)
    for path in sorted(folder.path.glob(f"*/{job['algo']['name']}/*-seed{job['seed']}*"), reverse=True):
        with contextlib.suppress(InputError):  # not the folder of a run
            version = RunFolder.open(path).read_json("versions.json").get("rcac")
            same = settings(configuration.load(path)) == settings(job)
            if same and version == importlib.metadata.version("rcac") and checkpoint.latest(path):
                return str(path.relative_to(folder.path))
    return None
