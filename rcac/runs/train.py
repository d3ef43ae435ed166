"""One training from its configuration to its result, in a run folder or in memory.

The command line (`rcac.cli`) and `rcac.train` come through here.
"""

import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rcac.errors import InputError, needs
from rcac.files import replace_file
from rcac.learner import State
from rcac.runs import config as configuration
from rcac.runs import modules as modules_of_ids
from rcac.runs.build import Built, Modules, build
from rcac.runs.checkpoint import clear_left_overs, latest
from rcac.runs.config import Config
from rcac.runs.environments import env_label
from rcac.runs.failures import explained
from rcac.runs.folder import RunFolder
from rcac.runs.loggers import Loggers, MemoryLogger, RunInfo
from rcac.runs.loggers.csv import FILE as TABLE
from rcac.runs.loggers.csv import read_metrics
from rcac.runs.loop import Callback, Outcome, TrainingStopped, run
from rcac.runs.saving import Checkpoints
from rcac.runs.signals import StopRequest

CHECKPOINTS = 20  # in a run, unless checkpoint_every says otherwise
MakeCallbacks = Callable[[Built], Sequence[Callback]]  # further callbacks, of what was built


def _none(built: Built) -> Sequence[Callback]:
    return ()


class Trained(NamedTuple):
    """A run in its folder."""

    outcome: Outcome
    folder: Path
    summary: dict[str, Any]  # empty if it was stopped before its first step
    progress: bool  # whether it was to be shown
    policy: State | None = None  # None if it was stopped before its first step
    history: dict[str, np.ndarray] = {}  # every metric by name, a value for each step  # noqa: RUF012
    strict: bool = False  # whether a policy over budget is a failure


class TrainedInMemory(NamedTuple):
    outcome: Outcome
    summary: dict[str, Any]
    policy: State | None
    history: dict[str, np.ndarray]


def train(
    config: Config,
    folder: str | Path | None = None,
    *,
    modules: Modules = Modules(),
    callbacks: MakeCallbacks = _none,
) -> Trained:
    """Train as configured, in a new folder below `config.runs` (or in `folder`). What can be wrong with the input is
    found before there is a folder."""
    built = build(config, modules)
    try:
        if folder is not None:
            place = RunFolder.at(folder)
        else:
            place = RunFolder.create(config.runs, env_label(config.env), config.algo["name"], config.seed)
        try:
            place.write_text(configuration.FILE, config.text())
        except BaseException:
            place.discard()
            raise
        modules_of_ids.remember(config.env.id, place.path)
        return _illustrated(config, built, run_in_folder(config, built, place, callbacks(built)))
    finally:
        built.close()


def resume(
    path: str | Path,
    progress: bool | None = None,
    *,
    modules: Modules = Modules(),
    callbacks: MakeCallbacks = _none,
) -> Trained:
    """Continue a run from its last checkpoint, as it was configured."""
    folder = RunFolder.open(path)
    config = configuration.read_config(folder.path)
    modules_of_ids.admit(config.env.id, folder.path)
    config = replace(config, progress=config.progress if progress is None else progress)
    built = build(config, modules)
    try:
        return _illustrated(config, built, run_in_folder(config, built, folder, callbacks(built), resume=True))
    finally:
        built.close()


def train_in_memory(
    config: Config, *, modules: Modules = Modules(), callbacks: MakeCallbacks = _none
) -> TrainedInMemory:
    """Train as configured, and write nothing."""
    built, memory = build(config, modules), MemoryLogger()
    learner, start = built.learner, time.monotonic()
    try:
        with explained(learner, None):
            parts = [*callbacks(built), Loggers({"memory": memory}), *_view(config)]
            outcome = run(learner, parts)
            if not learner.position:
                return TrainedInMemory(outcome, {}, None, {})
            summary = _summary(built, outcome, time.monotonic() - start)
            return TrainedInMemory(outcome, summary, built.policy(), memory.columns())
    finally:
        built.close()


def run_in_folder(
    config: Config, built: Built, folder: RunFolder, callbacks: Sequence[Callback] = (), *, resume: bool = False
) -> Trained:
    """Train what was built, and leave checkpoints, metrics, policy and summary in `folder`, which is closed then."""
    learner, memory = built.learner, MemoryLogger()
    inexact: dict[str, str] = {}
    every = config.checkpoint_every or max(1, learner.total // CHECKPOINTS)
    checkpoints = Checkpoints(folder.path, built.identity, every, config.keep)
    with folder, StopRequest() as stop, explained(learner, folder.path):
        try:
            folder.lock()
            clear_left_overs(folder.path)
            if resume and latest(folder.path) is not None:
                _warn(checkpoints.resume(learner))
                if reason := getattr(learner, "inexact", None):
                    inexact = {"resumed": f"{reason}: new episodes began"}
                    _warn([inexact["resumed"]])
            else:  # or killed before its first checkpoint
                checkpoints.save(learner)
            info = RunInfo(folder.path, built.labels, config.plain(), learner.position if resume else None)
            loggers = Loggers.open(config.loggers, info, built.draw, built.images_every)
        except BaseException:
            folder.discard()  # a start that failed; an opened folder is left as it is
            raise
        checkpoints.sync = loggers.sync
        try:
            keeper = Loggers({"memory": memory})
            outcome = run(learner, [*callbacks, loggers, keeper, checkpoints, *_view(config)], stop)
        except InputError as error:  # an environment broke its word in the middle of the run
            raise TrainingStopped(f"{error}; the last good checkpoint is {latest(folder.path)}") from error
        _warn(loggers.failed)
        if learner.position == 0:
            return Trained(outcome, folder.path, {}, config.progress)
        policy, summary = built.policy(), _summary(built, outcome, loggers.wall_time)
        summary["run"] |= inexact
        about = {"identity": checkpoints.identity, "hyperparameters": config.plain(), **inexact}
        folder.write_policy(policy, about)
        folder.write_json("summary.json", summary)
        history = memory.columns()
        if "csv" in config.loggers:
            try:
                history = read_metrics(folder.path / TABLE)
            except InputError as error:  # damaged by another; everything else is written
                _warn([f"no plots: {error}"])
                history = {}
        summary = folder.read_json("summary.json")
    return Trained(outcome, folder.path, summary, config.progress, policy, history, config.strict)


def _illustrated(config: Config, built: Built, done: Trained) -> Trained:
    """A run's plots and, of a tabular policy, its plain NumPy arrays."""
    if done.policy is not None:
        from rcac.runs import plots  # matplotlib takes a second to load, which is better spent now than before

        if done.policy.data["kind"] == "tabular":
            content = io.BytesIO()
            np.savez(content, **done.policy.tensors)  # type: ignore[arg-type]
            replace_file(done.folder / "policy.npz", content.getvalue())
        title = f"{env_label(config.env)}, {config.algo['name']}, seed {config.seed}"
        try:
            (done.folder / "plots").mkdir(exist_ok=True)
            if len(done.history.get("position", ())):
                plots.training(done.history, done.summary, title, built.learner.unit, done.folder / "plots")
            built.illustrate(title, done.folder / "plots")
        except OSError as error:
            _warn([f"no plots: {error.strerror}: {error.filename}"])
    return done


def _view(config: Config) -> list[Callback]:
    if not config.progress:
        return []
    with needs("progress"):
        from rcac.runs.progress import ProgressView, console

    return [ProgressView(console())]


def _summary(built: Built, outcome: Outcome, wall_time: float) -> dict[str, Any]:
    ending = {"finished": built.learner.finished, "reason": outcome.reason, "position": outcome.position}
    found = built.learner.summary()
    if not built.learner.finished:  # by a signal or a callback, of which learners know nothing
        found |= {key: outcome.reason for key in ("reason", "stop_reason") if key in found}
    return {**found, "run": {**ending, "wall_time": round(wall_time, 3)}}


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)
