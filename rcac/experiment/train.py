"""One training from its configuration to its run folder."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import yaml
from rich.console import Console

from rcac.errors import InputError
from rcac.experiment import config as configuration
from rcac.experiment.build import Built, build
from rcac.experiment.checkpoint import latest
from rcac.experiment.environments import env_label
from rcac.experiment.metrics import read_metrics
from rcac.experiment.progress import ProgressView
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.runner import Outcome, TrainingStopped, run
from rcac.experiment.schema import Config
from rcac.learner import Learner, Step

CHECKPOINTS = 20  # in a run, unless checkpoint_every says otherwise


class Trained(NamedTuple):
    outcome: Outcome
    folder: Path
    summary: dict[str, Any]  # empty if it was stopped before its first step
    progress: bool  # whether it was to be shown


def train(config: Config) -> Trained:
    """Train as configured. What can be wrong with the input is found before there is a folder."""
    built = build(config)
    try:
        folder = RunFolder.create(config.runs, env_label(config.env), config.algo["name"], config.seed)
        try:
            folder.write_text(configuration.FILE, yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True))
        except BaseException:
            folder.discard()
            raise
        return _run(config, built, folder, resume=False)
    finally:
        built.close()


def resume(path: str, progress: bool | None = None) -> Trained:
    """Continue a run from its last checkpoint, as it was configured."""
    folder = RunFolder.open(path)
    config = configuration.compose([], configuration.load(folder.path))
    config = replace(config, progress=config.progress if progress is None else progress)
    built = build(config)
    try:
        return _run(config, built, folder, resume=True)
    finally:
        built.close()


def _run(config: Config, built: Built, folder: RunFolder, *, resume: bool) -> Trained:
    learner, console = built.learner, Console(stderr=True)
    if resume and config.progress and not learner.state().data.get("exact", True):
        line = "its environment cannot be put down in the middle of an episode: new episodes begin"
        console.print(line, soft_wrap=True)
    watched = Watched(learner, config.progress, console)
    with folder:
        try:
            with watched:
                outcome = run(
                    cast(Learner, watched),
                    folder,
                    checkpoint_every=config.checkpoint_every or max(1, learner.total // CHECKPOINTS),
                    keep=config.keep,
                    identity=built.identity,
                    progress=False,  # shown by `Watched`, and the result by the command
                    hyperparameters=config.plain(),
                    resume=resume,
                    images_every=built.images_every,
                    console=console,
                )
        except InputError as error:
            if watched.began:  # an environment broke its word in the middle of the run
                raise TrainingStopped(f"{error}; the last good checkpoint is {latest(folder.path)}") from error
            raise
        if learner.position == 0:
            return Trained(outcome, folder.path, {}, config.progress)
        summary = folder.read_json("summary.json")
        _write_table(folder)
        from rcac.experiment import plots  # matplotlib takes a second to load, which is better spent now than before

        title = f"{env_label(config.env)}, {config.algo['name']}, seed {config.seed}"
        plots.training(read_metrics(folder.path / "metrics.csv"), summary, title, learner.unit, folder)
    return Trained(outcome, folder.path, summary, config.progress)


class Watched:
    """A learner whose steps are shown as they are taken. The display begins with the first, which may be in the middle
    of a run, and ends with the context."""

    def __init__(self, learner: Learner, enabled: bool, console: Console) -> None:
        self._learner, self._enabled, self._console = learner, enabled, console
        self._view: ProgressView | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    @property
    def began(self) -> bool:
        return self._view is not None

    def step(self) -> Step:
        if self._view is None:
            self._view = ProgressView(self._learner, enabled=self._enabled, console=self._console).__enter__()
        step = self._learner.step()
        self._view.update(step)
        return step

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *error: object) -> None:
        if self._view is not None:
            self._view.__exit__(*error)


def _write_table(folder: RunFolder) -> None:
    """A tabular policy as plain NumPy arrays too."""
    tensors, card = folder.read_policy()
    if card["kind"] == "tabular":
        content = io.BytesIO()
        np.savez(content, **tensors)  # type: ignore[arg-type]
        folder.write_bytes("policy.npz", content.getvalue())
